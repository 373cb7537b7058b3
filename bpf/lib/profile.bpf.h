/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading a payload the way a profile describes it: is it a request, a reply, a nack, and which correlation bytes
 * does it carry. Offsets come from the configuration and are checked against the payload at every read.
 */
#ifndef HEDGEROW_BPF_LIB_PROFILE_BPF_H_
#define HEDGEROW_BPF_LIB_PROFILE_BPF_H_

#include "bpf/lib/parse.bpf.h"

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

HR_INLINE int hr_is_reply(struct __sk_buff *skb, struct hr_payload payload, const struct hr_profile *profile) {
  return payload.bytes >= profile->reply_min_bytes && hr_rule_holds(skb, payload, &profile->reply_rules[0]) &&
         hr_rule_holds(skb, payload, &profile->reply_rules[1]) &&
         hr_rule_holds(skb, payload, &profile->reply_rules[2]);
}

HR_INLINE int hr_is_nack(struct __sk_buff *skb, struct hr_payload payload, const struct hr_profile *profile) {
  for (__u32 i = 0; i < HR_NACK_RULES; i++) {
    if (i >= profile->nack_rule_count) return 0;
    if (hr_rule_holds(skb, payload, &profile->nack_rules[i])) return 1;
  }
  return 0;
}

/*
 * Whom a nack names as the leader: the service-local index of that node's backend + 1; 0 when it names nobody, or nobody
 * who is configured. A global function: its loop is verified once.
 */
__weak __attribute__((noinline)) __u32 hr_hinted_backend(struct __sk_buff *skb, __u32 service_id, __u32 payload_offset,
                                                         __u32 payload_bytes) {
  struct hr_service *service = bpf_map_lookup_elem(&services, &service_id);
  struct hr_payload payload = {.offset = payload_offset, .bytes = payload_bytes};
  __u32 offset, node;

  if (!service || service->profile.hint_bytes != sizeof(node)) return 0;
  if (!hr_rule_holds(skb, payload, &service->profile.hint_rule)) return 0;
  offset = service->profile.hint_offset;
  if (offset + sizeof(node) > payload_bytes) return 0;
  if (bpf_skb_load_bytes(skb, payload_offset + offset, &node, sizeof(node)) || !node) return 0;
  for (__u32 i = 0; i < HR_MAX_BACKENDS_PER_SERVICE; i++) {
    if (i < service->backend_count && service->nodes[i] == node) return i + 1;
  }
  return 0;
}

/* Does this nack of a service with a cluster say only that its sender does not lead? Those are the ones that can name who does. */
HR_INLINE __u32 hr_is_leaderless(struct __sk_buff *skb, struct hr_payload payload, const struct hr_service *service) {
  return service->cluster_id && service->profile.hint_bytes && hr_rule_holds(skb, payload, &service->profile.hint_rule);
}

/* Correlation bytes into a zeroed key field; -1 when the payload does not reach that far. */
HR_INLINE int hr_read_correlation(struct __sk_buff *skb, struct hr_payload payload, const struct hr_field *field,
                                  __u8 correlation[HR_CORRELATION_BYTES]) {
  __u64 length = field->length;
  __u32 offset = field->offset;

  if (offset + length > payload.bytes) return -1;
  length--; /* one comparison for both bounds: 6.1's verifier learns nothing from `length == 0` */
  asm volatile("" : "+r"(length)); /* keeps clang from comparing a copy, whose bound the verifier would not see */
  if (length >= HR_CORRELATION_BYTES) return -1;
  asm volatile("" : "+r"(length));
  length++;
  return bpf_skb_load_bytes(skb, payload.offset + offset, correlation, length) ? -1 : 0;
}

/* ---- The same on a parked copy, whose bytes are plain memory: an order of magnitude cheaper than a helper's copy. -- */

HR_INLINE int hr_parked_rule_holds(const struct hr_parked *parked, __u32 payload_bytes,
                                   const struct hr_byte_rule *rule) {
  __u64 offset = rule->offset;

  if (!rule->mask) return 1;
  if (offset >= payload_bytes) return 0;
  offset += sizeof(struct udphdr);
  asm volatile("" : "+r"(offset));
  if (offset >= HR_PARKED_L4_BYTES) return 0;
  return (parked->l4[offset] & rule->mask) == rule->value;
}

HR_INLINE int hr_parked_is_request(const struct hr_parked *parked, __u32 payload_bytes,
                                   const struct hr_profile *profile) {
  return payload_bytes >= profile->request_min_bytes &&
         hr_parked_rule_holds(parked, payload_bytes, &profile->request_rules[0]) &&
         hr_parked_rule_holds(parked, payload_bytes, &profile->request_rules[1]) &&
         hr_parked_rule_holds(parked, payload_bytes, &profile->request_rules[2]);
}

/*
 * Correlation bytes as two words, cut to the field's length. Both supported architectures are little-endian, so the
 * first bytes are the low ones; the result equals hr_read_correlation()'s zero-padded bytes.
 */
HR_INLINE int hr_parked_correlation(const struct hr_parked *parked, __u32 payload_bytes, const struct hr_field *field,
                                    __u8 correlation[HR_CORRELATION_BYTES]) {
  __u64 *words = (__u64 *)correlation;
  __u32 length = field->length;
  __u64 offset = field->offset;
  __u64 low, high;

  if (offset + length > payload_bytes || length == 0 || length > HR_CORRELATION_BYTES) return -1;
  offset += sizeof(struct udphdr);
  asm volatile("" : "+r"(offset));
  if (offset > HR_PARKED_L4_BYTES - HR_CORRELATION_BYTES) return -1;
  low = *(const __u64 *)(parked->l4 + offset);
  high = *(const __u64 *)(parked->l4 + offset + 8);
  if (length < 8) low &= (1ull << (8 * length)) - 1;
  if (length <= 8)
    high = 0;
  else if (length < 16)
    high &= (1ull << (8 * (length - 8))) - 1;
  words[0] = low;
  words[1] = high;
  return 0;
}

#endif /* HEDGEROW_BPF_LIB_PROFILE_BPF_H_ */
