// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/recovery.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/kv/recovered_state.h"
#include "cluster/kv/state_machine.h"
#include "cluster/raft/check.h"
#include "cluster/sim/server.h"

namespace hedgerow::sim {
namespace {

constexpr size_t kChunk_bytes = 5000;

std::vector<std::string> WriteDown(kv::StateMachine& state) {
  std::vector<std::string> chunks;
  state.BeginSnapshot(kChunk_bytes);
  while (state.taking_snapshot()) {
    for (std::string& chunk : state.ContinueSnapshot(kChunk_bytes)) chunks.push_back(std::move(chunk));
  }
  return chunks;
}

raft::Configuration AllOf(const World& world) {
  std::vector<raft::NodeId> voters;
  for (const auto& server : world.servers) voters.push_back(server->id());
  return raft::Configuration::OfVoters(voters);
}

}  // namespace

void Recovery::Start() {
  if (world_.plan.recovery.mean_interval_ns > 0) Next();
}

// No node hears it from then on; but what was sent to it before the cluster was recovered still arrives.
void Recovery::Voted(raft::NodeId candidate) {
  if (calm_ || candidate != led_ || alone_) return;
  alone_ = true;
  const uint64_t duration_ns = world_.random.Between(50, 500) * kMillisecond;
  for (uint64_t other = 1; other <= world_.servers.size(); ++other) {
    if (other == led_.value()) continue;
    world_.network.Cut(led_.value(), other);
    world_.time.After(duration_ns, [this, from = led_.value(), other] { world_.network.Heal(from, other); });
  }
}

void Recovery::NewLeader(Server& server) {
  if (calm_) return;
  if (server.id() == led_) {
    world_.network.LetGo(50 * kMillisecond);
    led_ = {};
  }
  if (!world_.random.Chance(world_.plan.recovery.after_election_ppm)) return;
  // What it is answered comes after that, if anybody believes it then; and one does not hear it, and has what
  // was before its term.
  const bool worst = world_.random.Chance(700'000);
  const uint64_t leader = server.id().value();
  const uint64_t deaf = 1 + (leader + world_.random.Below(world_.servers.size() - 1)) % world_.servers.size();
  if (worst) {
    world_.network.HoldAcksFor(leader);
    world_.network.Cut(leader, deaf);
  }
  const uint64_t after_ns = world_.random.Below(world_.random.Pick<uint64_t>({1, 5, 30}) * kMillisecond);
  world_.time.After(worst ? 5 * kMillisecond + after_ns : after_ns, [this, worst, leader, deaf] {
    if (worst) {
      world_.network.KeepHeld();
      world_.network.Heal(leader, deaf);
    }
    if (!calm_) Recover(worst);
  });
}

void Recovery::Next() {
  world_.time.After(kSecond + world_.random.Below(2 * world_.plan.recovery.mean_interval_ns), [this] {
    if (calm_) return;
    Recover(/*worst=*/false);
    Next();
  });
}

Server& Recovery::Longest() {
  Server* best = nullptr;
  raft::EntryId longest;
  for (const auto& server : world_.servers) {
    const raft::EntryId last = kv::LastOf(server->disk().Restore());
    if (best != nullptr && std::pair(last.term, last.index) <= std::pair(longest.term, longest.index)) continue;
    best = server.get();
    longest = last;
  }
  return *best;
}

// Any that holds what was committed: what it lacks, and others have, must not come back.
Server* Recovery::RecoverySeed(bool shortest) {
  const bool memory = world_.plan.disk.memory;
  // Its log may lack what its kernel part has acknowledged and its process has not fetched.
  if (!memory && !shortest && world_.random.Chance(300'000)) return &Longest();
  std::vector<Server*> whole;
  for (const auto& server : world_.servers) {
    if (world_.checker.HoldsCommitted(server->disk().Restore())) whole.push_back(server.get());
  }
  if (whole.empty()) return memory ? nullptr : &Longest();
  if (!shortest) return whole[world_.random.Below(whole.size())];
  return *std::min_element(whole.begin(), whole.end(), [](Server* a, Server* b) {
    const raft::EntryId of_a = kv::LastOf(a->disk().Restore());
    const raft::EntryId of_b = kv::LastOf(b->disk().Restore());
    return std::pair(of_a.term, of_a.index) < std::pair(of_b.term, of_b.index);
  });
}

const Server* Recovery::Leader() const {
  const Server* leader = nullptr;
  for (const auto& server : world_.servers) {
    if (!server->up() || server->raft().role() != raft::Role::kLeader) continue;
    if (leader == nullptr || server->raft().term() > leader->raft().term()) leader = server.get();
  }
  return leader;
}

// In one moment: from then on no node starts with its former state. At worst the former leader can lead again,
// in the same term and at the same indices, while the nodes that have acknowledged its entries are not there
// yet, but their answers are.
void Recovery::Recover(bool worst) {
  const Server* const led = worst ? Leader() : nullptr;
  for (const auto& server : world_.servers) server->Crash(/*power_cut=*/!world_.plan.disk.memory);
  Server* const seed = RecoverySeed(/*shortest=*/led != nullptr);
  const raft::RestoredState log = seed != nullptr ? seed->disk().Restore() : raft::RestoredState();
  const raft::EntryId last = kv::LastOf(log);
  if (last.index == raft::LogIndex()) {
    for (const auto& server : world_.servers) server->Start();
    return;
  }
  world_.Trace("the cluster is recovered from what node ", seed->id().value(), " has, up to ", last.index.value(), "/",
               last.term.value());
  ++world_.recoveries;
  std::unique_ptr<kv::StateMachine> state = seed->StateOf(log);
  HEDGEROW_CHECK(kv::ApplyAll(log, *state) == raft::LogIndex());
  world_.fingerprints.resize(last.index.value(), state->fingerprint());
  if (world_.fingerprints.back() != state->fingerprint()) {
    world_.Fail("what goes on after entry ", last.index.value(),
                " has another state than the nodes that have applied it");
  }
  led_ = led != nullptr ? led->id() : raft::NodeId();
  alone_ = false;
  world_.checker.Recovers(log);
  world_.network.BeginEpoch();
  const StoredSnapshot beginning{.snapshot = {.last = last, .configuration = AllOf(world_)},
                                 .chunks = std::make_shared<const std::vector<std::string>>(WriteDown(*state))};
  for (const auto& server : world_.servers) server->Recover(beginning);
  StartAgain(led);
}

// The former leader stands already when the nodes come that make a majority with it.
void Recovery::StartAgain(const Server* led) {
  size_t soon = world_.servers.size() / 2;
  for (const auto& server : world_.servers) {
    uint64_t down_ns = world_.random.Below(world_.random.Pick<uint64_t>({1, 300, 1500}) * kMillisecond);
    if (led == server.get()) {
      down_ns = 0;
    } else if (led != nullptr) {
      down_ns = (soon > 0 ? world_.random.Between(150, 300) : world_.random.Between(400, 1500)) * kMillisecond;
      soon -= soon > 0;
    }
    world_.time.After(down_ns, [server = server.get()] { server->Start(); });
  }
}

}  // namespace hedgerow::sim
