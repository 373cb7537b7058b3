// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/membership.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "cluster/sim/server.h"
#include "cluster/sim/faults.h"

namespace hedgerow::sim {

using Kind = raft::MemberChange::Kind;

void Membership::Start() {
  for (uint64_t id = 1; id <= world_.plan.nodes; ++id) {
    seen_.members.push_back({.id = raft::NodeId(id), .slot = static_cast<uint8_t>(id - 1)});
  }
  if (plan_.mean_interval_ns > 0) Next();
}

void Membership::Next() {
  world_.time.After(world_.random.Below(2 * plan_.mean_interval_ns), [this] {
    if (calm_) return;
    Act();
    Next();
  });
}

// Asks a node that believes that it leads: it may be one of several.
void Membership::Act() {
  std::vector<Server*> leaders;
  for (const auto& server : world_.servers) {
    if (server->up() && !server->paused() && server->raft().role() == raft::Role::kLeader)
      leaders.push_back(server.get());
  }
  if (leaders.empty()) return;
  Server& leader = *leaders[world_.random.Below(leaders.size())];
  const std::vector<raft::MemberChange> changes = Draw(leader);
  removes_leader_ = false;
  for (const raft::MemberChange& change : changes) {
    removes_leader_ = removes_leader_ || (change.kind == Kind::kRemove && change.node == leader.id());
  }
  leader.Post(raft::ChangeMembership{.tag = 1, .changes = changes});
}

// None: any number.
raft::NodeId Membership::One(const raft::Configuration& configuration, uint32_t slots) {
  const auto count = static_cast<uint64_t>(std::popcount(slots));
  if (count == 0) return raft::NodeId(world_.random.Between(1, world_.servers.size()));
  uint64_t which = world_.random.Below(count);
  for (const raft::Member& member : configuration.members) {
    if (((slots >> member.slot) & 1) != 0 && which-- == 0) return member.id;
  }
  return {};
}

raft::NodeId Membership::OneToRemove(const Server& leader) {
  if (world_.random.Chance(plan_.on_leader_ppm)) return leader.id();
  const raft::Configuration& now = leader.raft().configuration();
  return One(now, now.voters);
}

std::vector<raft::MemberChange> Membership::Draw(const Server& leader) {
  const raft::Configuration& now = leader.raft().configuration();
  std::vector<raft::NodeId> spares;
  for (const auto& server : world_.servers) {
    if (now.Find(server->id()) == nullptr) spares.push_back(server->id());
  }
  const auto add = [&]() -> raft::MemberChange {
    const raft::NodeId node = spares.empty() ? raft::NodeId(world_.random.Between(1, world_.servers.size()))
                                             : spares[world_.random.Below(spares.size())];
    return {.kind = Kind::kAddLearner, .node = node, .address = absl::StrCat("host", node.value())};
  };
  const raft::MemberChange promote{.kind = Kind::kPromote, .node = One(now, now.learners())};
  const bool few = std::popcount(now.voters) <= 2;
  switch (world_.random.Below(7)) {
    case 0:
    case 1: return {add()};
    case 2: return {promote};
    case 3: return {promote, {.kind = Kind::kRemove, .node = OneToRemove(leader)}};  // replaced in one step
    case 4:
      // The last two may go, too; not often, since a cluster of one shows little.
      if (few && !world_.random.Chance(100'000)) return {promote};
      return {{.kind = Kind::kRemove, .node = OneToRemove(leader)}};
    case 5: {
      if (now.learners() != 0 && world_.random.Chance(500'000))
        return {{.kind = Kind::kRemove, .node = One(now, now.learners())}, add()};
      // Two at once, the majority of three.
      if (std::popcount(now.voters) < 4) return {promote};
      return {{.kind = Kind::kRemove, .node = OneToRemove(leader)},
              {.kind = Kind::kRemove, .node = One(now, now.voters)}};
    }
    default:
      return {{.kind = Kind::kMove,
               .node = One(now, now.all()),
               .address = absl::StrCat("elsewhere", world_.random.Below(20))}};
  }
}

void Membership::Answered(Server& server, const raft::MembershipAnswer& answer) {
  if (answer.refusal != raft::ChangeRefusal::kNone) {
    ++world_.changes_refused;
    return;
  }
  ++world_.changes;
  world_.leaders_removed += removes_leader_;
  if (calm_ || !world_.random.Chance(plan_.crash_ppm)) return;
  const uint64_t down_ns = 1 + world_.random.Below(400 * kMillisecond);
  world_.time.After(world_.random.Below(world_.random.Pick<uint64_t>({1, 5, 30}) * kMillisecond),
                    [this, &server, down_ns] {
                      if (!calm_) world_.faults->CrashFor(server, down_ns, false);
                    });
}

Server& Membership::SomeNode() {
  if (plan_.mean_interval_ns > 0 && world_.random.Chance(850'000)) {
    const raft::NodeId member = One(seen_, seen_.all());
    return *world_.servers[member.value() - 1];
  }
  return *world_.servers[world_.random.Below(world_.servers.size())];
}

}  // namespace hedgerow::sim
