/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Does a packet from a backend belong to a socket of this host that talks to the backend itself, without the proxy? Its
 * port may have been a proxied client's a moment ago, for a flow outlives the socket that made it (flow.bpf.h). So the
 * sockets decide, not the flow: an answer to a direct connection is never given to a VIP. Asked for every TCP segment
 * of a flow, and for a datagram only when it answers no request. Clients in other namespaces have no socket here, and
 * keep their flows. Called by the reply program.
 */
#pragma once

#include "bpf/net/parse.bpf.h"

#define HR_TCP_TIME_WAIT 6 /* states of struct bpf_sock, as in the kernel's net/tcp_states.h */
#define HR_TCP_CLOSE 7
#define HR_TCP_LISTEN 10
#define HR_NO_SOCKET 0 /* no state has this number */

/* Both ends of a connection of this host. */
struct hr_ends {
  struct hr_address remote;
  struct hr_address local;
  __u16 remote_port_be;
  __u16 local_port_be;
  __u32 version; /* 4 or 6 */
};

/* Of a packet that comes, or that goes (as one does that an ICMP error quotes). */
HR_INLINE struct hr_ends hr_ends_of(const struct hr_packet *packet, int goes) {
  struct hr_ends ends = {.remote = goes ? packet->destination : packet->source,
                         .local = goes ? packet->source : packet->destination,
                         .remote_port_be = goes ? packet->destination_port_be : packet->source_port_be,
                         .local_port_be = goes ? packet->source_port_be : packet->destination_port_be,
                         .version = packet->version};

  return ends;
}

/* As the kernel looks a received packet's socket up: its source is the remote end. */
HR_INLINE void hr_fill_tuple(struct bpf_sock_tuple *tuple, const struct hr_ends *ends) {
  if (ends->version == 4) {
    tuple->ipv4.saddr = ends->remote.words[3];
    tuple->ipv4.daddr = ends->local.words[3];
    tuple->ipv4.sport = ends->remote_port_be;
    tuple->ipv4.dport = ends->local_port_be;
  } else {
    __builtin_memcpy(tuple->ipv6.saddr, &ends->remote, sizeof(ends->remote));
    __builtin_memcpy(tuple->ipv6.daddr, &ends->local, sizeof(ends->local));
    tuple->ipv6.sport = ends->remote_port_be;
    tuple->ipv6.dport = ends->local_port_be;
  }
}

/* The state of the TCP socket with exactly these ends. A listening socket, which the kernel finds too, has no remote
 * end. */
HR_GLOBAL __u32 hr_tcp_state(struct __sk_buff *skb, struct hr_ends *ends) {
  struct bpf_sock_tuple tuple = {};
  struct bpf_sock *found;
  __u32 state;

  if (!ends) return HR_NO_SOCKET;
  hr_fill_tuple(&tuple, ends);
  if (ends->version == 4)
    found = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
  else
    found = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
  if (!found) return HR_NO_SOCKET;
  state = found->state;
  bpf_sk_release(found);
  return state == HR_TCP_LISTEN || state == HR_TCP_CLOSE ? HR_NO_SOCKET : state;
}

/* The socket that a packet from the remote end reaches, held until the caller releases it. */
HR_INLINE struct bpf_sock *hr_find_socket(struct __sk_buff *skb, const struct hr_ends *ends, __u8 protocol) {
  struct bpf_sock_tuple tuple = {};
  __u32 bytes = ends->version == 4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6);

  hr_fill_tuple(&tuple, ends);
  return protocol == IPPROTO_UDP ? bpf_sk_lookup_udp(skb, &tuple, bytes, BPF_F_CURRENT_NETNS, 0)
                                 : bpf_sk_lookup_tcp(skb, &tuple, bytes, BPF_F_CURRENT_NETNS, 0);
}

enum hr_udp_socket { HR_NO_UDP_SOCKET = 0, HR_UDP_UNCONNECTED = 1, HR_UDP_CONNECTED = 2 };

/* The UDP socket that a datagram from the remote end reaches: connected to exactly that end, or to none. */
HR_GLOBAL __u32 hr_udp_socket(struct __sk_buff *skb, struct hr_ends *ends) {
  struct bpf_sock *found;
  __u32 socket;

  if (!ends) return HR_NO_UDP_SOCKET;
  found = hr_find_socket(skb, ends, IPPROTO_UDP);
  if (!found) return HR_NO_UDP_SOCKET;
  /* What is not connected has remote port 0. The kernel finds no socket that is connected elsewhere. */
  socket = found->dst_port ? HR_UDP_CONNECTED : HR_UDP_UNCONNECTED;
  bpf_sk_release(found);
  return socket;
}

HR_INLINE int hr_is_connected(struct __sk_buff *skb, struct hr_ends *ends) {
  return hr_udp_socket(skb, ends) == HR_UDP_CONNECTED;
}

/*
 * Is there a socket of this host that is connected to the VIP? It stands in for a flow that a full map has forgotten.
 */
HR_INLINE int hr_is_owned(struct __sk_buff *skb, __u32 protocol, struct hr_ends *vip_to_client) {
  __u32 state;

  if (protocol == IPPROTO_UDP) return hr_is_connected(skb, vip_to_client);
  state = hr_tcp_state(skb, vip_to_client);
  return state != HR_NO_SOCKET && state != HR_TCP_TIME_WAIT;
}

/*
 * `ends` of a packet from a backend, or that an ICMP error from there quotes; the service's VIP and port. A connection
 * to the VIP keeps its packets: the backend, for which a direct one would have the same ends, could not tell the two
 * apart either. But one that only waits for its port to be free (TIME_WAIT) yields to a direct connection that lives.
 */
HR_INLINE int hr_is_direct(struct __sk_buff *skb, __u32 protocol, struct hr_ends *ends, const struct hr_address *vip,
                           __u16 vip_port_be) {
  struct hr_address backend = ends->remote;
  __u16 backend_port_be = ends->remote_port_be;
  __u32 proxied, direct;

  if (protocol == IPPROTO_UDP) return hr_is_connected(skb, ends);
  ends->remote = *vip;
  ends->remote_port_be = vip_port_be;
  proxied = hr_tcp_state(skb, ends);
  if (proxied != HR_NO_SOCKET && proxied != HR_TCP_TIME_WAIT) return 0;
  ends->remote = backend;
  ends->remote_port_be = backend_port_be;
  direct = hr_tcp_state(skb, ends);
  return direct != HR_NO_SOCKET && (proxied == HR_NO_SOCKET || direct != HR_TCP_TIME_WAIT);
}
