// SPDX-License-Identifier: Apache-2.0
//
// When the kernel part may vote although that is not a matter of course: in disk mode in a reserved term (R9),
// in memory mode without appends once the leader is suspect.
#include "cluster/offload/coupling.h"

namespace hedgerow::offload {

bool Coupling::Reserves() const {
  return options_.durability == Durability::kDisk && options_.switches.vote && options_.switches.reserve;
}

// Where the kernel part votes only for somebody who can tell that the leader is suspect.
bool Coupling::WantsSuspicion(const raft::Raft& raft) const {
  if (raft.role() != raft::Role::kFollower || !options_.switches.vote) return false;
  return options_.durability == Durability::kDisk ? Reserves() : !options_.switches.append;
}

raft::Term Coupling::ReservationWanted(const raft::Raft& raft) const {
  return Reserves() ? raft.suspected_term() : raft::Term();
}

bool Coupling::ReservationDue(const raft::Raft& raft) const {
  // Candidates have no leader to hear; a leader suspects nobody.
  if (raft.role() != raft::Role::kFollower && raft.role() != raft::Role::kLeader) return false;
  const raft::Term wanted = ReservationWanted(raft);
  if (wanted != raft::Term()) return wanted > raft.reserved();
  return raft.reserved() != raft::Term();
}

void Coupling::ChangeReservation(kv::Replica& replica) {
  const raft::Raft& raft = replica.raft();
  if (superseded_ || !ReservationDue(raft)) return;
  if (const raft::Term wanted = ReservationWanted(raft); wanted != raft::Term()) {
    ++statistics_.reserved;
    replica.Feed(raft::ReserveTerm{.term = wanted});
  } else {
    ++statistics_.released;
    replica.Feed(raft::ReleaseTerm{});
  }
  replica.Settle();
}

// R9. A term is reserved when a candidate is about to ask for votes in it, which takes a sync of its own disk
// first: the two syncs run side by side. It is released when the leader is heard again; a vote that was given
// meanwhile is known behind the fence, and has used it up. What the kernel part may do follows by OPEN, once all
// of it is durable.
void Coupling::FollowSuspicion(kv::Replica& replica) {
  const raft::Raft& raft = replica.raft();
  const bool votes_away = open_ && (may_ & HR_NODE_GRANTS) != 0;
  if (votes_away && ReservationDue(raft)) FenceAndSettle(replica);
  ChangeReservation(replica);
  const bool durable = raft.durable_sequence() == raft.asked_sequence();
  if (!open_ || !durable || ((May(raft) ^ may_) & HR_NODE_GRANTS) == 0) return;
  FenceAndSettle(replica);
  ChangeReservation(replica);  // the fence may have told that the leader was heard
}

}  // namespace hedgerow::offload
