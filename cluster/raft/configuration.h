// SPDX-License-Identifier: Apache-2.0
//
// Changes of membership (dissertation chapter 4): what a change makes of a configuration, how one stands in
// the log and in a snapshot, and which one holds at an index. Voters change by joint consensus (section 4.3,
// docs/adr/0013): one entry in which the old and the new majority decide together, then one with the new alone.
// What leaves the voters as they are takes one entry. Used by the core, its checker, storage and wire.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/node/raft/decisions_abi.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

// A longer address is none that any host has.
inline constexpr size_t kAddressMax_bytes = 128;

struct MemberChange {
  enum class Kind : uint8_t { kAddLearner, kPromote, kRemove, kMove };
  Kind kind = Kind::kAddLearner;
  NodeId node{};
  std::string address{};  // kAddLearner, kMove
};

enum class ChangeRefusal : uint8_t {
  kNone,
  kNotLeader,
  kTransferring,
  kUnfinished,  // an earlier change, or the leader's first entry, is not committed yet
  kFull,        // HR_RAFT_MAX_MEMBERS with learners
  kMember,      // is one already
  kNoMember,
  kVoter,        // is one already
  kNotCaughtUp,  // dissertation section 4.2.1
  kNoVoterLeft,
  kAddressTaken,  // by another member
  kAddressTooLong,
  kNothing,  // changes nothing
};

struct ChangeResult {
  ChangeRefusal refusal = ChangeRefusal::kNone;
  NodeId about{};        // refused: the node at fault
  Configuration next{};  // else; joint if the voters change
};

// All changes in one step: a member is replaced by promoting one and removing another.
ChangeResult Changed(const Configuration& now, const std::vector<MemberChange>& changes);

// What follows a joint configuration: the new voters alone. A node that votes no more still receives it.
Configuration AfterJoint(const Configuration& joint);

// What a node goes by until its log or a snapshot says anything else: what its log began with, which is
// recorded when it begins, and not what the configuration file has come to say since (`file`; of a log that
// begins now). Files that are edited on some of the nodes could have majorities without a node in common
// (docs/SAFETY.md).
const Configuration& BeginsWith(const std::optional<Configuration>& recorded, const Configuration& file);

// The one encoding, for entries, snapshots and whatever carries them.
std::string EncodeConfiguration(const Configuration& configuration);
// Nothing: these are not the bytes of one, or of a later version.
std::optional<Configuration> DecodeConfiguration(std::string_view bytes);

// The configurations of a log: a node goes by the latest one that its log holds, committed or not (dissertation
// section 4.1), and goes back to the one before when its entry is truncated.
class ConfigurationHistory {
 public:
  // What holds at `index`, which is committed: a snapshot's, or the bootstrap's at 0.
  ConfigurationHistory(LogIndex index, Configuration configuration) { Restart(index, std::move(configuration)); }

  const Configuration& latest() const { return placed_.back().configuration; }
  LogIndex latest_index() const { return placed_.back().index; }
  // The one that holds at `index`; that of the beginning, if it is earlier.
  const Configuration& At(LogIndex index) const;

  void Append(LogIndex index, Configuration configuration);
  void TruncateFrom(LogIndex index);
  void Restart(LogIndex index, Configuration configuration);
  // Forgets the configurations that held before `index`.
  void CompactTo(LogIndex index);

 private:
  struct Placed {
    LogIndex index;
    Configuration configuration;
  };
  std::deque<Placed> placed_;  // never empty
};

}  // namespace hedgerow::raft
