# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Keeps servers that deps.sh installs from starting: tests run them inside lab namespaces only, and the user's
# machine must look the same afterwards. A policy-rc.d denies starts while apt works; then the units of packages
# that this run installed (and of no others) are disabled, so that a reboot does not start them either.

POLICY_FILE=/usr/sbin/policy-rc.d
POLICY_MARK="written by Hedgerow's ./dev for the time of one installation; safe to delete"

put_service_policy() {
  local servers
  # A policy of the user's own stays untouched. One of ours can only be here because ./dev was killed.
  if [ -e "$POLICY_FILE" ] && ! grep -qF "$POLICY_MARK" "$POLICY_FILE"; then return 0; fi
  servers=$(packages_of server watch | paste -sd '|')
  # invoke-rc.d calls it as [--quiet] NAME ACTION [RUNLEVEL], and puts ACTION in parentheses for a service that the
  # present runlevel would not run: answering 0 to "(start)" starts it.
  cat >"$POLICY_FILE" <<POLICY
#!/bin/sh
# $POLICY_MARK
[ "\$1" != --quiet ] || shift
case "\$1:\$2" in
  *:*restart*) ;;
  *:*start*) exit 101 ;;
esac
case "\$1:\$2" in
  ${servers//|/'*:*start*|'}*:*start*) exit 101 ;;
esac
exit 0
POLICY
  chmod 755 "$POLICY_FILE"
}

# Also called when ./dev ends for any reason.
remove_service_policy() {
  if is_root && grep -qsF "$POLICY_MARK" "$POLICY_FILE"; then rm -f "$POLICY_FILE"; fi
}

# disable_server_units INSTALLED...: of the packages just installed, those of the groups `server` and `watch`.
disable_server_units() {
  local package unit
  for package in $(packages_of server watch); do
    [[ " $* " == *" $package "* ]] || continue
    while read -r unit; do
      disable_unit "$(basename "$unit")"
    done < <(dpkg-query -L "$package" | grep -E '^(/usr)?/lib/systemd/system/[^/@]+\.(service|socket|timer)$')
    if [ -x "/etc/init.d/$package" ]; then update-rc.d "$package" disable >/dev/null 2>&1 || true; fi
  done
}

disable_unit() {
  # A running systemd also stops it (a policy of the user's own may have let it start); without one only the
  # links that would start it later are taken away.
  if [ -d /run/systemd/system ]; then
    systemctl disable --now "$1" >/dev/null 2>&1 || true
  elif command -v deb-systemd-helper >/dev/null; then
    deb-systemd-helper disable "$1" >/dev/null 2>&1 || true
  fi
}
