/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The proxy programs' one source of time: CLOCK_MONOTONIC. Tests load the programs with `test_clock` and set time
 * forward in the wheel, or let it stand; as loaded by the daemon the verifier removes the question. (hr_gate alone
 * asks the kernel itself: a departure time is compared with the kernel's own.)
 */
#pragma once

#include "bpf/proxy/maps.bpf.h"

HR_INLINE struct hr_wheel *hr_the_wheel(void) {
  __u32 zero = 0;
  return bpf_map_lookup_elem(&wheels, &zero);
}

HR_INLINE __u64 hr_now_ns(void) {
  struct hr_wheel *wheel = load_config.test_clock ? hr_the_wheel() : 0;
  __u64 now_ns = bpf_ktime_get_ns();

  return wheel ? HR_TEST_TIME(now_ns, READ_ONCE(wheel->test_ahead_ns)) : now_ns;
}
