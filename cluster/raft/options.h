// SPDX-License-Identifier: Apache-2.0
//
// How a node is set up. Every queue of the core has its bound here.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cluster/raft/types.h"

namespace hedgerow::raft {

struct Options {
  NodeId self;
  // What the cluster began with, the same on all its first members; later ones stand in the log and in
  // snapshots. Without members: this node joins, and listens until it is told of a configuration.
  Configuration initial;

  // The timeout T (failure_detector.h) is this many round trips to the slowest member of the nearest majority and
  // what hosts add to one of them lately, within the two bounds, and no shorter than this many times the longest
  // recent pause that ended with a sign of life; an election's wait is drawn from [T, 2T) (Raft sections 5.2 and
  // 5.6: broadcast time << election timeout).
  uint64_t round_trips_per_election = 20;
  uint64_t pauses_per_timeout = 2;
  uint64_t pause_max_floors = 5;  // a longer pause counts as this
  // Up to this long after it was heard a leader is believed to be stalled for want of a processor.
  uint64_t stall_max_floors = 3;
  uint64_t election_floor_ns = 20'000'000;
  uint64_t election_cap_ns = 2'000'000'000;
  uint64_t heartbeats_per_election = 5;  // heartbeats that may be lost in a row, plus one

  // An append is one datagram of at most HR_PEER_DATAGRAM_MAX_BYTES, 104 of which are not entries, unless a
  // single entry is larger: that append travels in pieces.
  size_t append_max_entries = 64;
  size_t append_max_bytes = 1128;
  // In flight to one peer; more waits for an acknowledgement.
  size_t inflight_max_appends = 32;
  size_t inflight_max_bytes = 64 * 1024;
  // In a leader's log and not yet committed, of all proposers, or not yet durable there; more is refused with
  // kOverloaded. It bounds what one election can leave to the next, so it is no larger than what is written
  // within an election timeout.
  size_t uncommitted_max_entries = 2048;
  size_t uncommitted_max_bytes = 4 * 1024 * 1024;
  // Appends that have overtaken others on their way, and wait at the follower for those; more are refused as if
  // they had not come. And after so many refusals, or half a heartbeat, what is missing counts as lost.
  size_t reorder_buffer_max_appends = 64;
  uint32_t hole_refusals_max = 8;
  size_t reads_max = 4096;
  // Once no leader has answered for a read within this, or within twice the time that it takes otherwise, all members
  // are asked, and a majority will do, until a leader answers again. One at the same site does so in a tenth of it.
  uint64_t read_leader_ns = 1'000'000;

  // What stays in the log before the last snapshot, for followers that are a little behind; both bounds hold.
  uint64_t tail_max_entries = 100'000;
  size_t tail_max_bytes = 32 * 1024 * 1024;

  // A log that does not move for so long is a fault (raft_stall.cc): the leader steps down where another member can
  // do better. A node whose disk has not finished a write for half of it does not stand for election.
  uint64_t stall_ns = 500'000'000;

  // A leader that resigns: its i-th successor starts after i times this.
  uint64_t resign_step_ns = 2'000'000;
};

}  // namespace hedgerow::raft
