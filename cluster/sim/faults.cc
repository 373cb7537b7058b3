// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/faults.h"

#include <algorithm>

#include "cluster/sim/server.h"

namespace hedgerow::sim {

void Faults::Start() {
  const auto add = [this](bool on, Fault fault) {
    if (on) faults_.push_back(fault);
  };
  add(plan_.partitions, &Faults::Partition);
  add(plan_.one_way, &Faults::OneWay);
  add(plan_.slow_links, &Faults::SlowLinks);
  add(plan_.crashes, &Faults::Crash);
  add(plan_.power_cuts, &Faults::PowerCut);
  add(plan_.pauses, plan_.standstills ? &Faults::StandStill : &Faults::Pause);
  add(plan_.slow_disks, &Faults::SlowDisk);
  add(plan_.full_disks, &Faults::FullDisk);
  add(plan_.hung_disks, &Faults::HungDisk);
  add(plan_.size_filters, &Faults::SizeFilter);
  add(plan_.clock_jumps, &Faults::ClockJump);
  add(plan_.transfers, &Faults::Transfer);
  add(plan_.resignations, &Faults::Resignation);
  add(plan_.empty_folders, &Faults::EmptyFolder);
  if (plan_.mean_interval_ns > 0 && !faults_.empty()) Next();
}

void Faults::Next() {
  world_.time.After(world_.random.Below(2 * plan_.mean_interval_ns), [this] {
    if (calm_) return;
    (this->*faults_[world_.random.Below(faults_.size())])(Duration_ns());
    Next();
  });
}

void Faults::Calm() {
  calm_ = true;
  world_.network.Calm();
  for (const auto& server : world_.servers) {
    server->disk().SetFull(false);
    server->disk().SetHung(false);
    server->disk().SetSlow(0);
    server->Resume();
    server->Start();
  }
}

// Most are short, because a cluster that is down shows little.
uint64_t Faults::Duration_ns() {
  const uint64_t max_ns =
      world_.random.Chance(700'000) ? std::min(plan_.duration_max_ns, 300 * kMillisecond) : plan_.duration_max_ns;
  return 1 + world_.random.Below(max_ns);
}

Server& Faults::Target() {
  if (world_.random.Chance(plan_.on_leader_ppm)) {
    for (const auto& server : world_.servers) {
      if (server->up() && server->raft().role() == raft::Role::kLeader) return *server;
    }
  }
  return *world_.servers[world_.random.Below(world_.servers.size())];
}

void Faults::CutFor(uint64_t from, uint64_t to, uint64_t duration_ns) {
  world_.network.Cut(from, to);
  world_.time.After(duration_ns, [this, from, to] { world_.network.Heal(from, to); });
}

void Faults::CrashFor(Server& server, uint64_t duration_ns, bool power_cut) {
  server.Crash(power_cut && !world_.plan.disk.memory);
  world_.time.After(duration_ns, [&server] { server.Start(); });
}

void Faults::Partition(uint64_t duration_ns) {
  const uint64_t nodes = world_.servers.size();
  uint64_t side = world_.random.Next() & ((1u << nodes) - 1);
  if (world_.random.Chance(500'000)) side = 1u << (Target().id().value() - 1);
  // Its clients may be cut off with a node, or not.
  const bool clients_too = world_.random.Chance(300'000);
  world_.Trace("partition ", side, " for ", duration_ns / kMillisecond, " ms");
  for (uint64_t a = 1; a <= nodes; ++a) {
    for (uint64_t b = 1; b <= nodes; ++b) {
      if (((side >> (a - 1)) & 1) != ((side >> (b - 1)) & 1)) CutFor(a, b, duration_ns);
    }
    if (!clients_too || ((side >> (a - 1)) & 1) == 0) continue;
    for (uint64_t client = kFirstClient; client < kFirstClient + world_.clients.size(); ++client) {
      CutFor(a, client, duration_ns);
      CutFor(client, a, duration_ns);
    }
  }
}

void Faults::OneWay(uint64_t duration_ns) {
  const uint64_t node = Target().id().value();
  const bool deaf = world_.random.Chance(500'000);
  world_.Trace("node ", node, deaf ? " hears no node for " : " is heard by no node for ", duration_ns / kMillisecond,
               " ms");
  for (uint64_t other = 1; other <= world_.servers.size(); ++other) {
    if (other == node || world_.random.Chance(200'000)) continue;
    CutFor(deaf ? other : node, deaf ? node : other, duration_ns);
  }
}

void Faults::SlowLinks(uint64_t duration_ns) {
  const uint64_t node = Target().id().value();
  const uint64_t delay_ns = world_.random.Pick<uint64_t>({5, 50, 150, 400}) * kMillisecond;
  world_.Trace("some links of node ", node, " take up to ", delay_ns / kMillisecond, " ms");
  for (uint64_t other = 1; other <= world_.servers.size(); ++other) {
    if (world_.random.Chance(600'000)) world_.network.Slow(other, node, delay_ns);
    if (world_.random.Chance(300'000)) world_.network.Slow(node, other, delay_ns);
  }
  world_.time.After(duration_ns, [this, node] {
    for (uint64_t other = 1; other <= world_.servers.size(); ++other) {
      world_.network.Slow(other, node, 0);
      world_.network.Slow(node, other, 0);
    }
  });
}

void Faults::Crash(uint64_t duration_ns) { CrashFor(Target(), duration_ns, false); }

void Faults::PowerCut(uint64_t duration_ns) {
  for (const auto& server : world_.servers) {
    if (world_.random.Chance(700'000)) CrashFor(*server, 1 + world_.random.Below(duration_ns), true);
  }
}

void Faults::Pause(uint64_t duration_ns) {
  Server& server = Target();
  world_.Trace("node ", server.id().value(), " stands still for ", duration_ns / kMillisecond, " ms");
  server.Pause();
  world_.time.After(duration_ns, [&server] { server.Resume(); });
}

// Often longer than what a window knows. A node that has not yet caught up since its start cannot tell, and promises
// nothing (docs/SAFETY.md, Exactly once).
void Faults::StandStill(uint64_t duration_ns) {
  Server& server = Target();
  if (server.up() && !server.replica().router().caught_up()) return;
  const bool clock_too = world_.random.Chance(500'000);
  if (world_.random.Chance(500'000)) duration_ns += world_.random.Between(4, 10) * kSecond;
  world_.Trace("the machine of node ", server.id().value(), " stands still for ", duration_ns / kMillisecond, " ms",
               clock_too ? ", its clock too" : "");
  server.StandStill(clock_too);
  world_.time.After(duration_ns, [&server] { server.Resume(); });
}

void Faults::SlowDisk(uint64_t duration_ns) {
  Server& server = Target();
  server.disk().SetSlow(world_.random.Pick<uint64_t>({5, 50, 500}) * kMillisecond);
  world_.time.After(duration_ns, [&server] { server.disk().SetSlow(0); });
}

void Faults::FullDisk(uint64_t duration_ns) {
  Server& server = Target();
  world_.Trace("the disk of node ", server.id().value(), " is full");
  server.disk().SetFull(true);
  world_.time.After(duration_ns, [&server] { server.disk().SetFull(false); });
}

void Faults::HungDisk(uint64_t duration_ns) {
  Server& server = Target();
  world_.Trace("the disk of node ", server.id().value(), " hangs");
  server.disk().SetHung(true);
  world_.time.After(duration_ns, [this, &server] {
    if (!calm_) server.disk().SetHung(false);
  });
}

void Faults::SizeFilter(uint64_t duration_ns) {
  const uint64_t node = Target().id().value();
  // Long enough that a leader notices, or not.
  if (world_.random.Chance(500'000)) duration_ns += 600 * kMillisecond;
  world_.Trace("entries of node ", node, " are lost for ", duration_ns / kMillisecond, " ms");
  world_.network.FilterEntriesOf(node, true);
  world_.time.After(duration_ns, [this, node] { world_.network.FilterEntriesOf(node, false); });
}

void Faults::ClockJump(uint64_t) {
  const auto by_ns = static_cast<int64_t>(world_.random.Between(1, 100) * kSecond);
  Target().JumpClock(world_.random.Chance(500'000) ? by_ns : -by_ns);
}

void Faults::Transfer(uint64_t) {
  const raft::NodeId target(world_.random.Between(1, world_.servers.size()));
  for (const auto& server : world_.servers) {
    if (server->up() && !server->paused()) server->Post(raft::TransferLeadership{.target = target});
  }
}

void Faults::Resignation(uint64_t duration_ns) {
  for (const auto& leader : world_.servers) {
    if (!leader->up() || leader->raft().role() != raft::Role::kLeader) continue;
    const raft::LeaderResigns hint{.leader = leader->id(), .term = leader->raft().term(), .rank = 0};
    if (world_.random.Chance(plan_.resigns_truly_ppm)) CrashFor(*leader, duration_ns, false);
    // They may not agree on the first in rank: then several stand at once, and votes split.
    const uint32_t step = world_.random.Chance(500'000) ? 0 : 1;
    uint32_t rank = 0;
    for (const auto& server : world_.servers) {
      if (server == leader || !server->up() || server->paused()) continue;
      const raft::LeaderStalled stall_hint{.leader = hint.leader, .term = hint.term};
      if (world_.random.Chance(300'000)) server->ArriveStallHint(stall_hint);
      if (world_.random.Chance(300'000)) {
        world_.time.After(world_.random.Below(10 * kSecond),
                          [late = server.get(), stall_hint] { late->ArriveStallHint(stall_hint); });
      }
      raft::LeaderResigns ranked = hint;
      ranked.rank = rank;
      rank += step;
      server->ArriveResignation(ranked);
      // A copy that the network kept, or an attacker.
      if (!world_.random.Chance(300'000)) continue;
      world_.time.After(world_.random.Below(10 * kSecond),
                        [late = server.get(), ranked] { late->ArriveResignation(ranked); });
    }
    return;
  }
}

// The worst moment: one node lags, this one forgets what it has acknowledged without it, and the leader is
// away. Of a minority only, so that the others can go on; and once all others have recorded its log, which is
// what the rule rests on (docs/SAFETY.md).
void Faults::EmptyFolder(uint64_t duration_ns) {
  const uint64_t nodes = world_.servers.size();
  if (emptied_ >= (nodes - 1) / 2) return;
  Server& server = Target();
  for (const auto& other : world_.servers) {
    if (other.get() != &server && !other->lost() && !other->Knows(server.id())) return;
  }
  if (server.lost()) return;
  ++emptied_;
  const uint64_t lags = 1 + (server.id().value() + world_.random.Below(nodes - 1)) % nodes;
  const uint64_t lag_ns = world_.random.Between(50, 600) * kMillisecond;
  for (uint64_t other = 1; other <= nodes; ++other) {
    if (other == lags) continue;
    CutFor(lags, other, lag_ns);
    CutFor(other, lags, lag_ns);
  }
  world_.time.After(lag_ns, [this, &server, duration_ns] {
    if (calm_) return;
    server.EmptyFolder();
    for (const auto& leader : world_.servers) {
      if (leader->up() && leader->raft().role() == raft::Role::kLeader) CrashFor(*leader, duration_ns, false);
    }
    world_.time.After(world_.random.Below(50 * kMillisecond), [&server] { server.Start(); });
  });
}

void Faults::SnapshotMoment(Server& server) {
  if (calm_ || !world_.random.Chance(world_.plan.snapshots.crash_ppm)) return;
  const uint64_t down_ns = 1 + world_.random.Below(400 * kMillisecond);
  const bool power_cut = world_.random.Chance(500'000);
  world_.time.After(world_.random.Below(world_.random.Pick<uint64_t>({1, 20}) * kMillisecond),
                    [this, &server, down_ns, power_cut] {
                      if (!calm_) CrashFor(server, down_ns, power_cut);
                    });
}

void Faults::NewLeader(Server& server) {
  if (calm_ || !world_.random.Chance(plan_.crash_new_leader_ppm)) return;
  const uint64_t down_ns = 1 + world_.random.Below(400 * kMillisecond);
  world_.time.After(world_.random.Below(world_.random.Pick<uint64_t>({1, 5, 30}) * kMillisecond),
                    [this, &server, down_ns] {
                      if (!calm_) CrashFor(server, down_ns, false);
                    });
}

void Faults::Voted(Server& server) {
  if (calm_ || !world_.random.Chance(plan_.crash_voter_ppm)) return;
  const uint64_t down_ns = 1 + world_.random.Below(400 * kMillisecond);
  const bool power_cut = plan_.power_cuts && world_.random.Chance(700'000);
  world_.time.After(world_.random.Below(world_.random.Pick<uint64_t>({1, 5, 20}) * kMillisecond),
                    [this, &server, down_ns, power_cut] {
                      if (!calm_) CrashFor(server, down_ns, power_cut);
                    });
}

}  // namespace hedgerow::sim
