#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Inside a machine of `./dev vm net`: runs what the lane says over the third serial port. A request is a line, the command in
# base64; an answer is a line, its exit status and its output in base64.
ip link set lo up
stty -F /dev/ttyS2 raw -echo
exec 3<>/dev/ttyS2
echo ready >&3
while read -r line <&3; do
  if [ "$line" = end ]; then exit 0; fi
  printf %s "$line" | base64 -d >/run/command
  sh /run/command </dev/null >/run/output 2>&1 3>&-
  status=$?
  printf '%s %s\n' "$status" "$(base64 -w0 /run/output)" >&3
done
