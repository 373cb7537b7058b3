/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The protocol's small decisions: may this vote be given, may this batch be appended, does this acknowledgement move
 * the commit index. Plain C without loops the verifier cannot bound, compiled twice: natively into the Raft core, its
 * tests and the simulator, and by clang for the kernel programs. Every decision is made here. All functions are pure;
 * the caller holds whatever lock protects the state.
 */
#pragma once

#include "bpf/compiler.h"

#include <linux/types.h>

#define HR_RAFT_MAX_MEMBERS 8

/* The part of a node's state that the decisions read. Node 0 is no node. */
struct hr_raft_state {
  __u64 term;
  __u64 voted_for;
  __u64 leader; /* of `term`; 0: none heard of */
  __u64 last_index;
  __u64 last_term;
};

struct hr_raft_vote_request {
  __u64 term; /* the term the vote is for; the candidate's own in a vote, one more in a pre-vote */
  __u64 candidate;
  __u64 last_index;
  __u64 last_term;
  __u64 transfer_term; /* the leader of this term asked for an election; 0: none did */
};

struct hr_raft_append {
  __u64 term;
  __u64 prev_index;
  __u64 prev_term;
};

enum hr_raft_verdict {
  HR_RAFT_YES = 0,
  HR_RAFT_STALE_TERM = 1,   /* of a term that is over */
  HR_RAFT_NEWER_TERM = 2,   /* the caller must adopt the term first */
  HR_RAFT_LEADER_ALIVE = 3, /* a leader was heard lately: the request is ignored, its term too */
  HR_RAFT_VOTE_TAKEN = 4,   /* another candidate has this term's vote, or the term has a leader */
  HR_RAFT_LOG_BEHIND = 5,   /* the candidate's log is older than ours */
  HR_RAFT_GAP = 6,          /* our log ends before the batch begins */
  HR_RAFT_CONFLICT = 7,     /* our entry before the batch is of another term */
};

/* Raft section 5.4.1: the later last term wins; in the same term, the longer log. */
HR_INLINE int hr_raft_log_up_to_date(const struct hr_raft_state *state, __u64 last_index, __u64 last_term) {
  if (last_term != state->last_term) return last_term > state->last_term;
  return last_index >= state->last_index;
}

/*
 * Dissertation section 4.2.3: a node that has heard a leader within the smallest election timeout takes no part in an
 * election, unless that leader asked for it (transfer, section 3.10; or a leader that resigns). For availability
 * only: nothing safe depends on it.
 */
HR_INLINE int hr_raft_sticky(const struct hr_raft_state *state, const struct hr_raft_vote_request *request,
                             int leader_heard) {
  return leader_heard && request->transfer_term < state->term;
}

/* Dissertation section 9.6. Promises nothing and changes nothing, so it may be given to several. */
HR_INLINE enum hr_raft_verdict hr_raft_may_pre_vote(const struct hr_raft_state *state,
                                                    const struct hr_raft_vote_request *request, int leader_heard) {
  if (request->term <= state->term) return HR_RAFT_STALE_TERM;
  if (hr_raft_sticky(state, request, leader_heard)) return HR_RAFT_LEADER_ALIVE;
  if (!hr_raft_log_up_to_date(state, request->last_index, request->last_term)) return HR_RAFT_LOG_BEHIND;
  return HR_RAFT_YES;
}

/* Raft sections 5.2 and 5.4.1. Asked again after HR_RAFT_NEWER_TERM, once the term is adopted. */
HR_INLINE enum hr_raft_verdict hr_raft_may_vote(const struct hr_raft_state *state,
                                                const struct hr_raft_vote_request *request, int leader_heard) {
  if (request->term < state->term) return HR_RAFT_STALE_TERM;
  if (request->term > state->term) {
    return hr_raft_sticky(state, request, leader_heard) ? HR_RAFT_LEADER_ALIVE : HR_RAFT_NEWER_TERM;
  }
  if (state->voted_for != 0 ? state->voted_for != request->candidate : state->leader != 0) {
    return HR_RAFT_VOTE_TAKEN;
  }
  if (!hr_raft_log_up_to_date(state, request->last_index, request->last_term)) return HR_RAFT_LOG_BEHIND;
  return HR_RAFT_YES;
}

/*
 * Raft section 5.3, AppendEntries steps 1 and 2. `our_prev_term` is the term of our entry at prev_index, and is
 * read only where we have one (prev_index 0 counts as had, with term 0).
 */
HR_INLINE enum hr_raft_verdict hr_raft_may_append(const struct hr_raft_state *state,
                                                  const struct hr_raft_append *append, __u64 our_prev_term) {
  if (append->term < state->term) return HR_RAFT_STALE_TERM;
  if (append->term > state->term) return HR_RAFT_NEWER_TERM;
  if (append->prev_index > state->last_index) return HR_RAFT_GAP;
  if (our_prev_term != append->prev_term) return HR_RAFT_CONFLICT;
  return HR_RAFT_YES;
}

HR_INLINE __u32 hr_raft_count(__u32 mask) {
  __u32 count = 0;
  for (__u32 i = 0; i < HR_RAFT_MAX_MEMBERS; ++i) count += (mask >> i) & 1;
  return count;
}

/*
 * More than half of the voters (bit masks over member slots; other members do not count). This and what follows
 * is written without branches: a verifier follows both sides of each, and hr_raft_quorum_value would have 80 of them.
 */
HR_INLINE int hr_raft_is_quorum(__u32 members, __u32 voters) {
  return (int)((hr_raft_count(voters) / 2 - hr_raft_count(members & voters)) >> 31);
}

/* R6: while two configurations are joint, a majority of each. `next_voters` 0: they are not. */
HR_INLINE int hr_raft_is_joint_quorum(__u32 members, __u32 voters, __u32 next_voters) {
  return hr_raft_is_quorum(members, voters) & hr_raft_is_quorum(members, next_voters ? next_voters : voters);
}

/* 1: a >= b. */
HR_INLINE __u32 hr_raft_at_least(__u64 a, __u64 b) {
  const __u64 less = (~a & b) | (~(a ^ b) & (a - b));
  return (__u32)(less >> 63) ^ 1;
}

/*
 * The largest value that a quorum has reached: the k-th largest of `reached`, or the smaller one of two joint
 * configurations. Repeating an acknowledgement changes nothing. Serves match indices, heartbeat rounds and times of
 * contact alike.
 */
HR_INLINE __u64 hr_raft_quorum_value(const __u64 reached[HR_RAFT_MAX_MEMBERS], __u32 voters, __u32 next_voters) {
  __u64 best = 0;
  for (__u32 i = 0; i < HR_RAFT_MAX_MEMBERS; ++i) {
    __u32 at_least = 0;
    if (!(((voters | next_voters) >> i) & 1)) continue;
    for (__u32 j = 0; j < HR_RAFT_MAX_MEMBERS; ++j) {
      at_least |= hr_raft_at_least(reached[j], reached[i]) << j;
    }
    if (reached[i] > best && hr_raft_is_joint_quorum(at_least, voters, next_voters)) best = reached[i];
  }
  return best;
}

/* Raft section 5.4.2: only an entry of the leader's own term is committed by counting replicas. */
HR_INLINE int hr_raft_moves_commit(__u64 term, __u64 commit, __u64 quorum_index, __u64 quorum_index_term) {
  return quorum_index > commit && quorum_index_term == term;
}
