#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A whole system whose replica stalls at times that the machine's seed decides.
cd /hedgerow || exit 1
exec /usr/bin/python3 -m deploy.vm.guest.stalls
