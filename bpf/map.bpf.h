/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A map in one line. The entry programs of an object are compiled one by one and linked, so every map is weak: the
 * linker keeps one of each.
 */
#pragma once

#include <linux/bpf.h>
/* The order of these two matters: the helpers need the types. */
#include <bpf/bpf_helpers.h>

#define HR_MAP(kind, flags, name, entries, key_type, value_type) \
  struct {                                                       \
    __uint(type, BPF_MAP_TYPE_##kind);                           \
    __uint(max_entries, entries);                                \
    __uint(map_flags, flags);                                    \
    __type(key, key_type);                                       \
    __type(value, value_type);                                   \
  } name SEC(".maps") __weak

#define HR_ARRAY(name, entries, value_type) HR_MAP(ARRAY, 0, name, entries, __u32, value_type)
/* User space reads it, and writes aligned words of it, while programs run. */
#define HR_MAPPED_ARRAY(name, entries, value_type) HR_MAP(ARRAY, BPF_F_MMAPABLE, name, entries, __u32, value_type)
#define HR_PER_CPU(name, entries, value_type) HR_MAP(PERCPU_ARRAY, 0, name, entries, __u32, value_type)
#define HR_HASH(name, entries, key_type, value_type) HR_MAP(HASH, 0, name, entries, key_type, value_type)
/* The last one pushed is the first one popped. */
#define HR_STACK(name, entries, value_type) \
  struct {                                  \
    __uint(type, BPF_MAP_TYPE_STACK);       \
    __uint(max_entries, entries);           \
    __uint(value_size, sizeof(value_type)); \
  } name SEC(".maps") __weak
#define HR_LRU_HASH(name, entries, key_type, value_type) HR_MAP(LRU_HASH, 0, name, entries, key_type, value_type)
