#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tries Hedgerow the way a newcomer does: makes a bare Debian (or this machine's Ubuntu) with debootstrap, clones the
# committed tree into it and runs a command there. For developers, after a change to ./dev or the packages.
# Mounts and processes live in namespaces of their own, so they vanish when the trial ends, however it ends; the
# folder is removed afterwards unless --keep is given.
set -euo pipefail

BASE=${HEDGEROW_TRIAL_DIR:-/var/tmp/hr-chroot}
SOURCE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
SUITE=""
KEEP=""
ROOT=""
CONTAINED=""
UNSHARE_OPTIONS=(--mount-proc)

usage() {
  cat <<'TEXT'
usage: deploy/dev/chroot_trial.sh [--suite SUITE] [--keep] [COMMAND...]

Without a COMMAND it runs the README's two: ./dev demo, then ./dev test. SUITE is the host's own release unless
given (bookworm, trixie, noble). Downloads are kept for the next trial in /var/tmp/hr-chroot/cache;
HEDGEROW_TRIAL_DIR names another folder. Needs root and debootstrap.
TEXT
}

fail() {
  printf 'chroot_trial: %s\n' "$*" >&2
  exit 1
}

# The mirror that apt on this machine uses for its own distribution.
host_mirror() {
  local codename
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  # The $(...) here are apt's own placeholders.
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v codename="$codename" '$2 == codename && $3 == "main" { print $1; exit }'
}

# Unpacks the bare system, from the cache after the first time.
make_root() {
  local mirror tarball="$BASE/cache/base-$SUITE.tar"
  mirror=$(host_mirror)
  [ -n "$mirror" ] || fail "found no mirror for this distribution in apt's configuration"
  mkdir -p "$BASE/cache/debs" "$BASE/cache/archives-$SUITE"
  ROOT=$(mktemp -d "$BASE/$SUITE.XXXXXX")
  chmod 755 "$ROOT"
  if [ ! -f "$tarball" ]; then
    printf 'making a bare %s\n' "$SUITE"
    contained debootstrap --variant=minbase --cache-dir="$BASE/cache/debs" "$SUITE" "$ROOT" "$mirror" \
      >"$BASE/debootstrap.log" || fail "debootstrap failed; see $BASE/debootstrap.log"
    tar -C "$ROOT" --one-file-system -cf "$tarball.part" . && mv "$tarball.part" "$tarball"
  else
    tar -C "$ROOT" -xf "$tarball"
  fi
  # How this machine reaches its mirror (proxies, time-outs) is how the trial does, and it trusts whom this machine trusts.
  install -d "$ROOT/usr/local/share/ca-certificates"
  cp /usr/local/share/ca-certificates/*.crt "$ROOT/usr/local/share/ca-certificates/" 2>/dev/null || true
  install -m 600 /dev/null "$ROOT/etc/apt/apt.conf.d/00host"
  apt-config dump | sed -n '/^Acquire::/p' >"$ROOT/etc/apt/apt.conf.d/00host"
  cp -L /etc/resolv.conf "$ROOT/etc/resolv.conf"
  cp /etc/hosts "$ROOT/etc/hosts"
  git clone --quiet --no-hardlinks "$SOURCE" "$ROOT/root/hedgerow"
}

# Runs in its own mount and process namespaces: $1 is the root, $2 the folder of kept packages, the rest the command.
inside() {
  local root=$1 archives=$2
  shift 2
  # Tests make mount namespaces, and only a mount point can be made private: the folder becomes one.
  mount --rbind "$root" "$root"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  # Pins made by the trial go with it.
  if [ -d "$root/sys/fs/bpf" ]; then mount -t bpf bpf "$root/sys/fs/bpf"; fi
  mount -t tmpfs tmpfs "$root/run"
  mount -t tmpfs tmpfs "$root/tmp"
  mount --bind "$archives" "$root/var/cache/apt/archives"
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    TERM="${TERM:-dumb}" ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    ${CI:+CI="$CI"} chroot "$root" /bin/sh -c 'cd /root/hedgerow && exec "$@"' trial "$@"
}

# Called by the traps.
# shellcheck disable=SC2317
take_down() {
  local status=$?
  trap - EXIT INT TERM HUP
  if [ -n "$CONTAINED" ]; then
    kill -KILL "$CONTAINED" 2>/dev/null || true
    wait "$CONTAINED" 2>/dev/null || true
  fi
  if [ -z "$ROOT" ] || [ ! -d "$ROOT" ]; then exit "$status"; fi
  if [ -n "$KEEP" ]; then
    printf 'kept: %s (nothing is mounted in it; remove it with rm -rf --one-file-system %s)\n' "$ROOT" "$ROOT"
  else
    rm -rf --one-file-system "$ROOT"
  fi
  exit "$status"
}

# Runs a command in mount and process namespaces of its own. It is waited for in a way that signals interrupt; killing
# unshare kills the namespace's first process (--kill-child), and with it every other process and mount in there.
contained() {
  local status=0
  unshare --mount --propagation private --pid --fork --kill-child "${UNSHARE_OPTIONS[@]}" "$@" <&0 &
  CONTAINED=$!
  wait "$CONTAINED" || status=$?
  CONTAINED=""
  return "$status"
}

run_trial() {
  UNSHARE_OPTIONS=(--mount-proc="$ROOT/proc")
  contained "$BASH" "${BASH_SOURCE[0]}" --inside "$ROOT" "$BASE/cache/archives-$SUITE" "$@"
}

main() {
  if [ "${1:-}" = --inside ]; then
    shift
    inside "$@"
    return
  fi
  while [ $# -gt 0 ]; do
    case "$1" in
      --suite) SUITE=${2:?} && shift 2 ;;
      --keep) KEEP=yes && shift ;;
      -h | --help) usage && return ;;
      -*) usage >&2 && fail "unknown option $1" ;;
      *) break ;;
    esac
  done
  [ "$(id -u)" -eq 0 ] || fail "needs root"
  command -v debootstrap >/dev/null || fail "needs debootstrap: apt-get install debootstrap"
  SUITE=${SUITE:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
  trap take_down EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  make_root
  if [ $# -eq 0 ]; then
    run_trial sh -c './dev demo && ./dev test'
  else
    run_trial "$@"
  fi
}

# On one line with its end: bash reads a script as it goes, and this file may change (git pull) while it runs.
main "$@"; exit
