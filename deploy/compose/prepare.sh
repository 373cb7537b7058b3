#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# deploy/compose/prepare.sh FOLDER, as root: a copy of the demo that the programs follow (its files belong to root, and no other
# user can change them), with a new key of the cluster that only root and the nodes read.
set -eu
if [ $# -ne 1 ] || [ "$(id -u)" -ne 0 ]; then
  echo "usage: sudo deploy/compose/prepare.sh FOLDER" >&2
  exit 2
fi
here=$(dirname "$(readlink -f "$0")")
install -d -m 0755 "$1"
install -m 0644 "$here"/*.yaml "$1"
if [ ! -e "$1/cluster.key" ]; then
  install -m 0640 -g 10002 /dev/null "$1/cluster.key"
  od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$1/cluster.key"
fi
echo "docker compose -f $1/compose.yaml up --detach"
