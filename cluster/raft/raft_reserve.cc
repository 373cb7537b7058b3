// SPDX-License-Identifier: Apache-2.0
//
// Reservations, rule R9 of docs/SAFETY.md: a term that the disk knows of before a vote is given in it. What
// they are good for: whoever votes in a reserved term need not wait for its disk, and so the kernel part may.
// Who asks for them is cluster/offload/coupling.
#include "cluster/raft/check.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {

// At most one: another one takes its place in one write, which releases what was reserved before.
void Raft::On(Context& context, const ReserveTerm& reserve) {
  if (role_ != Role::kFollower || reserve.term <= term_ || reserve.term == reserved_) return;
  reserved_ = reserve.term;
  PersistHardState(context);
  reserved_sequence_ = asked_sequence_;
}

// The kernel part was fenced and drained: it has not voted, or the term would have been reached.
void Raft::On(Context& context, const ReleaseTerm&) {
  if (reserved_ == Term()) return;
  reserved_ = Term();
  PersistHardState(context);
}

void Raft::On(Context&, const KernelRemembers&) {
  HEDGEROW_CHECK(steps_ == 1);
  barred_ = false;
}

// A vote may have been given that is forgotten: to whom, nobody knows. In the next term there was none.
void Raft::HonourReservation(Context& context) {
  barred_ = false;
  EnterTerm(context, reserved_.Next(), NodeId());
}

}  // namespace hedgerow::raft
