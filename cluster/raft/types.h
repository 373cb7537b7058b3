// SPDX-License-Identifier: Apache-2.0
//
// The numbers and records of the protocol. Terms, log indices and node ids are types of their own, because a
// term passed where an index is meant compiles, runs, and loses data months later. Used by everything under
// cluster/.

#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hedgerow::raft {

// Raft section 5.1. Term 0 is before the first election.
class Term {
 public:
  constexpr Term() = default;
  constexpr explicit Term(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr Term Next() const { return Term(value_ + 1); }
  constexpr auto operator<=>(const Term&) const = default;

 private:
  uint64_t value_ = 0;
};

// Raft section 5.3. The first entry has index 1; 0 is before it.
class LogIndex {
 public:
  constexpr LogIndex() = default;
  constexpr explicit LogIndex(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr LogIndex Next() const { return LogIndex(value_ + 1); }
  constexpr LogIndex Previous() const { return LogIndex(value_ - 1); }
  constexpr LogIndex operator+(uint64_t count) const { return LogIndex(value_ + count); }
  constexpr auto operator<=>(const LogIndex&) const = default;

 private:
  uint64_t value_ = 0;
};

// 0 names no node.
class NodeId {
 public:
  constexpr NodeId() = default;
  constexpr explicit NodeId(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr bool IsSet() const { return value_ != 0; }
  constexpr auto operator<=>(const NodeId&) const = default;

 private:
  uint64_t value_ = 0;
};

// The bytes of a command. One copy is shared by the log, the messages that carry it and the state machine.
class Payload {
 public:
  Payload() = default;
  explicit Payload(std::string_view bytes) : size_bytes_(bytes.size()) {
    std::shared_ptr<char[]> copy = std::make_shared_for_overwrite<char[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.get());
    bytes_ = std::move(copy);
  }
  std::string_view view() const { return {bytes_.get(), size_bytes_}; }
  size_t size_bytes() const { return size_bytes_; }
  bool operator==(const Payload& other) const { return bytes_ == other.bytes_ || view() == other.view(); }

 private:
  std::shared_ptr<const char[]> bytes_;  // with their counts in one piece of memory
  size_t size_bytes_ = 0;
};

// As bytes in logs and datagrams: never renumbered. The state machine sees commands alone.
enum class EntryKind : uint8_t {
  kNoOp = 0,  // starts a term (Raft section 8)
  kCommand = 1,
  kConfiguration = 2,  // EncodeConfiguration
};

struct Entry {
  Term term{};
  LogIndex index{};
  EntryKind kind = EntryKind::kCommand;
  Payload payload{};

  bool operator==(const Entry&) const = default;
};

// What Raft figure 2 calls persistent state, besides the log.
struct HardState {
  Term term{};
  NodeId voted_for{};

  bool operator==(const HardState&) const = default;
};

// An entry by its name: index and term say which one it is, in the whole cluster and for ever (Raft
// section 5.3, Log Matching).
struct EntryId {
  LogIndex index{};
  Term term{};

  bool operator==(const EntryId&) const = default;
};

// One of a cluster's nodes. Its slot is its bit in every mask and its place in every table, here and in the
// kernel, for as long as it is a member; then it may become another's.
struct Member {
  NodeId id{};
  uint8_t slot = 0;
  std::string address{};  // the caller's business; empty: it knows already

  bool operator==(const Member&) const = default;
};

// The voters and the learners (dissertation chapter 4). Masks are of slots. A member in none of them is a
// learner: it receives everything and is never counted.
struct Configuration {
  uint32_t epoch = 0;             // grows by one with every configuration of a log
  std::vector<Member> members{};  // by slot
  uint32_t voters = 0;
  uint32_t next_voters = 0;  // joint consensus (dissertation section 4.3): their majority is needed as well
  uint32_t leaving = 0;      // members no more; sent what tells them so, until it is committed

  // The configuration that a cluster begins with: slots in their order, no addresses.
  static Configuration OfVoters(const std::vector<NodeId>& ids) {
    Configuration configuration;
    for (const NodeId id : ids) {
      const auto slot = static_cast<uint8_t>(configuration.members.size());
      configuration.members.push_back({.id = id, .slot = slot});
      configuration.voters |= 1u << slot;
    }
    return configuration;
  }

  bool joint() const { return next_voters != 0; }
  uint32_t deciding() const { return voters | next_voters; }
  uint32_t all() const {
    uint32_t mask = 0;
    for (const Member& member : members) mask |= 1u << member.slot;
    return mask;
  }
  uint32_t learners() const { return all() & ~(deciding() | leaving); }
  // Null: there is none.
  const Member* Find(NodeId id) const {
    for (const Member& member : members) {
      if (member.id == id) return &member;
    }
    return nullptr;
  }
  const Member* At(size_t slot) const {
    for (const Member& member : members) {
      if (member.slot == slot) return &member;
    }
    return nullptr;
  }
  // kNoSlot: it is none.
  static constexpr size_t kNoSlot = 8;
  size_t SlotOf(NodeId id) const {
    const Member* const member = Find(id);
    return member == nullptr ? kNoSlot : member->slot;
  }

  bool operator==(const Configuration&) const = default;
};

// What a snapshot is of: the state machine once everything up to `last` was applied, and the configuration at
// that index (Raft section 7). Only what is committed is ever in one. Its contents are the state machine's
// business, its bytes the storage's.
struct Snapshot {
  EntryId last{};  // index 0: there is none
  Configuration configuration{};

  bool operator==(const Snapshot&) const = default;
};

// What a node finds on its disk when it starts. The commit index is not among it: it is learned again from the
// next leader (dissertation section 3.8), but for what a snapshot holds.
struct RestoredState {
  HardState hard_state{};
  std::vector<Entry> entries{};  // all after `start`, without gaps
  EntryId start{};               // the log begins after this entry
  Snapshot snapshot{};           // what the state machine starts with; at `start` or later, within the log
};

enum class Role : uint8_t { kFollower, kPreCandidate, kCandidate, kLeader };

}  // namespace hedgerow::raft
