// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/recovery.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/kv/beginning.h"
#include "cluster/kv/state_machine.h"
#include "cluster/raft/check.h"
#include "cluster/sim/server.h"

namespace hedgerow::sim {
namespace {

constexpr size_t kChunk_bytes = 5000;

std::vector<std::string> WriteDown(kv::StateMachine& state) {
  std::vector<std::string> chunks;
  state.BeginCut(kChunk_bytes);
  while (state.cutting()) {
    for (std::string& chunk : state.ContinueCut(kChunk_bytes)) chunks.push_back(std::move(chunk));
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

void Recovery::NewLeader() {
  if (calm_ || !world_.random.Chance(world_.plan.recovery.after_election_ppm)) return;
  world_.time.After(world_.random.Below(world_.random.Pick<uint64_t>({1, 5, 30}) * kMillisecond), [this] {
    if (!calm_) BeginAnew();
  });
}

void Recovery::Next() {
  world_.time.After(kSecond + world_.random.Below(2 * world_.plan.recovery.mean_interval_ns), [this] {
    if (calm_) return;
    BeginAnew();
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
Server* Recovery::Survivor() {
  const bool memory = world_.plan.disk.memory;
  // Its log may lack what its kernel part has acknowledged and its process has not fetched.
  if (!memory && world_.random.Chance(300'000)) return &Longest();
  std::vector<Server*> whole;
  for (const auto& server : world_.servers) {
    if (world_.checker.HoldsCommitted(server->disk().Restore())) whole.push_back(server.get());
  }
  if (whole.empty()) return memory ? nullptr : &Longest();
  return whole[world_.random.Below(whole.size())];
}

// In one moment: from then on nobody starts with what was before.
void Recovery::BeginAnew() {
  for (const auto& server : world_.servers) server->Crash(/*power_cut=*/!world_.plan.disk.memory);
  Server* const survivor = Survivor();
  const raft::RestoredState log = survivor != nullptr ? survivor->disk().Restore() : raft::RestoredState();
  const raft::EntryId last = kv::LastOf(log);
  if (last.index == raft::LogIndex()) {
    for (const auto& server : world_.servers) server->Start();
    return;
  }
  world_.Trace("the cluster begins anew with what node ", survivor->id().value(), " has, up to ",
               last.index.value(), "/", last.term.value());
  ++world_.recoveries;
  std::unique_ptr<kv::StateMachine> state = survivor->StateOf(log);
  HEDGEROW_CHECK(kv::ApplyAll(log, *state) == raft::LogIndex());
  world_.fingerprints.resize(last.index.value(), state->fingerprint());
  if (world_.fingerprints.back() != state->fingerprint()) {
    world_.Fail("what begins anew after entry ", last.index.value(),
                " has another state than who has applied it");
  }
  world_.checker.BeginsAnew(log);
  world_.network.BeginEpoch();
  const StoredSnapshot beginning{.snapshot = {.last = last, .configuration = AllOf(world_)},
                                 .chunks = std::make_shared<const std::vector<std::string>>(WriteDown(*state))};
  for (const auto& server : world_.servers) {
    server->BeginAnew(beginning);
    world_.time.After(world_.random.Below(world_.random.Pick<uint64_t>({1, 300, 1500}) * kMillisecond),
                      [server = server.get()] { server->Start(); });
  }
}

}  // namespace hedgerow::sim
