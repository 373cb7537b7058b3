/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a source to its bucket. Pure functions that compile for both sides: `hedgerow steer explain` runs what the
 * kernel runs.
 */
#pragma once

#include "bpf/abi/steer_abi.h"

/* The first `bits` of an address of 16 bytes. */
HR_INLINE void hr_steer_cut(__u64 words[2], __u32 bits) {
  const __u64 keep_first = bits >= 64 ? ~0ull : bits ? ~(~0ull >> bits) : 0;
  const __u64 keep_second = bits >= 128 ? ~0ull : bits > 64 ? ~(~0ull >> (bits - 64)) : 0;

  words[0] &= __builtin_bswap64(keep_first); /* both supported architectures are little-endian */
  words[1] &= __builtin_bswap64(keep_second);
}

/* `words` is an address in network order: of IPv4 the first 4 bytes, the others 0. family: 4 or 6. */
HR_INLINE void hr_steer_address(const struct hr_steer_config *config, __u32 family, const __u64 words[2],
                                struct hr_steer_source *source) {
  source->kind = family == 4 ? HR_STEER_IPV4 : HR_STEER_IPV6;
  source->words[0] = words[0];
  source->words[1] = words[1];
  if (family == 6) hr_steer_cut(source->words, config->ipv6_prefix);
}

HR_INLINE void hr_steer_device_source(const struct hr_steer_device *device, struct hr_steer_source *source) {
  source->kind = HR_STEER_DEVICE;
  source->words[0] = device->id;
  source->words[1] = 0;
}

/* SipHash-2-4 of the 24 bytes. The seed is secret, so that a sender cannot choose its worker. */
HR_INLINE __u32 hr_steer_bucket(const struct hr_steer_config *config, const struct hr_steer_source *source) {
  struct hr_siphash_state state;

  hr_siphash_begin(&state, &config->seed);
  hr_siphash_word(&state, source->kind);
  hr_siphash_word(&state, HR_SIPHASH_LITTLE(source->words[0]));
  hr_siphash_word(&state, HR_SIPHASH_LITTLE(source->words[1]));
  return hr_siphash_end(&state, 0, sizeof(*source)) % HR_STEER_BUCKETS;
}
