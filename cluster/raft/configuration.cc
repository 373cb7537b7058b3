// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/configuration.h"

#include <algorithm>
#include <utility>

#include "cluster/raft/bytes.h"
#include "cluster/raft/check.h"

namespace hedgerow::raft {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint32_t kAllSlots = (1u << HR_RAFT_MAX_MEMBERS) - 1;

void RemoveMembers(Configuration& configuration, uint32_t slots) {
  std::erase_if(configuration.members, [slots](const Member& member) { return ((slots >> member.slot) & 1) != 0; });
}

// One after the other; `voters` are those that the change leads to.
struct Changer {
  Configuration& next;
  uint32_t voters;

  ChangeRefusal Apply(const MemberChange& change) {
    const size_t slot = next.SlotOf(change.node);
    const uint32_t bit = slot < HR_RAFT_MAX_MEMBERS ? 1u << slot : 0;
    if (change.kind == MemberChange::Kind::kAddLearner) return bit != 0 ? ChangeRefusal::kMember : Add(change);
    if (bit == 0 || (next.leaving & bit) != 0) return ChangeRefusal::kNoMember;
    switch (change.kind) {
      case MemberChange::Kind::kPromote:
        if ((voters & bit) != 0) return ChangeRefusal::kVoter;
        voters |= bit;
        return ChangeRefusal::kNone;
      case MemberChange::Kind::kRemove:
        if ((next.voters & bit) == 0) next.leaving |= bit;
        voters &= ~bit;
        return ChangeRefusal::kNone;
      default: return Move(change);
    }
  }

  ChangeRefusal Add(const MemberChange& change) {
    const uint32_t free = kAllSlots & ~next.all();
    if (free == 0) return ChangeRefusal::kFull;
    if (const ChangeRefusal refusal = MayStandAt(change); refusal != ChangeRefusal::kNone) return refusal;
    uint8_t slot = 0;
    while (((free >> slot) & 1) == 0) ++slot;
    const auto before = [slot](const Member& member) { return member.slot < slot; };
    next.members.insert(std::find_if_not(next.members.begin(), next.members.end(), before),
                        {.id = change.node, .slot = slot, .address = change.address});
    return ChangeRefusal::kNone;
  }

  ChangeRefusal Move(const MemberChange& change) {
    if (const ChangeRefusal refusal = MayStandAt(change); refusal != ChangeRefusal::kNone) return refusal;
    for (Member& member : next.members) {
      if (member.id == change.node) member.address = change.address;
    }
    return ChangeRefusal::kNone;
  }

  ChangeRefusal MayStandAt(const MemberChange& change) const {
    if (change.address.size() > kAddressMax_bytes) return ChangeRefusal::kAddressTooLong;
    const auto taken = [&change](const Member& member) {
      return member.id != change.node && !member.address.empty() && member.address == change.address;
    };
    return std::any_of(next.members.begin(), next.members.end(), taken) ? ChangeRefusal::kAddressTaken
                                                                        : ChangeRefusal::kNone;
  }
};

bool IsSound(const Configuration& configuration) {
  int last = -1;
  for (const Member& member : configuration.members) {
    if (member.slot <= last || member.slot >= HR_RAFT_MAX_MEMBERS || !member.id.IsSet()) return false;
    if (member.address.size() > kAddressMax_bytes) return false;
    if (configuration.SlotOf(member.id) != member.slot) return false;  // twice
    last = member.slot;
  }
  const uint32_t voters = configuration.voters | configuration.next_voters;
  if (((voters | configuration.leaving) & ~configuration.all()) != 0) return false;
  if ((voters & configuration.leaving) != 0) return false;
  return configuration.voters != 0 || configuration.members.empty();
}

}  // namespace

ChangeResult Changed(const Configuration& now, const std::vector<MemberChange>& changes) {
  HEDGEROW_CHECK(!now.joint());
  ChangeResult result{.next = now};
  Configuration& next = result.next;
  RemoveMembers(next, now.leaving);
  next.leaving = 0;
  Changer changer{.next = next, .voters = now.voters};
  for (const MemberChange& change : changes) {
    result.refusal = changer.Apply(change);
    result.about = change.node;
    if (result.refusal != ChangeRefusal::kNone) return result;
  }
  if (changer.voters == 0) {
    result.refusal = ChangeRefusal::kNoVoterLeft;
    return result;
  }
  if (changer.voters != now.voters) next.next_voters = changer.voters;
  // Until the first change each node has its addresses from its own file (epoch 0): what the leader's says already may
  // be news to the others.
  const bool same = next.members == now.members && !next.joint() && next.leaving == now.leaving;
  if (changes.empty() || (same && now.epoch != 0)) {
    result.refusal = ChangeRefusal::kNothing;
    return result;
  }
  next.epoch = now.epoch + 1;
  return result;
}

Configuration AfterJoint(const Configuration& joint) {
  HEDGEROW_CHECK(joint.joint());
  Configuration next = joint;
  RemoveMembers(next, joint.leaving);
  next.epoch = joint.epoch + 1;
  next.voters = joint.next_voters;
  next.next_voters = 0;
  next.leaving = joint.voters & ~joint.next_voters;
  return next;
}

const Configuration& BeginsWith(const std::optional<Configuration>& recorded, const Configuration& file) {
  return recorded.has_value() ? *recorded : file;
}

// Little-endian: version (1), epoch (4), three masks (1 each), number of members (1); each with slot (1),
// id (8), length of its address (2) and the address.
std::string EncodeConfiguration(const Configuration& configuration) {
  HEDGEROW_CHECK(IsSound(configuration));
  std::string bytes;
  AppendNumber<uint8_t>(bytes, kVersion);
  AppendNumber<uint32_t>(bytes, configuration.epoch);
  AppendNumber<uint8_t>(bytes, configuration.voters);
  AppendNumber<uint8_t>(bytes, configuration.next_voters);
  AppendNumber<uint8_t>(bytes, configuration.leaving);
  AppendNumber<uint8_t>(bytes, configuration.members.size());
  for (const Member& member : configuration.members) {
    AppendNumber<uint8_t>(bytes, member.slot);
    AppendNumber<uint64_t>(bytes, member.id.value());
    AppendNumber<uint16_t>(bytes, member.address.size());
    bytes += member.address;
  }
  return bytes;
}

std::optional<Configuration> DecodeConfiguration(std::string_view bytes) {
  ByteReader reader(bytes);
  if (reader.Get<uint8_t>() != kVersion) return std::nullopt;
  Configuration configuration;
  configuration.epoch = reader.Get<uint32_t>();
  configuration.voters = reader.Get<uint8_t>();
  configuration.next_voters = reader.Get<uint8_t>();
  configuration.leaving = reader.Get<uint8_t>();
  const uint64_t members = reader.Get<uint8_t>();
  if (members > HR_RAFT_MAX_MEMBERS) return std::nullopt;
  for (uint64_t i = 0; i < members; ++i) {
    Member member{.slot = reader.Get<uint8_t>()};
    member.id = NodeId(reader.Get<uint64_t>());
    member.address = std::string(reader.GetText<uint16_t>(kAddressMax_bytes));
    configuration.members.push_back(std::move(member));
  }
  if (!reader.done() || !IsSound(configuration)) return std::nullopt;
  return configuration;
}

const Configuration& ConfigurationHistory::At(LogIndex index) const {
  for (auto placed = placed_.rbegin(); placed != placed_.rend(); ++placed) {
    if (placed->index <= index) return placed->configuration;
  }
  return placed_.front().configuration;
}

void ConfigurationHistory::Append(LogIndex index, Configuration configuration) {
  HEDGEROW_CHECK(index > latest_index());
  placed_.push_back({index, std::move(configuration)});
}

void ConfigurationHistory::TruncateFrom(LogIndex index) {
  while (placed_.back().index >= index) {
    HEDGEROW_CHECK(placed_.size() > 1);  // the first is committed
    placed_.pop_back();
  }
}

void ConfigurationHistory::Restart(LogIndex index, Configuration configuration) {
  placed_.clear();
  placed_.push_back({index, std::move(configuration)});
}

void ConfigurationHistory::CompactTo(LogIndex index) {
  while (placed_.size() > 1 && placed_[1].index <= index) placed_.pop_front();
}

}  // namespace hedgerow::raft
