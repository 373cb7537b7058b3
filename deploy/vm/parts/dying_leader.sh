#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A leader's process is killed, stopped, ended: what its kernel then says, and when. In virtual time, for the figures.
cd /hedgerow || exit 1
build/release/bin/watch_test --gtest_brief=1 --gtest_output=xml:/out/watch.xml || exit 1
exec build/release/bin/watch_live_test --gtest_brief=1 --gtest_output=xml:/out/dying_leader.xml
