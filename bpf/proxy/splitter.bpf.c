// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * SPLITTER: TC egress of the proxy interface, and of every uplink for clients that are bound to it. Sees what they send
 * to a VIP: steers a request to the leader (or around it), parks a copy for the clock, and sends it out of the uplink;
 * TCP goes to the leader, pings are answered here, and so are ports without a service; later fragments follow their
 * first. What else is for no service passes on untouched (to the sink).
 */
#include "bpf/proxy/asking.bpf.h"
#include "bpf/proxy/attempt.bpf.h"
#include "bpf/proxy/clients.bpf.h"
#include "bpf/proxy/refuse.bpf.h"
#include "bpf/proxy/rewrite.bpf.h"
#include "bpf/proxy/segment.bpf.h"
#include "bpf/proxy/self_test.bpf.h"
#include "bpf/proxy/trace.bpf.h"
#include "bpf/proxy/track.bpf.h"

#include <linux/pkt_cls.h>
#include <linux/tcp.h>

#define HR_ECHO_REQUEST_V4 8
#define HR_ECHO_REQUEST_V6 128
#define HR_ECHO_REPLY_V6 129
#define HR_IPV4_DESTINATION 16 /* offsets in an IP header */
#define HR_IPV6_DESTINATION 24

/* Rewrites a packet to a backend and sends it out of that backend's uplink; consumes it. */
HR_INLINE int hr_send_to_backend(struct __sk_buff *skb, struct hr_packet *packet, __u32 backend_id,
                                 struct hr_stats *service_stats) {
  struct hr_backend *backend = bpf_map_lookup_elem(&backends, &backend_id);
  struct hr_address address;

  if (backend) {
    address = backend->address;
    if (!hr_rewrite_destination(skb, packet, &address, backend->port_be))
      return bpf_redirect_neigh(backend->uplink_ifindex, 0, 0, 0);
  }
  hr_reason(service_stats, HR_REASON_SEND_FAILED);
  return TC_ACT_SHOT;
}

/*
 * A copy beside the first send: rewritten, cloned round the clock's link, and the original left to be rewritten again.
 * A global function: it has a stack of its own.
 */
HR_GLOBAL int hr_send_beside(struct __sk_buff *skb, struct hr_packet *packet, struct hr_attempt *attempt) {
  struct hr_backend *backend;
  struct hr_address address;
  __u32 backend_id, mark = skb->mark;
  int failed = 1;

  if (!packet || !attempt) return 0;
  backend_id = attempt->backend_id;
  backend = bpf_map_lookup_elem(&backends, &backend_id);
  if (backend) {
    address = backend->address;
    failed = hr_rewrite_destination(skb, packet, &address, backend->port_be) || hr_put_tag(skb) ||
             hr_clone_to_uplink(skb, attempt);
  }
  hr_settle(attempt, failed ? HR_OUTCOME_FAILED : HR_OUTCOME_SENT);
  skb->mark = mark;
  return 0;
}

/*
 * The backend of a request that is not tracked and can have no copy. A retransmission of a waiting request goes to the
 * backend that was noted in that request's masks.
 */
HR_INLINE __u32 hr_untracked_to(const struct hr_choice *choice, const struct hr_tracking *tracking) {
  return tracking->reason == HR_REASON_RETRANSMISSION ? choice->first : hr_choice_alone(choice);
}

/* The beginning of a request that a tracer asked for. The packet is still as the client sent it. */
HR_INLINE void hr_trace_begin(const struct hr_split *split, const struct hr_tracking *tracking) {
  if (tracking->request)
    hr_trace_event(tracking->request, split->config_id,
                   HR_TRACE_WHAT(HR_TRACE_SPLIT, HR_REASON_NONE, split->choice.first, 0));
  else
    hr_trace_untracked(split->skb, split->packet, split->config_id,
                       HR_TRACE_WHAT(HR_TRACE_PASSED, tracking->reason, hr_untracked_to(&split->choice, tracking), 0));
}

/* A new packet's choice. `of`: HR_OF_TCP, or 0. */
HR_INLINE struct hr_choice hr_choice_of(const struct hr_split *split, __u32 of) {
  return hr_choose_first(split->config_id | of, split->config, split->policy, split->client, split->now_ns);
}

/* `protocol`: the packet's, as a constant. */
HR_INLINE void hr_note_flow(const struct hr_split *split, __u8 protocol, __u8 kind, __u16 id, __u32 value,
                            enum hr_flow_event event) {
  hr_flow_note(&split->packet->source, split->packet->source_port_be, protocol, kind, id, value,
               event | HR_FLOW_BY(split->packet->way), split->client, split->now_ns);
}

#define HR_FLOW_IS_NEW 0x100u

/*
 * The place of a client's flow; HR_FLOW_IS_NEW: it begins. It stays where it is while that backend lives: a new leader
 * gets new flows only. The opening datagram of a flow, which its client repeats when it is lost, is also how a down
 * backend is tried again. A flow that its backend never answered, though its client repeats itself for as long as it
 * takes to be down, is tried elsewhere, and shows nothing.
 */
HR_INLINE __u32 hr_place_of_flow(const struct hr_split *split) {
  __u32 config_id = split->config_id, client = split->client, place, held = HR_NO_BACKEND, unanswered = 0;
  const struct hr_service_config *config = split->config;
  const struct hr_service_policy *policy = split->policy;
  __u64 now_ns = split->now_ns;
  struct hr_choice choice;
  struct hr_flow_key key;
  struct hr_flow *flow;

  hr_flow_key_of(&key, &split->packet->source, split->packet->source_port_be, IPPROTO_UDP, HR_FLOW_CONNECTION,
                 HR_CONFIG_SERVICE(config_id));
  flow = hr_flow_find(&key, config->flow_timeout_ns, now_ns);
  if (flow) {
    held = hr_place_of_backend(config, flow->id);
    if (hr_flow_asks(split->skb, split->packet, flow, now_ns))
      unanswered = hr_note_owed(config_id, flow->id, hr_flow_wait(flow, client, now_ns), now_ns) &&
                   held != HR_NO_BACKEND && !(flow->asking.state & HR_ASKING_ANSWERED) && !hr_is_dry(policy);
    if (held != HR_NO_BACKEND && !unanswered && !(hr_unrouted(policy, now_ns) >> held & 1) &&
        hr_health_of(config_id, flow->id, client, now_ns) != HR_DOWN)
      return held;
  }
  if (unanswered) {
    choice = hr_unpack_choice(hr_choose_now(config_id, 1u << held, HR_EXPLORE_NEVER, client, now_ns));
    if (!hr_choice_is_fair(&choice)) return held;
  } else {
    choice = hr_choice_of(split, 0);
  }
  if (choice.why == HR_CHOSE_DRY_RUN) hr_count(split->service_stats, HR_WOULD_FAIL_OVER);
  place = hr_sure_place(config_id, hr_pack_choice(&choice), client, now_ns);
  if (!flow) {
    held = choice.probe ? hr_place_of_trial(config_id, hr_pack_choice(&choice), now_ns) : HR_NO_BACKEND;
    if (held != HR_NO_BACKEND) {
      hr_count(split->service_stats, HR_PROBES);
      return held | HR_FLOW_IS_NEW;
    }
  } else if (place != held) {
    if (held != HR_NO_BACKEND && hr_health_of(config_id, hr_backend_id(config, place), client, now_ns) == HR_DOWN)
      return held;
    hr_flow_moves(flow, hr_backend_id(config, place), unanswered ? held : HR_NO_BACKEND);
    hr_count(split->service_stats, HR_FLOWS_MOVED);
  }
  if (hr_choice_goes_around(&choice)) hr_count(split->service_stats, HR_FAILOVER_SENDS);
  return flow ? place : place | HR_FLOW_IS_NEW;
}

/*
 * An answer of the proxy's own, which the packet has become: to where answers to such a packet come in (way.bpf.h). A
 * host without any IPv6 address but ::1 sends from that one, to which the kernel lets packets in by lo alone. Global:
 * rare, with a stack of its own.
 */
HR_GLOBAL int hr_give_back(struct __sk_buff *skb, struct hr_packet *packet) {
  int verdict;

  if (!packet) return TC_ACT_SHOT;
  if (!packet->source.halves[0] && packet->source.halves[1] == bpf_cpu_to_be64(1))
    verdict = hr_give_at_uplink(skb, HR_LOOPBACK_IFINDEX);
  else if (hr_stays_in_place(packet->way) || hr_is_routed_here(skb, packet))
    verdict = hr_give_at_uplink(skb, skb->ifindex);
  else
    verdict = hr_give_to_client(skb);
  return verdict < 0 ? TC_ACT_SHOT : verdict;
}

/* The host has no route to the packet's backend. */
HR_INLINE int hr_say_unrouted(const struct hr_split *split, int opens) {
  hr_reason(split->service_stats, HR_REASON_NO_ROUTE);
  return hr_make_no_route(split->skb, split->packet, opens) ? TC_ACT_SHOT : hr_give_back(split->skb, split->packet);
}

/* Has the host no route to a backend? A global function: rare. */
HR_GLOBAL int hr_is_unrouted(__u32 backend_id, __u64 now_ns) {
  struct hr_backend *backend = bpf_map_lookup_elem(&backends, &backend_id);
  struct hr_service_policy *policy = backend ? hr_policy_of(backend->service) : 0;

  return policy && hr_unrouted(policy, now_ns) >> (backend->index & (HR_MAX_BACKENDS_PER_SERVICE - 1)) & 1;
}

/* The place of a one-way datagram. Now and then one tries a backend that is down: nothing else would show that it is
 * back. */
HR_INLINE __u32 hr_place_of_one_way(const struct hr_split *split) {
  struct hr_choice choice = hr_choice_of(split, 0);
  __u32 place = HR_NO_BACKEND;

  if (choice.probe || hr_choice_goes_around(&choice))
    place = hr_place_of_trial(split->config_id, hr_pack_choice(&choice), split->now_ns);
  if (place != HR_NO_BACKEND) {
    hr_count(split->service_stats, HR_PROBES);
    return place;
  }
  if (choice.why == HR_CHOSE_DRY_RUN) hr_count(split->service_stats, HR_WOULD_FAIL_OVER);
  if (hr_choice_goes_around(&choice)) hr_count(split->service_stats, HR_FAILOVER_SENDS);
  return hr_sure_place(split->config_id, hr_pack_choice(&choice), split->client, split->now_ns);
}

HR_INLINE int hr_is_flow(const struct hr_service_config *config) {
  return config->profile.request_correlation.pairing == HR_PAIR_FLOW;
}

/*
 * Does this request test the hedge? Once for each test, which ends with it. A global function: rare. An overdue test is
 * cleared, so that it costs the next requests nothing.
 */
HR_GLOBAL int hr_take_hedge_test(__u32 service_id, struct hr_packet *packet, __u64 now_ns) {
  struct hr_service_policy *policy = hr_policy_of(service_id);
  struct hr_address client;
  __u64 until_ns;

  if (!policy || !packet) return 0;
  until_ns = READ_ONCE(policy->test_until_ns);
  if (!until_ns) return 0;
  client = packet->source;
  if (now_ns <= until_ns &&
      (policy->test_port_be != packet->source_port_be || policy->test_client != hr_test_client(&client)))
    return 0;
  return __sync_val_compare_and_swap(&policy->test_until_ns, until_ns, 0) == until_ns && now_ns <= until_ns;
}

/* A datagram of a service without requests and replies has no copy, and is not tracked. */
HR_INLINE int hr_split_udp(struct hr_split *split) {
  const struct hr_service_config *config = split->config;
  __u32 config_id = split->config_id, service_id = HR_CONFIG_SERVICE(config_id);
  struct hr_stats *service_stats = split->service_stats;
  struct hr_choice *choice = &split->choice;
  struct hr_packet *packet = split->packet;
  __u64 now_ns = split->now_ns;
  struct hr_tracking tracking = {};
  __u32 first_id, place, opens_flow = 0;

  hr_count(service_stats, HR_REQUESTS);
  hr_note_client(service_id, split->client, now_ns);
  if (hr_is_flow(config)) {
    place = hr_place_of_flow(split);
    choice->first = place & (HR_FLOW_IS_NEW - 1);
    opens_flow = place & HR_FLOW_IS_NEW;
    tracking.reason = HR_REASON_FLOW;
  } else if (hr_is_unpaired(&config->profile.request_correlation)) {
    choice->first = hr_place_of_one_way(split);
    tracking.reason = HR_REASON_ONE_WAY;
  } else {
    *choice = hr_choice_of(split, 0);
    /* Its backend does not get it, so no answer of that backend is missing. */
    if (READ_ONCE(split->policy->test_until_ns) && hr_take_hedge_test(service_id, packet, now_ns))
      choice->why = HR_CHOSE_TEST;
    if (choice->why == HR_CHOSE_DRY_RUN) hr_count(service_stats, HR_WOULD_FAIL_OVER);
  }
  if (READ_ONCE(split->policy->unrouted) && hr_is_unrouted(hr_backend_id(config, choice->first), now_ns)) {
    hr_count(service_stats, HR_UNROUTED);
    return hr_say_unrouted(split, /*opens=*/0);
  }
  if (hr_tracing()) hr_trace_request(split->skb, packet, config, config_id, now_ns);
  if (!tracking.reason) {
    hr_budget_earn(config, service_id, split->client);
    tracking = hr_track(split);
  }
  if (packet->trace) hr_trace_begin(split, &tracking);
  if (!tracking.request) {
    __u32 to = hr_untracked_to(choice, &tracking);

    hr_count(service_stats, HR_PASSED_THROUGH);
    hr_reason(service_stats, tracking.reason);
    if (to != choice->first) hr_count(service_stats, HR_PROBES);
    choice->first = to;
  } else if (choice->why == HR_CHOSE_TEST) {
    hr_reason(service_stats, HR_REASON_HEDGE_TEST);
    return TC_ACT_SHOT;
  } else {
    struct hr_attempt beside = hr_attempt_of(tracking.request, 0, config_id, HR_TRACE_COPY);
    __u64 unhealthy = READ_ONCE(split->policy->unhealthy);

    if (choice->second == HR_NO_BACKEND && unhealthy && !hr_is_dry(split->policy)) {
      unhealthy &= ~(READ_ONCE(split->policy->drained) | 1u << (choice->first & (HR_MAX_BACKENDS_PER_SERVICE - 1)));
      choice->second = hr_place_to_probe(config_id, unhealthy, now_ns);
      choice->probe = choice->second != HR_NO_BACKEND;
    }
    if (choice->second == HR_NO_BACKEND && config->idle_share && hr_choice_is_fair(choice)) {
      choice->second = hr_idle_place(config_id, tracking.request, choice->first, now_ns);
      choice->why = HR_CHOSE_IDLE;
    }
    hr_flight_begin_first(hr_backend_id(config, choice->first));
    if (choice->second != HR_NO_BACKEND) hr_claim_beside(&beside, hr_pack_choice(choice), now_ns);
    if (beside.index != HR_NO_BACKEND) hr_send_beside(split->skb, packet, &beside);
  }
  first_id = hr_backend_id(config, choice->first);
  if (packet->fragment == HR_FIRST_FRAGMENT) hr_fragment_note(packet, HR_FRAGMENT_TO_BACKEND, first_id, now_ns);
  if (hr_choice_goes_around(choice)) hr_count(service_stats, HR_FAILOVER_SENDS);
  hr_note_flow(split, IPPROTO_UDP, HR_FLOW_REPLY, first_id, service_id,
               tracking.request ? HR_FLOW_PLAIN : HR_FLOW_UNTRACKED);
  if (hr_is_flow(config)) {
    hr_note_flow(split, IPPROTO_UDP, HR_FLOW_CONNECTION, service_id, first_id, HR_FLOW_PLAIN);
    if (opens_flow) {
      hr_count(service_stats, HR_FLOWS);
      hr_flow_opens(split->skb, packet, service_id, now_ns);
    }
  }
  if (tracking.request)
    hr_note_send(config_id, first_id, split->client, now_ns);
  else
    hr_count_backend(first_id, HR_BACKEND_SENDS);
  return hr_send_to_backend(split->skb, packet, first_id, service_stats);
}

/*
 * The place of a connection that its client opens, or opens again because nothing has answered: then `held`, where its
 * last SYN went, is passed by, if another backend is healthy. A down backend is tried by a SYN, which its client
 * repeats.
 */
HR_INLINE __u32 hr_place_of_connection(const struct hr_split *split, __u32 held) {
  __u32 config_id = split->config_id | HR_OF_TCP, client = split->client, tried;
  __u64 now_ns = split->now_ns;
  struct hr_choice choice;

  hr_note_client(HR_CONFIG_SERVICE(config_id), client, now_ns);
  hr_prove_syns(config_id, client, now_ns);
  if (held < HR_MAX_BACKENDS_PER_SERVICE && !hr_is_dry(split->policy)) {
    choice = hr_unpack_choice(hr_choose_now(config_id, 1u << held, HR_EXPLORE_NEVER, client, now_ns));
    if (hr_choice_is_fair(&choice)) return choice.first;
  }
  choice = hr_choice_of(split, HR_OF_TCP);
  tried = choice.probe ? hr_place_of_trial(config_id, hr_pack_choice(&choice), now_ns) : HR_NO_BACKEND;
  if (tried != HR_NO_BACKEND) {
    hr_count(split->service_stats, HR_PROBES);
    return tried;
  }
  return hr_sure_place(config_id, hr_pack_choice(&choice), client, now_ns);
}

/*
 * A SYN goes to the backend of its connection: when, unless it is one more of those that nothing has answered there. Of
 * no client (HR_NO_CLIENT) nothing is noted. 1: its connection has this SYN already; the network, or a hasty client,
 * has sent it twice, or its answer was lost. A global function: rare.
 */
HR_GLOBAL int hr_note_syn(struct __sk_buff *skb, struct hr_packet *packet, __u32 config_id, __u32 client,
                          __u64 now_ns) {
  struct hr_flow *connection;
  struct hr_flow_key key;
  __be32 number;

  if (!packet || bpf_skb_load_bytes(skb, packet->l4_offset + HR_TCP_NUMBER, &number, sizeof(number))) return 0;
  hr_flow_key_of(&key, &packet->source, packet->source_port_be, IPPROTO_TCP, HR_FLOW_CONNECTION,
                 HR_CONFIG_SERVICE(config_id));
  connection = hr_flow_look_up(&key, now_ns);
  if (!connection) return 0;
  if (client == HR_NO_CLIENT)
    return connection->syn_number == number && !connection->closing &&
           (!connection->syn_ns || now_ns < connection->syn_ns + HR_SYN_ANSWERED_NS);
  if (connection->syn_ns <= HR_SYN_REFUSED) WRITE_ONCE(connection->syn_ns, now_ns);
  connection->client = client;
  connection->syn_number = number;
  hr_note_wait(config_id, HR_TCP_STATE(connection->id), client, now_ns);
  return 0;
}

/*
 * TCP is never hedged. A connection keeps the backend that its first packet went to, even when another one leads by
 * then. The kernel of a stopped server accepts connections, so a segment from it shows nothing of the server. But a SYN
 * that is refused, or not answered, shows that no connection can be opened there.
 */
HR_INLINE int hr_split_tcp(struct hr_split *split) {
  __u32 backend_id, service_id = HR_CONFIG_SERVICE(split->config_id);
  struct hr_packet *packet = split->packet;
  __u64 now_ns = split->now_ns;
  struct hr_flow_key key;
  struct hr_flow *connection;
  enum hr_flow_event event = HR_FLOW_PLAIN;
  __u8 flags = 0;

  hr_count(split->service_stats, HR_TCP_PACKETS);
  if (bpf_skb_load_bytes(split->skb, packet->l4_offset + HR_TCP_FLAGS, &flags, 1)) return TC_ACT_UNSPEC;
  if (flags & (HR_TCP_FIN | HR_TCP_RST)) event = HR_FLOW_CLOSING;
  if ((flags & (HR_TCP_SYN | HR_TCP_ACK)) == HR_TCP_SYN &&
      !hr_note_syn(split->skb, packet, split->config_id, HR_NO_CLIENT, now_ns))
    event = HR_FLOW_OPENING;
  hr_flow_key_of(&key, &packet->source, packet->source_port_be, IPPROTO_TCP, HR_FLOW_CONNECTION, service_id);
  connection = hr_flow_find(&key, HR_FLOW_TCP_NS, now_ns);
  if (connection && event != HR_FLOW_OPENING) {
    backend_id = connection->id;
  } else {
    __u32 held = HR_NO_BACKEND;

    if (connection && connection->syn_ns && now_ns >= connection->syn_ns + HR_SYN_ANSWERED_NS)
      held = hr_place_of_backend(split->config, connection->id); /* its client has waited in vain */
    backend_id = hr_backend_id(split->config, hr_place_of_connection(split, held));
  }
  hr_note_flow(split, IPPROTO_TCP, HR_FLOW_CONNECTION, service_id, backend_id, event);
  if (event == HR_FLOW_OPENING) hr_note_syn(split->skb, packet, split->config_id, split->client, now_ns);
  if (READ_ONCE(split->policy->unrouted) && hr_is_unrouted(backend_id, now_ns))
    return hr_say_unrouted(split, event == HR_FLOW_OPENING);
  hr_note_flow(split, IPPROTO_TCP, HR_FLOW_REPLY, backend_id, service_id, event);
  if (packet->fragment == HR_FIRST_FRAGMENT) hr_fragment_note(packet, HR_FRAGMENT_TO_BACKEND, backend_id, now_ns);
  return hr_send_to_backend(split->skb, packet, backend_id, split->service_stats);
}

HR_INLINE int hr_split_later_fragment(struct __sk_buff *skb, struct hr_packet *packet) {
  struct hr_fragment *fragment = hr_fragment_find(packet, hr_now_ns());
  struct hr_stats *service_stats;
  struct hr_backend *backend;
  __u32 backend_id;

  if (!fragment || fragment->action != HR_FRAGMENT_TO_BACKEND) {
    hr_host_reason(HR_REASON_FRAGMENT_NO_FIRST);
    return TC_ACT_UNSPEC;
  }
  backend_id = fragment->id;
  backend = bpf_map_lookup_elem(&backends, &backend_id);
  if (!backend) return TC_ACT_UNSPEC;
  service_stats = hr_stats_of(backend->service);
  hr_count(service_stats, HR_LATER_FRAGMENTS);
  hr_fragment_pass(packet, fragment);
  return hr_send_to_backend(skb, packet, backend_id, service_stats);
}

/* For a packet to no service: TC_ACT_OK where it goes to a VIP's address and its sender may use that. */
HR_INLINE int hr_may_be_answered(struct __sk_buff *skb, const struct hr_packet *packet) {
  struct hr_address vip = packet->destination;
  struct hr_vip *found = bpf_map_lookup_elem(&vip_addresses, &vip);

  if (!found) return TC_ACT_UNSPEC;
  if (!hr_may_use_vip(skb, packet, hr_config_of(hr_published_config(found->service)), found->service))
    return TC_ACT_SHOT;
  return TC_ACT_OK;
}

HR_INLINE int hr_give_answer(struct __sk_buff *skb, struct hr_packet *packet, enum hr_counter counter) {
  hr_count(hr_stats_of(HR_MAX_SERVICES), counter);
  return hr_give_back(skb, packet);
}

/* The proxy answers for the VIP: a backend's ports are not a VIP's. */
HR_INLINE int hr_refuse(struct __sk_buff *skb, struct hr_packet *packet) {
  int verdict = hr_may_be_answered(skb, packet);

  if (verdict != TC_ACT_OK) return verdict;
  return hr_make_refusal(skb, packet) ? TC_ACT_UNSPEC : hr_give_answer(skb, packet, HR_REFUSALS);
}

/* And a backend's reachability is not a VIP's. */
HR_INLINE int hr_answer_ping(struct __sk_buff *skb, struct hr_packet *packet) {
  struct hr_address vip = packet->destination;
  struct hr_address client = packet->source;
  __u8 type, reply;
  int verdict;

  if (packet->fragment != HR_WHOLE) return TC_ACT_UNSPEC;
  if (bpf_skb_load_bytes(skb, packet->l4_offset, &type, 1)) return TC_ACT_UNSPEC;
  /* An error is the sink's: it may come from a router that may not use the VIP. */
  if (type != (packet->version == 4 ? HR_ECHO_REQUEST_V4 : HR_ECHO_REQUEST_V6)) return TC_ACT_UNSPEC;
  verdict = hr_may_be_answered(skb, packet);
  if (verdict != TC_ACT_OK) return verdict;
  reply = packet->version == 4 ? 0 : HR_ECHO_REPLY_V6;
  /* Type is the high byte of the first word; swapping the addresses changes no sum. */
  if (bpf_l4_csum_replace(skb, packet->l4_offset + 2, bpf_htons(type << 8), bpf_htons(reply << 8), 2) ||
      bpf_skb_store_bytes(skb, packet->l4_offset, &reply, 1, 0))
    return TC_ACT_UNSPEC;
  if (packet->version == 4) {
    bpf_skb_store_bytes(skb, packet->l3_offset + 12, &vip.words[3], 4, 0);
    bpf_skb_store_bytes(skb, packet->l3_offset + 16, &client.words[3], 4, 0);
  } else {
    bpf_skb_store_bytes(skb, packet->l3_offset + 8, &vip, 16, 0);
    bpf_skb_store_bytes(skb, packet->l3_offset + 24, &client, 16, 0);
  }
  return hr_give_answer(skb, packet, HR_PINGS);
}

/* Asked of every packet that leaves by an uplink, the proxy's own included, so before anything else is read. */
HR_INLINE int hr_goes_to_vip(struct __sk_buff *skb) {
  struct hr_address destination;
  __be32 ipv4;

  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    if (bpf_skb_load_bytes(skb, ETH_HLEN + HR_IPV4_DESTINATION, &ipv4, sizeof(ipv4))) return 0;
    hr_map_ipv4(&destination, ipv4);
  } else {
    if (skb->protocol != bpf_htons(ETH_P_IPV6)) return 0;
    if (bpf_skb_load_bytes(skb, ETH_HLEN + HR_IPV6_DESTINATION, &destination, sizeof(destination))) return 0;
  }
  return bpf_map_lookup_elem(&vip_addresses, &destination) != 0;
}

/* A function of its own, so that the key's bytes of the stack are free again when the request is split. */
HR_INLINE __u32 *hr_find_service(const struct hr_packet *packet) {
  struct hr_endpoint endpoint = {.address = packet->destination, .port_be = packet->destination_port_be};

  return bpf_map_lookup_elem(&vips, &endpoint);
}

SEC("tc")
int hr_splitter(struct __sk_buff *skb) {
  struct hr_packet packet = {};
  struct hr_split split = {.skb = skb, .packet = &packet};
  __u32 *found, service_id;

  if (skb->ifindex != load_config.proxy_ifindex) {
    if (!hr_goes_to_vip(skb)) return TC_ACT_UNSPEC;
    packet.way = HR_WAY_STRANGER;
  }
  if (hr_parse(skb, &packet)) {
    hr_host_reason(HR_REASON_MALFORMED);
    return TC_ACT_UNSPEC;
  }
  if (packet.fragment == HR_LATER_FRAGMENT) return hr_split_later_fragment(skb, &packet);
  if (packet.way != HR_WAY_PROXY) packet.way = hr_way_by_uplink(skb, &packet);
  if (packet.protocol == IPPROTO_ICMP || packet.protocol == HR_IPPROTO_ICMPV6) return hr_answer_ping(skb, &packet);
  if (packet.protocol != IPPROTO_UDP && packet.protocol != IPPROTO_TCP) return TC_ACT_UNSPEC;

  found = hr_find_service(&packet);
  if (!found) return hr_refuse(skb, &packet);
  split.config_id = hr_published_config(*found);
  service_id = HR_CONFIG_SERVICE(split.config_id);
  split.config = hr_config_of(split.config_id);
  split.policy = hr_policy_of(service_id);
  if (!split.config || !split.policy) return TC_ACT_UNSPEC;
  if (!hr_may_use_vip(skb, &packet, split.config, service_id)) return TC_ACT_SHOT;
  if (packet.protocol == IPPROTO_UDP && hr_is_self_test(skb, &packet))
    return hr_turn_self_test(skb, &packet, split.config_id);
  split.service_stats = hr_stats_of(service_id);
  split.now_ns = hr_now_ns();
  split.client = hr_client_of(skb, &packet, service_id);
  if (packet.protocol == IPPROTO_TCP) return hr_split_tcp(&split);
  /* They come back without their socket, for which a bound one's answers would be assigned to nothing. */
  if (skb->gso_size && (packet.way == HR_WAY_PROXY || hr_is_routed_here(skb, &packet)) &&
      hr_untrackable(&split) == HR_REASON_GSO) {
    int verdict = hr_to_segments(skb, HR_MARK_SEGMENT_OUT, skb->ifindex, split.client);

    if (verdict >= 0) return verdict;
  }
  split.choice.second = HR_NO_BACKEND;
  split.choice.why = HR_CHOSE_LEADER;
  return hr_split_udp(&split);
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
