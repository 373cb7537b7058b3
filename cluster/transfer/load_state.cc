// SPDX-License-Identifier: Apache-2.0
#include "cluster/transfer/load_state.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cluster/kv/state_loader.h"

namespace hedgerow::transfer {

absl::StatusOr<std::unique_ptr<kv::StateMachine>> LoadState(storage::SnapshotReader& snapshot,
                                                            const std::atomic<bool>* stop) {
  kv::StateLoader loader;
  while (true) {
    if (stop != nullptr && *stop) return absl::CancelledError("it is not wanted any more");
    const absl::StatusOr<std::optional<std::string>> chunk = snapshot.Next();
    if (!chunk.ok()) return chunk.status();
    if (!chunk->has_value() || !loader.Add(**chunk)) break;
  }
  std::unique_ptr<kv::StateMachine> state = loader.Finish();
  if (state != nullptr) return state;
  const std::string why = absl::StrCat("the snapshot at entry ", snapshot.header().snapshot.last.index.value(),
                                       " cannot be used: ", loader.error());
  return loader.of_unknown_version() ? absl::FailedPreconditionError(why) : absl::DataLossError(why);
}

}  // namespace hedgerow::transfer
