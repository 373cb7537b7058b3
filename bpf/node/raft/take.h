/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a node's kernel programs decide on each datagram of a peer: answer it, store it, count it, or leave it to the
 * process. One function for each kind; each is one critical section, called with the lock of R0 held, after the
 * datagram's tag and number were checked. All are pure but for the shared state, so that the simulator and the
 * differential fuzz run the same code natively.
 *
 * The rule for whatever is not plain: HR_NODE_PASS (R3). Nothing is acknowledged here that the caller has not already
 * reserved room for; nothing is promised while `capabilities` does not allow it (R1) or past the lease (R5).
 */
#pragma once

#include "bpf/abi/peer_abi.h"
#include "bpf/node/raft/node_abi.h"

enum hr_node_verdict {
  HR_NODE_PASS = 0,     /* the process sees it */
  HR_NODE_ANSWER = 1,   /* `reply` goes back, and the process does not see the datagram */
  HR_NODE_CONSUMED = 2, /* worked off: neither */
};

/* What is known of the datagram in hand. */
struct hr_node_taken {
  __u64 term; /* the sender's, of the header */
  __u64 now_ns;
  __u64 sent_index; /* what this node has sent as leader (hr_node_doorbell) */
  __u64 sent_round;
  __u32 from;  /* node id */
  __u32 slot;  /* of the sender, as the map of members had it */
  __u32 event; /* out: enum hr_node_event */
};

union hr_node_reply {
  struct hr_peer_vote_reply vote;
  struct hr_peer_append_reply append;
  struct hr_peer_heartbeat_reply heartbeat;
};

HR_INLINE enum hr_node_verdict hr_node_pass(struct hr_node_taken *taken, enum hr_node_event why) {
  taken->event = why;
  return HR_NODE_PASS;
}

HR_INLINE enum hr_node_verdict hr_node_consumed(struct hr_node_taken *taken, enum hr_node_event what) {
  taken->event = what;
  return HR_NODE_CONSUMED;
}

HR_INLINE enum hr_node_verdict hr_node_answer(struct hr_node_taken *taken, enum hr_node_event what) {
  taken->event = what;
  return HR_NODE_ANSWER;
}

/* May the kernel speak for the process at all? R1, R5. */
HR_INLINE int hr_node_can(const struct hr_node_shared *shared, __u32 what, struct hr_node_taken *taken) {
  taken->event = HR_NODE_EVENT_PASSED_FENCED;
  if (!(shared->capabilities & what)) return 0;
  taken->event = HR_NODE_EVENT_PASSED_LEASE;
  return taken->now_ns < shared->lease_until_ns;
}

/* Is it this term's leader that speaks to its follower? */
HR_INLINE int hr_node_follows(const struct hr_node_shared *shared, struct hr_node_taken *taken) {
  taken->event = HR_NODE_EVENT_PASSED_ROLE;
  if (shared->role != HR_NODE_FOLLOWER) return 0;
  taken->event = HR_NODE_EVENT_PASSED_TERM;
  return taken->term == shared->raft.term && taken->from == shared->raft.leader;
}

HR_INLINE void hr_node_hear_leader(struct hr_node_shared *shared, __u64 commit, __u64 now_ns) {
  if (now_ns > shared->heard_ns) shared->heard_ns = now_ns;
  if (commit > shared->leader_commit) shared->leader_commit = commit;
}

/* Dissertation section 6.4. The answer proves that this node is in no later term; loop_seq proves that it lives. */
HR_INLINE enum hr_node_verdict hr_node_take_heartbeat(struct hr_node_shared *shared, struct hr_node_taken *taken,
                                                      const struct hr_peer_heartbeat *heartbeat,
                                                      union hr_node_reply *reply) {
  if (!hr_node_can(shared, HR_NODE_CAN_HEARTBEAT, taken) || !hr_node_follows(shared, taken)) return HR_NODE_PASS;
  hr_node_hear_leader(shared, heartbeat->commit, taken->now_ns);
  shared->leader_timeout_ns = heartbeat->election_timeout_ns;
  reply->heartbeat.round = heartbeat->round;
  reply->heartbeat.matched = shared->matched;
  reply->heartbeat.loop_seq = shared->loop_seq;
  return hr_node_answer(taken, HR_NODE_EVENT_HEARTBEAT_ANSWERED);
}

/*
 * Raft section 5.3, for a batch of one term that follows the log's end. The previous entries are equal (Log Matching),
 * so the whole log is the leader's from now on. hr_node_keeps_record() says whether the caller submits the record it
 * has reserved. Acknowledgements are cumulative: one that another is about to say as well is left out, like one that is
 * lost.
 */
HR_INLINE enum hr_node_verdict hr_node_take_append(struct hr_node_shared *shared, struct hr_node_taken *taken,
                                                   const struct hr_peer_append *append, union hr_node_reply *reply) {
  struct hr_raft_append asked = {.term = taken->term, .prev_index = append->prev_index, .prev_term = append->prev_term};

  if (!hr_node_can(shared, HR_NODE_CAN_APPEND, taken) || !hr_node_follows(shared, taken)) return HR_NODE_PASS;
  if (!append->count || append->batch_term != taken->term) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_BATCH);
  if (append->prev_index != shared->raft.last_index ||
      hr_raft_may_append(&shared->raft, &asked, shared->raft.last_term) != HR_RAFT_YES)
    return hr_node_pass(taken, HR_NODE_EVENT_PASSED_HOLE);
  shared->raft.last_index = append->prev_index + append->count;
  shared->raft.last_term = append->batch_term;
  shared->matched = shared->raft.last_index;
  hr_node_hear_leader(shared, append->commit, taken->now_ns);
  if (append->flags & HR_PEER_APPEND_MORE) return hr_node_consumed(taken, HR_NODE_EVENT_APPEND_STORED_UNSAID);
  reply->append.index = shared->raft.last_index;
  reply->append.conflict_term = 0;
  reply->append.conflict_index = 0;
  reply->append.loop_seq = shared->loop_seq;
  reply->append.accepted = 1;
  reply->append.reserved = 0;
  return hr_node_answer(taken, HR_NODE_EVENT_APPEND_STORED);
}

HR_INLINE enum hr_node_verdict hr_node_answer_vote(struct hr_node_taken *taken,
                                                   const struct hr_peer_vote_request *request, int granted,
                                                   enum hr_node_event what, union hr_node_reply *reply) {
  reply->vote.asked_term = request->asked_term;
  reply->vote.pre_vote = request->pre_vote;
  reply->vote.granted = granted ? 1 : 0;
  return hr_node_answer(taken, what);
}

/* The stickiness of dissertation section 4.2.3. A leader steps down by itself when it hears no majority. */
HR_INLINE int hr_node_leader_heard(const struct hr_node_shared *shared, __u64 now_ns) {
  if (shared->role == HR_NODE_LEADER) return 1;
  /* Another CPU may have heard it after `now_ns` was read. */
  return shared->raft.leader && now_ns < shared->heard_ns + shared->election_timeout_ns;
}

/*
 * A vote, given here only by a follower: candidates and leaders have more to do than to change their term. The record
 * that the caller submits tells the process; until it has read it, it is a follower of an older term, and R1's fence
 * tells it before it promises anything.
 */
HR_INLINE enum hr_node_verdict hr_node_grant(struct hr_node_shared *shared, struct hr_node_taken *taken,
                                             const struct hr_peer_vote_request *request, union hr_node_reply *reply) {
  if (!hr_node_can(shared, HR_NODE_CAN_GRANT, taken)) return HR_NODE_PASS;
  if (shared->role != HR_NODE_FOLLOWER) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_ROLE);
  if (shared->term_max && request->asked_term > shared->term_max) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_TERM);
  if (request->asked_term > shared->raft.term) {
    shared->raft.leader = 0;
    shared->matched = 0;
    shared->leader_commit = 0;
  }
  shared->raft.term = request->asked_term;
  shared->raft.voted_for = taken->from;
  return hr_node_answer_vote(taken, request, 1, HR_NODE_EVENT_VOTE_GRANTED, reply);
}

/* The sender by its slot, if that is still its own: what it says is counted under it. */
HR_INLINE struct hr_node_member *hr_node_sender(struct hr_node_shared *shared, struct hr_node_taken *taken) {
  struct hr_node_member *member = &shared->members[taken->slot & (HR_NODE_MEMBERS - 1)];

  taken->event = HR_NODE_EVENT_PASSED_NO_MEMBER;
  if (taken->slot >= HR_NODE_MEMBERS || member->node != taken->from) return 0;
  return member;
}

/*
 * Raft sections 5.2 and 5.4.1, dissertation section 9.6. HR_NODE_ANSWER with VOTE_GRANTED: the record is submitted.
 * The process refuses former members (dissertation section 4.2.3): a vote here would elect a leader that the process
 * does not hear, and a pre-vote would keep it.
 */
HR_INLINE enum hr_node_verdict hr_node_take_vote_request(struct hr_node_shared *shared, struct hr_node_taken *taken,
                                                         const struct hr_peer_vote_request *request,
                                                         union hr_node_reply *reply) {
  struct hr_raft_vote_request asked = {.term = request->asked_term,
                                       .candidate = taken->from,
                                       .last_index = request->last_index,
                                       .last_term = request->last_term,
                                       .transfer_term = request->transfer_term};
  struct hr_raft_state state = shared->raft;
  enum hr_raft_verdict verdict;
  int heard;

  if (!hr_node_can(shared, HR_NODE_CAN_VOTE, taken)) return HR_NODE_PASS;
  if (!hr_node_sender(shared, taken)) return HR_NODE_PASS;
  if (request->asked_term != (request->pre_vote ? taken->term + 1 : taken->term))
    return hr_node_pass(taken, HR_NODE_EVENT_PASSED_MALFORMED);
  heard = hr_node_leader_heard(shared, taken->now_ns);
  if (request->pre_vote) {
    verdict = hr_raft_may_pre_vote(&state, &asked, heard);
    if (verdict == HR_RAFT_YES && shared->tell_suspicion && !(shared->capabilities & HR_NODE_CAN_GRANT))
      return hr_node_pass(taken, HR_NODE_EVENT_PASSED_SUSPICION);
    return hr_node_answer_vote(taken, request, verdict == HR_RAFT_YES, HR_NODE_EVENT_PRE_VOTE_ANSWERED, reply);
  }
  verdict = hr_raft_may_vote(&state, &asked, heard);
  if (verdict == HR_RAFT_LEADER_ALIVE) return hr_node_consumed(taken, HR_NODE_EVENT_VOTE_IGNORED);
  if (verdict == HR_RAFT_NEWER_TERM) {
    /* As if the term were adopted. If the vote is then refused, adopting it is the process's business. */
    state.term = request->asked_term;
    state.voted_for = 0;
    state.leader = 0;
    if (hr_raft_may_vote(&state, &asked, 0) != HR_RAFT_YES) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_TERM);
    return hr_node_grant(shared, taken, request, reply);
  }
  if (verdict == HR_RAFT_YES) return hr_node_grant(shared, taken, request, reply);
  return hr_node_answer_vote(taken, request, 0, HR_NODE_EVENT_VOTE_REFUSED, reply);
}

/* R6, R7. The process is woken as soon as a majority has voted, and by every vote after that; a candidate's by each,
 * since a vote may also be the answer that completes a split (Raft::GiveUpIfSplit). */
HR_INLINE enum hr_node_verdict hr_node_take_vote_reply(struct hr_node_shared *shared, struct hr_node_taken *taken,
                                                       const struct hr_peer_vote_reply *vote) {
  int pre_vote = shared->role == HR_NODE_PRE_CANDIDATE;

  if (!hr_node_can(shared, HR_NODE_CAN_VOTE, taken)) return HR_NODE_PASS;
  if (!pre_vote && shared->role != HR_NODE_CANDIDATE) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_ROLE);
  if (vote->asked_term != (pre_vote ? shared->raft.term + 1 : shared->raft.term) || !vote->pre_vote != !pre_vote ||
      taken->term > vote->asked_term || !vote->granted)
    return hr_node_pass(taken, HR_NODE_EVENT_PASSED_TERM);
  if (!hr_node_sender(shared, taken)) return HR_NODE_PASS;
  shared->votes |= 1u << (taken->slot & (HR_NODE_MEMBERS - 1));
  if (!pre_vote || hr_raft_is_joint_quorum(shared->votes | 1u << (shared->self & (HR_NODE_MEMBERS - 1)), shared->voters,
                                           shared->next_voters))
    return hr_node_pass(taken, HR_NODE_EVENT_WOKEN_FOR_VOTES);
  return hr_node_consumed(taken, HR_NODE_EVENT_VOTE_COUNTED);
}

/*
 * What was passed on for this tells the process no more than the state does: it is there to wake it. A process that is
 * awake, and will look at the state before it sleeps, need not get it (R6).
 */
HR_INLINE int hr_node_only_wakes(__u32 event) {
  return event == HR_NODE_EVENT_WOKEN_FOR_COMMIT || event == HR_NODE_EVENT_WOKEN_FOR_ROUND;
}

/* Is it this leader's member that answers in this term? */
HR_INLINE struct hr_node_member *hr_node_led(struct hr_node_shared *shared, struct hr_node_taken *taken) {
  taken->event = HR_NODE_EVENT_PASSED_ROLE;
  if (shared->role != HR_NODE_LEADER) return 0;
  taken->event = HR_NODE_EVENT_PASSED_TERM;
  if (taken->term != shared->raft.term) return 0;
  return hr_node_sender(shared, taken);
}

HR_INLINE void hr_node_contact(struct hr_node_member *member, __u64 loop_seq, __u64 now_ns) {
  if (loop_seq == member->loop_seq) return;
  member->loop_seq = loop_seq;
  member->contact_ns = now_ns;
}

/*
 * Raft section 5.3. Counts; it does not commit: that is the process's, with what its own disk holds. The leader counts
 * here as having everything, so that the process is woken no later than it can commit (R6). An index that was never
 * sent would stay the highest for good, and so would a round.
 */
HR_INLINE enum hr_node_verdict hr_node_take_append_reply(struct hr_node_shared *shared, struct hr_node_taken *taken,
                                                         const struct hr_peer_append_reply *reply) {
  struct hr_node_member *member;
  __u64 reached[HR_NODE_MEMBERS];
  __u64 quorum;

  if (!hr_node_can(shared, HR_NODE_CAN_COUNT, taken)) return HR_NODE_PASS;
  member = hr_node_led(shared, taken);
  if (!member) return HR_NODE_PASS;
  if (reply->index > taken->sent_index) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_MALFORMED);
  hr_node_contact(member, reply->loop_seq, taken->now_ns);
  if (!reply->accepted) return hr_node_pass(taken, HR_NODE_EVENT_WOKEN_FOR_ACK);
  if (reply->index > member->match) member->match = reply->index;
  for (__u32 i = 0; i < HR_NODE_MEMBERS; ++i) reached[i] = i == shared->self ? ~0ull : shared->members[i].match;
  quorum = hr_raft_quorum_value(reached, shared->voters, shared->next_voters);
  if (quorum > shared->quorum_index) {
    shared->quorum_index = quorum;
    return hr_node_pass(taken, HR_NODE_EVENT_WOKEN_FOR_COMMIT);
  }
  if (shared->every_ack & (1u << (taken->slot & (HR_NODE_MEMBERS - 1))))
    return hr_node_pass(taken, HR_NODE_EVENT_WOKEN_FOR_ACK);
  return hr_node_consumed(taken, HR_NODE_EVENT_ACK_COUNTED);
}

/* Dissertation section 6.4. A follower that knows less of its log than it has acknowledged has started again. */
HR_INLINE enum hr_node_verdict hr_node_take_heartbeat_reply(struct hr_node_shared *shared, struct hr_node_taken *taken,
                                                            const struct hr_peer_heartbeat_reply *reply) {
  struct hr_node_member *member;
  __u64 reached[HR_NODE_MEMBERS];
  __u64 quorum;

  if (!hr_node_can(shared, HR_NODE_CAN_HEARTBEAT, taken)) return HR_NODE_PASS;
  member = hr_node_led(shared, taken);
  if (!member) return HR_NODE_PASS;
  if (reply->round > taken->sent_round) return hr_node_pass(taken, HR_NODE_EVENT_PASSED_MALFORMED);
  if (reply->round > member->round) {
    member->round = reply->round;
    member->replied_ns = taken->now_ns;
  }
  hr_node_contact(member, reply->loop_seq, taken->now_ns);
  if (reply->matched < member->match) return hr_node_pass(taken, HR_NODE_EVENT_WOKEN_FOR_ACK);
  for (__u32 i = 0; i < HR_NODE_MEMBERS; ++i) reached[i] = i == shared->self ? ~0ull : shared->members[i].round;
  quorum = hr_raft_quorum_value(reached, shared->voters, shared->next_voters);
  if (quorum <= shared->quorum_round) return hr_node_consumed(taken, HR_NODE_EVENT_HEARTBEAT_COUNTED);
  shared->quorum_round = quorum;
  return hr_node_pass(taken, HR_NODE_EVENT_WOKEN_FOR_ROUND);
}
