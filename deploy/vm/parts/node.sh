#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A cluster node's kernel programs: packets, attached, pinned, racing, and against the native model. The fuzz is shorter
# than in `./dev test`: an emulated CPU takes ten times as long.
cd /hedgerow/build/release/bin || exit 1
export HR_FUZZ_CASES=${HR_FUZZ_CASES:-40000}
status=0
for test in node_packet_test cluster_bpf_kernel_test node_live_test node_race_test node_fuzz_test; do
  ./$test --gtest_brief=1 --gtest_output=xml:/out/$test.xml || status=1
done
exit $status
