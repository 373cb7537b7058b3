// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/recovered_state.h"

#include <optional>

#include "cluster/kv/command.h"

namespace hedgerow::kv {

raft::LogIndex ApplyAll(const raft::RestoredState& log, StateMachine& state) {
  for (const raft::Entry& entry : log.entries) {
    if (entry.index <= log.snapshot.last.index || entry.kind != raft::EntryKind::kCommand) continue;
    const std::optional<Command> command = Decode(entry.payload.view());
    if (!command.has_value()) return entry.index;
    state.Apply(entry.index.value(), *command);
  }
  return {};
}

raft::EntryId LastOf(const raft::RestoredState& log) {
  if (log.entries.empty()) return log.start;
  return {.index = log.entries.back().index, .term = log.entries.back().term};
}

}  // namespace hedgerow::kv
