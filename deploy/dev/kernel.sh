# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Whether this kernel can run Hedgerow, asked before anything long is started; `./dev doctor` shows all answers.
# What needs more than a look at a file is tried out by kernel_check.py.

# Needs no package: refuses before minutes of installation are spent on a kernel that cannot do it.
require_kernel_at_first_sight() {
  [ -r /sys/kernel/btf/vmlinux ] ||
    die "this kernel has no type information (/sys/kernel/btf/vmlinux): it needs CONFIG_DEBUG_INFO_BTF, which" \
      "the kernels of Debian 12, Debian 13 and Ubuntu 24.04 have"
}

require_kernel() {
  local answers
  if ! answers=$("$PYTHON" "$HEDGEROW_ROOT/deploy/dev/kernel_check.py"); then
    warn "this machine cannot run Hedgerow's kernel programs:"
    grep '^missing' <<<"$answers" | awk -F'\t' '{ print "  missing: " $2 " - " $3 }' >&2
    die "run it on a machine or in a virtual machine where these are allowed; ./dev doctor shows everything"
  fi
}

cmd_doctor() {
  local status=0 column missing
  [ $# -eq 0 ] || die "usage: ./dev doctor"
  if column=$(distribution); then
    doctor_line ok "distribution" "$(distribution_text)"
    missing=$(packages_of build run server watch vm | not_installed | paste -sd ' ')
    if [ -z "$missing" ]; then
      doctor_line ok "packages" "all of deploy/dev/packages.tsv ($column)"
    else
      doctor_line missing "packages" "$missing (sudo ./dev deps)"
      status=1
    fi
  else
    doctor_line missing "distribution" "$(distribution_text): knows Debian 12, Debian 13 and Ubuntu 24.04"
    status=1
  fi
  if is_root; then doctor_line ok "root" "yes"; else doctor_line missing "root" "run: sudo ./dev doctor" && status=1; fi
  if [ -x "$PYTHON" ]; then
    "$PYTHON" "$HEDGEROW_ROOT/deploy/dev/kernel_check.py" |
      while IFS=$'\t' read -r answer what text; do doctor_line "$answer" "$what" "$text"; done || status=1
  else
    doctor_line missing "kernel" "not asked: $PYTHON is missing"
    status=1
  fi
  return "$status"
}

doctor_line() { printf '%-8s %-22s %s\n' "$1" "$2" "$3"; }
