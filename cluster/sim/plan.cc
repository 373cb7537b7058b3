// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hedgerow::sim {
namespace {

constexpr uint64_t kTimeoutMin_ns = 3 * kSecond;
// What clients without a session rest on (client.cc).
constexpr uint64_t kWindowMin_ns = 4 * kSecond;

NetworkPlan DrawNetwork(Random& random) {
  NetworkPlan plan;
  plan.delay_min_ns = random.Between(50, 500) * kMicrosecond;
  plan.delay_max_ns = plan.delay_min_ns + random.Pick<uint64_t>({100, 500, 3000}) * kMicrosecond;
  plan.drop_ppm = random.Pick<uint64_t>({0, 0, 5'000, 30'000, 150'000});
  plan.duplicate_ppm = random.Pick<uint64_t>({0, 10'000, 100'000});
  plan.corrupt_ppm = random.Pick<uint64_t>({0, 0, 10'000});
  plan.late_ppm = random.Pick<uint64_t>({0, 10'000, 50'000, 200'000});
  plan.late_max_ns = random.Pick<uint64_t>({30, 300, 2000, 10'000}) * kMillisecond;
  return plan;
}

FaultPlan DrawFaults(Random& random) {
  const auto coin = [&random] { return random.Chance(400'000); };
  FaultPlan plan;
  if (random.Chance(50'000)) return plan;  // no faults
  plan.mean_interval_ns = random.Pick<uint64_t>({150, 500, 1500}) * kMillisecond;
  plan.duration_max_ns = random.Pick<uint64_t>({300, 1500, 8000}) * kMillisecond;
  plan.on_leader_ppm = random.Pick<uint64_t>({200'000, 500'000, 800'000});
  plan.crash_new_leader_ppm = random.Pick<uint64_t>({0, 0, 300'000, 600'000});
  plan.partitions = coin();
  plan.one_way = coin();
  plan.slow_links = coin();
  plan.crashes = coin();
  plan.power_cuts = coin();
  plan.pauses = coin();
  plan.slow_disks = coin();
  plan.full_disks = coin();
  plan.clock_jumps = coin();
  plan.transfers = coin();
  plan.resignations = coin();
  plan.crash_voter_ppm = random.Pick<uint64_t>({0, 0, 100'000, 400'000});
  plan.size_filters = coin();
  return plan;
}

// Elections without end: false alarms make several nodes stand at once, slow disks keep them standing, and
// votes of one election arrive in the next but one.
void MakeElectionStorm(Random& random, Plan& plan) {
  plan.nodes = 3;
  plan.raft.election_floor_ns = 50 * kMillisecond;
  plan.raft.append_max_entries = 64;
  plan.raft.inflight_max_appends = 32;
  plan.disk.sync_max_ns = 20 * kMillisecond;
  plan.network.drop_ppm = 0;
  plan.network.late_ppm = 20'000;
  plan.network.late_max_ns = 100 * kMillisecond;
  plan.network.late_votes_ppm = random.Pick<uint64_t>({300'000, 600'000});
  plan.network.late_votes_max_ns = random.Pick<uint64_t>({100, 300}) * kMillisecond;
  plan.faults = {};
  plan.faults.mean_interval_ns = random.Pick<uint64_t>({50, 100}) * kMillisecond;
  plan.faults.duration_max_ns = 300 * kMillisecond;
  plan.faults.resigns_truly_ppm = 0;
  plan.faults.resignations = true;
  plan.faults.transfers = random.Chance(300'000);
  plan.network.late_acks = random.Chance(400'000);
}

// Raft figure 8, again and again: leaders die within a few round trips of their election, so that logs end in
// entries of many terms that only their leader holds, and one append carries one entry.
void MakeFigureEight(Random& random, Plan& plan) {
  plan.nodes = random.Pick<uint64_t>({3, 3, 5});
  plan.raft.append_max_entries = 1;
  plan.raft.inflight_max_appends = 1;
  plan.raft.reorder_buffer_max_appends = 0;
  plan.raft.election_floor_ns = 50 * kMillisecond;
  plan.disk = {.sync_min_ns = 50 * kMicrosecond, .sync_max_ns = 400 * kMicrosecond};
  plan.network = {};
  plan.network.delay_min_ns = 500 * kMicrosecond;
  plan.network.delay_max_ns = random.Pick<uint64_t>({2'000, 5'000}) * kMicrosecond;
  plan.faults = {};
  plan.faults.mean_interval_ns = 1000 * kMillisecond;
  plan.faults.duration_max_ns = 300 * kMillisecond;
  plan.faults.crash_new_leader_ppm = random.Pick<uint64_t>({500'000, 800'000});
  plan.faults.crashes = true;
}

// Packets overtake each other all the time, clients ask for much, and leaders change in the midst of it: what
// waits is handed from one to the next.
void MakeJitter(Random& random, Plan& plan) {
  plan.raft.append_max_entries = random.Pick<size_t>({1, 4, 64});
  plan.raft.inflight_max_appends = 32;
  plan.raft.uncommitted_max_entries = random.Pick<uint64_t>({8, 64, 2048});
  plan.raft.reorder_buffer_max_appends = random.Pick<size_t>({0, 2, 64});
  plan.raft.election_floor_ns = 50 * kMillisecond;
  plan.router.forwards_max = random.Pick<size_t>({2, 16, 256});
  plan.network = {};
  plan.network.delay_min_ns = 200 * kMicrosecond;
  plan.network.delay_max_ns = random.Pick<uint64_t>({2, 4, 10}) * kMillisecond;
  plan.network.drop_ppm = random.Pick<uint64_t>({0, 0, 20'000});
  plan.network.duplicate_ppm = random.Pick<uint64_t>({0, 50'000});
  plan.network.jitter = true;
  plan.clients.think_max_ns = random.Pick<uint64_t>({10, 20}) * kMillisecond;
  plan.clients.outstanding_max = 6;
}

KernelPlan DrawKernel(Random& random) {
  KernelPlan plan;
  plan.on = random.Chance(600'000);
  const bool all = random.Chance(600'000);
  const auto coin = [&random, all] { return random.Chance(500'000) || all; };
  plan.switches = {.heartbeat = coin(), .vote = coin(), .append = coin(), .quorum = coin()};
  if (random.Chance(600'000)) plan.durability = offload::Durability::kMemory;
  plan.lease_ns = random.Pick<uint64_t>({15, 30}) * kMillisecond;
  plan.ring_records = random.Pick<size_t>({3, 30, 300});
  plan.torn_ppm = random.Pick<uint64_t>({50'000, 300'000});
  plan.torn_max_ns = random.Pick<uint64_t>({20, 300, 3000}) * kMicrosecond;
  plan.detach_max_ns = random.Pick<uint64_t>({1, 50, 500}) * kMillisecond;
  return plan;
}

SnapshotPlan DrawSnapshots(Random& random) {
  SnapshotPlan plan;
  if (random.Chance(250'000)) return plan;
  plan.every_entries = random.Pick<uint64_t>({5, 20, 100});
  plan.chunk_bytes = random.Pick<size_t>({50, 500, 5000});
  plan.slice_bytes = random.Pick<size_t>({50, 500, 5000});
  plan.pause_max_ns = random.Pick<uint64_t>({1, 5, 50}) * kMillisecond;
  plan.crash_ppm = random.Pick<uint64_t>({0, 0, 20'000, 100'000});
  return plan;
}

MembershipPlan DrawMembership(Random& random, uint64_t nodes) {
  MembershipPlan plan;
  if (!random.Chance(500'000)) return plan;
  plan.mean_interval_ns = random.Pick<uint64_t>({60, 300, 1000}) * kMillisecond;
  plan.spares = random.Between(1, std::min<uint64_t>(3, HR_RAFT_MAX_MEMBERS - nodes));
  plan.on_leader_ppm = random.Pick<uint64_t>({200'000, 700'000});
  plan.crash_ppm = random.Pick<uint64_t>({0, 100'000, 400'000});
  plan.edit_file_ppm = random.Pick<uint64_t>({0, 300'000});
  return plan;
}

// Half of the runs have files that differ, and changes, most of them.
void PlanSettings(Random& random, Plan& plan) {
  const uint64_t nodes = plan.nodes + plan.membership.spares;
  plan.settings.differ = random.Chance(500'000);
  if (!plan.settings.differ) {
    kv::Settings same;
    same.sessions.timeout_ns = plan.settings.shortest_timeout_ns;
    same.window.window_ns = same.memcached.window.window_ns = kWindowMin_ns;
    plan.settings.files.assign(nodes, same);
    return;
  }
  for (uint64_t i = 0; i < nodes; ++i) plan.settings.files.push_back(DrawSettings(random));
  plan.settings.shortest_timeout_ns = kTimeoutMin_ns;
  plan.settings.mean_interval_ns = random.Pick<uint64_t>({0, 100, 500, 2000}) * kMillisecond;
  plan.settings.changes_seed = random.Next();
}

// Without kernel parts: those take messages out of datagrams by themselves.
void PlanSealed(Random& random, Plan& plan) {
  plan.sealed.on = random.Chance(500'000);
  if (!plan.sealed.on) return;
  plan.sealed.copies = random.Chance(500'000);
  plan.sealed.flip_ppm = random.Pick<uint64_t>({0, 10'000, 100'000});
  plan.sealed.replay_ppm = random.Pick<uint64_t>({0, 20'000, 200'000});
  plan.sealed.long_values_ppm = random.Pick<uint64_t>({0, 0, 50'000});
  plan.kernel.on = false;
  plan.disk.memory = random.Chance(300'000);
}

}  // namespace

kv::Settings DrawSettings(Random& random) {
  kv::Settings settings;
  settings.sessions.timeout_ns = random.Pick<uint64_t>({kTimeoutMin_ns, 10 * kSecond, 60 * kSecond});
  settings.sessions.sessions_max = random.Pick<uint64_t>({5, 20, 100'000});
  settings.sessions.answers_max = random.Pick<uint64_t>({16, 1024});
  for (kv::WindowLimits* window : {&settings.window, &settings.memcached.window}) {
    window->window_ns = random.Pick<uint64_t>({kWindowMin_ns, 5 * kSecond, kWindowMax_ns});
    window->requests_max = random.Pick<uint64_t>({20, 250'000});
  }
  settings.memory_bytes = random.Pick<uint64_t>({60'000, 1 << 30, 1 << 30});
  settings.memcached.memory_bytes = random.Pick<uint64_t>({4'000, 100'000, 1 << 30});
  return settings;
}

Plan DrawPlan(Random& random) {
  Plan plan;
  plan.nodes = random.Pick<uint64_t>({3, 3, 3, 5, 5, 7});
  plan.raft.election_floor_ns = random.Pick<uint64_t>({50, 100, 150}) * kMillisecond;
  plan.raft.append_max_entries = random.Pick<size_t>({1, 2, 64});
  plan.raft.inflight_max_appends = random.Pick<size_t>({1, 4, 32});
  plan.settings.shortest_timeout_ns = random.Pick<uint64_t>({3, 10, 60}) * kSecond;
  plan.network = DrawNetwork(random);
  plan.disk.sync_min_ns = random.Between(50, 300) * kMicrosecond;
  plan.disk.sync_max_ns = plan.disk.sync_min_ns + random.Pick<uint64_t>({100, 2'000, 20'000}) * kMicrosecond;
  plan.faults = DrawFaults(random);
  plan.clients.session_clients = random.Between(2, 4);
  plan.clients.windowed_clients = random.Between(1, 2);
  plan.clients.think_max_ns = random.Pick<uint64_t>({20, 60, 200}) * kMillisecond;
  plan.clients.outstanding_max = random.Pick<uint64_t>({1, 3, 6});
  plan.clients.keys = random.Between(1, 2);
  plan.clients.hedge_ppm = random.Pick<uint64_t>({100'000, 500'000, 900'000});
  plan.clients.sleep_ppm = random.Pick<uint64_t>({0, 2'000, 10'000});
  const bool storm = random.Chance(150'000);
  const bool figure_eight = !storm && random.Chance(150'000);
  const bool special = storm || figure_eight;
  if (storm) MakeElectionStorm(random, plan);
  if (figure_eight) MakeFigureEight(random, plan);
  if (random.Chance(100'000)) MakeJitter(random, plan);
  plan.kernel = DrawKernel(random);
  plan.snapshots = DrawSnapshots(random);
  plan.raft.tail_max_entries = random.Pick<uint64_t>({0, 3, 30});
  plan.disk.memory = plan.kernel.on && plan.kernel.durability == offload::Durability::kMemory;
  if (random.Chance(500'000)) {
    plan.memcached.counting_clients = random.Between(1, 2);
    plan.memcached.one_id_clients = random.Between(0, 2);
  }
  // Elections that never end and logs that no one commits leave no leader that could change anything.
  if (!special) plan.membership = DrawMembership(random, plan.nodes);
  // A recovered cluster begins with the members of its file.
  if (plan.membership.mean_interval_ns == 0 && random.Chance(400'000)) {
    plan.recovery.mean_interval_ns = random.Pick<uint64_t>({2, 5, 15}) * kSecond;
    plan.recovery.after_election_ppm = random.Pick<uint64_t>({0, 100'000, 300'000});
    plan.network.late_ppm = std::max(plan.network.late_ppm, random.Pick<uint64_t>({20'000, 200'000}));
    plan.network.late_max_ns = std::max<uint64_t>(plan.network.late_max_ns, 2 * kSecond);
    plan.network.late_votes_ppm = 300'000;
    plan.network.late_votes_max_ns = kSecond;
    plan.network.late_acks = true;
  }
  // No LOST node is replaced, and the cluster is not recovered: that has runs of its own.
  if (plan.membership.mean_interval_ns == 0 && plan.recovery.mean_interval_ns == 0) {
    plan.faults.empty_folders = plan.faults.mean_interval_ns > 0 && random.Chance(700'000);
  }
  // Of its own random numbers: what is drawn above stays what it was.
  Random settings(random.Next());
  PlanSettings(settings, plan);
  Random glue(random.Next());
  PlanSealed(glue, plan);
  plan.faults.hung_disks = plan.faults.mean_interval_ns > 0 && plan.faults.slow_disks && glue.Chance(300'000);
  plan.last_days.hung_disk = !plan.disk.memory && glue.Chance(400'000);
  plan.last_days.folder_put_back = plan.sealed.on && glue.Chance(400'000);
  plan.turn_max_ns = glue.Pick<uint64_t>({0, 20, 100, 500}) * kMicrosecond;
  plan.stranger.mean_interval_ns = glue.Pick<uint64_t>({0, 20, 100}) * kMillisecond;
  plan.stranger.seed = glue.Next();
  plan.clients.other_ppm = glue.Pick<uint64_t>({0, 20'000, 100'000});
  // A kernel part has a clock of its own.
  plan.faults.standstills = plan.faults.pauses && !plan.kernel.on && plan.stranger.seed % 4 != 0;
  return plan;
}

std::string Describe(const Plan& plan) {
  const FaultPlan& faults = plan.faults;
  std::string text = absl::StrCat(
      plan.nodes, " nodes, election floor ", plan.raft.election_floor_ns / kMillisecond, " ms, appends of ",
      plan.raft.append_max_entries, ", network ", plan.network.delay_max_ns / kMicrosecond, " us, drop ",
      plan.network.drop_ppm, " ppm, late ", plan.network.late_ppm, " ppm up to ",
      plan.network.late_max_ns / kMillisecond, plan.network.jitter ? " ms, jitter, late votes " : " ms, late votes ",
      plan.network.late_votes_ppm, " ppm, sync ", plan.disk.sync_max_ns / kMicrosecond, " us, turns ",
      plan.turn_max_ns / kMicrosecond, " us, sessions ", plan.settings.shortest_timeout_ns / kSecond,
      " s; a fault every ", faults.mean_interval_ns / kMillisecond, " ms for up to ",
      faults.duration_max_ns / kMillisecond, " ms:");
  const auto add = [&text](bool on, const char* name) {
    if (on) absl::StrAppend(&text, " ", name);
  };
  add(faults.crash_new_leader_ppm > 0, "crash-new-leaders");
  add(faults.crash_voter_ppm > 0, "crash-voters");
  add(faults.partitions, "partitions");
  add(faults.one_way, "one-way");
  add(faults.slow_links, "slow-links");
  add(faults.crashes, "crashes");
  add(faults.power_cuts, "power-cuts");
  add(faults.pauses && !faults.standstills, "pauses");
  add(faults.standstills, "standstills");
  add(faults.slow_disks, "slow-disks");
  add(faults.full_disks, "full-disks");
  add(faults.hung_disks, "hung-disks");
  add(faults.size_filters, "size-filters");
  add(faults.clock_jumps, "clock-jumps");
  add(faults.transfers, "transfers");
  add(faults.resignations, "resignations");
  add(faults.empty_folders, "empty-folders");
  if (plan.membership.mean_interval_ns != 0) {
    absl::StrAppend(&text, "; a change of membership every ", plan.membership.mean_interval_ns / kMillisecond,
                    " ms with ", plan.membership.spares, " spares, of the leader ", plan.membership.on_leader_ppm,
                    " ppm, crashes ", plan.membership.crash_ppm, " ppm, edited files ", plan.membership.edit_file_ppm,
                    " ppm");
  }
  if (plan.snapshots.every_entries != UINT64_MAX) {
    absl::StrAppend(&text, "; snapshots every ", plan.snapshots.every_entries, " entries, tail ",
                    plan.raft.tail_max_entries, ", pauses ", plan.snapshots.pause_max_ns / kMillisecond,
                    " ms, crashes ", plan.snapshots.crash_ppm, " ppm");
  }
  if (plan.memcached.counting_clients > 0) {
    absl::StrAppend(&text, "; memcached clients: ", plan.memcached.counting_clients, " count ids, ",
                    plan.memcached.one_id_clients, " have one");
  }
  if (plan.settings.differ) {
    absl::StrAppend(&text, "; files differ, settings change every ", plan.settings.mean_interval_ns / kMillisecond,
                    " ms");
  }
  if (plan.stranger.mean_interval_ns > 0) {
    absl::StrAppend(&text, "; a stranger every ", plan.stranger.mean_interval_ns / kMillisecond, " ms");
  }
  if (plan.clients.other_ppm > 0) absl::StrAppend(&text, "; numbers used twice, ", plan.clients.other_ppm, " ppm");
  if (plan.recovery.mean_interval_ns > 0) {
    absl::StrAppend(&text, "; recovers every ", plan.recovery.mean_interval_ns / kSecond, " s");
  }
  add(plan.last_days.hung_disk, "last-hung-disk");
  add(plan.last_days.folder_put_back, "last-folder-put-back");
  if (plan.sealed.on) {
    absl::StrAppend(&text, "; sealed in ", plan.disk.memory ? "memory" : "disk", " mode, flips ", plan.sealed.flip_ppm,
                    " ppm, replays ", plan.sealed.replay_ppm, plan.sealed.copies ? " ppm, copies" : " ppm");
  }
  if (!plan.kernel.on) return text;
  absl::StrAppend(&text, "; kernel part in ", plan.disk.memory ? "memory" : "disk", " mode, lease ",
                  plan.kernel.lease_ns / kMillisecond, " ms, ring of ", plan.kernel.ring_records, ":");
  add(plan.kernel.switches.heartbeat, "heartbeat");
  add(plan.kernel.switches.vote, "vote");
  add(plan.kernel.switches.append, "append");
  add(plan.kernel.switches.quorum, "quorum");
  return text;
}

}  // namespace hedgerow::sim
