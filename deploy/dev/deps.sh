# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the distribution's packages that are missing, and only those; packages.tsv names them. Where nothing is
# missing it asks dpkg and touches neither network nor apt. Called by every command of ./dev that needs them.
# shellcheck source=deploy/dev/services.sh
source "$HEDGEROW_ROOT/deploy/dev/services.sh"

APT_GET=(env LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -o DPkg::Lock::Timeout=300)

# The column of packages.tsv for this machine, or nothing where it is not one we know.
distribution() {
  local id="" version=""
  if [ -r /etc/os-release ]; then
    id=$(sed -n 's/^ID=//p' /etc/os-release | tr -d '"')
    version=$(sed -n 's/^VERSION_ID=//p' /etc/os-release | tr -d '"')
  fi
  case "$id-$version" in
    debian-12 | debian-13 | ubuntu-24.04) say "$id-$version" ;;
    *) return 1 ;;
  esac
}

distribution_text() { sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null | tr -d '"'; }

# packages_of GROUP...: this distribution's package names of the groups.
packages_of() {
  local column
  column=$(distribution) || die "does not know this distribution ($(distribution_text)): it knows Debian 12," \
    "Debian 13 and Ubuntu 24.04. HEDGEROW_SKIP_DEPS=1 goes on with what is installed."
  awk -F'\t' -v wanted="$column" -v groups=" $* " '
    /^#group/ { for (i = 2; i <= NF; i++) if ($i == wanted) at = i; next }
    /^#/ || NF == 0 { next }
    index(groups, " " $1 " ") && $at != "-" { print $at }
  ' "$HEDGEROW_ROOT/deploy/dev/packages.tsv"
}

# Reads names, prints those that dpkg does not have installed.
not_installed() {
  local names=() installed
  mapfile -t names
  [ ${#names[@]} -gt 0 ] || return 0
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${names[@]}" 2>/dev/null |
    sed -n 's/ installed$//p' || true)
  printf '%s\n' "${names[@]}" | grep -vxF -f <(printf '%s\n' "$installed") || true
}

# ensure_packages GROUP...
ensure_packages() {
  local names missing=()
  if [ -n "${HEDGEROW_SKIP_DEPS:-}" ]; then return 0; fi
  names=$(packages_of "$@")
  command -v dpkg-query >/dev/null || die "needs dpkg and apt, which this machine does not have"
  mapfile -t missing < <(not_installed <<<"$names")
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! is_root; then
    warn "these packages are missing: ${missing[*]}"
    die "installing them needs root: sudo ./dev deps"
  fi
  command -v apt-get >/dev/null || die "apt-get is not here, and these packages are missing: ${missing[*]}"
  install_packages "${missing[@]}"
}

install_packages() {
  local newly=("$@")
  refresh_lists_if_needed "$@"
  announce_cost "$@"
  put_service_policy
  if ! run_step packages "installing ${#newly[@]} packages and what they need" \
    "${APT_GET[@]}" --yes --no-install-recommends install "$@"; then
    show_tail packages 20
    die "apt could not install the packages; the whole log is build/log/packages.log"
  fi
  disable_server_units "$@"
  remove_service_policy
}

# Package lists are fetched only where apt does not know a name yet: a second run works without a network.
refresh_lists_if_needed() {
  local known
  known=$(env LC_ALL=C apt-cache --quiet=2 policy "$@" 2>/dev/null | grep -c '^  Candidate: [^(]' || true)
  [ "$known" -lt $# ] || return 0
  run_step package-lists "fetching package lists" "${APT_GET[@]}" update || {
    show_tail package-lists 10
    warn "apt-get update did not succeed; going on with the lists that are here"
  }
}

# Says what is going to happen before it does: megabytes to fetch, megabytes on disk, minutes.
announce_cost() {
  local plan fetch_mb disk_mb free_mb minutes
  plan=$("${APT_GET[@]}" --assume-no --no-install-recommends install "$@" 2>&1 || true)
  if grep -q '^E: ' <<<"$plan"; then
    grep '^E: ' <<<"$plan" >&2
    die "apt cannot install what is missing. Are the distribution's sources configured and reachable" \
      "(Ubuntu: with universe)?"
  fi
  fetch_mb=$(megabytes_after 'Need to get ' "$plan")
  disk_mb=$(megabytes_after 'After this operation, ' "$plan")
  free_mb=$(df --output=avail -m /usr | tail -n 1 | tr -d ' ')
  # A 2-core machine took 83 s for 310 MB fetched and 1,550 MB unpacked; a slow line takes longer.
  minutes=$((1 + fetch_mb / 600 + disk_mb / 1200))
  say "These Debian packages are missing: $*" | sed "s/Debian/$(distribution | sed 's/-.*//; s/./\U&/')/" | fold -s -w 110
  say "Installing them fetches about $fetch_mb MB, takes about $disk_mb MB of disk and $minutes to" \
    "$((minutes * 3)) minutes."
  [ "$free_mb" -gt $((disk_mb + fetch_mb + 500)) ] ||
    die "only $free_mb MB are free on /usr: $((disk_mb + fetch_mb + 500)) MB are needed"
}

# "Need to get 12.3 MB/200 MB of archives" -> 13; the part before the slash is what is still to be fetched.
megabytes_after() {
  sed -n "s/^$1\([0-9.,]*\) \([kMG]\?B\).*/\1 \2/p" <<<"$2" | tr -d , |
    awk '{ f["kB"] = 0.001; f["MB"] = 1; f["GB"] = 1000; print int($1 * f[$2] + 0.99); found = 1 }
         END { if (!found) print 0 }'
}

cmd_deps() {
  [ $# -eq 0 ] || die "usage: ./dev deps"
  ensure_packages build run server watch vm tla
  say "everything ./dev needs is installed"
}
