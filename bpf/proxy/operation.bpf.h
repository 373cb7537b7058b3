/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * May this request be sent twice? A profile lists the operations that may; for line protocols (memcached) it also says
 * what may follow the first line, because "get a" with "incr b 1" behind it in one datagram is no get, and how a line
 * says that it gets no reply. Works on the parked copy; called by the splitter's tracking, for profiles that list
 * operations.
 */
#pragma once

#include "bpf/proxy/profile.bpf.h"

/* Offsets in this file count from the parked layer 4, UDP header included. */
struct hr_line {
  const struct hr_parked *parked;
  __u32 from;
  __u32 end; /* of the line feed; 0 = not found */
};

/* Eight bytes a step. The lowest byte that (x - 1) & ~x & 0x80 marks is a true zero of x (higher ones may be borrowed).
 */
static long hr_line_step(__u32 step, struct hr_line *line) {
  __u64 offset = (__u64)line->from + (__u64)step * 8;
  __u64 word, found;
  __u32 at = 0;

  HR_KEEP_BOUND(offset);
  if (offset > HR_PARKED_L4_BYTES - 8) return 1;
  word = *(const __u64 *)(line->parked->l4 + offset) ^ 0x0a0a0a0a0a0a0a0aull;
  found = (word - 0x0101010101010101ull) & ~word & 0x8080808080808080ull;
  if (!found) return 0;
  if (!(found & 0xffffffff)) {
    at += 4;
    found >>= 32;
  }
  if (!(found & 0xffff)) {
    at += 2;
    found >>= 16;
  }
  if (!(found & 0xff)) at += 1;
  line->end = offset + at;
  return 1;
}

/* Where the first line feed at or behind `from` stands; 0: nowhere before `bytes`, which is where the payload ends. */
HR_GLOBAL __u32 hr_line_end(__u32 slot, __u32 from, __u32 bytes) {
  struct hr_line line = {.from = from};

  line.parked = bpf_map_lookup_elem(&pool, &slot);
  if (!line.parked || from >= bytes || bytes > HR_PARKED_L4_BYTES) return 0;
  bpf_loop((bytes - from + 7) / 8, hr_line_step, &line, 0);
  return line.end < bytes ? line.end : 0;
}

#define HR_NUMBER_DIGITS 7 /* more than any datagram holds */
#define HR_NUMBER_STEPS 32 /* memcached's cas unique has 20 digits; then a space, the number and another space */

struct hr_number {
  const struct hr_parked *parked;
  __u64 value;
  __u64 scale;
  __u32 end;
  __u32 skip;       /* words to go over first */
  __u32 first_step; /* of this word's last digit */
  __u32 found;
};

/* Backwards from the line's end. See hr_question_step (echo.bpf.h) on what a step may branch on: `skip` is an argument.
 */
static long hr_number_step(__u32 step, struct hr_number *number) {
  __u64 offset = (__u64)number->end - 1 - step;
  __u8 byte;

  HR_KEEP_BOUND(offset);
  if (offset >= HR_PARKED_L4_BYTES) return 1;
  byte = number->parked->l4[offset];
  if (byte == ' ') {
    if (!number->skip) {
      number->found = step > number->first_step;
      return 1;
    }
    number->skip--;
    number->value = 0;
    number->scale = 1;
    number->first_step = step + 1;
    return 0;
  }
  if (byte < '0' || byte > '9') return 1;
  if (!number->skip && step - number->first_step >= HR_NUMBER_DIGITS) return 1;
  number->value += number->scale * (byte - '0');
  number->scale *= 10;
  return 0;
}

/* The decimal word that ends at `end`, or the one `skip` words before it; -1 when it is none. */
HR_GLOBAL int hr_number_before(__u32 slot, __u32 end, __u32 skip) {
  struct hr_number number = {.scale = 1, .end = end, .skip = skip};

  number.parked = bpf_map_lookup_elem(&pool, &slot);
  if (!number.parked || end > HR_PARKED_L4_BYTES) return -1;
  bpf_loop(HR_NUMBER_STEPS, hr_number_step, &number, 0);
  return number.found && number.value <= HR_PARKED_L4_BYTES ? (int)number.value : -1;
}

/* The shape of the first alternative that holds, + 1; 0 when none does. A global function: its loop is verified once.
 */
HR_GLOBAL __u32 hr_known_operation(__u32 config_id, __u32 slot, __u32 payload_bytes) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_parked *parked = bpf_map_lookup_elem(&pool, &slot);
  int holds = 1;

  if (!config || !parked) return 0;
  for (__u32 i = 0; i < HR_OPERATION_MATCHES; i++) {
    const struct hr_match *match = &config->profile.operation_matches[i];

    if (i >= config->profile.operation_match_count) return 0;
    if (holds) holds = hr_parked_match_holds(parked, payload_bytes, match);
    if (match->flags & HR_MATCH_AND_NEXT) continue;
    if (holds) return match->shape + 1;
    holds = 1;
  }
  return 0;
}

/*
 * What the request's first line says: a reason to forward it once, HR_REASON_NONE when the line is all there is, or,
 * with HR_LINE_HAS_BLOCK, where its words end (bits 8 to 30) and how many bytes its end takes (bits 0 to 7). A line
 * that ends in a space is forwarded once too, because it is not told apart from a line that ends in `noreply` and a
 * space.
 */
#define HR_LINE_HAS_BLOCK (1u << 31)
#define HR_LINE_WORDS_END(judged) (((judged) & ~HR_LINE_HAS_BLOCK) >> 8)
#define HR_LINE_END_BYTES(judged) ((judged)&0xff)
HR_GLOBAL __u32 hr_judge_line(__u32 config_id, __u32 slot, __u32 payload_bytes, __u32 shape) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_parked *parked = bpf_map_lookup_elem(&pool, &slot);
  __u32 bytes = payload_bytes + sizeof(struct udphdr);
  __u32 end, end_bytes = 1;
  __u64 last, from;

  if (!config || !parked) return HR_REASON_UNKNOWN_OPERATION;
  from = config->profile.line_offset + sizeof(struct udphdr);
  end = hr_line_end(slot, from, bytes);
  if (end < from + 2) return HR_REASON_UNKNOWN_OPERATION;
  last = end - 8; /* the 8 bytes before the line feed */
  HR_KEEP_BOUND(last);
  if (last > HR_PARKED_L4_BYTES - 8) return HR_REASON_UNKNOWN_OPERATION;
  if (parked->l4[last + 7] == '\r') {
    end_bytes = 2;
    last--;
    HR_KEEP_BOUND(last);
    if (last > HR_PARKED_L4_BYTES - 8) return HR_REASON_UNKNOWN_OPERATION;
  }
  if (parked->l4[last + 7] == ' ') return HR_REASON_ONE_WAY;
  if (config->profile.one_way_mask &&
      (*(const __u64 *)(parked->l4 + last) & config->profile.one_way_mask) == config->profile.one_way_value)
    return HR_REASON_ONE_WAY;
  if (shape == HR_SHAPE_LINE) return end + 1 == bytes ? HR_REASON_NONE : HR_REASON_UNKNOWN_OPERATION;
  return HR_LINE_HAS_BLOCK | (__u32)(last + 8) << 8 | end_bytes;
}

/*
 * HR_REASON_NONE when this request may be sent twice: it is one of the listed operations, it gets a reply, and the
 * datagram holds nothing else. Calls no deeper than it must: the splitter's frame leaves 160 of 6.1's 512 bytes of
 * stack.
 */
HR_INLINE __u32 hr_judge_operation(const struct hr_profile *profile, __u32 config_id, __u32 slot, __u32 payload_bytes) {
  __u32 known, judged, words_end;
  int block;

  if (!profile->operation_match_count) return HR_REASON_NONE;
  known = hr_known_operation(config_id, slot, payload_bytes);
  if (!known) return HR_REASON_UNKNOWN_OPERATION;
  if (known == HR_SHAPE_ANY + 1) return HR_REASON_NONE;
  judged = hr_judge_line(config_id, slot, payload_bytes, known - 1);
  if (!(judged & HR_LINE_HAS_BLOCK)) return judged;
  words_end = HR_LINE_WORDS_END(judged);
  block = hr_number_before(slot, words_end, known == HR_SHAPE_BLOCK_BEFORE_LAST + 1);
  if (block < 0) return HR_REASON_UNKNOWN_OPERATION;
  /* The block ends with CR LF, and with it the datagram. */
  return words_end + HR_LINE_END_BYTES(judged) + block + 2 == payload_bytes + sizeof(struct udphdr)
             ? HR_REASON_NONE
             : HR_REASON_UNKNOWN_OPERATION;
}
