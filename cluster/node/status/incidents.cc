// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/status/incidents.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "config/scalar.h"
#include "operate/log.h"

namespace hedgerow::node {
namespace {

using raft::StandReason;

const char* Word(StandReason reason) {
  switch (reason) {
    case StandReason::kSilentLeader: return "silent_leader";
    case StandReason::kSilentMajority: return "silent_majority";
    case StandReason::kNoLeader: return "no_leader";
    case StandReason::kResigned: return "resigned";
    case StandReason::kAsked: return "asked";
  }
  return "unknown";
}

std::string Duration(uint64_t duration_ns) { return config::RoundedDurationNs(static_cast<int64_t>(duration_ns)); }

std::string WhyText(const raft::Stand& stand) {
  const std::string leader = stand.leader.IsSet() ? absl::StrCat("node ", stand.leader.value()) : "the leader";
  switch (stand.reason) {
    case StandReason::kSilentLeader: return absl::StrCat(leader, " led and was silent for ", Duration(stand.silent_ns));
    case StandReason::kSilentMajority:
      return absl::StrCat("this node led, and no majority was heard for ", Duration(stand.silent_ns));
    case StandReason::kNoLeader: return "no leader is known";
    case StandReason::kResigned: return absl::StrCat(leader, " resigned");
    case StandReason::kAsked: return absl::StrCat(leader, " hands over");
  }
  return "";
}

std::string Logged(std::string what) {
  LogInfo(what);
  return what;
}

}  // namespace

void Incidents::Keep(std::deque<Incident>& incidents, uint64_t now_ns, std::string what) {
  incidents.push_front({.at_ns = now_ns, .what = std::move(what)});
  if (incidents.size() > kKept) incidents.pop_back();
}

// A node that is cut off asks again and again, and would displace the first incident.
void Incidents::Stands(const raft::Stand& stand, uint64_t now_ns) {
  ++elections_[static_cast<size_t>(stand.reason)];
  if (stand.reason == StandReason::kNoLeader) return;
  Keep(stands_, now_ns, Logged(absl::StrCat("wanted to lead in term ", stand.term.value(), ": ", WhyText(stand))));
}

void Incidents::StepsDown(const raft::StepDown& step_down, uint64_t now_ns) {
  const bool disk = step_down.cause == raft::StallCause::kOwnDisk;
  Keep(stands_, now_ns,
       Logged(absl::StrCat("led, and asked node ", step_down.to.value(),
                           " to lead: ", disk ? "its disk had not finished a write for " : "nothing was committed for ",
                           Duration(step_down.stalled_ns))));
}

uint64_t Incidents::TurnBegins(uint64_t now_ns) {
  const bool slept = until_ns_ != 0;
  uint64_t still_ns = slept ? worked_ns_ + (now_ns > until_ns_ ? now_ns - until_ns_ : 0) : now_ns - turn_ns_;
  if (turn_ns_ == 0) still_ns = 0;
  turn_ns_ = now_ns;
  until_ns_ = 0;
  if (still_ns < still_ns_) return still_ns;
  ++stood_still_;
  Keep(still_, now_ns, absl::StrCat("its loop stood still for ", Duration(still_ns)));
  return still_ns;
}

void Incidents::Sleeps(uint64_t now_ns, uint64_t until_ns) {
  worked_ns_ = now_ns - turn_ns_;
  until_ns_ = std::max(until_ns, now_ns);
}

void Incidents::AddTo(uint64_t now_ns, NodeStatus& status) const {
  for (size_t i = 0; i < kReasons; ++i) {
    status.counters.emplace_back("elections_begun", elections_[i], Word(static_cast<StandReason>(i)));
  }
  status.counters.emplace_back("loop_stood_still", stood_still_);
  for (const std::deque<Incident>* incidents : {&stands_, &still_}) {
    for (const Incident& incident : *incidents) {
      v1::Incident& shown = *status.incidents.Add();
      shown.set_ago_ns(now_ns - std::min(now_ns, incident.at_ns));
      shown.set_what(incident.what);
    }
  }
  std::stable_sort(status.incidents.begin(), status.incidents.end(),
                   [](const v1::Incident& a, const v1::Incident& b) { return a.ago_ns() < b.ago_ns(); });
}

}  // namespace hedgerow::node
