// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Compiles the tags, the announcement and the peers' header for BPF, so that a change which the kernel's
// compiler refuses fails the build now and not with the first program that uses it. The program checks an
// announcement as the proxy does, and may be loaded to see what a verifier says of it.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "bpf/abi/announce_abi.h"
#include "bpf/abi/peer_abi.h"
#include "bpf/abi/siphash_abi.h"

const volatile struct hr_siphash_key key = {.k0 = 0x0706050403020100ull, .k1 = 0x0f0e0d0c0b0a0908ull};

// 1: the datagram is an announcement with the right tag; 0: it is not; -1: it is shorter.
SEC("tc") int check_announcement(struct __sk_buff* skb) {
  const struct hr_siphash_key proxy_key = {.k0 = key.k0, .k1 = key.k1};
  union {
    struct hr_announcement fields;
    __u64 words[HR_ANNOUNCEMENT_BYTES / 8];
  } datagram;

  if (bpf_skb_load_bytes(skb, 0, &datagram, sizeof(datagram))) return -1;
  if (datagram.fields.magic != HR_ANNOUNCEMENT_MAGIC) return 0;
  return datagram.fields.tag ==
         hr_siphash_bounded(&proxy_key, datagram.words, sizeof(datagram), sizeof(datagram), HR_SIPHASH_TAG_WORD);
}

// The low half of the hash of a packet's first bytes, at most 104 of them, of which there may be fewer.
SEC("tc") int hash_packet(struct __sk_buff* skb) {
  const struct hr_siphash_key some_key = {.k0 = key.k0, .k1 = key.k1};
  __u64 words[HR_ANNOUNCEMENT_BYTES / 8] = {};
  __u32 size_bytes = skb->len;

  if (size_bytes > sizeof(words)) size_bytes = sizeof(words);
  if (size_bytes == 0) return 0;
  if (bpf_skb_load_bytes(skb, 0, words, size_bytes)) return 0;
  return (int)hr_siphash_bounded(&some_key, words, size_bytes, sizeof(words), HR_SIPHASH_NO_TAG_WORD);
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
