/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The process's side of the shared state: each function is one critical section, called with the lock of R0 held by a
 * program that the process runs through BPF_PROG_TEST_RUN (and by the simulator). A plain update of the element would
 * undo what the kernel has decided meanwhile.
 */
#pragma once

#include "bpf/node/raft/node_abi.h"

/* R7, and R1: what the kernel has promised can only be replaced by what contains it, and only while it is fenced. */
HR_INLINE int hr_node_may_replace(const struct hr_node_view *view, const struct hr_node_view *next) {
  if (view->may) return 0;
  if (next->raft.term < view->raft.term) return 0;
  if (next->raft.term == view->raft.term && view->raft.voted_for && next->raft.voted_for != view->raft.voted_for)
    return 0;
  return next->self <= HR_NODE_NO_MEMBER;
}

/* What a leader or candidate has counted is of one term and role. */
HR_INLINE int hr_node_same_standing(const struct hr_node_view *view, const struct hr_node_view *next) {
  return view->raft.term == next->raft.term && view->role == next->role;
}

HR_INLINE enum hr_node_control_result hr_node_open(struct hr_node_view *view, const struct hr_node_view *next) {
  int same_leader = view->raft.term == next->raft.term && view->raft.leader == next->raft.leader;
  int same_standing = hr_node_same_standing(view, next);

  if (!hr_node_may_replace(view, next)) return HR_NODE_REFUSED;
  if (!same_leader || next->heard_ns > view->heard_ns) {
    view->heard_ns = next->heard_ns;
    view->leader_timeout_ns = next->leader_timeout_ns;
  }
  if (!same_leader || next->leader_commit > view->leader_commit) view->leader_commit = next->leader_commit;
  for (__u32 i = 0; i < HR_NODE_MEMBERS; ++i) {
    struct hr_node_member *member = &view->members[i];

    if (!same_standing || member->node != next->members[i].node) {
      *member = next->members[i];
      continue;
    }
    if (next->members[i].match > member->match) member->match = next->members[i].match;
    if (next->members[i].round > member->round) member->round = next->members[i].round;
  }
  if (!same_standing || view->config_epoch != next->config_epoch) {
    view->votes = next->votes;
    view->quorum_index = next->quorum_index;
    view->quorum_round = next->quorum_round;
  } else {
    view->votes |= next->votes;
  }
  view->raft = next->raft;
  view->matched = next->matched;
  view->election_timeout_ns = next->election_timeout_ns;
  view->lease_until_ns = next->lease_until_ns;
  view->term_max = next->term_max;
  view->config_epoch = next->config_epoch;
  view->voters = next->voters;
  view->next_voters = next->next_voters;
  view->self = next->self;
  view->role = next->role;
  view->every_ack = next->every_ack;
  view->tell_suspicion = next->tell_suspicion;
  ++view->loop_seq;
  view->may = next->may;
  return HR_NODE_DONE;
}

/*
 * The log grows without a fence while the kernel does not append to it and does not vote by it: heartbeats are answered
 * with how far it matches the leader's (else the leader takes the node for one that has started again), pre-votes with
 * its end.
 */
HR_INLINE void hr_node_lease(struct hr_node_view *view, const struct hr_node_view *next) {
  view->lease_until_ns = next->lease_until_ns;
  view->term_max = next->term_max;
  view->election_timeout_ns = next->election_timeout_ns;
  view->every_ack = next->every_ack;
  ++view->loop_seq;
  if (next->raft.term != view->raft.term || next->raft.leader != view->raft.leader) return;
  if (next->matched > view->matched) view->matched = next->matched;
  if (view->may & HR_NODE_OWNS_LOG) return;
  view->raft.last_index = next->raft.last_index;
  view->raft.last_term = next->raft.last_term;
}

/* Carries out `request` on `view`; the caller copies the view out afterwards, still under the lock. */
HR_INLINE enum hr_node_control_result hr_node_control_view(struct hr_node_view *view,
                                                           const struct hr_node_control *request) {
  if (request->operation == HR_NODE_ADOPT) {
    view->incarnation = request->incarnation;
    view->may = 0;
    view->role = HR_NODE_FOLLOWER;
    return HR_NODE_DONE;
  }
  if (request->operation == HR_NODE_READ) return HR_NODE_DONE;
  if (request->incarnation != view->incarnation) return HR_NODE_STALE;
  switch (request->operation) {
    case HR_NODE_FENCE:
      view->may = 0;
      return HR_NODE_DONE;
    case HR_NODE_OPEN:
      return hr_node_open(view, &request->view);
    case HR_NODE_LEASE:
      hr_node_lease(view, &request->view);
      return HR_NODE_DONE;
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
