/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A service's published configuration and its policy. A program calls hr_published_config() once for each packet, the
 * clock once for each request that it looks at, and whatever it calls takes the config id from there on: a reload may
 * publish the other generation between any two instructions, and one request must not be judged by halves of two
 * configurations.
 */
#pragma once

#include "bpf/proxy/maps.bpf.h"

/* The id of the service's configuration as published now: the only place that reads the word. */
HR_INLINE __u32 hr_published_config(__u32 service_id) {
  return HR_CONFIG_ID((__u32)READ_ONCE(hr_live.published), service_id);
}

HR_INLINE struct hr_service_config *hr_config_of(__u32 config_id) {
  config_id &= ~HR_OF_TCP;
  return bpf_map_lookup_elem(&configs, &config_id);
}

HR_INLINE struct hr_service_policy *hr_policy_of(__u32 service_id) {
  return bpf_map_lookup_elem(&policies, &service_id);
}

/* May requests go to this place? */
HR_INLINE int hr_is_present(const struct hr_service_config *config, __u32 place) {
  return (config->present >> (place & (HR_MAX_BACKENDS_PER_SERVICE - 1))) & 1;
}

/* A mask of the places that cannot be reached, because the host has no route to them. */
HR_INLINE __u32 hr_unrouted(const struct hr_service_policy *policy, __u64 now_ns) {
  __u64 unrouted = READ_ONCE(policy->unrouted);

  return unrouted > now_ns ? unrouted & HR_UNROUTED_PLACES : 0;
}

/* A mask of the places that fail the service's check: they count as impaired. */
HR_INLINE __u32 hr_failing(const struct hr_service_policy *policy, __u64 now_ns) {
  __u64 failing = READ_ONCE(policy->unrouted);

  return failing > now_ns ? failing >> HR_FAILING_SHIFT & HR_UNROUTED_PLACES : 0;
}

/* Is there a backend to hedge to? */
HR_INLINE int hr_has_standby(const struct hr_service_config *config) {
  return (config->present & (config->present - 1)) != 0;
}

/* Is this backend being drained? Then it gets only requests that no other backend can take, and no hedge. */
HR_INLINE int hr_is_drained(const struct hr_service_policy *policy, __u32 place) {
  return (READ_ONCE(policy->drained) >> (place & (HR_MAX_BACKENDS_PER_SERVICE - 1))) & 1;
}

HR_INLINE int hr_is_dry(const struct hr_service_policy *policy) {
  return READ_ONCE(policy->switches) & HR_SWITCH_DRY_RUN;
}
