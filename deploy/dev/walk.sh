# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev walk`: the tutorial, typed by a machine (deploy/dev/walk.py); with --bare in a fresh bare Debian 12, where the
# build of the tutorial's first step is a newcomer's.

cmd_walk() {
  local options=()
  if [ "${1:-}" = --bare ]; then
    shift
    require_root walk
    exec deploy/dev/chroot_trial.sh --suite bookworm ./dev walk "$@"
  fi
  for option in "$@"; do
    case "$option" in
      --write | --no-build | --tag=*) options+=("$option") ;;
      *) die "usage: ./dev walk [--bare] [--no-build] [--write] [--tag=NAME]" ;;
    esac
  done
  require_root walk
  # A bare system has no Python yet; the tutorial's own commands install everything else.
  command -v "$PYTHON" >/dev/null || ensure_packages run
  "$PYTHON" -m deploy.dev.walk ${options[@]+"${options[@]}"}
}
