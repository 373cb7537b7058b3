// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/self_test.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "net/steady_wait.h"
#include "net/ip_address.h"
#include "net/netlink/link.h"
#include "net/netlink/route.h"
#include "net/socket_address.h"
#include "net/tc/hook_programs.h"
#include "operate/event_loop.h"
#include "operate/log.h"

namespace hedgerow {
namespace {

constexpr int kTicksBetween = 10;  // a second
constexpr int kPassedTrial = 3;    // rounds
constexpr int64_t kFirstPauseNs = 60'000'000'000, kLongestPauseNs = 16 * kFirstPauseNs;

net::IpAddress VipOf(const ServiceSpec& service) {
  return net::IpAddress::Parse(service.vip).value_or(net::IpAddress());
}

}  // namespace

std::vector<SelfTest::Way> SelfTest::Ways() const {
  std::vector<Way> ways;
  const DataPlaneSpec& spec = instance_.data_plane().spec();
  for (size_t i = 0; i < spec.services.size(); ++i) {
    const bool routed =
        std::any_of(instance_.routes().begin(), instance_.routes().end(),
                    [vip = VipOf(spec.services[i])](const net::VipRoute& route) { return route.vip == vip; });
    if (!routed) continue;  // a problem of its own
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
  const bool done = sent.socket.valid() && connect(sent.socket.get(), address.get(), address.bytes) == 0 &&
                    send(sent.socket.get(), &payload, sizeof(payload), 0) == sizeof(payload);
  if (!done) sent.error = strerror(errno);
}

void SelfTest::Send() {
  ticks_ = 0;
  ++round_;
  sent_.clear();
  const bool suspicious =
      std::any_of(strikes_.begin(), strikes_.end(), [](const auto& each) { return each.second > 0; });
  before_ = suspicious ? ReadCounts() : std::vector<Counts>{};
  const DataPlaneSpec& spec = instance_.data_plane().spec();
  const std::vector<Way> ways = Ways();
  // A way that is tested no longer has no strikes.
  std::erase_if(strikes_, [&](const auto& each) {
    return std::none_of(ways.begin(), ways.end(),
                        [&](const Way& way) { return std::pair(way.service, way.uplink) == each.first; });
  });
  if (ways.empty()) {
    problems_.clear();
    broken_.clear();
  }
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
    counts.push_back({.out = service.stats.counters[HR_SELF_TESTS],
                      .back = service.stats.counters[HR_SELF_TESTS_BACK],
                      .requests = service.stats.counters[HR_REQUESTS]});
  return counts;
}

// Why the kernel's routing does not give packets to this service to the proxy; empty: it does. What the test loses
// then, no rule of a firewall has ended.
std::optional<Problem> SelfTest::Misrouted(const ServiceSpec& service) const {
  const net::IpAddress vip = VipOf(service);
  const auto addresses = net::ListAddresses();
  if (!addresses.ok()) return std::nullopt;
  const auto route = net::LookUpRoute(
      {.destination = vip, .sender = {.protocol = IPPROTO_UDP, .destination_port = service.port}}, *addresses);
  if (!route.ok()) return std::nullopt;
  const std::string subject = absl::StrCat("service ", service.name, ": ");
  if (route->reach == net::Reach::kLocal)
    return Problem{ProblemCode::kVipLocal,
                   absl::StrCat(subject, "the vip ", service.vip, " is an address of this host")};
  if (route->reach != net::Reach::kRouted) {
    return Problem{ProblemCode::kVipRoutedElsewhere,
                   absl::StrCat(subject, "the kernel has no route to ", service.vip, ": ", route->reason)};
  }
  const std::vector<net::VipRoute> leading = instance_.LeadingRoutes();
  const bool led = std::any_of(leading.begin(), leading.end(), [&](const net::VipRoute& each) {
    return each.vip == vip && each.ifindex == route->ifindex;
  });
  if (!led && route->ifindex != instance_.links().proxy.link.ifindex)
    return Problem{ProblemCode::kVipRoutedElsewhere,
                   absl::StrCat(subject, "the kernel ", net::DescribeDetour(vip, *route))};
  if (!route->source.has_value())
    return Problem{ProblemCode::kNoSource,
                   absl::StrCat(subject, "this host has no address from which packets to ", service.vip, " can come")};
  return std::nullopt;
}

// Of one way at a time: the counters are a service's, so with several uplinks the first that lost something is told.
Problem SelfTest::WhatIsWrong(const Sent& sent, const Counts& before, const Counts& now) const {
  const ServiceSpec& service = instance_.data_plane().spec().services[sent.way.service];
  const net::IpAddress vip = VipOf(service);
  const std::string way = instance_.RouteOf(vip);
  if (std::optional<Problem> misrouted = Misrouted(service)) return *misrouted;
  const auto sends = static_cast<uint64_t>(std::count_if(
      sent_.begin(), sent_.end(), [&](const Sent& each) { return each.way.service == sent.way.service; }));
  if (!sent.error.empty()) {
    return {ProblemCode::kRulesOut, absl::StrCat(service.name, ": a packet to ", service.vip, " port ", service.port,
                                                 " cannot be sent on this host (", sent.error, "). It leaves by ", way,
                                                 ", which the rules must let out")};
  }
  if (now.out < before.out + sends) {
    return {
        ProblemCode::kRulesOut,
        absl::StrCat(service.name, ": packets to ", service.vip, " port ", service.port, " do not leave by ", way,
                     ": something on this host ends them before",
                     instance_.IsInPlace(vip) && net::FindLink("cilium_host").ok()
                         ? ". Cilium is here: where its socket load balancer (kubeProxyReplacement) gives sockets a "
                           "backend of the ClusterIP, no packet goes to it, and `in_place` cannot be; give clients "
                           "a VIP that no Service has"
                         : "")};
  }
  if (now.back < before.back + sends) {
    const std::string uplink = net::LinkName(static_cast<int>(sent.way.uplink));
    const auto programs = instance_.ProgramsBeforeOurs(static_cast<int>(sent.way.uplink));
    return {ProblemCode::kProgramBefore,
            programs.ok() && !programs->empty()
                ? absl::StrCat(service.name, ": answers that come in by ", uplink,
                               " do not reach the reply program. Before it runs ", net::Join(*programs),
                               ": it must return TC_ACT_UNSPEC for packets of the backends, or run behind ours")
                : absl::StrCat(service.name, ": answers that come in by ", uplink, " do not reach the reply program")};
  }
  return {ProblemCode::kRulesIn,
          absl::StrCat(service.name, ": answers of ", service.vip, " port ", service.port, " come in by ", way,
                       " and reach no socket: a firewall rule or a filter of sources ends them")};
}

// True: a VIP's route leads another way now.
bool SelfTest::Judge() {
  std::vector<Counts> now;
  std::vector<Problem> problems;
  std::set<int> ended_before_ours;  // at these uplinks
  std::set<net::IpAddress> lost;    // a datagram to these VIPs, at least
  std::set<net::IpAddress> passed;  // likewise
  ended_by_rules_.clear();
  broken_.clear();
  for (const Sent& sent : sent_) {
    const net::IpAddress vip = VipOf(instance_.data_plane().spec().services[sent.way.service]);
    int& strikes = strikes_[{sent.way.service, sent.way.uplink}];
    if (CameBack(sent)) {
      strikes = 0;
      passed.insert(vip);
      continue;
    }
    ++strikes;
    lost.insert(vip);
    if (before_.empty()) continue;  // the next one will tell where
    if (now.empty()) now = ReadCounts();
    if (sent.way.service >= std::min(now.size(), before_.size())) continue;
    const Counts& then = before_[sent.way.service];
    const Problem problem = WhatIsWrong(sent, then, now[sent.way.service]);
    if (strikes < kStrikes) continue;
    if (problem.code == ProblemCode::kProgramBefore) ended_before_ours.insert(static_cast<int>(sent.way.uplink));
    // Rules that end the daemon's test on its way out, and let clients' requests pass, are no reason to move those.
    const bool clients_pass = now[sent.way.service].requests != then.requests;
    if (problem.code != ProblemCode::kRulesOut || !clients_pass) broken_.insert(vip);
    if (problem.code == ProblemCode::kRulesIn || (problem.code == ProblemCode::kRulesOut && !clients_pass))
      ended_by_rules_.insert(vip);
    const bool told =
        std::any_of(problems.begin(), problems.end(), [&](const Problem& each) { return each == problem; });
    if (!told) problems.push_back(problem);
  }
  sent_.clear();
  std::erase_if(broken_, [&](const net::IpAddress& vip) { return passed.contains(vip); });
  bool moved = false;
  for (const int uplink : ended_before_ours) moved |= StepForward(uplink);
  if (moved) return false;  // the next round tells whether it helped
  bool rerouted = running_ && JudgeTrials(lost);
  if (running_)
    for (const net::IpAddress& vip : ended_by_rules_) rerouted |= TryOtherWay(vip);
  if (rerouted) return true;  // likewise
  if (problems != problems_)
    for (const Problem& problem : problems) LogError(problem.text);
  problems_ = std::move(problems);
  return false;
}

bool SelfTest::Reroute(const std::set<net::IpAddress>& vips, bool by_uplink) {
  for (const Problem& problem : instance_.RouteByUplink(vips, by_uplink)) LogError(problem.ToString());
  return std::all_of(vips.begin(), vips.end(),
                     [&](const net::IpAddress& vip) { return instance_.IsLedByUplink(vip) == by_uplink; });
}

// For as long as nothing is lost there; one lost datagram ends it, so that a way which is worse costs a moment.
bool SelfTest::JudgeTrials(const std::set<net::IpAddress>& lost) {
  bool rerouted = false;
  for (auto& [vip, other] : other_ways_) {
    if (!other.on_trial) continue;
    if (!lost.contains(vip)) {
      if (++other.passed < kPassedTrial) continue;
      other = {};
      LogWarning("rules of this host ended packets to ", vip.ToString(),
                 " by the way that they took; they are routed by ", instance_.RouteOf(vip), " now");
      continue;
    }
    other.on_trial = false;
    other.pause_ns = std::min(std::max(2 * other.pause_ns, kFirstPauseNs), kLongestPauseNs);
    other.not_before_ns = MonotonicNs() + other.pause_ns;
    Reroute({vip}, !instance_.IsLedByUplink(vip));
    rerouted = true;
  }
  return rerouted;
}

// The route to this VIP leads the other way, on trial.
bool SelfTest::TryOtherWay(const net::IpAddress& vip) {
  OtherWay& other = other_ways_[vip];
  if (!instance_.MayChooseRoute() || other.on_trial || MonotonicNs() < other.not_before_ns) return false;
  const bool by_uplink = !instance_.IsLedByUplink(vip);
  if (!Reroute({vip}, by_uplink)) {
    instance_.RouteByUplink({vip}, !by_uplink);
    other.not_before_ns = MonotonicNs() + kFirstPauseNs;
    return false;  // no uplink can lead there
  }
  other.on_trial = true;
  other.passed = 0;
  return true;
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
    lost = std::any_of(strikes_.begin(), strikes_.end(),
                       [](const auto& each) { return each.second > 0 && each.second < kStrikes; });
  }
  const bool on_trial =
      std::any_of(other_ways_.begin(), other_ways_.end(), [](const auto& each) { return each.second.on_trial; });
  if (changed || lost || rerouted || on_trial || ++ticks_ >= kTicksBetween) Send();
  return rerouted;
}

absl::Status SelfTest::Once() {
  absl::Status status = OnceAsRouted();
  const std::set<net::IpAddress> ended = ended_by_rules_;
  if (status.ok() || ended.empty() || !instance_.MayChooseRoute()) return status;
  std::set<net::IpAddress> by_interface, by_uplink;
  for (const net::IpAddress& vip : ended) (instance_.IsLedByUplink(vip) ? by_uplink : by_interface).insert(vip);
  Reroute(by_interface, true);
  Reroute(by_uplink, false);
  strikes_.clear();
  if (OnceAsRouted().ok()) {
    for (const net::IpAddress& vip : ended)
      LogWarning("rules of this host end packets to ", vip.ToString(), " by the other way; they are routed by ",
                 instance_.RouteOf(vip));
    return absl::OkStatus();
  }
  return status;  // of the way that is taken first: what stands in its way is the first thing to mend
}

absl::Status SelfTest::OnceAsRouted() {
  problems_.clear();
  for (int i = 0; i < 2 * kStrikes + 1; ++i) {
    Send();
    const absl::Time end = net::MonotonicNow() + kTick;
    while (net::MonotonicNow() < end) {
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
  // Where it was lost could not be found, or may come by itself: it is tested again every second.
  if (std::all_of(problems_.begin(), problems_.end(), [](const Problem& each) { return MayCome(each.code); }))
    return absl::OkStatus();
  return absl::FailedPreconditionError(JoinProblems(problems_, "\n"));
}

}  // namespace hedgerow
