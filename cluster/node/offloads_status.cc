// SPDX-License-Identifier: Apache-2.0
//
// Offloads, the part that reports: which offload is on and why not, and the counters of the kernel part.
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cluster/node/offloads.h"

namespace hedgerow::node {
namespace {

// By the number of the event.
constexpr std::array<absl::string_view, HR_NODE_EVENT_COUNT> kEventNames = {
    "heartbeat_answered", "heartbeat_counted",  "pre_vote_answered",
    "vote_refused",       "vote_granted",       "vote_ignored",
    "vote_counted",       "append_stored",      "ack_counted",
    "woken_for_commit",   "woken_for_round",    "woken_for_votes",
    "woken_for_ack",      "passed_kind",        "passed_fenced",
    "passed_lease",       "passed_term",        "passed_role",
    "passed_hole",        "passed_batch",       "passed_size",
    "passed_ring_full",   "passed_incarnation", "passed_malformed",
    "dropped_tag",        "dropped_replayed",   "dropped_too_old",
    "broadcast",          "broadcast_copies",   "broadcast_failed",
    "resigned",           "passed_epoch",       "passed_source",
    "answer_failed",      "passed_suspicion",   "passed_configuration",
    "passed_no_member",   "doorbell",           "append_stored_unsaid",
    "dropped_key"};

}  // namespace

void Offloads::AddTo(NodeStatus& status) {
  const OffloadsConfig& wanted = config_.offloads;
  const bool disk = config_.durability == Durability::kDisk;
  Found found{.xdp = {.on = false, .detail = why_not_}, .broadcast = {.on = false, .detail = why_not_}};
  if (kernel_ != nullptr) {
    absl::MutexLock lock(&mutex_);
    found = found_;
  }
  const offload::HookStatus& xdp = found.xdp;
  const auto add = [&status](const char* name, bool is_wanted, const offload::HookStatus& hook, const char* unless) {
    v1::Offload& reported = *status.offloads.Add();
    reported.set_name(name);
    reported.set_on(is_wanted && hook.on && unless == nullptr);
    reported.set_detail(!is_wanted ? "switched off" : unless != nullptr ? unless : hook.detail);
  };
  add("heartbeat", wanted.heartbeat, xdp, nullptr);
  add("vote", wanted.vote, xdp, nullptr);
  add("append", wanted.append, xdp, disk ? "durability is disk" : nullptr);
  add("quorum", wanted.quorum, xdp, nullptr);
  add("broadcast", wanted.broadcast, found.broadcast,
      found.neighbours_why_not.empty() ? nullptr : found.neighbours_why_not.c_str());
  const std::string clock =
      watch_ == nullptr
          ? ""
          : absl::StrCat("clock on htb", found.unreachable.empty() ? "" : absl::StrCat("; ", found.unreachable));
  add("watchdog", wanted.watchdog,
      {.on = watch_ != nullptr,
       .detail = kernel_ == nullptr  ? why_not_
                 : watch_ == nullptr ? watch_why_not_
                                     : clock},
      nullptr);
  if (kernel_ == nullptr) return;
  const hr_node_stats counters = kernel_->Counters();
  for (size_t event = 0; event < HR_NODE_EVENT_COUNT; ++event) {
    if (kEventNames[event].empty()) continue;
    const bool resigned = event == HR_NODE_EVENT_RESIGNED && watch_ != nullptr;
    status.counters.emplace_back("kernel", resigned ? watch_->clock().resigns : counters.events[event],
                                 std::string(kEventNames[event]));
  }
  // Three reasons had other names in 0.2, which are counted beside the new ones in 0.3 and then go.
  status.counters.emplace_back("kernel", counters.events[HR_NODE_EVENT_PASSED_HOLE], "passed_gap");
  status.counters.emplace_back("kernel", counters.events[HR_NODE_EVENT_DOORBELL], "noticed");
  if (watch_ != nullptr) {
    for (const char* name : {"stall_hints", "late"})
      status.counters.emplace_back("kernel", watch_->clock().stall_hints, name);
  }
  fences_.AddTo(status.histograms, "fence");
  status.counters.emplace_back("kernel_detached", detached_.load(std::memory_order_relaxed));
  status.counters.emplace_back("kernel_pinned_again", pinned_again_.load(std::memory_order_relaxed));
  if (!found.pins_why_not.empty()) {
    status.not_served.push_back(absl::StrCat(
        "what the kernel holds for this node is pinned no more, and cannot be pinned again (", found.pins_why_not,
        "): ", disk ? "restart it" : "stop it in order (systemctl stop), since after a crash it would be LOST"));
  }
  const offload::KernelBridgeStatistics& bridge = bridge_->statistics();
  AddCounts(status, "kernel_bridge",
            {{"fence", bridge.fences},
             {"open", bridge.opens},
             {"lease", bridge.leases},
             {"append", bridge.appends},
             {"vote", bridge.votes},
             {"adopted", bridge.adopted}});
}

}  // namespace hedgerow::node
