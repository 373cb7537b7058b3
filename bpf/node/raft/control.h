/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The process's side of the shared state: each function is one critical section, called with the lock of R0 held by a
 * program that the process runs through BPF_PROG_TEST_RUN (and by the simulator). A plain update of the element would
 * undo what the kernel has decided meanwhile.
 */
#pragma once

#include "bpf/node/raft/node_abi.h"

/* R7, and R1: what the kernel has promised can only be replaced by what contains it, and only while it is fenced. */
HR_INLINE int hr_node_may_replace(const struct hr_node_shared *shared, const struct hr_node_shared *next) {
  if (shared->capabilities) return 0;
  if (next->raft.term < shared->raft.term) return 0;
  if (next->raft.term == shared->raft.term && shared->raft.voted_for && next->raft.voted_for != shared->raft.voted_for)
    return 0;
  /* In one term no leader takes back what matches its log. */
  if (next->raft.term == shared->raft.term && next->raft.last_index < shared->matched) return 0;
  return next->self <= HR_NODE_NO_MEMBER;
}

/* What a leader or candidate has counted is of one term and role. */
HR_INLINE int hr_node_same_standing(const struct hr_node_shared *shared, const struct hr_node_shared *next) {
  return shared->raft.term == next->raft.term && shared->role == next->role;
}

HR_INLINE enum hr_node_control_result hr_node_open(struct hr_node_shared *shared, const struct hr_node_shared *next) {
  int same_leader = shared->raft.term == next->raft.term && shared->raft.leader == next->raft.leader;
  int same_standing = hr_node_same_standing(shared, next);

  if (!hr_node_may_replace(shared, next)) return HR_NODE_REFUSED;
  if (!same_leader || next->heard_ns > shared->heard_ns) {
    shared->heard_ns = next->heard_ns;
    shared->leader_timeout_ns = next->leader_timeout_ns;
  }
  if (!same_leader || next->leader_commit > shared->leader_commit) shared->leader_commit = next->leader_commit;
  for (__u32 i = 0; i < HR_NODE_MEMBERS; ++i) {
    struct hr_node_member *member = &shared->members[i];

    if (!same_standing || member->node != next->members[i].node) {
      *member = next->members[i];
      continue;
    }
    if (next->members[i].match > member->match) member->match = next->members[i].match;
    if (next->members[i].round > member->round) member->round = next->members[i].round;
  }
  if (!same_standing || shared->config_epoch != next->config_epoch) {
    shared->votes = next->votes;
    shared->quorum_index = next->quorum_index;
    shared->quorum_round = next->quorum_round;
  } else {
    shared->votes |= next->votes;
  }
  shared->raft = next->raft;
  shared->matched = next->matched;
  shared->election_timeout_ns = next->election_timeout_ns;
  shared->lease_until_ns = next->lease_until_ns;
  shared->term_max = next->term_max;
  shared->config_epoch = next->config_epoch;
  shared->voters = next->voters;
  shared->next_voters = next->next_voters;
  shared->self = next->self;
  shared->role = next->role;
  shared->every_ack = next->every_ack;
  shared->tell_suspicion = next->tell_suspicion;
  ++shared->loop_seq;
  shared->capabilities = next->capabilities;
  return HR_NODE_DONE;
}

/*
 * The log grows without a fence while the kernel does not append to it and does not vote by it: heartbeats are answered
 * with how far it matches the leader's (else the leader takes the node for one that has started again), pre-votes with
 * its end.
 */
HR_INLINE void hr_node_lease(struct hr_node_shared *shared, const struct hr_node_shared *next) {
  shared->lease_until_ns = next->lease_until_ns;
  shared->term_max = next->term_max;
  shared->election_timeout_ns = next->election_timeout_ns;
  shared->every_ack = next->every_ack;
  ++shared->loop_seq;
  if (next->raft.term != shared->raft.term || next->raft.leader != shared->raft.leader) return;
  if (next->matched > shared->matched) shared->matched = next->matched;
  if (shared->capabilities & HR_NODE_OWNS_LOG) return;
  shared->raft.last_index = next->raft.last_index;
  shared->raft.last_term = next->raft.last_term;
}

/* Carries out `request` on `shared`; the caller copies it out afterwards, still under the lock. */
HR_INLINE enum hr_node_control_result hr_node_control_shared(struct hr_node_shared *shared,
                                                             const struct hr_node_control *request) {
  if (request->operation == HR_NODE_ADOPT) {
    shared->incarnation = request->incarnation;
    shared->capabilities = 0;
    shared->role = HR_NODE_FOLLOWER;
    return HR_NODE_DONE;
  }
  if (request->operation == HR_NODE_READ) return HR_NODE_DONE;
  if (request->incarnation != shared->incarnation) return HR_NODE_STALE;
  switch (request->operation) {
    case HR_NODE_FENCE: shared->capabilities = 0; return HR_NODE_DONE;
    case HR_NODE_OPEN: return hr_node_open(shared, &request->shared);
    case HR_NODE_LEASE: hr_node_lease(shared, &request->shared); return HR_NODE_DONE;
  }
  return HR_NODE_INVALID;
}

/* The window's own lock is held. Of an incarnation that is known already, what was seen stays seen. */
HR_INLINE void hr_node_window_begin(struct hr_node_window *window, __u64 incarnation, __u64 floor) {
  if (window->incarnation == incarnation && incarnation && window->highest > floor) floor = window->highest;
  window->incarnation = incarnation;
  window->floor = floor;
  window->highest = floor;
  for (__u32 i = 0; i < HR_NODE_WINDOW_NUMBERS / 64; ++i) window->seen[i] = 0;
}
