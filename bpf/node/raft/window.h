/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Replay protection in the kernel: which of a sender's packet numbers were seen. As cluster/wire/replay_window, which
 * the process keeps for what reaches it (RFC 6479's idea: a ring of words). The caller holds the window's lock.
 */
#pragma once

#include "bpf/node/raft/node_abi.h"

#define HR_NODE_WINDOW_WORDS (HR_NODE_WINDOW_NUMBERS / 64)

enum hr_node_window_verdict {
  HR_NODE_WINDOW_NEW = 0,
  HR_NODE_WINDOW_SEEN = 1,
  HR_NODE_WINDOW_TOO_OLD = 2,
  HR_NODE_WINDOW_OTHER_INCARNATION = 3,
};

/* The words between the highest number and `number` begin anew; what the highest's own word says above it is 0 already.
 */
HR_INLINE void hr_node_window_advance(struct hr_node_window *window, __u64 number) {
  __u64 word = window->highest / 64;
  __u64 last = number / 64;

  if (last - word > HR_NODE_WINDOW_WORDS) word = last - HR_NODE_WINDOW_WORDS;
  for (__u32 i = 0; i < HR_NODE_WINDOW_WORDS; ++i) {
    if (word >= last) break;
    ++word;
    window->seen[word & (HR_NODE_WINDOW_WORDS - 1)] = 0;
  }
  window->highest = number;
}

/*
 * HR_NODE_WINDOW_NEW once for each number of the known incarnation; remembers it. Of the last 4,096 numbers those that
 * share the word of the next highest are forgotten up to 63 early: they count as too old.
 */
HR_INLINE enum hr_node_window_verdict hr_node_window_take(struct hr_node_window *window, __u64 incarnation,
                                                          __u64 number) {
  __u64 bit = 1ull << (number & 63);
  __u64 *word;

  if (!incarnation || window->incarnation != incarnation) return HR_NODE_WINDOW_OTHER_INCARNATION;
  if (number <= window->floor) return HR_NODE_WINDOW_TOO_OLD;
  if (number > window->highest) {
    hr_node_window_advance(window, number);
  } else if (window->highest / 64 - number / 64 >= HR_NODE_WINDOW_WORDS) {
    return HR_NODE_WINDOW_TOO_OLD;
  }
  word = &window->seen[(number / 64) & (HR_NODE_WINDOW_WORDS - 1)];
  if (*word & bit) return HR_NODE_WINDOW_SEEN;
  *word |= bit;
  return HR_NODE_WINDOW_NEW;
}
