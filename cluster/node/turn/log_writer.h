// SPDX-License-Identifier: Apache-2.0
//
// When a node's own log is written. A leader whose entries a majority of the others holds need not have written
// them itself to answer (dissertation section 10.2.1): in memory mode, where writing is the loop's own work, it
// first answers, and writes what several turns have gathered at once. What may wait for this very log is
// written in the turn in which it came. Used by a node's turn.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "cluster/raft/configuration.h"
#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"

namespace hedgerow::node {

class LogWriter {
 public:
  // What is held is due when it is so much, or so old.
  static constexpr size_t kHeldMax_entries = 64;
  static constexpr uint64_t kHeldMax_ns = 500'000;

  // `write` begins a write, after all before it.
  explicit LogWriter(std::function<void(raft::Persist)> write) : write_(std::move(write)) {}

  // Whether the other members are a quorum without this one, whose slot is `self`: then what they hold is
  // committed whatever is written here. Of two joint configurations, in each; learners decide nothing.
  static bool OthersDecide(const raft::Configuration& configuration, size_t self);

  // Nothing but entries: a term, a vote, a truncation are written at once.
  static bool CanBeHeld(const raft::Persist& persist);

  // In order: what is held goes first.
  void Write(raft::Persist persist);
  // Until it is due. Nothing is said to be durable meanwhile.
  void Hold(raft::Persist persist, uint64_t now_ns);
  void WriteHeld();

  bool holds() const { return held_.has_value(); }
  // `committed`: what comes after it may wait for this log.
  bool Due(uint64_t now_ns, raft::LogIndex committed) const;

 private:
  std::function<void(raft::Persist)> write_;
  std::optional<raft::Persist> held_;
  uint64_t held_since_ns_ = 0;
};

}  // namespace hedgerow::node
