// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/turn/log_writer.h"

#include <iterator>
#include <utility>

#include "bpf/node/raft/decisions_abi.h"
#include "cluster/raft/check.h"

namespace hedgerow::node {

bool LogWriter::OthersDecide(const raft::Configuration& configuration, size_t self) {
  const uint32_t own = self < HR_RAFT_MAX_MEMBERS ? 1u << self : 0;
  const uint32_t others = configuration.all() & ~own;
  return hr_raft_is_joint_quorum(others, configuration.voters, configuration.next_voters) != 0;
}

bool LogWriter::CanBeHeld(const raft::Persist& persist) {
  return !persist.hard_state.has_value() && !persist.truncate_from.has_value() && !persist.new_start.has_value() &&
         !persist.entries.empty();
}

void LogWriter::Write(raft::Persist persist) {
  WriteHeld();
  write_(std::move(persist));
}

void LogWriter::Hold(raft::Persist persist, uint64_t now_ns) {
  HEDGEROW_CHECK(CanBeHeld(persist));
  if (!held_.has_value()) {
    held_ = std::move(persist);
    held_since_ns_ = now_ns;
    return;
  }
  held_->sequence = persist.sequence;
  held_->entries.insert(held_->entries.end(), std::make_move_iterator(persist.entries.begin()),
                        std::make_move_iterator(persist.entries.end()));
}

void LogWriter::WriteHeld() {
  if (!held_.has_value()) return;
  write_(*std::exchange(held_, std::nullopt));
}

bool LogWriter::Due(uint64_t now_ns, raft::LogIndex committed) const {
  if (!held_.has_value()) return false;
  return held_->entries.size() >= kHeldMax_entries || now_ns - held_since_ns_ >= kHeldMax_ns ||
         held_->entries.back().index > committed;
}

}  // namespace hedgerow::node
