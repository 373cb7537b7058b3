#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The packet tests that need two CPUs at work. They make things ten seconds old, and this machine has just begun.
cd /hedgerow || exit 1
until [ "$(cut -d. -f1 /proc/uptime)" -ge 15 ]; do sleep 1; done
exec build/release/bin/packet_test --gtest_brief=1 --gtest_filter=RaceTest.* --gtest_output=xml:/out/races.xml
