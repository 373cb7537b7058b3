// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/simulation.h"

#include <charconv>
#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/raft/check.h"
#include "cluster/sim/client.h"
#include "cluster/sim/memcached_client.h"
#include "cluster/sim/last_days.h"
#include "cluster/sim/membership.h"
#include "cluster/sim/plan.h"
#include "cluster/sim/recovery.h"
#include "cluster/sim/server.h"
#include "cluster/sim/settings_changes.h"
#include "cluster/sim/stranger.h"
#include "cluster/sim/faults.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

World::World(uint64_t seed) : random(seed), plan(DrawPlan(random)), network(time, random, plan.network, plan.sealed) {}
World::~World() = default;

namespace {

// After the faults: long enough for the last client to give up, and for ghosts of its packets to come; and
// then as long as the slowest node needs, within reason.
constexpr uint64_t kSettleMax_ns = 60 * kSecond;

// A broken invariant inside the code under test ends the run, not the simulator.
struct BrokenInvariant : std::exception {
  explicit BrokenInvariant(std::string what) : text(std::move(what)) {}
  const char* what() const noexcept override { return text.c_str(); }
  std::string text;
};

[[noreturn]] void ThrowBrokenInvariant(const char* file, int line, const char* condition) {
  throw BrokenInvariant(absl::StrCat("broken invariant at ", file, ":", line, ": ", condition));
}

class CheckFailuresAreThrown {
 public:
  CheckFailuresAreThrown() { SetCheckFailureHandler(ThrowBrokenInvariant); }
  ~CheckFailuresAreThrown() { SetCheckFailureHandler(nullptr); }
};

void Populate(World& world) {
  for (uint64_t id = 1; id <= world.plan.nodes + world.plan.membership.spares; ++id) {
    world.servers.push_back(std::make_unique<Server>(world, raft::NodeId(id)));
  }
  world.network.DeliverTo([&world](uint64_t from, uint64_t to, const std::string& bytes) {
    world.servers[to - 1]->ArriveDatagram(from, bytes);
  });
  world.faults = std::make_unique<Faults>(world);
  world.membership = std::make_unique<Membership>(world);
  world.recovery = std::make_unique<Recovery>(world);
  world.settings = std::make_unique<SettingsChanges>(world);
  world.stranger = std::make_unique<Stranger>(world);
  const uint64_t clients = world.plan.clients.session_clients + world.plan.clients.windowed_clients;
  for (uint64_t i = 0; i < clients; ++i) {
    world.clients.push_back(std::make_unique<Client>(world, kFirstClient + i, i >= world.plan.clients.session_clients));
  }
  const uint64_t memcached_clients = world.plan.memcached.counting_clients + world.plan.memcached.one_id_clients;
  for (uint64_t i = 0; i < memcached_clients; ++i) {
    world.memcached_clients.push_back(std::make_unique<MemcachedClient>(world, kFirstMemcachedClient + i,
                                                                        i >= world.plan.memcached.counting_clients));
  }
  for (const auto& server : world.servers) server->Start();
  for (const auto& client : world.clients) client->Start();
  for (const auto& client : world.memcached_clients) client->Start();
  world.faults->Start();
  world.membership->Start();
  world.recovery->Start();
  world.settings->Start();
  world.stranger->Start();
}

bool Run(World& world, uint64_t end_ns) {
  while (world.time.Step(end_ns)) {
    if (!world.checker.violation().empty()) world.Fail(world.checker.violation());
    if (!world.violation.empty()) return false;
  }
  return true;
}

// Why the cluster is not at rest: it must come to one leader, with everything applied by every member that is
// not LOST and no change of membership half done, by itself.
std::string Unrest(const World& world) {
  const Server* const leader = LeaderOf(world);
  if (leader == nullptr) return "there is no leader";
  const raft::Configuration& members = leader->raft().configuration();
  if (members.joint() || !leader->raft().configuration_committed()) {
    return absl::StrCat("configuration ", members.epoch, " is not the end of its change");
  }
  for (const auto& server : world.servers) {
    if (server->lost()) continue;
    const raft::Member* const member = members.Find(server->id());
    if (member == nullptr || ((members.leaving >> member->slot) & 1) != 0) continue;
    if (server->raft().applied() == leader->raft().log().last_index()) continue;
    return absl::StrCat("node ", server->id().value(), " has applied ", server->raft().applied().value(), " of ",
                        leader->raft().log().last_index().value(), " entries");
  }
  return {};
}

int64_t NumberAt(const kv::StateMachine& state, const std::string& key) {
  const kv::Item* const item = state.FindItem(key);  // of a memcached client's; the two share no key
  const std::string text = item != nullptr ? item->value : state.Get(key).value_or("0");
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

void CheckHistory(World& world) {
  const kv::StateMachine& state = LeaderOf(world)->state();
  const std::string why = world.history.Check([&state](const std::string& key) { return NumberAt(state, key); });
  if (!why.empty()) world.Fail(why);
  for (uint64_t i = 0; i < world.plan.clients.keys; ++i) {
    const std::string number = std::to_string(i);
    if (NumberAt(state, "from" + number) + NumberAt(state, "to" + number) != 0) {
      world.Fail("a write of two keys was applied in part");
    }
  }
}

void RunToTheEnd(World& world, uint64_t seconds) {
  Populate(world);
  if (!Run(world, world.time.now_ns() + seconds * kSecond)) return;
  world.Trace("the faults end");
  world.faults->Calm();
  world.membership->Calm();
  world.recovery->Calm();
  world.settings->Calm();
  world.stranger->Calm();
  LastDays last_days(world, [&world](uint64_t duration_ns) { return Run(world, world.time.now_ns() + duration_ns); });
  if (!last_days.Run()) return;
  for (const auto& client : world.clients) client->Stop();
  for (const auto& client : world.memcached_clients) client->Stop();
  const uint64_t calm_ns = world.time.now_ns();
  if (!Run(world, calm_ns + AnsweredAfterStorm_ns(world.plan) + kSecond)) return;
  while (!Unrest(world).empty() && world.time.now_ns() < calm_ns + kSettleMax_ns) {
    if (!Run(world, world.time.now_ns() + kSecond)) return;
  }
  if (const std::string unrest = Unrest(world); !unrest.empty()) {
    world.Fail(unrest, ", ", kSettleMax_ns / kSecond, " s after the last fault");
  }
  if (world.violation.empty()) CheckHistory(world);
}

}  // namespace

Report Simulate(const SimulationOptions& options) {
  const CheckFailuresAreThrown handler;
  World world(options.seed);
  const uint64_t start_ns = world.time.now_ns();
  if (options.trace) {
    world.trace = [&world, &options, start_ns](const std::string& line) {
      options.trace(absl::StrCat((world.time.now_ns() - start_ns) / kMicrosecond, " us  ", line));
    };
  }
  Report report;
  report.seed = options.seed;
  report.plan = Describe(world.plan);
  try {
    RunToTheEnd(world, options.seconds);
  } catch (const BrokenInvariant& broken) {
    world.Fail(broken.text);
  }
  report.violation = world.violation;
  report.seconds = static_cast<double>(world.time.now_ns() - start_ns) / static_cast<double>(kSecond);
  report.happened = world.time.happened();
  report.digest = world.random.Next();
  report.committed = world.checker.committed();
  report.elections = world.elections;
  report.crashes = world.crashes;
  report.operations = world.operations;
  report.answers = world.answers;
  report.kernel_answers = world.kernel_answers;
  report.kernel_appends = world.kernel_appends;
  report.kernel_votes = world.kernel_votes;
  report.kernel_answers_late = world.kernel_answers_late;
  report.changes = world.changes;
  report.changes_refused = world.changes_refused;
  report.leaders_removed = world.leaders_removed;
  report.settings_changes = world.settings_changes;
  report.snapshots_taken = world.snapshots_taken;
  report.snapshots_installed = world.snapshots_installed;
  report.transfers_resumed = world.transfers_resumed;
  for (const auto& server : world.servers) server->AddCounters();
  report.quorum_checks = world.quorum_checks;
  report.appends_reordered = world.appends_reordered;
  report.proposals_known = world.proposals_known;
  report.state_checks = world.state_checks;
  report.recoveries = world.recoveries;
  report.folders_emptied = world.folders_emptied;
  report.hung_leaders = world.hung_leaders;
  report.folders_put_back = world.folders_put_back;
  report.sealed_pieces = world.sealed_pieces;
  report.sealed_drops = world.sealed_drops;
  report.sessions_evicted = world.sessions_evicted;
  report.forged = world.forged;
  return report;
}

}  // namespace hedgerow::sim
