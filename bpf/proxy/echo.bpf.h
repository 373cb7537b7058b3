/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Does a reply repeat what its request asked: a DNS question, or the bytes of a profile's `echo`? Compared with the
 * parked copy, so only while the request waits. Called by answer.bpf.h.
 */
#pragma once

#include "bpf/proxy/profile.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

#define HR_QUESTION_MAX_BYTES 259 /* RFC 1035: a name of 255, type and class */
#define HR_DNS_HEADER_BYTES 12
#define HR_DNS_RCODE 0x000f /* of the flags */
#define HR_DNS_FORMERR 1
#define HR_DNS_NOTIMP 4
#define HR_QUESTION_OFFSET (sizeof(struct udphdr) + HR_DNS_HEADER_BYTES) /* in a parked copy's layer 4 */
#define HR_QUESTION_TYPE_BYTES 4                                         /* type and class */
#define HR_QUESTION_SHORT_BYTES 64
#define HR_QUESTION_SHORT_LABELS 10 /* the root's included */

/* `label_step` and `type_step` count the question's bytes. */
struct hr_question {
  struct __sk_buff *skb;
  struct hr_parked *parked;
  __u32 reply_offset; /* of the question in the skb */
  __u32 label_step;   /* where the next label's length stands */
  __u32 type_step;    /* where type and class begin; HR_QUESTION_MAX_BYTES while the name has not ended */
  __u32 different;
};

HR_INLINE __u8 hr_lower(__u8 byte) { return byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte; }

/*
 * 6.1 verifies a callback of bpf_loop once only, with what it knows of the context at the first step, and removes the
 * branches that it takes for dead: a step must branch on nothing in the context that begins as a constant, unless it is
 * compared with `step`, which is unknown. (A count that began as 0 and was tested here lost its branch there.)
 */
static long hr_question_step(__u32 step, struct hr_question *question) {
  __u64 offset = sizeof(struct udphdr) + HR_DNS_HEADER_BYTES + (__u64)step;
  __u8 asked, echoed;

  HR_KEEP_BOUND(offset);
  question->different = 1;
  if (offset >= HR_PARKED_L4_BYTES) return 1;
  asked = question->parked->l4[offset];
  if (bpf_skb_load_bytes(question->skb, question->reply_offset + step, &echoed, 1)) return 1;
  if (step >= question->type_step) {
    if (asked != echoed) return 1;
    question->different = 0;
    return step == question->type_step + 3;
  }
  if (step == question->label_step) {
    if (asked != echoed) return 1;
    question->label_step = step + 1 + asked;
    if (asked == 0) question->type_step = step + 1;
  } else if (hr_lower(asked) != hr_lower(echoed)) {
    return 1;
  }
  question->different = 0;
  return 0;
}

/*
 * The usual case, an order of magnitude cheaper than steps: a question of at most HR_QUESTION_SHORT_BYTES comes back
 * byte for byte. 0: it has to be looked at more closely.
 */
HR_GLOBAL int hr_repeats_question(struct __sk_buff *skb, __u32 slot, __u32 reply_offset) {
  struct hr_parked *parked = bpf_map_lookup_elem(&pool, &slot);
  __u64 echoed[HR_QUESTION_SHORT_BYTES / 8] = {};
  __u64 bytes = 0, difference = 0;
  __u32 i;

  if (!parked) return 0;
  for (i = 0; i < HR_QUESTION_SHORT_LABELS; i++) {
    __u8 label_bytes = parked->l4[HR_QUESTION_OFFSET + bytes];

    bytes += 1 + label_bytes;
    HR_KEEP_BOUND(bytes);
    if (bytes > HR_QUESTION_SHORT_BYTES - HR_QUESTION_TYPE_BYTES) return 0;
    HR_KEEP_BOUND(bytes);
    if (!label_bytes) break;
  }
  if (i == HR_QUESTION_SHORT_LABELS) return 0;
  bytes += HR_QUESTION_TYPE_BYTES;
  if (bpf_skb_load_bytes(skb, reply_offset, echoed, bytes)) return 0;
  for (i = 0; i < HR_QUESTION_SHORT_BYTES / 8; i++) {
    __u64 asked = *(const __u64 *)(parked->l4 + HR_QUESTION_OFFSET + 8 * i);

    if (bytes <= 8 * i) break;
    if (bytes < 8 * i + 8) asked &= ~0ull >> (8 * (8 * i + 8 - bytes));
    difference |= asked ^ echoed[i];
  }
  return !difference;
}

/*
 * Does the reply repeat the question of the parked request (RFC 5452 section 9.1)? Without a question (QDCOUNT 0) it
 * can only say that it has no answer: some servers leave the question out of an error (FORMERR, NOTIMP, and what the
 * profile lists). That a name does not exist is an answer.
 */
HR_INLINE int hr_echoes_question(struct __sk_buff *skb, struct hr_payload payload, struct hr_request *request,
                                 int is_nack) {
  struct hr_question question = {
      .skb = skb, .reply_offset = payload.offset + HR_DNS_HEADER_BYTES, .type_step = HR_QUESTION_MAX_BYTES};
  __u32 slot = request->parked;
  struct {
    __u16 flags_be;
    __u16 questions_be;
  } header = {};

  if (!slot) return 1;
  question.parked = bpf_map_lookup_elem(&pool, &slot);
  if (!question.parked) return 1;
  /* A request without a question (RFC 7873 cookies) has nothing to echo. */
  if (!question.parked->l4[sizeof(struct udphdr) + 4] && !question.parked->l4[sizeof(struct udphdr) + 5]) return 1;
  if (bpf_skb_load_bytes(skb, payload.offset + 2, &header, sizeof(header))) return 0;
  if (!header.questions_be) {
    header.flags_be &= bpf_htons(HR_DNS_RCODE);
    return is_nack || header.flags_be == bpf_htons(HR_DNS_FORMERR) || header.flags_be == bpf_htons(HR_DNS_NOTIMP);
  }
  if (hr_repeats_question(skb, slot, question.reply_offset)) return 1;
  bpf_loop(HR_QUESTION_MAX_BYTES, hr_question_step, &question, 0);
  return !question.different;
}

/* The bytes of a profile's echo, in the reply and in the parked request: are they the same? */
HR_GLOBAL int hr_echoes_bytes(struct __sk_buff *skb, __u32 request_index, __u32 config_id, __u32 payload_offset,
                              __u32 payload_bytes) {
  struct hr_request *request = hr_request_at(request_index);
  struct hr_payload payload = {.offset = payload_offset, .bytes = payload_bytes};
  __u64 asked[HR_CORRELATION_BYTES / 8] = {}, echoed[HR_CORRELATION_BYTES / 8] = {};
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_parked *parked;
  __u32 slot;

  if (!request) return 1;
  slot = request->parked;
  parked = slot ? bpf_map_lookup_elem(&pool, &slot) : 0;
  if (!config || !parked) return 1;
  if (hr_parked_correlation(parked, request->parked_bytes - hr_l3_header_bytes(request) - sizeof(struct udphdr),
                            &config->profile.echo_request, (__u8 *)asked))
    return 1; /* this request has nothing to echo */
  if (hr_read_correlation(skb, payload, &config->profile.echo_reply, (__u8 *)echoed)) return 0;
  return asked[0] == echoed[0] && asked[1] == echoed[1];
}
