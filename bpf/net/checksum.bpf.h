/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum (RFC 1071) of packets that a program makes itself. Included by the proxy, the node and its
 * clock. */
#pragma once

#include "bpf/abi/base_abi.h"

#include <linux/bpf.h>
/* The order of these two matters: the helpers need the types. */
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/in.h>

/* What stands in a header's checksum field for a sum of bpf_csum_diff(): 32 bits, or a few more after additions. */
HR_INLINE __u16 hr_fold(__u64 sum) {
  sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + ((sum >> 32) & 0xffff);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return ~sum;
}

/* Of UDP, a sum of 0 is sent as 0xffff, for 0 says that there is none (RFC 768). */
HR_INLINE __u16 hr_fold_udp(__u64 sum) {
  __u16 checksum = hr_fold(sum);

  return checksum ? checksum : 0xffff;
}

/* Adds UDP's pseudo header (RFC 768, RFC 8200 section 8.1). Over IPv4 the addresses are mapped ones. */
HR_INLINE __s64 hr_sum_pseudo_header(__s64 sum, const struct hr_address *source, const struct hr_address *destination,
                                     int ipv4, __u32 l4_bytes) {
  __be32 tail[2] = {bpf_htonl(l4_bytes), bpf_htonl(IPPROTO_UDP)};

  if (ipv4) {
    sum = bpf_csum_diff(0, 0, (__be32 *)&source->words[3], 4, sum);
    sum = bpf_csum_diff(0, 0, (__be32 *)&destination->words[3], 4, sum);
  } else {
    sum = bpf_csum_diff(0, 0, (__be32 *)source->words, 16, sum);
    sum = bpf_csum_diff(0, 0, (__be32 *)destination->words, 16, sum);
  }
  return bpf_csum_diff(0, 0, tail, sizeof(tail), sum);
}
