#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# deploy/compose/prepare.sh FOLDER [NODES], as root: a copy of the demo with 3, 5 or 7 nodes that the programs follow (its files
# belong to root, and no other user can change them), with a new key of the cluster that only root and the nodes read.
set -eu
nodes=${2:-3}
case $#:$nodes:$(id -u) in
[12]:[357]:0) ;;
*)
  echo "usage: sudo deploy/compose/prepare.sh FOLDER [3|5|7]" >&2
  exit 2
  ;;
esac
here=$(dirname "$(readlink -f "$0")")

# What stands between the two marks is node 1's; written for each.
for_each_node() {
  awk -v nodes="$nodes" '
    / # of each node$/ { block = ""; within = 1; next }
    / # end$/ {
      for (n = 1; n <= nodes; n++) {
        text = block
        gsub(/node1/, "node" n, text); gsub(/data1/, "data" n, text); gsub(/10\.79\.0\.11/, "10.79.0.1" n, text)
        gsub(/id: 1/, "id: " n, text); gsub(/node: 1/, "node: " n, text)
        printf "%s", text
      }
      within = 0; next
    }
    within { block = block $0 "\n"; next }
    { print }' "$here/$1"
}

install -d -m 0755 "$1"
umask 022
for file in compose.yaml hedgerow.yaml; do for_each_node $file >"$1/$file"; done
for n in $(seq "$nodes"); do for_each_node node.yaml | sed "s/^node: 0.*/node: $n/" >"$1/node$n.yaml"; done
if [ ! -e "$1/cluster.key" ]; then
  install -m 0640 -g 10002 /dev/null "$1/cluster.key"
  od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$1/cluster.key"
fi
echo "docker compose -f $1/compose.yaml up --detach"
