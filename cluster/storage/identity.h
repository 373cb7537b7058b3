// SPDX-License-Identifier: Apache-2.0
//
// Whose folder it is: one small text file, `identity`, beside the log. It names the cluster, the node and this
// copy of the log, counts the node's starts, and keeps what must outlive a process beside the log: the copies
// that the other members have, what the kernel may hold, and that the node is LOST (docs/adr/0033). Each write
// replaces the whole file, so it is never half there. Used by cluster/node (IdentityKeeper, rejoin) and by
// restore_log.h.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/raft/types.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

inline constexpr char kIdentityFile[] = "identity";

struct Identity {
  // What is done to the folder. Nothing but kReady and kRestored may be started.
  enum class Phase : uint8_t {
    kReady,
    kRestoring,  // a `restore` fills it, or was cut short
    kRestored,   // never started since: what the kernel holds is of a log that was here before
    kMoving,     // what `moved_from` had is moved aside, for the node comes back under another id
  };

  uint64_t cluster_id = 0;
  raft::NodeId node{};
  // What the configuration file calls the node: another id than `node` once it has come back under a new one.
  raft::NodeId configured{};
  // Of one that was restored or came back under a new id: which recovery generation of the cluster its log is
  // to be of.
  RecoveryGeneration generation{};
  uint64_t log_uuid = 0;  // of the replicated log, as the cluster's first leader drew it; 0: not heard of yet
  uint64_t copy_id = 0;   // of this copy of it (LogStorage::copy_id); 0: it was never opened
  uint64_t starts = 0;    // of the node on this copy
  Phase phase = Phase::kReady;
  raft::NodeId moved_from{};
  // The kernel may hold promises of this node that its log does not hold yet, made in this run of the host (its boot
  // id). Empty: it holds none.
  std::string kernel_holds{};
  bool kernel_lost = false;  // they are gone: no start brings them back
  // This copy is not the one that the member had, or not its latest state: the node that found that out; 0 is
  // the host.
  std::optional<raft::NodeId> unknown_to{};
  std::map<raft::NodeId, uint64_t> copies{};  // of the other members

  // In the host's run `boot_id`; empty: it cannot be known, and may be the one that the promises are of.
  bool KernelMayHold(const std::string& boot_id) const {
    return !kernel_holds.empty() && (boot_id.empty() || kernel_holds == boot_id);
  }
  bool operator==(const Identity&) const = default;
};

std::string EncodeIdentity(const Identity& identity);
// Nothing: these are not the bytes of one.
std::optional<Identity> DecodeIdentity(std::string_view text);

// Nothing: there is none. An error says what to do: a file that cannot be read, or is damaged, is not one that is not
// there, and what it said must not be learned anew.
absl::StatusOr<std::optional<Identity>> ReadIdentity(const std::string& folder);
// The old file or the new one, whatever happens in between; durable when it returns without an error.
absl::Status WriteIdentity(const std::string& folder, const Identity& identity);
// AlreadyExists: there is one. The folder is made if its parent exists.
absl::Status CreateIdentity(const std::string& folder, const Identity& identity);

// FailedPrecondition, with both names: the folder is another cluster's, or another node's. `called` is what the
// configuration file calls the node.
absl::Status CheckOwner(const std::string& folder, const Identity& identity, uint64_t cluster_id, raft::NodeId called);

}  // namespace hedgerow::storage
