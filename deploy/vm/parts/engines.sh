#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What each engine really does on this kernel, for docs/KERNELS.md.
cd /hedgerow || exit 1
exec /usr/bin/python3 -m deploy.vm.guest.engines /out/engines.json
