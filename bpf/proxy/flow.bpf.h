/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flows and fragments: what lets a reply find its VIP, a TCP connection keep its backend, and a later fragment
 * follow its first. The maps are LRU and bounded; maps.bpf.h says which entry a full map forgets. A client that makes
 * ever new flows makes only its like be forgotten.
 */
#pragma once

#include "bpf/net/parse.bpf.h"
#include "bpf/proxy/stats.bpf.h"

/*
 * A flow that has been silent for longer is no flow: its port may now belong to a client in another namespace that
 * talks to the backend directly (for this host's own sockets direct.bpf.h asks the kernel). UDP: the service's deadline
 * and retention, at least 10 s, so that what a long-stalled backend sends at last does not reach the client either.
 * TCP: above two hours, the keep-alive interval (RFC 9293 section 3.8.4). After a FIN or RST, two minutes, twice as
 * long as Linux waits in TIME_WAIT: a forged RST ends nothing, because each packet of the client begins that time anew.
 */
#define HR_FLOW_TCP_NS 7500000000000ull
#define HR_FLOW_CLOSING_NS 120000000000ull
#define HR_FLOW_TIMEOUT_MOST_NS 86400000000000ull /* the bound of flow_timeout in config.proto */
#define HR_FLOW_STAMP_NS 1000000000ull /* how often a busy flow's time is written: both directions share its line */

/* Offsets in a header, RFC 9293 section 3.1. */
#define HR_TCP_NUMBER 4
#define HR_TCP_ACKNOWLEDGED 8
#define HR_TCP_FLAGS 13
#define HR_TCP_FIN 0x01
#define HR_TCP_SYN 0x02
#define HR_TCP_RST 0x04
#define HR_TCP_ACK 0x10

HR_INLINE void hr_flow_key_of(struct hr_flow_key *key, const struct hr_address *client, __u16 client_port_be,
                              __u8 protocol, __u8 kind, __u16 id) {
  key->client = *client;
  key->client_port_be = client_port_be;
  key->id = id;
  key->protocol = protocol;
  key->kind = kind;
  key->pad = 0;
}

/* How long after the client's last packet a backend may still send to it; under profile flow, after the last of either.
 */
HR_INLINE __u64 hr_flow_udp_ns(const struct hr_service_config *config) {
  __u64 lifetime_ns = config->deadline_ns + config->retention_ns;

  if (config->profile.reply_correlation.pairing == HR_PAIR_FLOW) return config->flow_timeout_ns;
  return lifetime_ns > HR_FLOW_UDP_NS ? lifetime_ns : HR_FLOW_UDP_NS;
}

/* An entry of `crowded_flows` is in use: looked for until it has been silent for as long as it may be, or has ended. */
HR_INLINE void hr_flow_is_in_crowd(int tcp, int closing, __u64 now_ns) {
  __u64 until_ns = now_ns + (!tcp ? HR_FLOW_TIMEOUT_MOST_NS : closing ? HR_FLOW_CLOSING_NS : HR_FLOW_TCP_NS);

  if (until_ns > READ_ONCE(hr_live.crowded_ns[tcp])) WRITE_ONCE(hr_live.crowded_ns[tcp], until_ns + HR_FLOW_STAMP_NS);
}

HR_INLINE struct hr_flow *hr_flow_look_up(struct hr_flow_key *key, __u64 now_ns) {
  int tcp = key->protocol == IPPROTO_TCP;
  struct hr_flow *flow = tcp ? bpf_map_lookup_elem(&connections, key) : bpf_map_lookup_elem(&flows, key);
  __u64 until_ns = READ_ONCE(hr_live.crowded_ns[tcp]);

  if (flow || !until_ns) return flow;
  flow = bpf_map_lookup_elem(&crowded_flows, key);
  if (flow)
    hr_flow_is_in_crowd(tcp, flow->closing, now_ns);
  else if (now_ns > until_ns)
    __sync_val_compare_and_swap(&hr_live.crowded_ns[tcp], until_ns, 0);
  return flow;
}

/*
 * Counts a new flow or connection of a client. Has it made its part of them in this tick? CPUs that meet in a new tick
 * may count it anew twice. Inline: a frame more in the chain of hr_note_attempt() is beyond the 512 bytes that 6.1
 * allows.
 */
HR_INLINE int hr_flow_is_crowded(__u32 client_index, __u8 protocol, __u64 now_ns) {
  struct hr_client *client = bpf_map_lookup_elem(&clients, &client_index);
  int tcp = protocol == IPPROTO_TCP;
  __u32 flows, tick = HR_FLOWS_TICK(now_ns, tcp ? HR_CONNECTION_TICK_SHIFT : HR_FLOW_TICK_SHIFT), *made;

  if (!client) return 0;
  made = tcp ? &client->connections : &client->flows;
  flows = READ_ONCE(*made);
  if (flows - HR_FLOWS_MADE(flows) != tick) {
    flows = tick;
    WRITE_ONCE(*made, flows);
  }
  if (HR_FLOWS_MADE(flows) < (tcp ? load_config.connection_part : load_config.flow_part)) {
    __sync_fetch_and_add(made, 1);
    return 0;
  }
  hr_flow_is_in_crowd(tcp, 0, now_ns);
  return 1;
}

HR_INLINE void hr_flow_stamp(struct hr_flow *flow, __u64 now_ns) {
  if (now_ns > flow->seen_ns + HR_FLOW_STAMP_NS) flow->seen_ns = now_ns;
}

HR_INLINE struct hr_flow *hr_flow_find(struct hr_flow_key *key, __u64 lifetime_ns, __u64 now_ns) {
  struct hr_flow *flow = hr_flow_look_up(key, now_ns);

  if (flow && flow->closing) lifetime_ns = HR_FLOW_CLOSING_NS;
  if (!flow || now_ns > flow->seen_ns + HR_FLOW_STAMP_NS + lifetime_ns) return 0;
  return flow;
}

enum hr_flow_event { HR_FLOW_PLAIN, HR_FLOW_UNTRACKED, HR_FLOW_CLOSING, HR_FLOW_OPENING };

/* How the client's packets come (enum hr_way), beside an event. */
#define HR_FLOW_EVENT(what) ((what)&0xff)
#define HR_FLOW_BY(way) ((__u32)(way) << 8)
#define HR_FLOW_WAY(what) ((what) >> 8)

/* Has this happened on the flow so lately that an answer to it may still come? */
HR_INLINE int hr_flow_lately(__u64 event_ns, __u64 lifetime_ns, __u64 now_ns) {
  return event_ns && now_ns < event_ns + HR_FLOW_STAMP_NS + lifetime_ns;
}

/*
 * A connection that its client ends makes room for another one of that client, and waits for its last segments where it
 * takes the place of no other client's.
 */
HR_INLINE void hr_flow_ends(struct hr_flow_key *key, struct hr_flow *ended, __u32 client_index) {
  struct hr_client *client = bpf_map_lookup_elem(&clients, &client_index);
  int failed; /* as in the map's error, before 6.4 */

  hr_flow_is_in_crowd(1, 1, ended->seen_ns);
  failed = bpf_map_update_elem(&crowded_flows, key, ended, BPF_ANY);
  if (failed) return;
  failed = bpf_map_delete_elem(&connections, key);
  if (!failed && client && HR_FLOWS_MADE(READ_ONCE(client->connections))) __sync_fetch_and_sub(&client->connections, 1);
}

/*
 * Notes that the client may receive from the backend, and by which way; cheap when the flow is known. `what`: event and
 * way. `client_index`: its place in `clients`.
 */
HR_INLINE void hr_flow_note(const struct hr_address *client, __u16 client_port_be, __u8 protocol, __u8 kind, __u16 id,
                            __u32 value, __u32 what, __u32 client_index, __u64 now_ns) {
  __u32 event = HR_FLOW_EVENT(what);
  struct hr_flow_key key;
  struct hr_flow *known;
  struct hr_flow fresh = {.seen_ns = now_ns, .id = value, .way = HR_FLOW_WAY(what)};
  long failed;

  if (kind == HR_FLOW_REPLY) fresh.client = client_index;
  hr_flow_key_of(&key, client, client_port_be, protocol, kind, id);
  known = hr_flow_look_up(&key, now_ns);
  if (known && event == HR_FLOW_OPENING && known->closing) {
    bpf_map_delete_elem(&crowded_flows, &key); /* the port again */
    known = hr_flow_look_up(&key, now_ns);
  }
  if (known) {
    /* A moved flow keeps its place: one more in the other map would be hidden by this one. */
    if (known->id != value) *known = fresh;
    hr_flow_stamp(known, now_ns);
    if (event == HR_FLOW_UNTRACKED && now_ns > known->untracked_ns + HR_FLOW_STAMP_NS) known->untracked_ns = now_ns;
    if (known->way != HR_FLOW_WAY(what)) known->way = HR_FLOW_WAY(what);
    if (event == HR_FLOW_OPENING) known->closing = 0;
    if (event != HR_FLOW_CLOSING) return;
    known->closing = 1;
    known->seen_ns = now_ns;
    fresh = *known;
    hr_flow_ends(&key, &fresh, client_index);
    return;
  }
  if (event == HR_FLOW_UNTRACKED) fresh.untracked_ns = now_ns;
  if (event == HR_FLOW_CLOSING) fresh.closing = 1;
  if (hr_flow_is_crowded(client_index, protocol, now_ns))
    failed = bpf_map_update_elem(&crowded_flows, &key, &fresh, BPF_ANY);
  else if (protocol == IPPROTO_TCP)
    failed = bpf_map_update_elem(&connections, &key, &fresh, BPF_ANY);
  else
    failed = bpf_map_update_elem(&flows, &key, &fresh, BPF_ANY);
  if (failed) hr_host_reason(HR_REASON_FLOW_FAILED);
}

HR_INLINE void hr_fragment_key_of(struct hr_fragment_key *key, const struct hr_packet *packet) {
  __builtin_memset(key, 0, sizeof(*key));
  key->source = packet->source;
  key->destination = packet->destination;
  key->id = packet->fragment_id;
  /*
   * The protocol is no part of an IPv6 datagram's identification (RFC 8200 section 4.5), and in the first fragment
   * options may stand before layer 4.
   */
  key->protocol = packet->version == 4 ? packet->protocol : 0;
}

/* As long as Linux keeps an incomplete datagram (net.ipv4.ipfrag_time); identifications come round again. */
#define HR_FRAGMENT_NS 30000000000ull

HR_INLINE __u32 hr_fragment_bytes(const struct hr_packet *packet) {
  return packet->l3_bytes - (packet->l4_offset - packet->l3_offset);
}

/* Called with the packet as it came in, before any rewriting. */
HR_INLINE void hr_fragment_note(const struct hr_packet *packet, __u32 action, __u32 id, __u64 now_ns) {
  struct hr_fragment fragment = {
      .seen_ns = now_ns, .action = action, .way = packet->way, .id = id, .bytes = hr_fragment_bytes(packet)};
  struct hr_fragment_key key;

  hr_fragment_key_of(&key, packet);
  if (bpf_map_update_elem(&fragments, &key, &fragment, BPF_ANY)) hr_host_reason(HR_REASON_FRAGMENTS_FAILED);
}

HR_INLINE struct hr_fragment *hr_fragment_find(const struct hr_packet *packet, __u64 now_ns) {
  struct hr_fragment_key key;
  struct hr_fragment *fragment;

  hr_fragment_key_of(&key, packet);
  fragment = bpf_map_lookup_elem(&fragments, &key);
  return fragment && now_ns < fragment->seen_ns + HR_FRAGMENT_NS ? fragment : 0;
}

/* A first fragment that is not ours: an older datagram of ours with this identification must not claim its rest. */
HR_INLINE void hr_fragment_forget(const struct hr_packet *packet) {
  struct hr_fragment_key key;

  hr_fragment_key_of(&key, packet);
  bpf_map_delete_elem(&fragments, &key);
}

/*
 * A later fragment went the way of its first. With the datagram's last byte its state ends, because the identification
 * may come again at once, in a datagram that is not the proxy's. (A fragment that the network doubles ends it too
 * early: the datagram is then lost, as when one of its fragments is.)
 */
HR_INLINE void hr_fragment_pass(const struct hr_packet *packet, struct hr_fragment *fragment) {
  __u32 bytes = hr_fragment_bytes(packet), total;

  if (packet->payload_bytes) WRITE_ONCE(fragment->total, packet->payload_bytes);
  total = READ_ONCE(fragment->total);
  if (__sync_fetch_and_add(&fragment->bytes, bytes) + bytes < total || !total) return;
  hr_fragment_forget(packet);
}
