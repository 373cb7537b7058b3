#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `./dev test` has of objects.sh and stalls.sh, in one machine. The arguments are those of stalls.py.
cd /hedgerow || exit 1
sh deploy/vm/parts/objects.sh || exit 1
exec /usr/bin/python3 -m deploy.vm.guest.stalls "$@"
