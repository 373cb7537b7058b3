/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The same in the kernel programs, for profiles whose correlation bytes have no fixed place (locate.h): the payload is
 * copied out of the packet first. Profiles with fixed places call nothing here. A
 * path costs about a match for each step, tokens some nanoseconds for each byte up to the last one, 1,024 at most.
 */
#pragma once

#include "bpf/net/parse.bpf.h"
#include "bpf/proxy/config.bpf.h"
#include "bpf/proxy/locating.bpf.h"

/* Where matches count from that do not count from the payload's beginning, as it was located last. */
HR_GLOBAL __u32 hr_located_mark(void) {
  struct hr_locating *in = hr_the_locating();

  return in ? in->located.mark : 0;
}

/*
 * Locates the correlation bytes in a packet, or in what an ICMP error quotes of one, and leaves them in
 * hr_locating.located. -1: they are not there, and it holds zeros. One function with a small frame: with the reply
 * program's and its callback's it takes all of the 512 bytes of stack that Linux 6.1 counts for a chain of calls.
 */
HR_GLOBAL int hr_locate(struct __sk_buff *skb, __u32 config_id, __u32 payload_offset, __u32 payload_bytes,
                        __u32 is_reply) {
  struct hr_service_config *config = hr_config_of(config_id);
  struct hr_scan_context context = {.in = hr_the_locating()};
  struct hr_locating *in = context.in;
  __u64 bytes = payload_bytes;
  __u32 pairing;

  if (!config || !in) return -1;
  in->located.correlation[0] = in->located.correlation[1] = 0;
  bytes = hr_take_payload(skb, payload_offset, bytes, in);
  if (!bytes) return -1;
  pairing = config->profile.request_correlation.pairing;
  if (pairing == HR_PAIR_PATH)
    return is_reply ? hr_follow_path(&in->copy, bytes, &config->profile.reply_path, &config->profile.reply_correlation,
                                     &in->located)
                    : hr_follow_path(&in->copy, bytes, &config->profile.request_path,
                                     &config->profile.request_correlation, &in->located);
  if (pairing != HR_PAIR_TOKENS) return -1;
  in->tokens[0] = config->profile.tokens[0];
  in->tokens[1] = config->profile.tokens[1];
  hr_scan_begin(&in->scan, config->profile.token_count);
  bpf_loop(bytes < HR_SCAN_BYTES ? bytes : HR_SCAN_BYTES, hr_scan_step, &context, 0);
  return hr_scan_result(&in->scan, &in->located);
}
