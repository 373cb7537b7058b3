/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The copy of a payload in which a kernel program locates bytes by locate.h, and the scan of a text there. Used by the
 * proxy's programs (locate.bpf.h) and by those of `hedgerow steer` (bpf/steer/source.bpf.h).
 */
#pragma once

#include "bpf/map.bpf.h"
#include "bpf/proxy/locate.h"

/* A program is not interrupted by another on its CPU. */
HR_PER_CPU(locating, 1, struct hr_locating);

HR_INLINE struct hr_locating *hr_the_locating(void) {
  __u32 zero = 0;

  return bpf_map_lookup_elem(&locating, &zero);
}

/* Copies what is looked at of a payload; how many bytes, 0: none. `ctx`: of the kind that bpf_skb_load_bytes() takes in
 * that program. */
HR_INLINE __u64 hr_take_payload(const void *ctx, __u32 offset, __u64 bytes, struct hr_locating *in) {
  if (bytes > HR_LOCATE_LAST - HR_UDP_HEADER_BYTES) bytes = HR_LOCATE_LAST - HR_UDP_HEADER_BYTES;
  bytes--; /* one comparison for both bounds, as in hr_read_correlation() */
  HR_KEEP_BOUND(bytes);
  if (bytes >= HR_LOCATE_LAST - HR_UDP_HEADER_BYTES) return 0;
  HR_KEEP_BOUND(bytes);
  bytes++;
  return bpf_skb_load_bytes(ctx, offset, in->copy.l4 + HR_UDP_HEADER_BYTES, bytes) ? 0 : bytes;
}

struct hr_scan_context {
  struct hr_locating *in;
};

/* All that changes from step to step stands in a map: see the note on bpf_loop in echo.bpf.h. */
static long hr_scan_step(__u32 step, struct hr_scan_context *context) {
  __u64 place = HR_UDP_HEADER_BYTES + (__u64)step;

  HR_KEEP_BOUND(place);
  if (place >= HR_PARKED_L4_BYTES) return 1;
  return hr_scan_byte(&context->in->scan, context->in->tokens, context->in->copy.l4[place]);
}
