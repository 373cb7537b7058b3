#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.MODULE with its arguments; its results/NAME come back. MODULE NAME ARGS...
cd /hedgerow || exit 1
module=$1 name=$2
shift 2
/usr/bin/python3 -m "bench.$module" "$@"
status=$?
cp -r "results/$name/." /out/
exit $status
