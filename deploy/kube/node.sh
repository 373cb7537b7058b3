#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# node.sh NAME ADDRESS FOLDER ARCHIVE...: a node of deploy/kube/cluster.py, in a network namespace of the lab and in mount and UTS namespaces of
# its own: sysfs, pins and all that programs keep in /run, /var/lib and /var/log are the node's. Programs come by PATH.
set -euo pipefail
name=$1 address=$2 folder=$3
shift 3
hostname "$name"
mount --make-rprivate /
mkdir -p "$folder"/{cgroup,lib,log,cni}
mount --rbind /sys/fs/cgroup "$folder/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$folder/cgroup" /sys/fs/cgroup
umount --lazy "$folder/cgroup"
mount -t bpf -o mode=700 bpf /sys/fs/bpf
mount --bind "$folder/lib" /var/lib
mount --bind "$folder/log" /var/log
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns /run/sysctl
# kubelet insists on these of the machine's: it writes them here.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 \
  kernel/keys/root_maxbytes=25000000; do
  file=/run/sysctl/$(basename "${setting%=*}")
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done
: >/run/resolv.conf
mount --make-rshared /
containerd --config "$folder/containerd.toml" &>"$folder/containerd.log" &
until ctr version &>/dev/null; do sleep 0.1; done
for archive in "$@"; do ctr -n k8s.io images import "$archive" >>"$folder/import.log"; done
kube-proxy --config="$folder/kube-proxy.json" --hostname-override="$name" &>"$folder/kube-proxy.log" &
exec kubelet --config="$folder/kubelet.json" --kubeconfig="$folder/kubelet.conf" --hostname-override="$name" --node-ip="$address" \
  --cgroup-root="/hedgerow-kube-$name" &>"$folder/kubelet.log"
