#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernel programs as the product loads them, and what the verifier looked at for each.
cd /hedgerow || exit 1
build/release/bin/hr-verified-instructions >/out/verified.tsv || exit 1
cat /out/verified.tsv
