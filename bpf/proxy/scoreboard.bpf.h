/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scoreboard: from a request's key to the request. A set-associative table of references, lock-free; a key lives in
 * one of the 8 places of its hot set, or of its cold set when that is full. Splitters insert and take over, the reply
 * program finds, the clock removes.
 */
#pragma once

#include "bpf/proxy/wheel.bpf.h"

/* A multiplicative mix of the key's five words under a random seed (constants: splitmix64). */
HR_INLINE __u64 hr_key_hash(const struct hr_request_key *key) {
  const __u64 *words = (const __u64 *)key;
  __u64 hash = load_config.hash_seed;

#pragma unroll
  for (__u32 i = 0; i < sizeof(*key) / sizeof(*words); i++) {
    hash = (hash ^ words[i]) * 0xbf58476d1ce4e5b9ull;
    hash ^= hash >> 29;
  }
  hash *= 0x94d049bb133111ebull;
  return hash ^ (hash >> 32);
}

HR_INLINE __u32 hr_hot_set(__u64 hash) { return (__u32)hash & (HR_HOT_SETS - 1); }
HR_INLINE __u32 hr_cold_set(__u64 hash) { return HR_HOT_SETS + ((__u32)(hash >> 20) & load_config.cold_mask); }
HR_INLINE __u32 hr_hash_tag(__u64 hash) { return (__u32)(hash >> 52); }

HR_INLINE int hr_same_key(const struct hr_request_key *a, const struct hr_request_key *b) {
  const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

  return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3] && x[4] == y[4];
}

/*
 * The reference of a key in one set, other than `except`; 0 when there is none. Only a splitter that claims (`except`
 * is its own reference) sees a request that is still being claimed: to a reply that request does not exist yet. Global:
 * its loop is verified once.
 */
HR_GLOBAL __u64 hr_find_in_set(const struct hr_request_key *key, __u32 set_index, __u32 tag, __u64 except) {
  struct hr_scoreboard_set *set = bpf_map_lookup_elem(&scoreboard, &set_index);

  if (!set || !key) return 0;
  for (__u32 i = 0; i < HR_SET_WAYS; i++) {
    __u64 reference = READ_ONCE(set->ways[i]);
    struct hr_request *request;
    __u64 word;

    if (!reference || HR_REFERENCE_TAG(reference) != tag || reference == except) continue;
    request = hr_request_at(HR_REFERENCE_REQUEST(reference));
    if (!request) continue;
    word = READ_ONCE(request->word);
    if (HR_WORD_GENERATION(word) != HR_REFERENCE_GENERATION(reference)) continue;
    if (!except && HR_WORD_STATE(word) == HR_STATE_CLAIMING) continue;
    if (hr_same_key(key, &request->key)) return reference;
  }
  return 0;
}

/*
 * Replaces one reference of a set by another (0: any empty place; to 0: removal). -1 when it is not there. The place
 * that the tag prefers is swapped before anything is read: the line mostly comes from another CPU's cache, and a swap
 * fetches it for writing at once, where a look first would fetch it twice.
 */
HR_GLOBAL int hr_swap_in_set(__u32 set_index, __u64 from, __u64 to) {
  struct hr_scoreboard_set *set = bpf_map_lookup_elem(&scoreboard, &set_index);
  __u32 preferred = HR_REFERENCE_TAG(from | to) & (HR_SET_WAYS - 1);

  if (!set) return -1;
  if (__sync_val_compare_and_swap(&set->ways[preferred], from, to) == from) return 0;
  for (__u32 i = 0; i < HR_SET_WAYS; i++) {
    if (READ_ONCE(set->ways[i]) == from && __sync_val_compare_and_swap(&set->ways[i], from, to) == from) return 0;
  }
  return -1;
}

/*
 * The reference of a key. The sets behind the hot ones are looked at only while `cold_used` says that they hold
 * references: it is raised before a reference goes there and lowered after it has gone.
 */
HR_INLINE __u64 hr_scoreboard_find(struct hr_wheel *wheel, const struct hr_request_key *key, __u64 hash) {
  __u64 reference = hr_find_in_set(key, hr_hot_set(hash), hr_hash_tag(hash), 0);

  if (reference || !READ_ONCE(wheel->cold_used)) return reference;
  return hr_find_in_set(key, hr_cold_set(hash), hr_hash_tag(hash), 0);
}

/* Takes a reference out of the set it is in. */
HR_INLINE void hr_scoreboard_remove(struct hr_wheel *wheel, __u32 set_index, __u64 reference) {
  hr_swap_in_set(set_index, reference, 0);
  if (set_index >= HR_HOT_SETS) __sync_fetch_and_sub(&wheel->cold_used, 1);
}

#define HR_SCOREBOARD_FULL (~0ull)

/*
 * Puts a claiming request's reference into a free place, and only then looks for another with its key, because two
 * CPUs that claim one key at once must see each other. Returns 0 when it stands alone. Otherwise the reference is taken
 * out again, and the result is the other's reference, or HR_SCOREBOARD_FULL. The set it went to is noted in the
 * request.
 */
HR_INLINE __u64 hr_scoreboard_insert(struct hr_wheel *wheel, struct hr_request *request, __u64 hash, __u64 reference) {
  __u32 tag = hr_hash_tag(hash);
  __u64 other;

  request->set = hr_hot_set(hash);
  if (hr_swap_in_set(request->set, 0, reference)) {
    request->set = hr_cold_set(hash);
    __sync_fetch_and_add(&wheel->cold_used, 1);
    if (hr_swap_in_set(request->set, 0, reference)) {
      __sync_fetch_and_sub(&wheel->cold_used, 1);
      return HR_SCOREBOARD_FULL;
    }
  }
  other = hr_find_in_set(&request->key, hr_hot_set(hash), tag, reference);
  if (!other && READ_ONCE(wheel->cold_used)) other = hr_find_in_set(&request->key, hr_cold_set(hash), tag, reference);
  if (other) hr_scoreboard_remove(wheel, request->set, reference);
  return other;
}
