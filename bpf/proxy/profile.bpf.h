/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading a payload the way a profile describes it: is it a request, a reply, a nack, and which correlation bytes
 * does it carry. Offsets come from the configuration and are checked against the payload at every read. Which operation
 * a request is, and what it may hold beside, is operation.bpf.h's.
 */
#pragma once

#include "bpf/net/parse.bpf.h"
#include "bpf/proxy/config.bpf.h"
#include "bpf/proxy/locate.bpf.h"

/* A UDP payload within an skb. */
struct hr_payload {
  __u32 offset;
  __u32 bytes;
};

HR_INLINE struct hr_payload hr_payload_of(const struct hr_packet *packet) {
  struct hr_payload payload = {
      .offset = packet->l4_offset + sizeof(struct udphdr),
      .bytes = packet->payload_bytes,
  };
  return payload;
}

HR_INLINE int hr_rule_holds(struct __sk_buff *skb, struct hr_payload payload, const struct hr_byte_rule *rule) {
  __u8 byte;

  if (!rule->mask) return 1;
  if (rule->offset >= payload.bytes) return 0;
  if (bpf_skb_load_bytes(skb, payload.offset + rule->offset, &byte, 1)) return 0;
  return (byte & rule->mask) == rule->value;
}

/* Up to 8 bytes of the payload, the rest zero; -1 when it does not reach that far. */
HR_INLINE int hr_load_word(struct __sk_buff *skb, struct hr_payload payload, __u32 offset, __u64 bytes, __u64 *word) {
  *word = 0;
  if (offset + bytes > payload.bytes) return -1;
  bytes--; /* one comparison for both bounds, as in hr_read_correlation() */
  HR_KEEP_BOUND(bytes);
  if (bytes >= sizeof(*word)) return -1;
  HR_KEEP_BOUND(bytes);
  bytes++;
  return bpf_skb_load_bytes(skb, payload.offset + offset, word, bytes) ? -1 : 0;
}

HR_INLINE int hr_match_holds(struct __sk_buff *skb, struct hr_payload payload, const struct hr_match *match) {
  int negated = match->flags & HR_MATCH_NOT;
  __u32 offset = match->offset;
  __u64 word;

  if (!match->bytes) return 1;
  if (match->flags & HR_MATCH_AT_MARK) offset += hr_located_mark();
  if (hr_load_word(skb, payload, offset, match->bytes, &word)) return negated != 0;
  return ((word & match->mask) == match->value) != negated;
}

HR_INLINE int hr_is_reply(struct __sk_buff *skb, struct hr_payload payload, const struct hr_profile *profile) {
  return payload.bytes >= profile->reply_min_bytes && hr_match_holds(skb, payload, &profile->reply_matches[0]) &&
         hr_match_holds(skb, payload, &profile->reply_matches[1]) &&
         hr_match_holds(skb, payload, &profile->reply_matches[2]);
}

/* Does any alternative of the service's nacks hold? A global function: its loop is verified once. */
HR_GLOBAL int hr_some_nack_holds(struct __sk_buff *skb, __u32 config_id, __u32 payload_offset, __u32 payload_bytes) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_payload payload = {.offset = payload_offset, .bytes = payload_bytes};
  int holds = 1;

  if (!config) return 0;
  for (__u32 i = 0; i < HR_NACK_MATCHES; i++) {
    const struct hr_match *match = &config->profile.nack_matches[i];

    if (i >= config->profile.nack_match_count) return 0;
    if (holds) holds = hr_match_holds(skb, payload, match);
    if (match->flags & HR_MATCH_AND_NEXT) continue;
    if (holds) return 1;
    holds = 1;
  }
  return 0;
}

HR_INLINE int hr_is_nack(struct __sk_buff *skb, struct hr_payload payload, const struct hr_service_config *config,
                         __u32 config_id) {
  return config->profile.nack_match_count && hr_some_nack_holds(skb, config_id, payload.offset, payload.bytes);
}

/*
 * Where this datagram stands in an answer of several: bit 0, it is the first; bit 1, it is the last. A datagram that is
 * cut short, or that says nonsense, is both.
 */
#define HR_PART_FIRST 1u
#define HR_PART_LAST 2u
HR_GLOBAL __u32 hr_part_of_answer(struct __sk_buff *skb, __u32 config_id, __u32 payload_offset, __u32 payload_bytes) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_payload payload = {.offset = payload_offset, .bytes = payload_bytes};
  __u64 sequence, total;

  if (!config || !config->profile.numbered ||
      hr_load_word(skb, payload, config->profile.sequence_offset, sizeof(__u16), &sequence) ||
      hr_load_word(skb, payload, config->profile.total_offset, sizeof(__u16), &total))
    return HR_PART_FIRST | HR_PART_LAST;
  sequence = bpf_ntohs((__u16)sequence);
  total = bpf_ntohs((__u16)total);
  return (sequence ? 0 : HR_PART_FIRST) | (sequence + 1 >= total ? HR_PART_LAST : 0);
}

/*
 * The backend of the node that a nack names as the leader: its service-local index + 1; 0 when the nack names no node,
 * or a node that is not configured. A global function: its loop is verified once.
 */
HR_GLOBAL __u32 hr_hinted_backend(struct __sk_buff *skb, __u32 config_id, __u32 payload_offset, __u32 payload_bytes) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_payload payload = {.offset = payload_offset, .bytes = payload_bytes};
  __u32 offset, node;

  if (!config || config->profile.hint_bytes != sizeof(node)) return 0;
  if (!hr_rule_holds(skb, payload, &config->profile.hint_rule)) return 0;
  offset = config->profile.hint_offset;
  if (offset + sizeof(node) > payload_bytes) return 0;
  if (bpf_skb_load_bytes(skb, payload_offset + offset, &node, sizeof(node)) || !node) return 0;
  for (__u32 i = 0; i < HR_MAX_BACKENDS_PER_SERVICE; i++) {
    if (config->nodes[i] == node) return i + 1;
  }
  return 0;
}

/* Does this nack say only that its sender does not lead? Where the service has a cluster, such a nack can name the
 * leader. */
HR_INLINE __u32 hr_is_leaderless(struct __sk_buff *skb, struct hr_payload payload,
                                 const struct hr_service_config *config) {
  return config->cluster_id && config->profile.hint_bytes && hr_rule_holds(skb, payload, &config->profile.hint_rule);
}

/* Are there no requests and replies to this profile, but datagrams alone? */
HR_INLINE int hr_is_unpaired(const struct hr_field *field) {
  return field->pairing == HR_PAIR_ONE_WAY || field->pairing == HR_PAIR_FLOW;
}

/*
 * Correlation bytes into a zeroed key field that is aligned to 8; -1 when the payload does not reach that far, or where
 * nothing pairs.
 */
HR_INLINE int hr_read_correlation(struct __sk_buff *skb, struct hr_payload payload, const struct hr_field *field,
                                  __u8 correlation[HR_CORRELATION_BYTES]) {
  __u64 length = field->length;
  __u32 offset = field->offset;

  if (field->pairing != HR_PAIR_BYTES) return field->pairing == HR_PAIR_SOCKET ? 0 : -1;
  if (offset + length > payload.bytes) return -1;
  length--; /* one comparison for both bounds: 6.1's verifier learns nothing from `length == 0` */
  HR_KEEP_BOUND(length);
  if (length >= HR_CORRELATION_BYTES) return -1;
  HR_KEEP_BOUND(length);
  length++;
  if (bpf_skb_load_bytes(skb, payload.offset + offset, correlation, length)) return -1;
  ((__u64 *)correlation)[0] &= field->mask[0];
  ((__u64 *)correlation)[1] &= field->mask[1];
  return 0;
}

/* What was located last, into a key field that is aligned to 8. */
HR_INLINE int hr_take_located(__u8 correlation[HR_CORRELATION_BYTES]) {
  struct hr_locating *in = hr_the_locating();

  if (!in) return -1;
  ((__u64 *)correlation)[0] = in->located.correlation[0];
  ((__u64 *)correlation)[1] = in->located.correlation[1];
  return 0;
}

/* Of a request or a reply in a packet, wherever they stand. Called before any match, which may count from what it
 * finds. */
HR_INLINE int hr_correlation_of(struct __sk_buff *skb, struct hr_payload payload,
                                const struct hr_service_config *config, __u32 config_id, int is_reply,
                                __u8 correlation[HR_CORRELATION_BYTES]) {
  const struct hr_field *field = is_reply ? &config->profile.reply_correlation : &config->profile.request_correlation;

  if (field->pairing < HR_PAIR_PATH) return hr_read_correlation(skb, payload, field, correlation);
  if (hr_locate(skb, config_id, payload.offset, payload.bytes, is_reply)) return -1;
  return hr_take_located(correlation);
}

/* ---- The same on a parked copy, whose bytes are plain memory: an order of magnitude cheaper than a helper's copy. --
 */

HR_INLINE int hr_parked_match_holds(const struct hr_parked *parked, __u32 payload_bytes, const struct hr_match *match) {
  int negated = match->flags & HR_MATCH_NOT;
  __u64 offset = match->offset;

  if (!match->bytes) return 1;
  if (match->flags & HR_MATCH_AT_MARK) offset += hr_located_mark();
  if (offset + match->bytes > payload_bytes) return negated != 0;
  offset += sizeof(struct udphdr);
  HR_KEEP_BOUND(offset);
  if (offset > HR_PARKED_L4_BYTES - sizeof(__u64)) return 0;
  return ((*(const __u64 *)(parked->l4 + offset) & match->mask) == match->value) != negated;
}

HR_INLINE int hr_parked_is_request(const struct hr_parked *parked, __u32 payload_bytes,
                                   const struct hr_profile *profile) {
  return payload_bytes >= profile->request_min_bytes &&
         hr_parked_match_holds(parked, payload_bytes, &profile->request_matches[0]) &&
         hr_parked_match_holds(parked, payload_bytes, &profile->request_matches[1]) &&
         hr_parked_match_holds(parked, payload_bytes, &profile->request_matches[2]);
}

/*
 * The same as two words, cut by the field's mask. Both supported architectures are little-endian, as the masks
 * and values of matches are made for; the result equals hr_read_correlation()'s zero-padded bytes.
 */
HR_INLINE int hr_parked_correlation(const struct hr_parked *parked, __u32 payload_bytes, const struct hr_field *field,
                                    __u8 correlation[HR_CORRELATION_BYTES]) {
  __u64 *words = (__u64 *)correlation;
  __u32 length = field->length;
  __u64 offset = field->offset;

  if (field->pairing != HR_PAIR_BYTES) return field->pairing == HR_PAIR_SOCKET ? 0 : -1;
  if (offset + length > payload_bytes || length == 0 || length > HR_CORRELATION_BYTES) return -1;
  offset += sizeof(struct udphdr);
  HR_KEEP_BOUND(offset);
  if (offset > HR_PARKED_L4_BYTES - HR_CORRELATION_BYTES) return -1;
  words[0] = *(const __u64 *)(parked->l4 + offset) & field->mask[0];
  words[1] = *(const __u64 *)(parked->l4 + offset + 8) & field->mask[1];
  return 0;
}
