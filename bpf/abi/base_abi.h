/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What every shared header stands on: fixed-width types that mean the same to clang -target bpf and to a
 * C++20 compiler, the bounds of the data plane, and the address type. Everything under bpf/abi/ exists once
 * and is compiled by both sides; sizes and offsets are asserted in both.
 */
#pragma once

#include "bpf/compiler.h"

#include <linux/types.h>

#ifdef __cplusplus
#define HR_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define HR_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/*
 * Raised whenever the bytes of a map change their meaning; a daemon adopts pinned maps only of its own version. A
 * changed shape it finds by itself (proxy/kernel_part/map_layout.h).
 */
#define HR_ABI_VERSION 8

#define HR_MAX_SERVICES 64
#define HR_MAX_BACKENDS_PER_SERVICE 8
#define HR_MAX_BACKENDS (HR_MAX_SERVICES * HR_MAX_BACKENDS_PER_SERVICE)
#define HR_CORRELATION_BYTES 16
#define HR_ANNOUNCE_PORTS 4 /* different ports on which announcements are awaited */
#define HR_NO_BACKEND 0xff  /* the service-local backend index that stands for no backend */

/* The place of the highest bit of a number below 2^32 that is not 0. Without branches, for the verifier would walk what
 * follows once for each place. */
HR_INLINE __u32 hr_log2(__u64 number) {
  __u64 exponent = 0, step;

  for (__u32 bits = 16; bits; bits /= 2) {
    step = (((1ull << bits) - 1 - number) >> 63) * bits;
    number >>= step;
    exponent += step;
  }
  return (__u32)exponent;
}

/* An IPv6 address, or an IPv4 address mapped into ::ffff:0:0/96 (RFC 4291 section 2.5.5.2). Network order. */
struct hr_address {
  union {
    __u8 bytes[16];
    __u32 words[4];
    __u64 halves[2];
  };
};
HR_STATIC_ASSERT(sizeof(struct hr_address) == 16, "hr_address is 16 bytes");

/* Key of the VIP map (-> service) and of the backend map (-> backend). Port in network order. */
struct hr_endpoint {
  struct hr_address address;
  __u16 port_be;
  __u16 pad[3];
};
HR_STATIC_ASSERT(sizeof(struct hr_endpoint) == 24, "hr_endpoint is 24 bytes");
