// SPDX-License-Identifier: Apache-2.0
//
// What a node that does not run has left, as the state that a cluster can be recovered from: its snapshot, and
// every entry after it, committed or not (docs/adr/0019). Used by `hedgerow-node recover`.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/kv/state_machine.h"
#include "cluster/node/config/config.h"
#include "cluster/storage/backup_file.h"
#include "cluster/storage/stopped_log.h"

namespace hedgerow::node {

struct RecoverySeed {
  storage::StoppedLog log;
  std::unique_ptr<kv::StateMachine> state;  // with everything applied that the log holds
};

// Changes nothing that is there. As long as it is there, the node cannot be started. Errors are those of
// storage::ReadStoppedLog.
absl::StatusOr<RecoverySeed> ReadRecoverySeed(const NodeConfig& config);

// A file at `path`, which must not be there, synced with its name. Returns its header.
absl::StatusOr<storage::BackupHeader> WriteRecoveryBackup(const std::string& path, const NodeConfig& config,
                                                          RecoverySeed& seed);

// The voters of a recovered cluster: the members of the file.
raft::Configuration ConfigurationOf(const NodeConfig& config);

// The members of a stopped log: the latest configuration in it, committed or not; if it holds none, the members
// of the file, since a node whose file differs from what its log began with does not start (CheckMembers).
raft::Configuration MembersOf(const raft::RestoredState& log, const NodeConfig& config);

}  // namespace hedgerow::node
