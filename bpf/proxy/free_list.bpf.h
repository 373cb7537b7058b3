/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Free indices of requests and of parked copies: taken by splitters, given back by the clock, the reply program, and a
 * splitter that could not publish. A CPU takes from its own and gives back to its own; a program is not interrupted by
 * another on its CPU. Where it has none left it takes a batch from the shared stack, and gives it one where it has two.
 */
#pragma once

#include "bpf/proxy/share.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

#define HR_MAX_CPUS 8192 /* NR_CPUS of any distribution is no more */

HR_INLINE struct hr_free_cache *hr_free_cache_of(__u32 id) { return bpf_map_lookup_elem(&free_caches, &id); }

HR_INLINE __u32 hr_free_batch(__u32 id) {
  return load_config.free_batch[id == HR_FREE_REQUESTS ? HR_FREE_REQUESTS : HR_FREE_PARKED];
}

HR_INLINE __s64 hr_held_of(__u32 id) { return id == HR_FREE_REQUESTS ? HR_HELD_REQUEST : HR_HELD_COPY; }

/*
 * Fills this CPU's empty cache: with a batch given back earlier, or an index never used before. They count as held
 * before they stand in the cache, so that what is held is never less than what caches have (hr_is_any_in_use). A global
 * function: rare.
 */
HR_GLOBAL int hr_free_fill(__u32 id) {
  struct hr_free_cache *cache = hr_free_cache_of(id);
  struct hr_wheel *wheel = hr_the_wheel();
  __u32 *made, limit, index, count = hr_free_batch(id);
  __u64 held;

  if (!cache || !wheel) return 0;
  held = __sync_fetch_and_add(&wheel->held, hr_held_of(id) * count);
  HR_USE_RESULT(held);
  if (id == HR_FREE_REQUESTS ? bpf_map_pop_elem(&free_requests, cache->index)
                             : bpf_map_pop_elem(&free_parked, cache->index)) {
    made = id == HR_FREE_REQUESTS ? &wheel->requests_made : &wheel->pool_made;
    limit = id == HR_FREE_REQUESTS ? load_config.max_requests : load_config.max_parked;
    index = READ_ONCE(*made) < limit ? __sync_fetch_and_add(made, 1) + 1 : limit + 1;
    if (index <= limit) {
      cache->index[0] = index;
      __sync_fetch_and_sub(&wheel->held, hr_held_of(id) * (count - 1));
      count = 1;
    } else {
      __sync_fetch_and_sub(&wheel->held, hr_held_of(id) * count);
      count = 0;
    }
  }
  WRITE_ONCE(cache->count, count);
  return 0;
}

/* Gives a batch of this CPU's to the shared stack. Where the kernel does not take it, it stays. */
HR_GLOBAL int hr_free_store(__u32 id) {
  struct hr_free_cache *cache = hr_free_cache_of(id);
  struct hr_wheel *wheel = hr_the_wheel();
  __u32 batch = hr_free_batch(id), left;
  __u64 held;

  if (!cache || !wheel) return 0;
  left = cache->count - batch;
  HR_KEEP_BOUND(left);
  if (left > HR_FREE_BATCH) return 0;
  if (id == HR_FREE_REQUESTS ? bpf_map_push_elem(&free_requests, &cache->index[left], 0)
                             : bpf_map_push_elem(&free_parked, &cache->index[left], 0))
    return 0;
  WRITE_ONCE(cache->count, left);
  held = __sync_fetch_and_sub(&wheel->held, hr_held_of(id) * batch);
  HR_USE_RESULT(held);
  return 0;
}

/* 0 when all are taken. */
HR_INLINE __u32 hr_take_index(enum hr_free_list_id id) {
  struct hr_free_cache *cache = hr_free_cache_of(id);
  __u32 last;

  if (!cache) return 0;
  if (!cache->count) hr_free_fill(id);
  last = cache->count - 1;
  HR_KEEP_BOUND(last);
  if (last >= 2 * HR_FREE_BATCH) return 0;
  WRITE_ONCE(cache->count, last);
  return cache->index[last];
}

HR_INLINE void hr_give_index_back(enum hr_free_list_id id, __u32 index) {
  struct hr_free_cache *cache = hr_free_cache_of(id);
  __u32 count;

  if (!cache) return;
  count = cache->count;
  HR_KEEP_BOUND(count);
  if (count >= 2 * HR_FREE_BATCH) {
    hr_host_reason(HR_REASON_INDEX_LOST);
    return;
  }
  cache->index[count] = index;
  WRITE_ONCE(cache->count, count + 1);
  if (count >= HR_FREE_KEPT(hr_free_batch(id))) hr_free_store(id);
}

static long hr_count_kept(__u32 cpu, __u32 *kept) {
  __u32 id = HR_FREE_REQUESTS;
  struct hr_free_cache *cache = bpf_map_lookup_percpu_elem(&free_caches, &id, cpu);

  if (!cache) return 1;
  *kept += READ_ONCE(cache->count);
  return 0;
}

/*
 * Is any request in use? What no CPU keeps for itself is. A batch that is exchanged meanwhile changes `held`, or counts
 * as in use. Full barriers before and after.
 */
HR_GLOBAL int hr_is_any_in_use(void) {
  struct hr_wheel *wheel = hr_the_wheel();
  __u32 kept = 0, held;

  if (!wheel) return 0;
  held = HR_HELD_REQUESTS(__sync_fetch_and_add(&wheel->held, 0));
  bpf_loop(HR_MAX_CPUS, hr_count_kept, &kept, 0);
  return held != kept || held != HR_HELD_REQUESTS(__sync_fetch_and_add(&wheel->held, 0));
}

/*
 * Gives back the copy of a request that is no longer pending: by the program that has ended it, as the last thing that
 * it does with the request. While `parked` is set the clock does not free the entry, so that it serves no other request
 * under that program's hands. The exchange is a full barrier, and gives the copy to one program.
 */
HR_GLOBAL int hr_give_copy_back(__u32 index) {
  struct hr_request *request = hr_request_at(index);
  __u32 parked;

  if (!request || !request->parked) return 0;
  if (request->counted) hr_hold(request->key.service, request->client, -HR_HELD_COPY);
  parked = __sync_lock_test_and_set(&request->parked, 0);
  if (parked) hr_give_index_back(HR_FREE_PARKED, parked);
  return 0;
}
