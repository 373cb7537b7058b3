#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A leader's process waits for a processor: what dying_leader cannot show on its one.
cd /hedgerow || exit 1
exec build/release/bin/watch_live_test --gtest_brief=1 \
  --gtest_filter='WatchLiveTest.Who*' --gtest_output=xml:/out/late_leader.xml
