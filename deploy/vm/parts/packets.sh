#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The packet tests: every kernel program on real packets. In virtual time, where waiting is free: some of them make
# things two minutes old, and this machine has just begun.
cd /hedgerow || exit 1
sleep 150
exec build/release/bin/packet_test --gtest_brief=1 --gtest_filter=-RaceTest.* --gtest_output=xml:/out/packets.xml
