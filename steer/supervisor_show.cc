// SPDX-License-Identifier: Apache-2.0
//
// What a supervisor reports of its group.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "steer/socket_state.h"
#include "steer/supervisor.h"

namespace hedgerow::steer {
namespace {

constexpr int kFailing = 4;  // ends in a row, each soon after its start, that are a problem

}  // namespace

std::string Supervisor::Text() const {
  std::vector<std::string> transports;
  for (const Transport transport : settings_.transports()) transports.push_back(TransportText(transport));
  const int workers = CountWorkers();
  return absl::StrCat("group ", settings_.places.name, ": ", settings_.listen.ToString(), " (", absl::StrJoin(transports, ", "), "), ", workers,
                      workers == 1 ? " worker" : " workers");
}

std::string Supervisor::StateOf(const Slot& slot) const {
  if (!slot.has_worker()) return slot.empty ? "empty" : "restarting";
  if (slot.is_silent) return "silent";
  if (settings_.heartbeat > absl::ZeroDuration() && !slot.heard) return "starting";
  if (slot.leaving) return "leaving";
  return slot.drained ? "drained" : "serving";
}

v1::Slot Supervisor::ShowSlot(const Slot& slot, const GroupCounts& counts) const {
  v1::Slot out;
  const int64_t now = MonotonicNs();
  out.set_slot(static_cast<uint32_t>(slot.number));
  out.set_stand_in(slot.stand_in);
  out.set_pid(slot.worker.pid());
  out.set_state(StateOf(slot));
  out.set_weight(slot.stand_in ? 0 : slot.weight);
  out.set_buckets(table_->BucketsOf(slot.number));
  out.set_restarts(slot.restarts);
  const int64_t since = !slot.has_worker() ? slot.down_since_ns : slot.is_silent ? slot.heard_ns : slot.started_ns;
  out.set_seconds_in_state(static_cast<double>(now - since) / 1e9);
  const hr_steer_slot_counts& count = counts.slots[static_cast<size_t>(slot.number)];
  out.set_selected_udp(count.selected_udp);
  out.set_selected_tcp(count.selected_tcp);
  out.set_migrated(count.migrated);
  out.set_empty_udp(count.empty_udp);
  out.set_empty_tcp(count.empty_tcp);
  if (settings_.udp) {
    const UdpSocketState state = UdpState(slot.fd(Transport::kUdp));
    out.set_udp_dropped(state.dropped);
    out.set_udp_queued_bytes(state.queued_bytes);
  }
  if (settings_.tcp) out.set_tcp_backlog(TcpBacklog(slot.fd(Transport::kTcp)));
  out.set_last_exit(slot.last_exit);
  return out;
}

std::vector<std::string> Supervisor::Problems() const {
  std::vector<std::string> problems = watch_->problems();
  if (!table_problem_.empty()) problems.push_back(table_problem_);
  if (!record_problem_.empty()) problems.push_back(record_problem_);
  if (!keeper_.has_value()) problems.push_back("keeper: no process keeps the sockets for the case that this one dies");
  for (const auto& [number, slot] : slots_) {
    if (settings_.udp && slot.has_worker() && IsSpoilt(slot.fd(Transport::kUdp))) {
      problems.push_back(absl::StrCat("slot ", number, ": worker ", slot.worker.pid(),
                                      " has connected its UDP socket, or shut it down: sources do not reach it until it ends"));
    }
    if (slot.is_silent) problems.push_back(absl::StrCat("slot ", number, ": worker ", slot.worker.pid(), " sends no WATCHDOG=1"));
    if (slot.failures >= kFailing) {
      problems.push_back(absl::StrCat("slot ", number, ": its worker has ended ", slot.failures, " times in a row soon after its start (",
                                      slot.last_exit, ")"));
    }
  }
  return problems;
}

absl::StatusOr<v1::Group> Supervisor::Show(bool buckets) {
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  v1::Group group;
  group.set_name(settings_.places.name);
  group.set_address(settings_.listen.ToString());
  for (const Transport transport : settings_.transports()) group.add_transports(TransportText(transport));
  group.set_supervisor_pid(getpid());
  group.set_mode("run");
  group.set_empty(settings_.EmptyText());
  group.set_empty_after_seconds(absl::ToDoubleSeconds(settings_.empty_after));
  for (const auto& [number, slot] : slots_) *group.add_slots() = ShowSlot(slot, *counts);
  if (buckets) ShowBuckets(*table_, *counts, group);
  group.set_pinned_sources(table_->pins());
  group.set_pinned(counts->all.pinned);
  group.set_pins_full(counts->all.pins_full);
  group.set_unreadable(counts->all.unreadable);
  for (const std::string& problem : Problems()) group.add_problems(problem);
  group.set_ipv6_prefix(kernel_->config().ipv6_prefix);
  group.set_devices(static_cast<uint32_t>(settings_.devices.size()));
  return group;
}

}  // namespace hedgerow::steer
