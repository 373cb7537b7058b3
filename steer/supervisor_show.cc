// SPDX-License-Identifier: Apache-2.0
//
// What a supervisor reports of its group.
#include "absl/strings/str_cat.h"
#include "steer/process.h"
#include "steer/socket_state.h"
#include "steer/supervisor.h"

namespace hedgerow::steer {
namespace {

constexpr int kFailing = 4;  // ends in a row, each soon after its start, that are a problem

}  // namespace

std::map<int, Share*> Supervisor::Shares() {
  std::map<int, Share*> shares;
  for (auto& [number, slot] : slots_) shares[number] = &slot;
  return shares;
}

std::string Supervisor::WorkersText() {
  const int workers = CountWorkers();
  return absl::StrCat(workers, workers == 1 ? " worker" : " workers");
}

std::string Supervisor::StateOf(const Slot& slot) const {
  if (!slot.has_worker()) return table_->IsEmpty(slot.number) ? "empty" : "restarting";
  if (slot.is_silent) return "silent";
  if (settings_.heartbeat > absl::ZeroDuration() && !slot.heard) return "starting";
  if (slot.leaving) return "leaving";
  return slot.drained ? "drained" : "serving";
}

v1::Slot Supervisor::ShowWorker(int number) const {
  const Slot& slot = slots_.at(number);
  v1::Slot out;
  out.set_pid(slot.worker.pid);
  out.set_state(StateOf(slot));
  out.set_restarts(slot.restarts);
  const int64_t since = !slot.has_worker() ? slot.down_since_ns : slot.is_silent ? slot.heard_ns : slot.started_ns;
  out.set_seconds_in_state(static_cast<double>(MonotonicNs() - since) / 1e9);
  if (settings_.udp) {
    const UdpSocketState state = UdpState(slot.fd(Transport::kUdp));
    out.set_udp_dropped(state.dropped);
    out.set_udp_queued_bytes(state.queued_bytes);
  }
  if (settings_.tcp) out.set_tcp_backlog(TcpBacklog(slot.fd(Transport::kTcp)));
  out.set_last_exit(slot.last_exit);
  return out;
}

v1::RecordedSlot Supervisor::RecordWorker(int number) const {
  const Slot& slot = slots_.at(number);
  v1::RecordedSlot out;
  *out.mutable_worker() = ToRecord(slot.worker);
  out.set_restarts(slot.restarts);
  out.set_last_exit(slot.last_exit);
  return out;
}

std::vector<std::string> Supervisor::Problems() const {
  std::vector<std::string> problems = watch_->problems();
  for (const auto& [number, slot] : slots_) {
    if (settings_.udp && slot.has_worker() && IsSpoilt(slot.fd(Transport::kUdp))) {
      problems.push_back(
          absl::StrCat("slot ", number, ": worker ", slot.worker.pid,
                       " has connected its UDP socket, or shut it down: sources do not reach it until it ends"));
    }
    if (slot.is_silent)
      problems.push_back(absl::StrCat("slot ", number, ": worker ", slot.worker.pid, " sends no WATCHDOG=1"));
    if (slot.failures >= kFailing) {
      problems.push_back(absl::StrCat("slot ", number, ": its worker has ended ", slot.failures,
                                      " times in a row soon after its start (", slot.last_exit, ")"));
    }
  }
  return problems;
}

}  // namespace hedgerow::steer
