#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Inside the machine: the hosts, their wires and disks, then the play (hr-dst-driver). As few processes as can be: each takes
# an emulated processor some ten milliseconds. Names and addresses are those that driver/ and image.py know.
set -e
# Namespaces that are made from here on begin with these: no address is held back for a second, and no kernel looks for routers.
echo 1 >/proc/sys/net/core/devconf_inherit_init_net
for scope in all default; do
  echo 1 >/proc/sys/net/ipv4/conf/$scope/rp_filter
  for key in accept_dad dad_transmits accept_ra router_solicitations; do
    echo 0 >/proc/sys/net/ipv6/conf/$scope/$key
  done
done
mkdir -p /run/hedgerow
# Each node has a disk of its own. Where it can lose its power, the driver mounts a file system of ours over it.
for node in n1 n2 n3; do
  mkdir -p /disks/$node /data/$node
  mount -t tmpfs -o size=64m disk /disks/$node
done
if grep -q '^disks unsynced' /dst/plan; then
  modprobe -q fuse || true # built in, or not
  mkdir /disks/n1/disk /disks/n2/disk /disks/n3/disk
else
  for node in n1 n2 n3; do mount -o bind /disks/$node /data/$node; done
fi

{
  for host in sw cl n1 n2 n3; do echo "netns add $host"; done
  for host in cl n1 n2 n3; do echo "link add $host netns sw type veth peer name eth0 netns $host"; done
} | ip -batch -
{
  echo "link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
  echo "link set br0 up"
  for host in cl n1 n2 n3; do echo "link set $host master br0 up"; done
} | ip -n sw -batch -
for host in cl:1 n1:11 n2:12 n3:13; do
  {
    echo "link set lo up"
    echo "link set eth0 up"
    echo "addr add 10.77.0.${host#*:}/24 dev eth0"
  } | ip -n "${host%:*}" -batch -
done
# Where one-way cuts are made.
for host in n1 n2 n3; do echo "qdisc add dev $host clsact"; done | tc -n sw -batch -
# What native XDP sends back is lost on a veth whose other end has no program.
if [ -f /dst/native_xdp ]; then
  for host in n1 n2 n3; do ip -n sw link set dev $host xdpdrv object /dst/node_pass.bpf.o section xdp.frags; done
fi

status=0
hr-dst-driver /dst/plan /out || status=$?
dmesg >/out/dmesg.txt
cat /proc/uptime >/out/uptime.txt
exit $status
