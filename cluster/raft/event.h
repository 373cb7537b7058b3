// SPDX-License-Identifier: Apache-2.0
//
// Everything that can happen to a node, as seen by the core. The core has no clock and no generator of its own:
// each event brings the time and a fresh random number, so that a run is a function of its events.

#ifndef HEDGEROW_CLUSTER_RAFT_EVENT_H_
#define HEDGEROW_CLUSTER_RAFT_EVENT_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "cluster/raft/message.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

// Time has passed. Needed no earlier than Raft::next_deadline_ns(); more often does no harm.
struct Tick {};

// A message whose sender and integrity the transport has proved.
struct Receive {
  Message message;
};

// `tag` is the caller's name for it in Outputs; the core only repeats it.
struct Proposal {
  uint64_t tag = 0;
  Payload payload{};
};

// What has gathered since the last step: one write and one append for all of it (dissertation section 10.2.2).
struct Propose {
  std::vector<Proposal> proposals{};
};

// Dropped, and said so, at the first tick after `deadline_ns` (the time line of Event::now_ns).
struct Read {
  uint64_t tag = 0;
  uint64_t deadline_ns = 0;
};

// Every Persist up to this sequence number is durable (in memory mode: written).
struct Persisted {
  uint64_t sequence = 0;
};

// The state machine has applied every entry up to here.
struct Applied {
  LogIndex index{};
};

struct RoundTrip {
  NodeId peer{};
  uint64_t duration_ns = 0;
};

struct TransferLeadership {
  NodeId target{};
};

// A hint from the leader's host that its process dies or stands still. `rank` is this node's place among the
// successors. Only ever starts an election; safety does not depend on its being true.
struct LeaderResigns {
  NodeId leader{};
  Term term{};
  uint32_t rank = 0;
};

struct Event {
  uint64_t now_ns = 0;  // monotonic; never smaller than in an earlier event
  uint64_t random = 0;  // uniform over 64 bits
  std::variant<Tick, Receive, Propose, Read, Persisted, Applied, RoundTrip, TransferLeadership, LeaderResigns>
      what;
};

}  // namespace hedgerow::raft

#endif  // HEDGEROW_CLUSTER_RAFT_EVENT_H_
