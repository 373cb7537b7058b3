// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/reads.h"

#include <algorithm>

namespace hedgerow::raft {

void MoveExpired(std::deque<LocalRead>& reads, uint64_t now_ns, std::vector<LocalRead>& expired) {
  const auto late = std::stable_partition(reads.begin(), reads.end(),
                                          [now_ns](const LocalRead& read) { return read.deadline_ns > now_ns; });
  expired.insert(expired.end(), late, reads.end());
  reads.erase(late, reads.end());
}

void LeaderReads::Add(const LedRead& read) {
  const auto same = [&read](const LedRead& earlier) { return earlier.origin == read.origin; };
  const auto found = read.origin.IsSet() ? std::ranges::find_if(waiting_, same) : waiting_.end();
  if (found == waiting_.end()) {
    waiting_.push_back(read);
  } else {
    *found = read;
  }
}

void LeaderReads::StartRound(uint64_t round, LogIndex commit) {
  for (LedRead& read : waiting_) {
    read.round = round;
    read.index = commit;
    confirming_.push_back(read);
  }
  waiting_.clear();
}

std::vector<LedRead> LeaderReads::TakeConfirmed(uint64_t quorum_round) {
  std::vector<LedRead> confirmed;
  while (!confirming_.empty() && confirming_.front().round <= quorum_round) {
    confirmed.push_back(confirming_.front());
    confirming_.pop_front();
  }
  return confirmed;
}

std::vector<LocalRead> LeaderReads::TakeLocal() {
  std::vector<LocalRead> local;
  for (const auto* reads : {&confirming_, &waiting_}) {
    for (const LedRead& read : *reads) {
      if (!read.origin.IsSet()) local.push_back(read.local);
    }
  }
  confirming_.clear();
  waiting_.clear();
  return local;
}

void FollowerReads::Ask(uint64_t now_ns) {
  // R8: the reads that join a repeated question came after it was first asked. An answer to the first must not
  // fit, because it may be older than they are.
  ++number_;
  asked_.insert(asked_.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  asked_ns_ = now_ns;
  if (timed_ == 0) {
    timed_ = number_;
    timed_ns_ = now_ns;
  }
  heard_ = 0;
  furthest_ = {};
}

// As RFC 6298 smooths round trips. `most_ns` counts of a longer time, so that a stall teaches little. Where a majority
// is quicker than the leader, a later question has mostly taken the timed one's place there (LeaderReads::Add): the
// answer to it came when the timed one's would have come.
void FollowerReads::LeaderAnswered(ReadId id, uint64_t now_ns, uint64_t most_ns) {
  if (timed_ == 0 || id.incarnation != incarnation_ || id.number < timed_) return;
  leader_took_ns_ = (7 * leader_took_ns_ + std::min(now_ns - std::min(now_ns, timed_ns_), most_ns)) / 8;
  timed_ = 0;
}

void FollowerReads::Heard(ReadId id, size_t member, const EntryId& last) {
  if (id != this->id()) return;
  heard_ |= 1u << member;
  furthest_ = Further(furthest_, last);
}

void FollowerReads::Forget() {
  timed_ = leader_took_ns_ = 0;
  waiting_.insert(waiting_.begin(), asked_.begin(), asked_.end());
  asked_.clear();
}

std::vector<LocalRead> FollowerReads::TakeAnswered(ReadId id) {
  std::vector<LocalRead> answered;
  if (id != this->id()) return answered;
  answered.assign(asked_.begin(), asked_.end());
  asked_.clear();
  return answered;
}

std::vector<LocalRead> FollowerReads::TakeExpired(uint64_t now_ns) {
  std::vector<LocalRead> expired;
  MoveExpired(asked_, now_ns, expired);
  MoveExpired(waiting_, now_ns, expired);
  return expired;
}

std::vector<LocalRead> FollowerReads::TakeAll() {
  Forget();
  std::vector<LocalRead> all(waiting_.begin(), waiting_.end());
  waiting_.clear();
  return all;
}

}  // namespace hedgerow::raft
