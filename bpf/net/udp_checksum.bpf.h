/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Is a received datagram's checksum wrong? The kernel asks that only when a socket takes the datagram, which is too
 * late for a program that chooses one of several. Called by the reply program, for the datagram that would win.
 */
#pragma once

#include "bpf/net/checksum.bpf.h"
#include "bpf/net/parse.bpf.h"

#define HR_SUM_WORDS 16  /* summed at once */
#define HR_SUM_CHUNKS 24 /* 1,536 bytes; what is longer, its receiver checks */
#define HR_SUM_BYTES (HR_SUM_WORDS * (__u32)sizeof(__u32))

/*
 * 0 also for what cannot be known here (a fragment, a jumbo datagram), for what has no checksum, and for what the
 * device has checked. A datagram that never left this machine's memory carries the sum of its pseudo header, which the
 * device of its sender would have completed (CHECKSUM_PARTIAL): it has nothing that could be wrong.
 */
HR_GLOBAL int hr_udp_checksum_is_wrong(struct __sk_buff *skb, struct hr_packet *packet) {
  __u32 words[HR_SUM_WORDS], bytes;
  __u16 field = 0;
  __s64 sum;

  if (!packet || packet->fragment != HR_WHOLE || bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0) return 0;
  bytes = packet->payload_bytes + sizeof(struct udphdr);
  if (bytes > HR_SUM_CHUNKS * HR_SUM_BYTES || bpf_skb_load_bytes(skb, packet->l4_offset + 6, &field, sizeof(field)) ||
      !field)
    return 0;
  sum = hr_sum_pseudo_header(0, &packet->source, &packet->destination, packet->version == 4, bytes);
  if (field == (__u16)~hr_fold(sum)) return 0;
  for (__u32 at = 0; at < HR_SUM_CHUNKS * HR_SUM_BYTES; at += HR_SUM_BYTES) {
    /* Read anew in each round, so that all that the verifier knows of one round is `at`. */
    __u64 chunk = READ_ONCE(packet->payload_bytes) + sizeof(struct udphdr);

    if (chunk <= at) break;
    chunk -= at;
    if (chunk > HR_SUM_BYTES) chunk = HR_SUM_BYTES;
    __builtin_memset(words, 0, sizeof(words));
    chunk--; /* one comparison for both bounds, as in hr_read_correlation() */
    HR_KEEP_BOUND(chunk);
    if (chunk >= HR_SUM_BYTES) return 0;
    HR_KEEP_BOUND(chunk);
    chunk++;
    if (bpf_skb_load_bytes(skb, READ_ONCE(packet->l4_offset) + at, words, chunk)) return 0;
    sum = bpf_csum_diff(0, 0, words, sizeof(words), sum);
  }
  return hr_fold(sum) != 0;
}
