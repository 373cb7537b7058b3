// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * REPLY: TC ingress of every uplink, and of lo for the kernel's own errors. Sees what backends send: lets the winner's
 * datagrams through to the client in the VIP's name, drops the losers', turns a nack into the next attempt, and takes
 * an ICMP "unreachable" as the nack it is. Takes the announcements of the services' clusters, too. A packet that is not
 * from a backend, or not to a client that asked through the proxy, passes on untouched.
 */
#include "bpf/net/udp_checksum.bpf.h"
#include "bpf/proxy/announce.bpf.h"
#include "bpf/proxy/answer.bpf.h"
#include "bpf/proxy/asking.bpf.h"
#include "bpf/proxy/direct.bpf.h"
#include "bpf/proxy/flow.bpf.h"
#include "bpf/proxy/forged.bpf.h"
#include "bpf/proxy/icmp.bpf.h"
#include "bpf/proxy/rewrite.bpf.h"
#include "bpf/proxy/segment.bpf.h"
#include "bpf/proxy/self_test.bpf.h"
#include "bpf/proxy/trace.bpf.h"
#include "bpf/proxy/way.bpf.h"

#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#define HR_GOES_ON 100 /* no verdict of the kernel's: the rewritten packet goes on where it came in */

#define HR_IPV4_PROTOCOL 9 /* offset of the protocol in an IPv4 header */

/* In the VIP's name to the client; consumes the packet, unless it stays where it came in. */
HR_INLINE int hr_deliver(struct __sk_buff *skb, struct hr_packet *packet, const struct hr_service_config *config,
                         struct hr_stats *service_stats) {
  struct hr_address vip = config->vip;
  __u32 entry;
  int verdict;

  if (!hr_rewrite_source(skb, packet, &vip, config->port_be)) {
    entry = hr_entry_of(skb, packet, &vip);
    if (entry == skb->ifindex) return HR_GOES_ON;
    if (!entry && packet->way == HR_WAY_SOCKET) hr_assign_socket(skb, packet);
    verdict = entry ? hr_give_at_uplink(skb, entry) : hr_give_to_client(skb);
    if (verdict >= 0) return verdict;
  }
  hr_reason(service_stats, HR_REASON_SEND_FAILED);
  return TC_ACT_SHOT;
}

/*
 * The consumed nack goes round the clock's link, where it becomes the request's next attempt. The generation is stored
 * from where the reference has it, in its upper half: there is no stack left for a note.
 */
HR_INLINE int hr_to_clock(struct __sk_buff *skb, const struct hr_reply *reply) {
  if (bpf_skb_store_bytes(skb, ETH_ALEN + __builtin_offsetof(struct hr_link_note, generation),
                          (const __u8 *)&reply->reference + 4, sizeof(__u16), 0) ||
      hr_put_tag(skb))
    return TC_ACT_SHOT; /* the clock's lap makes the attempt, when it is due */
  skb->mark = HR_MARK_RELEASE | HR_MARK_VALUE(HR_REFERENCE_REQUEST(reply->reference));
  skb->priority = hr_priority_unheld();
  return bpf_redirect(load_config.clock_out_ifindex, 0);
}

/*
 * The trace event of a datagram from a backend, or of an ICMP error about one. Then the copy of a request that it has
 * ended goes back.
 */
HR_INLINE void hr_conclude(struct __sk_buff *skb, struct hr_packet *packet, const struct hr_answer *answer,
                           const struct hr_reply *reply) {
  __u32 kind = answer->verdict == HR_VERDICT_PASS ? HR_TRACE_ANSWER
               : answer->reason == HR_REASON_NACK ? HR_TRACE_NACK
                                                  : HR_TRACE_DROPPED;
  __u32 flags = (answer->verdict == HR_VERDICT_RELEASE ? HR_TRACE_RELEASED : 0) |
                (packet->protocol == IPPROTO_UDP ? 0 : HR_TRACE_ICMP);
  __u32 what = HR_TRACE_WHAT(kind, answer->reason, reply->index, flags);

  if (answer->request && hr_tracing_requests())
    hr_trace_event(answer->request, reply->config_id, what);
  else if (!answer->request && hr_tracing() && packet->protocol == IPPROTO_UDP)
    hr_trace_untracked(skb, packet, reply->config_id, what);
  if (answer->ended) hr_give_copy_back(answer->request);
}

HR_INLINE int hr_act(struct __sk_buff *skb, struct hr_packet *packet, const struct hr_answer *answer,
                     const struct hr_reply *reply) {
  if (hr_tracing() || answer->ended) hr_conclude(skb, packet, answer, reply);
  packet->way = reply->way;
  if (packet->fragment == HR_FIRST_FRAGMENT)
    hr_fragment_note(packet, answer->verdict == HR_VERDICT_PASS ? HR_FRAGMENT_TO_CLIENT : HR_FRAGMENT_DROP,
                     reply->service_id, reply->now_ns);
  if (answer->verdict != HR_VERDICT_PASS) hr_reason(reply->service_stats, answer->reason);
  if (answer->verdict == HR_VERDICT_DROP) return TC_ACT_SHOT;
  if (answer->verdict == HR_VERDICT_RELEASE) return hr_to_clock(skb, reply);
  hr_count(reply->service_stats, HR_REPLIES);
  if (!answer->request) hr_count(reply->service_stats, HR_REPLIES_UNTRACKED);
  return hr_deliver(skb, packet, reply->config, reply->service_stats);
}

/* The kernel would drop it. It was changed on its way, so it tells nothing of its sender. */
HR_INLINE int hr_is_damaged(struct __sk_buff *skb, struct hr_packet *packet, const struct hr_reply *reply) {
  if (hr_fate(skb, packet) != HR_FATE_REFUSED) return 0;
  hr_reason(reply->service_stats, HR_REASON_BAD_CHECKSUM);
  return 1;
}

/* No flow, and no request that the datagram names: its client never asked through the proxy, as far as the maps
 * remember. */
HR_INLINE int hr_pass_unknown(void) {
  hr_host_reason(HR_REASON_NO_FLOW);
  return TC_ACT_UNSPEC;
}

/*
 * Does a packet from a backend, or the packet that an ICMP error quotes (`quoted`), belong to a socket that talks to
 * the backend itself? Then it is none of the proxy's, whatever its flow says. It stays inline: as a function of its
 * own, its frame and those of what it calls pass the 512 bytes of stack that Linux 6.1 counts for a chain of calls.
 */
HR_INLINE int hr_goes_direct(struct __sk_buff *skb, const struct hr_packet *packet, int quoted,
                             const struct hr_reply *reply) {
  struct hr_address vip = reply->config->vip;
  struct hr_ends ends = hr_ends_of(packet, quoted);

  if (!hr_is_direct(skb, packet->protocol, &ends, &vip, reply->config->port_be)) return 0;
  hr_reason(reply->service_stats, HR_REASON_DIRECT);
  return 1;
}

/*
 * Is this datagram, which names no request, to one that its client sent to the backend itself, perhaps from a port that
 * used the VIP lately? It is if a socket is connected to the backend. Where a profile's answers are one datagram the
 * answer to a tracked request finds that request, however late it comes (hr_late); one with options or extension
 * headers looks for none, and is the client's all the same (`late`, too). Otherwise it is direct also if a socket is
 * connected to nothing, which would take both, if none is connected to the VIP, and where others serve the VIP as well.
 * Inline for the same reason as hr_goes_direct.
 */
HR_INLINE int hr_answers_another(struct __sk_buff *skb, const struct hr_packet *packet, const struct hr_reply *reply,
                                 __u32 late) {
  struct hr_ends ends = hr_ends_of(packet, 0);
  __u32 found = hr_udp_socket(skb, &ends);

  if (found == HR_UDP_CONNECTED) return 1;
  if (late || reply->untracked || !reply->config->profile.one_datagram) return 0;
  if (found == HR_UDP_UNCONNECTED || reply->config->in_place) return 1;
  ends.remote = reply->config->vip;
  ends.remote_port_be = reply->config->port_be;
  return hr_udp_socket(skb, &ends) != HR_UDP_CONNECTED;
}

/*
 * Is no request of this service tracked? Then the answer to one that was forwarded is all that makes a backend healthy
 * again, and no silence is judged that it could end.
 */
HR_INLINE int hr_tracks_nothing(const struct hr_reply *reply) {
  struct hr_service_policy *policy = hr_policy_of(reply->service_id);

  return reply->config->attempts < 2 || (policy && READ_ONCE(policy->switches) & HR_SWITCH_BYPASS);
}

/*
 * A datagram that no request can be named by: a backend that was sent datagrams of this client's lives, also one of a
 * service whose datagrams need no answer. A flow's former backend is out of the client's conversation.
 */
HR_INLINE struct hr_answer hr_judge_unpaired(struct __sk_buff *skb, struct hr_packet *packet,
                                             const struct hr_reply *reply) {
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS};
  struct hr_flow_key key;
  struct hr_flow *flow;

  /* Where nothing would change by it a sum over each datagram of an upload would be for nothing. */
  if (reply->flow && ((!READ_ONCE(reply->backend_state->wait_since) && reply->backend_state->health == HR_HEALTHY) ||
                      hr_fate(skb, packet) == HR_FATE_SURE))
    hr_note_answer(reply->config, reply->config_id, reply->backend_state, reply->backend_id, HR_NO_CLIENT,
                   reply->now_ns, reply->now_ns);
  if (reply->config->profile.reply_correlation.pairing != HR_PAIR_FLOW) return answer;
  hr_flow_key_of(&key, &packet->destination, packet->destination_port_be, IPPROTO_UDP, HR_FLOW_CONNECTION,
                 reply->service_id);
  flow = hr_flow_look_up(&key, reply->now_ns);
  if (!flow || flow->id == reply->backend_id) {
    /* A client that only receives keeps its flow, as in connection tracking. */
    if (flow) {
      hr_flow_stamp(flow, reply->now_ns);
      hr_flow_answered(flow, reply->config_id, reply->now_ns);
    }
    if (reply->flow) hr_flow_stamp(reply->flow, reply->now_ns);
    return answer;
  }
  return hr_dropped(reply, 0, HR_REASON_LOSER, HR_LOSERS_DROPPED);
}

HR_INLINE int hr_handle_udp(struct __sk_buff *skb, struct hr_packet *packet, struct hr_reply *reply) {
  struct hr_payload payload = hr_payload_of(packet);
  struct hr_profile *profile = &reply->config->profile;
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS};
  struct hr_request_key key = {};
  struct hr_request *request;
  __u32 late, fate, named;

  if (packet->payload_bytes == sizeof(struct hr_self_test) && hr_has_tag(skb)) {
    hr_count(reply->service_stats, HR_SELF_TESTS_BACK);
    packet->way = HR_WAY_SOCKET;
    bpf_skb_change_type(skb, PACKET_HOST); /* the tag stood for the destination */
    return hr_deliver(skb, packet, reply->config, reply->service_stats);
  }
  /* Several datagrams: each is judged for itself. Where that cannot be, all of them pass. */
  if (skb->gso_size) {
    int verdict;

    if (!reply->known) return hr_pass_unknown();
    verdict = hr_to_segments(skb, HR_MARK_SEGMENT_IN, skb->ifindex, HR_NO_CLIENT);
    if (verdict >= 0) return verdict;
    hr_reason(reply->service_stats, HR_REASON_MERGED);
    if (hr_tracing()) hr_locate(skb, reply->config_id, payload.offset, payload.bytes, 1);
    return hr_act(skb, packet, &answer, reply);
  }
  key.client = packet->destination;
  key.client_port_be = packet->destination_port_be;
  key.service = reply->service_id;
  if (hr_is_unpaired(&profile->reply_correlation) ||
      hr_correlation_of(skb, payload, reply->config, reply->config_id, 1, key.correlation) ||
      !hr_is_reply(skb, payload, profile)) {
    if (!reply->known) return hr_pass_unknown();
    if (hr_goes_direct(skb, packet, 0, reply)) return TC_ACT_UNSPEC;
    if (hr_is_unpaired(&profile->reply_correlation)) {
      answer = hr_judge_unpaired(skb, packet, reply);
      return hr_act(skb, packet, &answer, reply);
    }
    hr_reason(reply->service_stats, HR_REASON_NOT_A_REPLY);
    return hr_act(skb, packet, &answer, reply);
  }
  fate = hr_fate(skb, packet);
  request = hr_find_request(&key, &reply->reference);
  named = request && HR_SENT_MASK(request->masks) & (1u << reply->index);
  if (fate == HR_FATE_OPEN) request = 0; /* it decides nothing */
  late = request || fate != HR_FATE_SURE
             ? HR_LATE_UNKNOWN
             : hr_late(&key, reply, hr_is_nack(skb, payload, reply->config, reply->config_id) ? HR_LATE_IS_NACK : 0);
  if (!reply->known && !late && !named) return hr_pass_unknown();
  if (request && fate == HR_FATE_REFUSED) {
    /* The client would have no answer. It was changed on its way, so it tells nothing of its sender. */
    answer.verdict = HR_VERDICT_DROP;
    answer.reason = HR_REASON_BAD_CHECKSUM;
  } else if (request) {
    answer = hr_judge(skb, payload, request, reply, hr_is_nack(skb, payload, reply->config, reply->config_id));
  } else if (hr_answers_another(skb, packet, reply, late || fate == HR_FATE_OPEN)) {
    hr_reason(reply->service_stats, HR_REASON_DIRECT);
    return TC_ACT_UNSPEC;
  } else if (late) {
    reply->way = (__u8)(late >> 8);
    answer = hr_answer_late(late, reply);
    /* It was asked long ago, so it does not make its backend healthy: others may queue behind it. */
    if (late & HR_LATE_FRESH)
      hr_note_life(reply->config, reply->backend_state, reply->backend_id, HR_NO_CLIENT, reply->now_ns);
  } else if (reply->untracked && fate == HR_FATE_SURE && hr_tracks_nothing(reply)) {
    hr_note_answer(reply->config, reply->config_id, reply->backend_state, reply->backend_id, HR_NO_CLIENT,
                   reply->now_ns, reply->now_ns);
  }
  return hr_act(skb, packet, &answer, reply);
}

/*
 * Fills what is common to a datagram from a backend and to an ICMP error about one; -1: not from a backend. Whether it
 * is the proxy's, its flow says (`known`). A flow may be missing, for a full map forgets some: then a socket that is
 * connected to the VIP says the same (but where others serve it as well: their translation knows the answer), and a
 * datagram still answers the request that it names. A connection that has ended does not begin anew from the backend's
 * side: such a segment is another connection's.
 */
HR_INLINE int hr_recognise(struct __sk_buff *skb, struct hr_reply *reply, const struct hr_address *backend_address,
                           __u16 backend_port_be, const struct hr_address *client, __u16 client_port_be, __u8 protocol,
                           __u32 version) {
  struct hr_endpoint endpoint = {.address = *backend_address, .port_be = backend_port_be};
  struct hr_flow_key key;
  struct hr_backend *backend;
  struct hr_flow *flow;
  __u32 *found = bpf_map_lookup_elem(&backend_ids, &endpoint);
  __u64 lifetime_ns;

  if (!found) return -1;
  reply->backend_id = *found;
  backend = bpf_map_lookup_elem(&backends, &reply->backend_id);
  /* Only the way to the backend leads back from it, or the one before or beside it (ADR 46). Or the kernel speaks. */
  if (!backend || (backend->uplink_ifindex != skb->ifindex && backend->also_ifindex != skb->ifindex &&
                   skb->ifindex != HR_LOOPBACK_IFINDEX))
    return -1;
  reply->now_ns = hr_now_ns();
  reply->index = backend->index & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  reply->service_id = backend->service;
  reply->config_id = hr_published_config(reply->service_id);
  reply->config = hr_config_of(reply->config_id);
  reply->backend_state = bpf_map_lookup_elem(&backend_states, &reply->backend_id);
  reply->service_stats = hr_stats_of(reply->service_id);
  if (!reply->config || !reply->backend_state) return -1;
  lifetime_ns = protocol == IPPROTO_TCP ? HR_FLOW_TCP_NS : hr_flow_udp_ns(reply->config);
  hr_flow_key_of(&key, client, client_port_be, protocol, HR_FLOW_REPLY, reply->backend_id);
  flow = hr_flow_find(&key, lifetime_ns, reply->now_ns);
  if (!flow) {
    struct hr_ends ends = {.remote = reply->config->vip,
                           .local = *client,
                           .remote_port_be = reply->config->port_be,
                           .local_port_be = client_port_be,
                           .version = version};

    reply->known = !reply->config->in_place && hr_is_owned(skb, protocol, &ends);
    reply->way = HR_WAY_SOCKET; /* whatever it is bound to, it was found from here */
    return 0;
  }
  reply->known = 1;
  reply->way = flow->way;
  reply->flow = flow;
  reply->untracked = hr_flow_lately(flow->untracked_ns, lifetime_ns, reply->now_ns);
  return 0;
}

/* Another backend gets what this one has refused, and the client hears nothing. */
HR_INLINE struct hr_answer hr_consumed_refusal(const struct hr_reply *reply) {
  return hr_dropped(reply, 0, HR_REASON_NACK, HR_NACKS_SWALLOWED);
}

/* Is another backend healthy, to this client? */
HR_INLINE int hr_has_another(const struct hr_reply *reply, __u32 config_id, __u32 client) {
  struct hr_service_policy *policy = hr_policy_of(reply->service_id);

  return policy && !hr_is_dry(policy) &&
         hr_is_healthy_choice(hr_choose_now(config_id, 1u << reply->index, HR_EXPLORE_NEVER, client, reply->now_ns));
}

/*
 * The answer to a connection's SYN: a SYN-ACK, or with HR_OPENING_REFUSED a reset or an ICMP error (HR_OPENING_QUOTED:
 * the packet is the SYN itself). HR_OPENING_REFUSED and the client; HR_OPENING_OVER: it is about a SYN that its client
 * has repeated since, and went elsewhere; 0: the packet is the client's, and so is what names another SYN's number. A
 * SYN may have data, which its answer takes. A global function: rare, with a stack of its own.
 */
#define HR_OPENING_OVER 0x10000u
#define HR_OPENING_REFUSED 0x20000u
#define HR_OPENING_QUOTED 0x40000u
#define HR_SYN_DATA_MAX 9000
HR_GLOBAL __u32 hr_judge_opening(struct __sk_buff *skb, struct hr_packet *packet, __u32 service_id, __u32 backend_id,
                                 __u32 about) {
  __u32 tcp_id = HR_TCP_STATE(backend_id), quoted = about & HR_OPENING_QUOTED, past;
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &tcp_id);
  struct hr_flow *connection;
  struct hr_flow_key key;
  __be32 number;

  if (!packet || !state ||
      bpf_skb_load_bytes(skb, packet->l4_offset + (quoted ? HR_TCP_NUMBER : HR_TCP_ACKNOWLEDGED), &number,
                         sizeof(number)))
    return 0;
  hr_flow_key_of(&key, quoted ? &packet->source : &packet->destination,
                 quoted ? packet->source_port_be : packet->destination_port_be, IPPROTO_TCP, HR_FLOW_CONNECTION,
                 service_id);
  connection = hr_flow_look_up(&key, hr_now_ns());
  if (!connection) return 0;
  if (connection->id != backend_id) return HR_OPENING_OVER;
  past = bpf_ntohl(number) - bpf_ntohl(connection->syn_number);
  if (!connection->syn_ns || (quoted ? past != 0 : past - 1 > HR_SYN_DATA_MAX)) return 0;
  WRITE_ONCE(connection->syn_ns, about & HR_OPENING_REFUSED ? HR_SYN_REFUSED : 0);
  if (about & HR_OPENING_REFUSED) return HR_OPENING_REFUSED | (connection->client & (HR_CLIENTS - 1));
  hr_trust(state);
  return 0;
}

/*
 * Is this answer to a SYN consumed? So is a refusal where another backend is healthy: the client sends its SYN again,
 * which goes there. A refusal is evidence like a silence that has lasted long enough.
 */
HR_INLINE int hr_consumes_opening(struct __sk_buff *skb, struct hr_packet *packet, const struct hr_reply *reply,
                                  __u32 about) {
  __u32 opening = hr_judge_opening(skb, packet, reply->service_id, reply->backend_id, about);

  if (!(opening & HR_OPENING_REFUSED)) return opening != 0;
  hr_prove(HR_TCP_STATE(reply->backend_id),
           HR_WAIT(reply->now_ns - HR_SYN_ANSWERED_NS - HR_WAIT_MASK - 1, opening & (HR_CLIENTS - 1)),
           hr_is_alone(reply->service_id, reply->now_ns));
  return hr_has_another(reply, reply->config_id | HR_OF_TCP, opening & (HR_CLIENTS - 1));
}

/*
 * The network cannot deliver to a backend of a service without requests: what comes next goes to another one. The
 * client hears of it where there is none, or where a full map has forgotten its flow: whose error it is cannot be
 * noted.
 */
HR_INLINE struct hr_answer hr_judge_undelivered(const struct hr_reply *reply) {
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS};
  __u32 client;

  if (!reply->flow) return answer;
  client = reply->flow->client & (HR_CLIENTS - 1);
  hr_note_undeliverable(reply->config_id, reply->backend_id, client, reply->now_ns);
  return hr_has_another(reply, reply->config_id, client) ? hr_consumed_refusal(reply) : answer;
}

/*
 * An error that is about a datagram and not about its backend: its time to live has ended on the way, it is too big, a
 * header is wrong. That is its sender's matter. The backend does not have the request that it quotes: its silence about
 * that is none. A global function: rare, and with a frame of its own.
 */
HR_GLOBAL int hr_note_undelivered(__u32 request_index, __u32 backend_id) {
  struct hr_backend_state *state = bpf_map_lookup_elem(&backend_states, &backend_id);
  struct hr_backend *backend = bpf_map_lookup_elem(&backends, &backend_id);
  struct hr_request *request = hr_request_at(request_index);
  __u32 place;

  if (!state || !backend || !request || HR_WORD_STATE(READ_ONCE(request->word)) != HR_STATE_PENDING) return 0;
  place = backend->index & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  if (!(HR_SENT_MASK(request->masks) & (1u << place))) return 0;
  __sync_fetch_and_or(&request->masks, HR_MASKS_ANSWERED(1u << place));
  hr_flight_end(request, place, backend_id);
  if (place == request->first) hr_forgive(state, request->client, request->sent_ns);
  return 0;
}

/*
 * A killed backend's host, a firewall or a router on the way, or this host's own kernel reports that the backend did
 * not get a packet. `unreachable`: a nack for the request it quotes, and a reason to suspect the backend. Any other
 * error is about that packet alone.
 */
HR_INLINE struct hr_answer hr_judge_error(struct __sk_buff *skb, const struct hr_packet *quoted, int unreachable,
                                          struct hr_reply *reply) {
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS};
  struct hr_payload payload = hr_payload_of(quoted);
  struct hr_request_key key = {};
  struct hr_request *request;
  __u64 word;

  if (hr_is_unpaired(&reply->config->profile.request_correlation))
    return unreachable ? hr_judge_undelivered(reply) : answer;
  key.client = quoted->source;
  key.client_port_be = quoted->source_port_be;
  key.service = reply->service_id;
  if (hr_correlation_of(skb, payload, reply->config, reply->config_id, 0, key.correlation)) {
    /* The quotation is too short to identify the request (RFC 792 promises 8 bytes), which stays parked until it is
     * due. */
    return reply->untracked || !unreachable ? answer : hr_consumed_refusal(reply);
  }
  request = hr_find_request(&key, &reply->reference);
  if (!unreachable) {
    if (request) hr_note_undelivered(HR_REFERENCE_REQUEST(reply->reference), reply->backend_id);
    return answer;
  }
  word = request ? READ_ONCE(request->word) : 0;
  if (!request || HR_WORD_GENERATION(word) != HR_REFERENCE_GENERATION(reply->reference)) {
    /* The request neither waits nor is retained: the error is about a copy that lost, and comes after its retention. */
    __u32 late = hr_late(&key, reply, HR_LATE_IS_NACK);

    return (late & 0xff) == HR_LATE_LOSER ? hr_answer_late(late, reply) : answer;
  }
  if (HR_WORD_STATE(word) == HR_STATE_CLAIMING) return answer;
  if (HR_WORD_STATE(word) == HR_STATE_EXPIRED && HR_WORD_WINNER(word) == HR_NO_BACKEND &&
      (HR_SENT_MASK(request->masks) & (1u << reply->index)))
    return hr_judge_late_nack(request, reply);
  if (HR_WORD_STATE(word) != HR_STATE_PENDING) {
    /* About a copy that lost: the client has its answer. */
    hr_take_nack(request, reply);
    return hr_dropped(reply, 0, HR_REASON_LOSER, HR_LOSERS_DROPPED);
  }
  if (!(HR_SENT_MASK(request->masks) & (1u << reply->index)))
    return answer; /* nothing was sent there: forged or ancient */
  /* No process has the port, or a rule turns this client away. */
  if (hr_is_alone(reply->service_id, reply->now_ns))
    hr_suspect(reply->backend_state, reply->service_stats, reply->now_ns);
  return hr_judge_nack(hr_the_wheel(), request, word, reply, reply->config->cluster_id != 0, 0);
}

/* `reply` is the caller's: one more does not fit into 6.1's 512 bytes of stack (docs/development.md, Traps). */
HR_INLINE int hr_handle_icmp(struct __sk_buff *skb, struct hr_packet *packet, struct hr_reply *reply) {
  struct hr_answer answer = {.verdict = HR_VERDICT_PASS};
  struct hr_icmp_error error = {};
  struct hr_address vip;
  int verdict;

  if (hr_parse_icmp_error(skb, packet, &error)) return TC_ACT_UNSPEC;
  if (hr_recognise(skb, reply, &error.quoted.destination, error.quoted.destination_port_be, &error.quoted.source,
                   error.quoted.source_port_be, error.quoted.protocol, packet->version))
    return TC_ACT_UNSPEC;
  if (!reply->known) return hr_pass_unknown();
  if (error.quoted.protocol == IPPROTO_TCP && hr_goes_direct(skb, &error.quoted, 1, reply)) return TC_ACT_UNSPEC;
  if (hr_is_damaged(skb, packet, reply)) return TC_ACT_SHOT;
  if (error.quoted.protocol == IPPROTO_TCP && error.unreachable &&
      hr_consumes_opening(skb, &error.quoted, reply, HR_OPENING_REFUSED | HR_OPENING_QUOTED))
    answer = hr_consumed_refusal(reply);
  if (error.quoted.protocol == IPPROTO_UDP) answer = hr_judge_error(skb, &error.quoted, error.unreachable, reply);
  if (answer.verdict != HR_VERDICT_PASS) return hr_act(skb, packet, &answer, reply);
  if (hr_tracing() || answer.ended) hr_conclude(skb, packet, &answer, reply);
  vip = reply->config->vip;
  /*
   * A router's error keeps its source, to which no route leads through the proxy interface: it stays where it is. So
   * does any error to a client that sends by an uplink: its socket is looked up from there.
   */
  error.stays = reply->way != HR_WAY_PROXY || !hr_same_address(&packet->source, &error.quoted.destination);
  if (hr_translate_icmp(skb, packet, &error, HR_DESTINATION, &vip, reply->config->port_be)) {
    hr_reason(reply->service_stats, HR_REASON_SEND_FAILED);
    return TC_ACT_SHOT;
  }
  hr_count(reply->service_stats, HR_ICMP_TRANSLATED);
  if (error.stays) { /* it quotes a packet to a VIP by now, rightly, and still may not come from one */
    vip = packet->source;
    return bpf_map_lookup_elem(&vip_addresses, &vip) ? TC_ACT_UNSPEC : HR_GOES_ON;
  }
  verdict = hr_give_to_client(skb);
  return verdict < 0 ? TC_ACT_SHOT : verdict;
}

HR_INLINE int hr_handle_later_fragment(struct __sk_buff *skb, struct hr_packet *packet) {
  struct hr_fragment *fragment = hr_fragment_find(packet, hr_now_ns());
  struct hr_stats *service_stats;
  struct hr_service_config *config;
  __u32 service_id, action;

  /* Most later fragments on an uplink are not the proxy's, so they are not counted. */
  if (!fragment || fragment->action == HR_FRAGMENT_TO_BACKEND) return TC_ACT_UNSPEC;
  service_id = fragment->id;
  action = fragment->action;
  packet->way = fragment->way;
  hr_fragment_pass(packet, fragment);
  config = hr_config_of(hr_published_config(service_id));
  service_stats = hr_stats_of(service_id);
  if (!config) return TC_ACT_UNSPEC;
  hr_count(service_stats, HR_LATER_FRAGMENTS);
  if (action == HR_FRAGMENT_DROP) {
    hr_reason(service_stats, HR_REASON_LOSER_FRAGMENT);
    return TC_ACT_SHOT;
  }
  return hr_deliver(skb, packet, config, service_stats);
}

/*
 * What is not the proxy's goes on as it came, but nothing in a VIP's name: only what the proxy itself gives to this
 * interface. The kernel's own errors come by lo.
 */
HR_INLINE int hr_pass_foreign(struct __sk_buff *skb) {
  if (!hr_bears_vip(skb, skb->ifindex != HR_LOOPBACK_IFINDEX) || !hr_let_in(skb)) return TC_ACT_UNSPEC;
  hr_host_reason(HR_REASON_FORGED_VIP);
  return TC_ACT_SHOT;
}

HR_INLINE int hr_handle_tcp(struct __sk_buff *skb, struct hr_packet *packet, struct hr_reply *reply) {
  __u8 flags = 0;

  if (!reply->known) return hr_pass_unknown();
  if (reply->flow && !bpf_skb_load_bytes(skb, packet->l4_offset + HR_TCP_FLAGS, &flags, 1) && reply->flow->closing &&
      (flags & HR_TCP_SYN))
    return hr_pass_unknown();
  if (hr_goes_direct(skb, packet, 0, reply)) return TC_ACT_UNSPEC;
  if (flags & (HR_TCP_SYN | HR_TCP_RST) && hr_is_damaged(skb, packet, reply)) return TC_ACT_SHOT;
  if (reply->flow && flags & (HR_TCP_FIN | HR_TCP_RST)) reply->flow->closing = 1;
  hr_count(reply->service_stats, HR_TCP_PACKETS);
  if (flags & (HR_TCP_SYN | HR_TCP_RST) &&
      hr_consumes_opening(skb, packet, reply, flags & HR_TCP_RST ? HR_OPENING_REFUSED : 0)) {
    hr_consumed_refusal(reply);
    hr_reason(reply->service_stats, HR_REASON_NACK);
    return TC_ACT_SHOT;
  }
  packet->way = reply->way;
  if (packet->fragment == HR_FIRST_FRAGMENT)
    hr_fragment_note(packet, HR_FRAGMENT_TO_CLIENT, reply->service_id, reply->now_ns);
  return hr_deliver(skb, packet, reply->config, reply->service_stats);
}

HR_INLINE int hr_handle_layer4(struct __sk_buff *skb, struct hr_packet *packet, struct hr_reply *reply) {
  if (packet->protocol == (packet->version == 4 ? IPPROTO_ICMP : HR_IPPROTO_ICMPV6))
    return hr_handle_icmp(skb, packet, reply);
  if (packet->protocol != IPPROTO_UDP && packet->protocol != IPPROTO_TCP) return TC_ACT_UNSPEC;
  if (packet->protocol == IPPROTO_UDP && packet->fragment == HR_WHOLE &&
      hr_is_announce_port(packet->destination_port_be)) {
    struct hr_payload payload = hr_payload_of(packet);
    int verdict = hr_announce(skb, payload.offset, payload.bytes);

    if (verdict != TC_ACT_UNSPEC) return verdict;
  }
  if (hr_recognise(skb, reply, &packet->source, packet->source_port_be, &packet->destination,
                   packet->destination_port_be, packet->protocol, packet->version))
    return TC_ACT_UNSPEC; /* foreign */
  if (packet->protocol == IPPROTO_UDP) return hr_handle_udp(skb, packet, reply);

  return hr_handle_tcp(skb, packet, reply);
}

/*
 * The loopback interface is where this host's kernel reports "host unreachable" when the neighbour entry of a backend,
 * or of its gateway, fails while a packet of ours waits for it; and where a backend on this host answers. Without such
 * a backend only ICMP is looked at there, and what the splitter gives to a client with the address ::1.
 */
HR_INLINE int hr_is_for_us(struct __sk_buff *skb) {
  struct hr_wheel *wheel = hr_the_wheel();
  __u8 protocol;

  if ((wheel && READ_ONCE(wheel->backends_here)) || hr_has_tag(skb)) return 1;
  if (skb->protocol == bpf_htons(ETH_P_IP))
    return !bpf_skb_load_bytes(skb, ETH_HLEN + HR_IPV4_PROTOCOL, &protocol, 1) && protocol == IPPROTO_ICMP;
  return skb->protocol == bpf_htons(ETH_P_IPV6) &&
         !bpf_skb_load_bytes(skb, ETH_HLEN + HR_IPV6_NEXT_HEADER, &protocol, 1) && protocol == HR_IPPROTO_ICMPV6;
}

SEC("tc")
int hr_reply(struct __sk_buff *skb) {
  struct hr_packet packet = {};
  struct hr_reply reply = {};
  int verdict = TC_ACT_UNSPEC;

  /* Another VLAN's frame, its tag taken off by the device, is not this interface's. VLAN 0 is a priority, no VLAN. */
  if (skb->vlan_present && (skb->vlan_tci & HR_VLAN_ID)) return TC_ACT_UNSPEC;
  if ((skb->ifindex != HR_LOOPBACK_IFINDEX || hr_is_for_us(skb)) && !hr_parse(skb, &packet)) {
    verdict = packet.fragment == HR_LATER_FRAGMENT ? hr_handle_later_fragment(skb, &packet)
                                                   : hr_handle_layer4(skb, &packet, &reply);
    if (verdict == HR_GOES_ON) return TC_ACT_UNSPEC;
    if (verdict == TC_ACT_UNSPEC && packet.fragment == HR_FIRST_FRAGMENT) hr_fragment_forget(&packet);
  }
  return verdict == TC_ACT_UNSPEC ? hr_pass_foreign(skb) : verdict;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
