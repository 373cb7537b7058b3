// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/last_days.h"

#include <bit>
#include <utility>

#include "cluster/sim/server.h"

namespace hedgerow::sim {
namespace {

constexpr uint64_t kWellWithin_ns = 20 * kSecond;
// From when the disk hangs: the stall is noticed after Options::stall_ns, and another member is elected.
constexpr uint64_t kReplacedWithin_ns = 3 * kSecond;
// What one of the clients asks for meanwhile is committed.
constexpr uint64_t kCommitsWithin_ns = 2 * kSecond;
constexpr uint64_t kReportedWithin_ns = 5 * kSecond;

}  // namespace

Server* LeaderOf(const World& world) {
  Server* leader = nullptr;
  for (const auto& server : world.servers) {
    if (!server->up() || server->raft().role() != raft::Role::kLeader) continue;
    if (leader == nullptr || server->raft().term() > leader->raft().term()) leader = server.get();
  }
  return leader;
}

bool LastDays::Run() {
  if (world_.plan.last_days.hung_disk && !HangLeadersDisk()) return false;
  return !world_.plan.last_days.folder_put_back || PutFolderBack();
}

// Three voters at least that follow one leader with all it has, so that one may fail; and no other node in
// between.
bool LastDays::IsWell() const {
  const Server* const leader = LeaderOf(world_);
  if (leader == nullptr) return false;
  const raft::Configuration& members = leader->raft().configuration();
  if (members.joint() || !leader->raft().configuration_committed() || std::popcount(members.voters) < 3) return false;
  for (const raft::Member& member : members.members) {
    const Server& server = *world_.servers[member.id.value() - 1];
    if (!server.up() || server.raft().leader() != leader->id()) return false;
    if (server.raft().commit().value() + 20 < leader->raft().commit().value()) return false;
  }
  return true;
}

bool LastDays::RunUntilWell() {
  for (uint64_t waited_ns = 0; waited_ns < kWellWithin_ns && !IsWell(); waited_ns += kSecond) {
    if (!run_(kSecond)) return false;
  }
  return true;
}

bool LastDays::HangLeadersDisk() {
  if (!RunUntilWell()) return false;
  if (!IsWell()) return true;
  Server& hung = *LeaderOf(world_);
  world_.Trace("the disk of node ", hung.id().value(), ", which leads, hangs for good");
  ++world_.hung_leaders;
  hung.disk().SetHung(true);
  if (!run_(kReplacedWithin_ns)) return false;
  const Server* const leader = LeaderOf(world_);
  // As long as nothing is committed that its disk lacks, nothing waits for that disk: slow links may keep it so.
  if (leader == &hung && hung.raft().commit() <= hung.raft().durable()) {
    hung.disk().SetHung(false);
    return true;
  }
  if (leader == nullptr || leader == &hung) {
    world_.Fail(leader == nullptr ? "no node leads " : "the node whose disk hangs still leads ",
                kReplacedWithin_ns / kSecond, " s after the disk of its leader hung");
    return false;
  }
  const uint64_t asked = leader->raft().log().last_index().value();
  if (!run_(kCommitsWithin_ns)) return false;
  if (leader->up() && leader->raft().commit().value() < asked) {
    world_.Fail("entry ", asked, " is not committed ", kCommitsWithin_ns / kSecond, " s after it came to a leader,",
                " while the disk of one other member hangs");
    return false;
  }
  hung.disk().SetHung(false);
  return true;
}

bool LastDays::PutFolderBack() {
  if (!RunUntilWell()) return false;
  const Server* leader = LeaderOf(world_);
  if (!IsWell()) return true;
  Server* follower = nullptr;
  for (const raft::Member& member : leader->raft().configuration().members) {
    const bool votes = ((leader->raft().configuration().voters >> member.slot) & 1) != 0;
    if (votes && member.id != leader->id()) follower = world_.servers[member.id.value() - 1].get();
  }
  const raft::Term term = leader->raft().term();
  Disk::Copy copy = follower->disk().CopyOf();
  const KnownCopies known_copies = follower->known_copies();
  const uint64_t held = copy.log.start.index.value() + copy.log.entries.size();
  if (!run_(2 * kSecond) || !RunUntilWell()) return false;
  // Only this leader knows what the follower has promised in its term; and it must have promised something.
  const bool knows = LeaderOf(world_) == leader && leader->raft().term() == term && IsWell();
  if (!knows || node::PromisedBy(leader->raft(), follower->id()).last.value() <= held) return true;
  // An acknowledgement that is still under way would count for an entry that the older copy lacks.
  const auto is_quiet = [&] {
    const raft::Raft& raft = leader->raft();
    return raft.commit() == raft.log().last_index() &&
           node::PromisedBy(raft, follower->id()).last == raft.log().last_index();
  };
  for (int i = 0; i < 5000 && !is_quiet(); ++i) {
    if (!run_(kMillisecond)) return false;
    if (LeaderOf(world_) != leader || leader->raft().term() != term || !follower->up()) return true;
  }
  if (!is_quiet()) return true;
  ++world_.folders_put_back;
  follower->PutFolderBack(std::move(copy), known_copies);
  follower->Start();
  if (!run_(kReportedWithin_ns)) return false;
  const bool still_leads = LeaderOf(world_) == leader && leader->raft().term() == term;
  if (!follower->lost() && still_leads) {
    world_.Fail("node ", follower->id().value(), " has started with an older copy of its folder, and is believed");
    return false;
  }
  return true;
}

}  // namespace hedgerow::sim
