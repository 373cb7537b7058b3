// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/guardian.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "net/netlink/link.h"
#include "net/steady_wait.h"
#include "operate/log.h"
#include "operate/service_manager.h"
#include "net/tc/clock_qdisc.h"

namespace hedgerow {
namespace {

// A lost clock packet costs hedges until it is found: looked for ten times a second, which reads a few words.
constexpr absl::Duration kTick = SelfTest::kTick;
// VIPs in place live for three of these: each is a change of the host's rules, which others may look at.
constexpr int kRenewInPlaceSeconds = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<Guardian>> Guardian::Start(const v1::Config& config, Topology& topology,
                                                          ProxyInstance& instance, DaemonFacts& facts,
                                                          operate::ProblemLog& problem_log, EventLoop& loop,
                                                          std::function<void()> relink) {
  std::unique_ptr<Guardian> guardian(new Guardian(config, instance, facts, problem_log, loop, std::move(relink)));
  // As if we had been there, where an earlier daemon was.
  for (const Snapshot& past : instance.PastAnswers()) guardian->tuner_.Recall(past);
  Guardian* self = guardian.get();
  const NetworkFollower::Callbacks callbacks = {.relink =
                                                    [self] {
                                                      self->resting_ =
                                                          true;  // the next guardian looks after what is made now
                                                      self->relink_();
                                                    },
                                                .followed = [self] { self->OnFollowed(); }};
  auto follower = NetworkFollower::Start(config, topology, instance, facts, loop, callbacks);
  if (!follower.ok()) return follower.status();
  self->follower_ = *std::move(follower);
  absl::Status status;
  const auto every = [&](absl::Duration period, std::function<void()> action) -> absl::Status {
    const auto timer = loop.StartTimer(period, std::move(action));
    if (timer.ok()) self->timers_.push_back(*timer);
    return timer.status();
  };
  guardian->KeepUplinkRoutes();
  if (status.ok()) status = every(kTick, [self] { self->EveryTick(); });
  if (status.ok()) status = every(absl::Seconds(1), [self] { self->EverySecond(); });
  if (!status.ok()) return status;
  self->NoteProgramsBefore();
  return guardian;
}

Guardian::~Guardian() {
  for (const int timer : timers_) loop_.StopTimer(timer);
}

void Guardian::Rest() {
  resting_ = true;
  follower_->Rest();
}

// A link that was down, or a queueing discipline that was replaced, may have taken a program or the clock's discipline.
void Guardian::OnFollowed() {
  if (resting_) return;
  // Not only after an event: the kernel tells nothing of a TCX link that was detached.
  Repair();
  NoteProgramsBefore();  // a look may have listed the uplinks anew
  KeepUplinkRoutes();
  UpdateProblems();
}

// What cannot be repaired is a problem, and tried again every second: the rest of the proxy serves on.
void Guardian::Repair() {
  ProxyInstance::Restored restored = instance_.RestoreAttachments();
  if (restored.programs > 0) {
    LogInfo("attached ", restored.programs, " programs again");
    facts_.adoption.set_attachments_restored(facts_.adoption.attachments_restored() +
                                             static_cast<uint64_t>(restored.programs));
  }
  if (const absl::Status status = RepairClock(); !status.ok()) {
    restored.problems.push_back(
        {ProblemCode::kOwnLink,
         absl::StrCat("the clock's queueing discipline cannot be restored: ", std::string(status.message()))});
  }
  repair_problems_ = std::move(restored.problems);
  programs_serve_ = restored.serves;
}

void Guardian::KeepUplinkRoutes() {
  uplink_route_problems_ = instance_.KeepUplinkRoutes();
  instance_.NoteRoutes(facts_);
}

// What is known to serve nothing is not renewed: the owner's rules may lead to backends that answer.
void Guardian::LookInPlace(const Snapshot* snapshot) {
  bool now = ++seconds_ % kRenewInPlaceSeconds == 0;
  for (const v1::Service& service : config_.services()) {
    if (!service.in_place() && service.also_at_size() == 0) continue;
    const auto vip = net::IpAddress::Parse(service.vip());
    const ServiceSnapshot* seen = snapshot == nullptr ? nullptr : FindByName(snapshot->services, service.name());
    const bool down = seen != nullptr && std::all_of(seen->backends.begin(), seen->backends.end(),
                                                     [](const auto& each) { return each.health == HR_DOWN; });
    now |= lender_.Look(service.name(), !programs_serve_ || down || (vip.ok() && self_test_.broken().contains(*vip)));
  }
  if (now) KeepInPlace();
}

void Guardian::KeepInPlace() {
  in_place_problems_.clear();
  const std::set<std::string> given_back = lender_.given_back();
  for (const std::string& service : given_back)
    in_place_problems_.push_back(
        {ProblemCode::kInPlaceLost, absl::StrCat("service ", service, ": given back to its owner: clients got nothing ",
                                                 "by the proxy; tried again every minute")});
  instance_.GiveBack(given_back);
  if (const absl::Status status = instance_.KeepInPlace(); !status.ok())
    in_place_problems_.push_back({ProblemCode::kInPlaceLost, std::string(status.message())});
}

// Installs the clock's queueing discipline again after it was replaced or removed. The clock's packet was lost with it,
// and the watchdog sends another.
absl::Status Guardian::RepairClock() {
  const int ifindex = instance_.links().clock.link.ifindex;
  const auto present = net::HasClockQdisc(ifindex, instance_.clock().kind);
  if (present.ok() && *present) return absl::OkStatus();
  if (net::LinkIsGone(ifindex)) return absl::OkStatus();  // the follower has the link made again
  absl::Status status = net::InstallClockQdisc(ifindex, instance_.clock());
  if (status.ok()) LogInfo("restored the clock's queueing discipline");
  return status;
}

void Guardian::EveryTick() {
  if (resting_) return;
  const auto restarted = instance_.data_plane().object().CheckClock();
  if (restarted.ok() && *restarted) LogWarning("the clock's packet was lost; sent another");
  if (self_test_.Tick()) instance_.NoteRoutes(facts_);
}

void Guardian::EverySecond() {
  if (resting_) return;
  instance_.Beat();
  RestorePins();
  reload_problem_ = std::string(instance_.ForgetRetired().message());
  follower_->EverySecond();
  if (resting_) return;
  if (!repair_problems_.empty()) Repair();
  if (!uplink_route_problems_.empty()) KeepUplinkRoutes();
  const auto snapshot = instance_.data_plane().reader().Read(/*histograms=*/true);
  if (snapshot.ok()) instance_.NoteAnswers(*snapshot);
  LookInPlace(snapshot.ok() ? &*snapshot : nullptr);
  absl::Status tuned =
      checks_.Look(facts_, instance_.data_plane().policy(), snapshot.ok() ? &*snapshot : nullptr, MonotonicNs());
  tuned.Update(snapshot.ok() ? tuner_.Tune(*snapshot, instance_.data_plane().policy()) : snapshot.status());
  data_plane_problem_ = std::string(tuned.message());
  if (snapshot.ok()) ForgetLeaders(*snapshot);
  if (snapshot.ok()) copy_problems_ = copy_watch_.Look(*snapshot);
  if (snapshot.ok()) client_problems_ = client_watch_.Look(*snapshot);
  NoteProgramsBefore();
  UpdateProblems();
  // A loop that turns; a hung one is started again by its unit (WatchdogSec=).
  operate::NotifyServiceManager("WATCHDOG=1");  // alone: systemd drops a message of more than 4 KiB whole
  operate::NotifyServiceManager(absl::StrCat(
      "STATUS=", facts_.problems.size(), " problems",
      facts_.problems.empty() ? "" : ", first: ", facts_.problems.empty() ? "" : facts_.problems.front().text));
  if (snapshot.ok() && on_snapshot_ != nullptr) on_snapshot_(*snapshot);
}

// Without its pins the kernel part would end with this daemon, and no restart or upgrade could take it over.
void Guardian::RestorePins() {
  const absl::StatusOr<int> restored = instance_.RestorePins();
  pin_problems_.clear();
  if (!restored.ok()) {
    pin_problems_.push_back(
        {ProblemCode::kDataPlane,
         absl::StrCat("the pins by which the kernel part outlives this daemon are gone and cannot be put back: ",
                      std::string(restored.status().message()))});
  } else if (*restored > 0) {
    LogWarning("put back ", *restored, " pins of the kernel part, which were removed from outside");
  }
}

void Guardian::ForgetLeaders(const Snapshot& snapshot) {
  const std::vector<std::string> forgotten = leader_watch_.Look(snapshot);
  leader_problems_.clear();
  for (const std::string& service : leader_watch_.outdated()) {
    leader_problems_.push_back(
        {ProblemCode::kLeaderOutdated,
         absl::StrCat("service ", service, ": its cluster announces a leader, and only of terms before ",
                      FindByName(snapshot.services, service)->leader.term,
                      ", which is known: it was set up anew under its old id")});
  }
  for (const std::string& service : forgotten) {
    LogWarning(absl::StrCat("service ", service, ": the leader of its former cluster is forgotten"));
    if (const absl::Status status = instance_.data_plane().policy().ForgetLeader(service); !status.ok()) {
      data_plane_problem_ = absl::StrCat("the leader of ", service, " cannot be forgotten: ", status.message());
    }
  }
}

void Guardian::NoteProgramsBefore() {
  for (v1::Uplink& uplink : facts_.uplinks) {
    uplink.clear_before();
    const auto programs = instance_.ProgramsBeforeOurs(uplink.ifindex());
    if (!programs.ok()) continue;  // it is gone
    for (const net::HookProgram& program : *programs) uplink.add_before(program.ToString());
  }
}

void Guardian::UpdateProblems() {
  std::vector<Problem> problems = follower_->problems();
  const auto of_network = [](const Problem& problem) { return RowOf(problem.code).family == "network"; };
  const bool named = std::any_of(problems.begin(), problems.end(), of_network);
  for (const Problem& problem : self_test_.problems()) {
    // What the follower has named already.
    if (!named || !of_network(problem)) problems.push_back(problem);
  }
  for (const std::vector<Problem>* found : {&repair_problems_, &uplink_route_problems_, &leader_problems_,
                                            &in_place_problems_, &copy_problems_, &client_problems_, &pin_problems_})
    problems.insert(problems.end(), found->begin(), found->end());
  if (!data_plane_problem_.empty()) problems.push_back({ProblemCode::kDataPlane, data_plane_problem_});
  if (!reload_problem_.empty()) problems.push_back({ProblemCode::kReload, reload_problem_});
  facts_.problems = std::move(problems);
  std::vector<std::string> texts;
  for (const Problem& problem : facts_.problems) texts.push_back(problem.ToString());
  problem_log_.Update(texts, net::MonotonicNow());
}

}  // namespace hedgerow
