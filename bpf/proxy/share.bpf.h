/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shares: no service and no client takes all of what they have in common. Half of the requests and of the parked copies
 * any client may hold; the third quarter is for clients that hold little; the last one is for services that hold less
 * than their share. What is over is forwarded unhedged. The budgets have the same rule in two steps (steer.bpf.h).
 * Counters only, read where something is taken: a race between CPUs lets each of them have one more. What services and
 * clients hold matters beyond half, so only requests that come while a quarter is in use are counted there: below it
 * splitter, reply program and clock would take these lines from each other for each request.
 */
#pragma once

#include "bpf/net/parse.bpf.h"
#include "bpf/proxy/config.bpf.h"
#include "bpf/proxy/stats.bpf.h"
#include "bpf/proxy/way.bpf.h"

HR_INLINE struct hr_client *hr_client_at(__u32 client) { return bpf_map_lookup_elem(&clients, &client); }

enum hr_sender { HR_SENDER_USER = 1, HR_SENDER_KERNEL = 2, HR_SENDER_INTERFACE = 3 }; /* a witness' low bits */

HR_INLINE __u64 hr_mix_client(__u64 hash, __u64 value) {
  hash = (hash ^ value) * 0xbf58476d1ce4e5b9ull; /* as hr_key_hash() */
  return hash ^ hash >> 29;
}

/*
 * The client of a packet to a service (docs/adr/0059): a place in `clients`, which clients may share by chance. What a
 * socket of this host sends is its user's, whatever address it has bound; the kernel's own packets are no user's. What
 * is forwarded, and what a child of an uplink sends, is of the interface that it came in by and of its source, of which
 * in IPv6 a host has a whole /64. The user or the interface is the client's witness (health.bpf.h). Segments have lost
 * their socket, and bring their client along (segment.bpf.h).
 */
HR_GLOBAL __u32 hr_client_of(struct __sk_buff *skb, struct hr_packet *packet, __u32 service_id) {
  __u64 sender = HR_SENDER_KERNEL, source = 0, hash;
  struct hr_client *client;
  struct bpf_sock *socket;
  __u32 index, witness;

  if (!packet) return 0;
  if (skb->ingress_ifindex == load_config.clock_in_ifindex) return skb->tc_index & (HR_CLIENTS - 1);
  if (skb->ingress_ifindex || packet->way == HR_WAY_STRANGER) {
    sender = HR_SENDER_INTERFACE | (__u64)(skb->ingress_ifindex ? skb->ingress_ifindex : skb->ifindex) << 2;
    source = packet->version == 4 ? packet->source.halves[1] : packet->source.halves[0];
  } else {
    socket = skb->sk;
    if (socket && bpf_sk_fullsock(socket)) sender = HR_SENDER_USER | (__u64)bpf_get_socket_uid(skb) << 2;
  }
  hash = hr_mix_client(load_config.hash_seed, sender);
  witness = ((__u32)(hash >> 32) & ~3u) | (sender & 3); /* 0 is none */
  hash = hr_mix_client(hash ^ service_id, source) * 0x94d049bb133111ebull;
  index = hash >> (64 - HR_CLIENT_BITS); /* a product's high bits depend on all of its factor */
  client = hr_client_at(index);
  if (client && client->witness != witness) WRITE_ONCE(client->witness, witness);
  return index;
}

HR_INLINE struct hr_service_state *hr_service_state_of(__u32 service_id) {
  return bpf_map_lookup_elem(&service_states, &service_id);
}

/* A witness that has been a service's only one for so long is alone: what it misses, no other one can contradict. */
#define HR_ALONE_NS 1000000000ull
HR_INLINE int hr_is_alone(__u32 service_id, __u64 now_ns) {
  const struct hr_service_state *state = hr_service_state_of(service_id);
  __u64 mixed_ns = state ? READ_ONCE(state->mixed_ns) : 0;

  return !mixed_ns || now_ns > mixed_ns + HR_ALONE_NS;
}

/* Of one table: may one more be taken? */
HR_INLINE __u32 hr_over_share(__u32 used, __u32 by_service, __u32 by_client, __u32 limit, __u32 service_share) {
  if (used < limit / 2) return HR_REASON_NONE;
  if (by_client > limit / HR_CLIENT_PARTS) return HR_REASON_CLIENT_SHARE;
  if (used < limit - limit / 4 || by_service < service_share) return HR_REASON_NONE;
  return HR_REASON_SERVICE_SHARE;
}

/* Is one part in so many of a table in use? */
HR_INLINE int hr_is_beyond(__u64 held, __u32 parts) {
  return HR_HELD_REQUESTS(held) >= load_config.max_requests / parts ||
         HR_HELD_COPIES(held) >= load_config.max_parked / parts;
}

/*
 * Why a client's request to a service may have no place or no copy, once half of a table is in use; HR_REASON_NONE
 * otherwise. A global function: rare.
 */
HR_GLOBAL __u32 hr_share_reason(__u32 config_id, __u32 client_index, __u64 held) {
  const struct hr_service_state *state = hr_service_state_of(HR_CONFIG_SERVICE(config_id));
  const struct hr_service_config *config = hr_config_of(config_id);
  const struct hr_client *client = hr_client_at(client_index);
  __u32 reason;

  if (!state || !config || !client) return HR_REASON_NONE;
  reason = hr_over_share(HR_HELD_REQUESTS(held), HR_HELD_REQUESTS(state->held), HR_HELD_REQUESTS(client->held),
                         load_config.max_requests, config->request_share);
  if (reason) return reason;
  return hr_over_share(HR_HELD_COPIES(held), HR_HELD_COPIES(state->held), HR_HELD_COPIES(client->held),
                       load_config.max_parked, config->parked_share);
}

/* Counts what a client's request holds, or with a negative sum what it gives back: of one that is counted. A global
 * function: rare. */
HR_GLOBAL int hr_hold(__u32 service_id, __u32 client_index, __s64 held) {
  struct hr_service_state *state = hr_service_state_of(service_id);
  struct hr_client *client = hr_client_at(client_index);

  if (state) __sync_fetch_and_add(&state->held, held);
  if (client) __sync_fetch_and_add(&client->held, held);
  return 0;
}
