#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# End-to-end tests with real clients and servers. The arguments are pytest's.
cd /hedgerow || exit 1
exec /usr/bin/python3 -m pytest -v --color=no -p no:cacheprovider --timeout=300 --junitxml=/out/end_to_end.xml "$@"
