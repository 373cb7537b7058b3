#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# go_build.sh MODULE PROGRAM KEPT: builds the Go module in folder MODULE to PROGRAM, and its tests to PROGRAM_test.
# Fetched modules and compiled packages are kept in folder KEPT. Called by hedgerow_go.cmake.
#
# Without Go, or where a module cannot be fetched, it writes the reason to PROGRAM.missing and succeeds without having
# made anything, so that the next build tries again. Every other fault ends the build: a program that does not compile, a
# warning of `go vet`, and above all a module that is not the one that go.sum names.
set -euo pipefail

readonly module=$1 program=$2 kept=$3
readonly oldest_minor=19 fetch_within_s=240
name=$(basename "$program")

# A program of older sources may not stay: it would be taken for this one.
rm -f "$program" "${program}_test" "$program.missing"

missing() {
  printf '%s is not built: %s\n' "$name" "$*" | tee "$program.missing"
  exit 0
}

# No other Go may be fetched and used in the place of the one that is here.
export GOTOOLCHAIN=local GOWORK=off GO111MODULE=on CGO_ENABLED=0
export GOFLAGS="-mod=readonly -modcacherw -trimpath -buildvcs=false"
export GOPATH="$kept" GOMODCACHE="$kept/mod" GOCACHE="$kept/cache"

# Debian's own first, as with Python; what else PATH calls go is asked only where that is missing or too old.
go=""
for candidate in /usr/bin/go "$(command -v go || true)"; do
  [ -x "$candidate" ] || continue
  minor=$("$candidate" env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
  if [ "${minor:-0}" -ge $oldest_minor ]; then
    go=$candidate
    break
  fi
done
[ -n "$go" ] || missing "there is no Go here, 1.$oldest_minor or newer (Debian: golang-go)"

mkdir -p "$kept" "$(dirname "$program")"
cd "$module"
# All that the program and its tests need, looked up without compiling anything.
status=0
fetched=$(timeout -k 5 $fetch_within_s "$go" list -deps -test ./... 2>&1 >/dev/null) || status=$?
if [ "$status" -ne 0 ]; then
  unreachable='(Get|reading) "?https?://|dial tcp|lookup disabled by GOPROXY=off|could not read Username|unable to access'
  if [ "$status" -eq 124 ] || grep -qE "$unreachable" <<<"$fetched" && ! grep -q 'SECURITY ERROR' <<<"$fetched"; then
    # The first line that names the fault; what follows repeats it for each module.
    reason=$(grep -m 1 -E "$unreachable" <<<"$fetched" || echo "no answer within $fetch_within_s s")
    missing "the Go modules it needs cannot be fetched (is there a network, or a GOPROXY?): $reason"
  fi
  printf '%s\n' "$fetched" >&2
  exit 1
fi
"$go" vet ./...
"$go" test -c -o "${program}_test" .
"$go" build -o "$program" .
