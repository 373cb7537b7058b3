// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/failure_detector.h"

#include <algorithm>
#include <utility>

namespace hedgerow::raft {
namespace {

// Elections that fail twice in a row say that the timeout is too short. Three doublings bridge a floor of 20 ms to
// round trips of 100 ms; more would only delay the recovery from a long partition.
constexpr uint32_t kDoublingsMax = 3;

}  // namespace

void FailureDetector::SetVoters(size_t self, uint32_t voters, uint32_t next_voters) {
  self_ = self;
  voters_ = voters;
  next_voters_ = next_voters;
  Measure();
}

void FailureDetector::ForgetRoundTrips(size_t member) {
  round_trips_.Forget(member);
  Measure();
}

void FailureDetector::AddRoundTrip(size_t member, uint64_t duration_ns) {
  round_trips_.Add(member, duration_ns);
  Measure();
}

void FailureDetector::Measure() {
  round_trips_timeout_ns_ = round_trips_.ElectionTimeout_ns(options_, self_, voters_, next_voters_);
}

void FailureDetector::Watch(uint64_t now_ns, const Watched& watched) {
  if (watched == watched_) return;
  if (watched.leads || watched_.leads) {
    round_trips_.ForgetDelays();
    Measure();
  }
  watched_ = watched;
  pause_ns_ = 0;
  if (!watched.leads) return;
  leader_timeout_ns_ = 0;  // else the longest timeout of any leader would be handed on for ever
  failed_elections_ = 0;
  polled_ns_ = now_ns;
  for (size_t member = 0; member < peers_.size(); ++member) WatchPeer(member, now_ns);
}

void FailureDetector::LeaderHeard(uint64_t now_ns, uint64_t heard_ns) {
  leader_heard_ns_ = heard_ns;
  failed_elections_ = 0;
  EndPause(now_ns);
}

void FailureDetector::SetLeaderTimeout(uint64_t timeout_ns) {
  leader_timeout_ns_ = std::min(timeout_ns, options_.election_cap_ns);
}

bool FailureDetector::LeaderStalled(uint64_t now_ns) {
  if (now_ns - leader_heard_ns_ >= options_.stall_max_floors * options_.election_floor_ns) return false;
  stalled_ns_ = now_ns;
  return true;
}

void FailureDetector::WatchPeer(size_t member, uint64_t now_ns) { peers_[member] = {.heard_ns = now_ns}; }

void FailureDetector::PeerHeard(size_t member, uint64_t heard_ns, uint64_t loop_seq) {
  Peer& peer = peers_[member];
  if (loop_seq == peer.loop_seq) return;
  peer.loop_seq = loop_seq;
  peer.heard_ns = std::max(peer.heard_ns, heard_ns);
}

void FailureDetector::PeerConfirmed(size_t member, uint64_t now_ns) {
  peers_[member].confirmed_ns = std::max(peers_[member].confirmed_ns, now_ns);
}

void FailureDetector::EndPause(uint64_t now_ns) {
  if (const uint64_t heard = heard_ns(); heard != pause_from_ns_) {
    pause_from_ns_ = heard;
    // A node that waits keeps others waiting, so a longer pause counts as this.
    const uint64_t most_ns = options_.pause_max_floors * options_.election_floor_ns;
    const uint64_t pause_ns = std::min(std::exchange(pause_ns_, 0), most_ns);
    if (pause_ns > LongestPause_ns(now_ns)) {
      longest_ns_ = pause_ns;
      longest_at_ns_ = now_ns;
    }
  }
  tolerated_ns_ = std::min(options_.pauses_per_timeout * LongestPause_ns(now_ns), options_.election_cap_ns);
}

uint64_t FailureDetector::LongestPause_ns(uint64_t now_ns) const {
  const uint64_t age_ns = now_ns - longest_at_ns_;
  if (age_ns >= kFade_ns) return 0;
  return longest_ns_ - static_cast<uint64_t>(static_cast<double>(longest_ns_) * static_cast<double>(age_ns) /
                                             static_cast<double>(kFade_ns));
}

void FailureDetector::Poll(uint64_t now_ns) {
  EndPause(now_ns);
  if (now_ns > pause_from_ns_) pause_ns_ = std::max(pause_ns_, now_ns - pause_from_ns_);
  if (watched_.leads) pause_ns_ = std::max(pause_ns_, now_ns - polled_ns_);
  polled_ns_ = now_ns;
}

// Calm hosts hear each other four times before it.
uint64_t FailureDetector::next_poll_ns() const {
  if (!watches()) return UINT64_MAX;
  return std::max(polled_ns_ + kPoll_ns, heard_ns() + network_timeout_ns() / 2);
}

uint64_t FailureDetector::network_timeout_ns() const {
  const uint64_t timeout_ns = std::max(leader_timeout_ns_, round_trips_timeout_ns_);
  return std::min(timeout_ns << std::min(failed_elections_ / 2, kDoublingsMax), options_.election_cap_ns);
}

uint64_t FailureDetector::timeout_ns() const { return std::max(network_timeout_ns(), tolerated_ns_); }

uint64_t FailureDetector::heard_ns() const { return watched_.leads ? QuorumHeard_ns(false) : leader_heard_ns_; }

uint64_t FailureDetector::suspected_from_ns() const {
  if (!watches()) return 0;
  return timeout_ns() + (watched_.leads ? QuorumHeard_ns(true) : std::max(leader_heard_ns_, stalled_ns_));
}

uint64_t FailureDetector::QuorumHeard_ns(bool or_confirmed) const {
  std::array<__u64, HR_RAFT_MAX_MEMBERS> heard{};
  for (size_t member = 0; member < heard.size(); ++member) {
    const Peer& peer = peers_[member];
    heard[member] = or_confirmed ? std::max(peer.heard_ns, peer.confirmed_ns) : peer.heard_ns;
    if (member == self_) heard[member] = UINT64_MAX;
  }
  // A majority of one has no one to lose.
  return std::min<uint64_t>(hr_raft_quorum_value(heard.data(), voters_, next_voters_), UINT64_MAX / 2);
}

uint64_t FailureDetector::LeaseEnd_ns(uint64_t now_ns, uint64_t least_ns) const {
  return now_ns + std::max(least_ns, tolerated_ns_);
}

}  // namespace hedgerow::raft
