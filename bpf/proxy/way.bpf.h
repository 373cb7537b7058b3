/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * By which way a client's packets come, and its answers go back. Most leave by the proxy interface. But a socket that
 * is bound to an uplink (SO_BINDTODEVICE, IP_UNICAST_IF, IP_PKTINFO) sends there whatever the routes say, and so does a
 * child of an uplink (macvlan, ipvlan, in another namespace): the splitter takes what they send to a VIP at the
 * uplink's egress.
 *
 * An answer to a socket of this host enters by the proxy interface, for strict reverse-path filtering lets it in
 * nowhere else; where the socket is bound to the uplink, it would not be found from there, and is assigned here. An
 * answer to anything else goes on where it came in, under the VIP's name: to the child, or to the VRF that the uplink
 * belongs to.
 *
 * Where the route to the VIP leads by the uplink itself (docs/adr/0055), all packets to it come that way, and every
 * answer enters there, whatever uplink it comes in by: a strict filter of sources finds the route there, and rules for
 * the uplink hold. So do the proxy's own answers: pings, refusals. Called by the splitter and the reply program.
 */
#pragma once

#include "bpf/proxy/direct.bpf.h"
#include "bpf/proxy/maps.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

#include <linux/if_packet.h>

#define HR_LOOPBACK_IFINDEX 1 /* in every network namespace; LOOPBACK_IFINDEX of the kernel */

enum hr_way {
  HR_WAY_PROXY = 0,   /* by the proxy interface */
  HR_WAY_SOCKET = 1,  /* by an uplink, from a socket of this host, or forwarded by the route that leads there */
  HR_WAY_VRF = 2,     /* likewise, and the socket is bound to the uplink's VRF */
  HR_WAY_STRANGER = 3 /* by an uplink, and no socket of this host sends from there */
};

/* Answers go on where they come in. */
HR_INLINE int hr_stays_in_place(__u32 way) { return way >= HR_WAY_VRF; }

/* Does the route to the VIP that the packet goes to lead by the interface that it leaves by? Global: it has a frame of
 * its own. */
HR_GLOBAL int hr_is_routed_here(struct __sk_buff *skb, const struct hr_packet *packet) {
  struct hr_address destination;
  struct hr_vip *vip;

  if (!packet) return 0;
  destination = packet->destination;
  vip = bpf_map_lookup_elem(&vip_addresses, &destination);
  return vip && READ_ONCE(vip->uplink_ifindex) == skb->ifindex;
}

/*
 * The uplink by which an answer, which came in at this interface, enters in the VIP's name: this one, where it goes on
 * as it is, or the one by which the VIP's route leads. 0: it enters by the proxy interface.
 */
HR_INLINE __u32 hr_entry_of(const struct __sk_buff *skb, const struct hr_packet *packet,
                            const struct hr_address *vip_address) {
  struct hr_vip *vip;
  __u32 uplink;

  if (packet->way == HR_WAY_PROXY) return 0;
  if (hr_stays_in_place(packet->way)) return skb->ifindex;
  vip = bpf_map_lookup_elem(&vip_addresses, vip_address);
  uplink = vip ? READ_ONCE(vip->uplink_ifindex) : 0;
  if (uplink) return uplink;
  /* Reassembly forgets the socket that a fragment was assigned to; IPv6 has no reverse-path filtering to be let in by.
   */
  return packet->fragment != HR_WHOLE && packet->version == 6 ? skb->ifindex : 0;
}

/*
 * Gives an answer in a VIP's name to an uplink, as if it had come in there. The tag says to the reply program there
 * that it is the proxy's (hr_let_in).
 */
HR_INLINE int hr_give_at_uplink(struct __sk_buff *skb, __u32 ifindex) {
  if (hr_put_tag(skb)) return -1;
  return bpf_redirect(ifindex, BPF_F_INGRESS);
}

/*
 * An answer in a VIP's name at an uplink: 0 where another program of the proxy gave it here. The tag stood for the
 * destination. The frame goes to where it came from: that is the client's own address where the client is a child of
 * the uplink, or this host's.
 */
HR_GLOBAL int hr_let_in(struct __sk_buff *skb) {
  __u8 mac[ETH_ALEN];

  if (!hr_has_tag(skb) || bpf_skb_load_bytes(skb, ETH_ALEN, mac, sizeof(mac)) ||
      bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0))
    return -1;
  bpf_skb_change_type(skb, PACKET_HOST);
  return 0;
}

HR_INLINE int hr_has_own_source(const struct hr_packet *packet) {
  struct hr_address source = packet->source;

  return bpf_map_lookup_elem(&own_addresses, &source) != 0;
}

/*
 * Has this host's own routing brought the packet here, because the VIP's route leads by this uplink? Then this host
 * forwards it, or the packet has an address of the host. Its socket does not tell: an answer would find none for the
 * kernel's own packets (an ACK in TIME_WAIT, a ping), for those of several sockets with one port, and for those that
 * netfilter gave another source. A child of the uplink has an address of its own.
 */
HR_INLINE int hr_took_the_route(struct __sk_buff *skb, const struct hr_packet *packet) {
  return hr_is_routed_here(skb, packet) && (skb->ingress_ifindex || hr_has_own_source(packet));
}

/*
 * Of a packet that leaves by an uplink. Its socket is this host's if the kernel would find that very socket for
 * an answer: a port alone proves nothing, since a child's client may have the same.
 */
HR_GLOBAL __u32 hr_way_by_uplink(struct __sk_buff *skb, struct hr_packet *packet) {
  struct bpf_sock *sender = skb->sk, *found;
  __u32 bound, way = HR_WAY_STRANGER;
  struct hr_ends ends;

  if (!packet) return HR_WAY_STRANGER;
  if (hr_took_the_route(skb, packet)) return HR_WAY_SOCKET;
  if (!sender || (packet->protocol != IPPROTO_UDP && packet->protocol != IPPROTO_TCP)) return HR_WAY_STRANGER;
  ends = hr_ends_of(packet, 1);
  found = hr_find_socket(skb, &ends, packet->protocol);
  if (!found) return HR_WAY_STRANGER;
  bound = found->bound_dev_if;
  if (found == sender) way = bound == 0 || bound == skb->ifindex ? HR_WAY_SOCKET : HR_WAY_VRF;
  bpf_sk_release(found);
  return way;
}

/* Gives an answer, already in the VIP's name, to its socket, whatever device that is bound to. Global: rare, with a
 * stack of its own. */
HR_GLOBAL int hr_assign_socket(struct __sk_buff *skb, struct hr_packet *packet) {
  struct bpf_sock *found;
  struct hr_ends ends;

  if (!packet) return 0;
  ends = hr_ends_of(packet, 0);
  found = hr_find_socket(skb, &ends, packet->protocol);
  if (!found) return 0;
  bpf_sk_assign(skb, found, 0); /* refused for a reuseport socket before 6.6: the usual look-up then decides */
  bpf_sk_release(found);
  return 0;
}
