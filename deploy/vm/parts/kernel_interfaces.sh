#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C++ tests that talk to the kernel: netlink, TCX and clsact, qdiscs, bpffs, capabilities, the start of the daemon,
# groups of sockets and their SK_REUSEPORT program.
cd /hedgerow || exit 1
status=0
for test in build/release/bin/net_*_test build/release/bin/delay_trial_test build/release/bin/start_faults_test \
            build/release/bin/steer_kernel_group_test; do
  name=${test##*/}
  echo "== $name"
  "$test" --gtest_brief=1 --gtest_output="xml:/out/$name.xml" || status=1
done
exit $status
