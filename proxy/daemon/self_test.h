// SPDX-License-Identifier: Apache-2.0
//
// Does the proxy see its packets? Once a second, for each service and uplink, a datagram goes from a socket of the
// daemon to the VIP, and has to come back (bpf/proxy/self_test.bpf.h): through this host's firewall, the splitter, the
// programs in front of ours on the uplink, the reply program, and the firewall again. What ends it there ends the
// clients' packets too, whatever it is; where it was lost tells the cause (docs/adr/0047). A program that was put in
// front of ours is noticed within a tick, and where it ends our packets, ours goes to the front. Where rules of the
// host end them, the route to that VIP is tried the other way (docs/adr/0055). Used by the daemon, on its event loop's
// thread.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "net/ip_address.h"
#include "net/unique_fd.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/problems/problem.h"

namespace hedgerow {

class SelfTest {
 public:
  // How often Tick() is called: as long as a datagram may take.
  static constexpr absl::Duration kTick = absl::Milliseconds(100);
  // So many in a row must be lost before it is a problem: one may be lost by chance, on a host without a processor to
  // spare.
  static constexpr int kStrikes = 3;

  explicit SelfTest(ProxyInstance& instance) : instance_(instance) {}

  // Judges what was sent at the tick before, and sends anew when it is time, or when something was lost or has changed.
  // True: a VIP's route leads another way now.
  bool Tick();
  // What was lost kStrikes times in a row, and has not come back since. Of the family `network` where the routing
  // explains it.
  const std::vector<Problem>& problems() const { return problems_; }

  // VIPs whose clients get nothing by any way, as last judged.
  const std::set<net::IpAddress>& broken() const { return broken_; }

  // Before the daemon says that it is up: FailedPrecondition with every problem, after two seconds at most.
  absl::Status Once();

 private:
  // A way to be tested: a service, and an uplink by which some of its backends are reached.
  struct Way {
    size_t service = 0;  // in the specification
    uint32_t slot = 0;   // of one of these backends
    uint32_t uplink = 0;
  };
  struct Sent {
    Way way;
    uint64_t number = 0;
    net::UniqueFd socket;
    std::string error{};  // why it could not be sent
  };
  struct Counts {
    uint64_t out = 0, back = 0, requests = 0;
  };
  // Of a VIP whose packets end by rules of the host: the other way is taken for as long as the test passes there.
  struct OtherWay {
    bool on_trial = false;
    int passed = 0;             // rounds of the trial
    int64_t not_before_ns = 0;  // CLOCK_MONOTONIC: of the next trial
    int64_t pause_ns = 0;       // after the last one that failed
  };

  std::vector<Way> Ways() const;
  void Send();
  static void SendOne(Sent& sent, const ServiceSpec& service, uint64_t tag);
  bool Judge();
  bool JudgeTrials(const std::set<net::IpAddress>& lost);
  bool TryOtherWay(const net::IpAddress& vip);
  bool Reroute(const std::set<net::IpAddress>& vips, bool by_uplink);
  absl::Status OnceAsRouted();
  bool CameBack(const Sent& sent) const;
  std::optional<Problem> Misrouted(const ServiceSpec& service) const;
  Problem WhatIsWrong(const Sent& sent, const Counts& before, const Counts& now) const;
  std::vector<Counts> ReadCounts() const;
  bool StepForward(int uplink);

  ProxyInstance& instance_;
  std::vector<Sent> sent_;
  std::vector<Counts> before_;  // at the last Send(), by service; empty: nothing was lost before it
  int ticks_ = 0;               // since the last Send()
  bool running_ = false;        // not Once(), which tries the other way when it has heard the whole
  uint64_t round_ = 0;
  std::map<std::pair<size_t, uint32_t>, int> strikes_;  // by service and uplink
  std::vector<uint32_t> order_;                         // the programs before ours, as last seen
  std::set<net::IpAddress> ended_by_rules_;             // VIPs; as last judged
  std::set<net::IpAddress> broken_;
  std::map<net::IpAddress, OtherWay> other_ways_;
  std::vector<Problem> problems_;
};

}  // namespace hedgerow
