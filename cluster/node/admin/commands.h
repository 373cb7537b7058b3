// SPDX-License-Identifier: Apache-2.0
//
// The commands of `hedgerow-node` besides `run`: each parses its words, prints, and returns the program's exit
// code. Finding the command that was asked for, help and printing are operate/command_line.h's. main.cc runs
// the program, tests with streams of their own.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cluster/node/admin/admin_client.h"
#include "operate/command_line.h"

namespace hedgerow::node {

using operate::Call;
using enum operate::ExitCode;

// All but `run`, `restore` and `recover`, which are main's: here they are usage errors.
const operate::Program& TheProgram();

// How long `transfer` waits to see another leader. An election takes some ten milliseconds; a target that lags
// is waited for by the leader.
inline constexpr absl::Duration kTransferTimeout = absl::Seconds(10);

// --socket, else the configuration's, else the default.
absl::StatusOr<AdminClient> ConnectToNode(const operate::Arguments& arguments);

int RunStatus(const Call& call);
int RunTransfer(const Call& call);
int RunTransfer(const Call& call, absl::Duration timeout);
// A large store takes its time.
inline constexpr absl::Duration kSnapshotTimeout = absl::Minutes(10);
// Takes one of all that is applied by now, and waits for it: the node's status by then.
absl::StatusOr<v1::NodeStatus> SnapshotNow(const AdminClient& client, absl::Duration timeout);
int RunSnapshot(const Call& call);
int RunSnapshot(const Call& call, absl::Duration timeout);
int RunBackup(const Call& call);  // commands_backup.cc
int RunProxyKey(const Call& call);
// Changes of membership, and the list of members (commands_members.cc).
inline constexpr absl::Duration kMembersTimeout = absl::Seconds(30);
// Of a node that comes back, until it has what the others have; by a snapshot, as a rule.
inline constexpr absl::Duration kRejoinTimeout = absl::Minutes(10);
int RunMembers(const Call& call);
int RunMembers(const Call& call, absl::Duration timeout);
// The cluster's settings, and changes of them (commands_settings.cc).
inline constexpr absl::Duration kSettingsTimeout = absl::Seconds(10);
int RunSettings(const Call& call);
int RunSettings(const Call& call, absl::Duration timeout);
// Which keys the members have, and changes of them (commands_keys.cc). A refusal is tried again so long.
inline constexpr absl::Duration kKeysTimeout = absl::Seconds(5);
int RunKeys(const Call& call);
int RunKeys(const Call& call, absl::Duration timeout);
// Deletes keys by a prefix (commands_purge.cc). So long for a portion; there are as many as it takes.
inline constexpr absl::Duration kPurgeTimeout = absl::Seconds(10);
int RunPurge(const Call& call);
int RunPurge(const Call& call, absl::Duration timeout);
int RunValidate(const Call& call);
// `root`: for tests, as that of AvailableMemory_bytes.
int RunValidate(const Call& call, const std::string& root);
int RunVersion(const Call& call);

}  // namespace hedgerow::node
