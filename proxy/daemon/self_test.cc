// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/self_test.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "net/ip_address.h"
#include "net/netlink/link.h"
#include "net/socket_address.h"
#include "net/tc/hook_programs.h"
#include "operate/log.h"

namespace hedgerow {
namespace {

constexpr int kTicksBetween = 10;  // a second

}  // namespace

std::vector<SelfTest::Way> SelfTest::Ways() const {
  std::vector<Way> ways;
  const DataPlaneSpec& spec = instance_.data_plane().spec();
  for (size_t i = 0; i < spec.services.size(); ++i) {
    for (const BackendSpec& backend : spec.services[i].backends) {
      const bool known = std::any_of(ways.begin(), ways.end(), [&](const Way& way) {
        return way.service == i && way.uplink == backend.uplink_ifindex;
      });
      if (known || backend.uplink_ifindex == 0) continue;
      const auto link = net::FindLink(static_cast<int>(backend.uplink_ifindex));
      if (!link.ok() || !link->up()) continue;  // a problem of its own
      ways.push_back({.service = i, .slot = backend.slot, .uplink = backend.uplink_ifindex});
    }
  }
  return ways;
}

void SelfTest::SendOne(Sent& sent, const ServiceSpec& service, uint64_t tag) {
  const auto vip = net::IpAddress::Parse(service.vip);
  if (!vip.ok()) return;
  const net::SocketAddress address(*vip, service.port);
  sent.socket = net::UniqueFd(socket(vip->family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const hr_self_test payload = {.tag = tag, .number = sent.number};
  const bool done = sent.socket.valid() &&
                    connect(sent.socket.get(), address.get(), address.bytes) == 0 &&
                    send(sent.socket.get(), &payload, sizeof(payload), 0) == sizeof(payload);
  if (!done) sent.error = strerror(errno);
}

void SelfTest::Send() {
  ticks_ = 0;
  ++round_;
  sent_.clear();
  const bool suspicious = std::any_of(strikes_.begin(), strikes_.end(), [](const auto& each) { return each.second > 0; });
  before_ = suspicious ? ReadCounts() : std::vector<Counts>{};
  const DataPlaneSpec& spec = instance_.data_plane().spec();
  const std::vector<Way> ways = Ways();
  // A way that is tested no longer has no strikes.
  std::erase_if(strikes_, [&](const auto& each) {
    return std::none_of(ways.begin(), ways.end(), [&](const Way& way) { return std::pair(way.service, way.uplink) == each.first; });
  });
  if (ways.empty()) problems_.clear();
  for (const Way& way : ways) {
    Sent& sent = sent_.emplace_back();
    sent.way = way;
    sent.number = round_ * HR_MAX_BACKENDS_PER_SERVICE + way.slot;
    SendOne(sent, spec.services[way.service], instance_.data_plane().object().SelfTestTag());
  }
}

bool SelfTest::CameBack(const Sent& sent) const {
  hr_self_test payload{};
  return sent.error.empty() && recv(sent.socket.get(), &payload, sizeof(payload), 0) == sizeof(payload) &&
         payload.number == sent.number;
}

std::vector<SelfTest::Counts> SelfTest::ReadCounts() const {
  std::vector<Counts> counts;
  const auto snapshot = instance_.data_plane().reader().Read(/*histograms=*/false);
  if (!snapshot.ok()) return counts;
  for (const ServiceSnapshot& service : snapshot->services)
    counts.push_back({.out = service.stats.counters[HR_SELF_TESTS], .back = service.stats.counters[HR_SELF_TESTS_BACK]});
  return counts;
}

std::string SelfTest::UplinkName(uint32_t uplink) const {
  const auto link = net::FindLink(static_cast<int>(uplink));
  return link.ok() ? link->name : absl::StrCat("interface number ", uplink);
}

bool SelfTest::EndedByRules(const std::vector<Problem>& problems) {
  return std::any_of(problems.begin(), problems.end(), [](const Problem& each) {
    return each.code == ProblemCode::kRulesOut || each.code == ProblemCode::kRulesIn;
  });
}

// Of one way at a time: the counters are a service's, so with several uplinks the first that lost something is told.
Problem SelfTest::WhatIsWrong(const Sent& sent, const Counts& before, const Counts& now) const {
  const ServiceSpec& service = instance_.data_plane().spec().services[sent.way.service];
  const auto vip = net::IpAddress::Parse(service.vip);
  const std::string way = vip.ok() ? instance_.RouteOf(*vip) : "";
  const auto sends = static_cast<uint64_t>(std::count_if(
      sent_.begin(), sent_.end(), [&](const Sent& each) { return each.way.service == sent.way.service; }));
  if (!sent.error.empty()) {
    return {ProblemCode::kRulesOut, absl::StrCat(service.name, ": a packet to ", service.vip, " port ", service.port,
                                                 " cannot be sent on this host (", sent.error,
                                                 "). It leaves by ", way, ", which the rules must let out")};
  }
  if (now.out < before.out + sends) {
    return {ProblemCode::kRulesOut, absl::StrCat(service.name, ": packets to ", service.vip, " port ", service.port,
                                                 " do not leave by ", way, ": something on this host ends them before")};
  }
  if (now.back < before.back + sends) {
    const std::string uplink = UplinkName(sent.way.uplink);
    const auto programs = instance_.ProgramsBeforeOurs(static_cast<int>(sent.way.uplink));
    return {ProblemCode::kProgramBefore,
            programs.ok() && !programs->empty()
                ? absl::StrCat(service.name, ": answers that come in by ", uplink, " do not reach the reply program. Before it runs ",
                               net::Join(*programs), ": it must return TC_ACT_UNSPEC for packets of the backends, or run behind ours")
                : absl::StrCat(service.name, ": answers that come in by ", uplink, " do not reach the reply program")};
  }
  return {ProblemCode::kRulesIn, absl::StrCat(service.name, ": answers of ", service.vip, " port ", service.port, " come in by ",
                                              way, " and reach no socket: a firewall rule or a filter of sources ends them")};
}

// True: the VIPs' routes lead another way now.
bool SelfTest::Judge() {
  std::vector<Counts> now;
  std::vector<Problem> problems;
  std::set<int> ended_before_ours;  // at these uplinks
  for (const Sent& sent : sent_) {
    int& strikes = strikes_[{sent.way.service, sent.way.uplink}];
    if (CameBack(sent)) {
      strikes = 0;
      continue;
    }
    ++strikes;
    if (before_.empty()) continue;  // the next one will tell where
    if (now.empty()) now = ReadCounts();
    if (sent.way.service >= std::min(now.size(), before_.size())) continue;
    const Problem problem = WhatIsWrong(sent, before_[sent.way.service], now[sent.way.service]);
    if (strikes < kStrikes) continue;
    if (problem.code == ProblemCode::kProgramBefore) ended_before_ours.insert(static_cast<int>(sent.way.uplink));
    const bool told = std::any_of(problems.begin(), problems.end(), [&](const Problem& each) { return each == problem; });
    if (!told) problems.push_back(problem);
  }
  sent_.clear();
  bool moved = false;
  for (const int uplink : ended_before_ours) moved |= StepForward(uplink);
  if (moved) return false;  // the next round tells whether it helped
  if (EndedByRules(problems) && running_) {
    const std::string other = instance_.TryOtherRoute();
    if (!other.empty()) {
      LogWarning(other);
      strikes_.clear();
      return true;
    }
  }
  if (problems != problems_)
    for (const Problem& problem : problems) LogError(problem.text);
  problems_ = std::move(problems);
  return false;
}

// Ours runs first on this uplink from here on, where that can be. False: nothing was changed.
bool SelfTest::StepForward(int uplink) {
  const absl::StatusOr<std::string> passed = instance_.MoveRepliesFirst(uplink);
  if (!passed.ok()) LogError("moving the reply program to the front: ", std::string(passed.status().message()));
  if (!passed.ok() || passed->empty()) return false;
  LogWarning(*passed);
  return true;
}

bool SelfTest::Tick() {
  running_ = true;
  bool rerouted = false;
  const std::vector<uint32_t> order = instance_.TcxBeforeOurs();
  const bool changed = order != order_;
  order_ = order;
  bool lost = false;
  if (!sent_.empty()) {
    rerouted = Judge();
    lost = std::any_of(strikes_.begin(), strikes_.end(), [](const auto& each) { return each.second > 0 && each.second < kStrikes; });
  }
  if (changed || lost || rerouted || ++ticks_ >= kTicksBetween) Send();
  return rerouted;
}

absl::Status SelfTest::Once() {
  absl::Status status = OnceAsRouted();
  if (status.ok() || !EndedByRules(problems_)) return status;
  const std::string other = instance_.TryOtherRoute();
  if (other.empty()) return status;
  strikes_.clear();
  problems_.clear();
  if (!OnceAsRouted().ok()) return status;  // what stands in the way by the proxy interface is the first thing to mend
  LogWarning(other);
  return absl::OkStatus();
}

absl::Status SelfTest::OnceAsRouted() {
  for (int i = 0; i < 2 * kStrikes + 1; ++i) {
    Send();
    const absl::Time end = absl::Now() + kTick;
    while (absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(5));
      const bool all = std::all_of(sent_.begin(), sent_.end(), [](const Sent& sent) {
        char byte = 0;
        return sent.error.empty() && recv(sent.socket.get(), &byte, 1, MSG_PEEK) > 0;
      });
      if (all) break;
    }
    Judge();
    const bool well = std::all_of(strikes_.begin(), strikes_.end(), [](const auto& each) { return each.second == 0; });
    if (well) return absl::OkStatus();
    if (!problems_.empty()) break;
  }
  if (problems_.empty()) return absl::OkStatus();  // where it was lost could not be found: it is tested again every second
  return absl::FailedPreconditionError(JoinProblems(problems_, "\n"));
}

}  // namespace hedgerow
