// SPDX-License-Identifier: Apache-2.0
//
// The simulated network: datagrams that are lost, doubled, delayed, reordered or damaged; links that are cut,
// each way by itself, or slow. It knows addresses only: nodes are 1 to HR_RAFT_MAX_MEMBERS, clients come after.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bpf/node/raft/decisions_abi.h"
#include "cluster/sim/plan.h"
#include "cluster/sim/random.h"
#include "cluster/sim/virtual_time.h"

namespace hedgerow::sim {

constexpr uint64_t kFirstClient = HR_RAFT_MAX_MEMBERS + 1;
constexpr uint64_t kFirstMemcachedClient = 24;
constexpr uint64_t kStranger = 31;  // stranger.h

class Network {
 public:
  Network(VirtualTime& time, Random& random, NetworkPlan plan, SealedPlan sealed)
      : time_(time), random_(random), plan_(plan), sealed_(sealed) {}

  enum class Kind { kOther, kVote, kAck, kForward };

  // `delay_max_ns` bounds even the late ones.
  void Send(uint64_t from, uint64_t to, uint64_t delay_max_ns, const std::function<void()>& arrive,
            Kind kind = Kind::kOther);

  // A sealed datagram of a node for another: it goes to what DeliverTo has set. It may be damaged, and it is recorded:
  // recordings are sent again long after. One that would need fragments is lost.
  void SendDatagram(uint64_t from, uint64_t to, std::string bytes, Kind kind);
  using Deliver = std::function<void(uint64_t from, uint64_t to, const std::string& bytes)>;
  void DeliverTo(Deliver deliver) { deliver_ = std::move(deliver); }

  // What nodes have sealed for each other until now is believed by none of them any more: the key is another.
  void BeginEpoch() { ++epoch_; }
  uint64_t epoch() const { return epoch_; }

  // Acknowledgements for this node stay where they are from now on, until KeepHeld, and those of before are
  // lost. LetGo lets them go on, whatever has become of the node meanwhile.
  void HoldAcksFor(uint64_t to) {
    holds_for_ = to;
    held_.clear();
  }
  void KeepHeld() { holds_for_ = 0; }
  void LetGo(uint64_t within_ns) {
    for (std::function<void()>& arrive : held_) time_.After(random_.Below(within_ns), std::move(arrive));
    held_.clear();
  }

  // Cuts add up, and each must be healed.
  void Cut(uint64_t from, uint64_t to) { ++At(from, to).cut; }
  void Heal(uint64_t from, uint64_t to) {
    int& cut = At(from, to).cut;
    if (cut > 0) --cut;
  }
  void Slow(uint64_t from, uint64_t to, uint64_t delay_ns) { At(from, to).slow_ns = delay_ns; }
  // Appends of this node that carry entries are lost from now on, or not; of sealed datagrams, those that are long.
  void FilterEntriesOf(uint64_t from, bool filter) { entries_filtered_[from] = filter; }
  bool FiltersEntriesOf(uint64_t from) const { return entries_filtered_[from]; }

  // The faults are over, for the end of the run.
  void Calm() {
    HoldAcksFor(0);
    links_ = {};
    entries_filtered_ = {};
    sealed_.flip_ppm = 0;
    plan_.drop_ppm = plan_.corrupt_ppm = plan_.late_ppm = plan_.late_votes_ppm = 0;
  }

  uint64_t sent() const { return sent_; }
  uint64_t lost() const { return lost_; }

 private:
  struct Link {
    int cut = 0;
    uint64_t slow_ns = 0;
  };
  static constexpr uint64_t kAddresses = 32;

  // What one delivery does; may be called for more than one.
  void SendOn(uint64_t from, uint64_t to, uint64_t delay_max_ns, const std::function<void()>& arrive, Kind kind);
  void FlipBits(std::string& bytes);
  struct Recorded {
    uint64_t from = 0;
    uint64_t to = 0;
    std::string bytes;
  };
  static constexpr size_t kRecordedMax = 256;
  std::function<void()> SealedFor(uint64_t from, uint64_t to, const std::function<void()>& arrive, Kind kind);

  Link& At(uint64_t from, uint64_t to) { return links_[from * kAddresses + to]; }

  VirtualTime& time_;
  Random& random_;
  NetworkPlan plan_;
  SealedPlan sealed_;
  Deliver deliver_;
  std::vector<Recorded> recorded_;
  std::array<Link, kAddresses * kAddresses> links_{};
  std::array<bool, kAddresses> entries_filtered_{};
  uint64_t holds_for_ = 0;
  std::vector<std::function<void()>> held_;
  uint64_t sent_ = 0;
  uint64_t lost_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace hedgerow::sim
