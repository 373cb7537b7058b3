// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Compiles the shared decisions for BPF, so that a change which the kernel's compiler refuses fails the build
// now and not with the first offload. Never loaded.
#include "bpf/node/raft/decisions_abi.h"

#define SECTION(name) __attribute__((section(name), used))

struct decisions_input {
  struct hr_raft_state state;
  struct hr_raft_vote_request request;
  struct hr_raft_append append;
  __u64 reached[HR_RAFT_MAX_MEMBERS];
  __u32 voters;
  __u32 next_voters;
  __u32 leader_heard;
  __u32 reserved;
};

SECTION("socket") int decide(struct decisions_input* input) {
  const __u64 quorum = hr_raft_quorum_value(input->reached, input->voters, input->next_voters);
  int answer = hr_raft_moves_commit(input->state.term, input->state.last_index, quorum, input->append.prev_term);
  answer += hr_raft_may_pre_vote(&input->state, &input->request, input->leader_heard);
  answer += hr_raft_may_vote(&input->state, &input->request, input->leader_heard);
  answer += hr_raft_may_append(&input->state, &input->append, input->append.prev_term);
  return answer;
}
