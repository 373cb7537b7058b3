// SPDX-License-Identifier: Apache-2.0
#include "steer/supervisor.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/scalar.h"
#include "operate/log.h"
#include "steer/process.h"
#include "steer/socket_state.h"

namespace hedgerow::steer {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kFast_ms = 20;
constexpr int64_t kPins_ms = 250;
constexpr int64_t kLook_ms = 300;  // at the most often; with each turn of the slow timer, so that a takeover is seen within 1.3 s
constexpr int64_t kQueue_ms = 1000;  // a leaving worker may read its queue for so long before it is asked to end
constexpr int64_t kProven_ms = 1000;
constexpr int kFailing = 4;          // ends in a row, each soon after its start, that are a problem

}  // namespace

std::string Supervisor::Text() const {
  std::vector<std::string> transports;
  for (const Transport transport : settings_.transports()) transports.push_back(TransportText(transport));
  const int workers = CountWorkers();
  return absl::StrCat("group ", settings_.places.name, ": ", settings_.listen.ToString(), " (", absl::StrJoin(transports, ", "), "), ", workers,
                      workers == 1 ? " worker" : " workers");
}

// Workers.

// A worker that calls shutdown(2) on its listener has closed it for the next one as well.
void Supervisor::MendListener(Slot& slot) {
  if (!settings_.tcp || slot.leaving || IsListening(slot.fd(Transport::kTcp))) return;
  (void)kernel_->Remove(Transport::kTcp, slot.number);
  absl::Status mended = ListenAgain(slot.fd(Transport::kTcp));
  if (mended.ok()) mended = kernel_->Insert(Transport::kTcp, slot.number, slot.fd(Transport::kTcp));
  LogWarning("slot ", slot.number, ": its worker has shut the TCP socket down; ", mended.ok() ? "it listens again" : mended.message());
}

void Supervisor::StartWorker(Slot& slot) {
  MendListener(slot);
  std::vector<int> sockets;
  for (const Transport transport : settings_.transports()) sockets.push_back(slot.fd(transport));
  auto started = launcher_.Start(slot.number, sockets);
  const int64_t now = MonotonicNs();
  if (slot.started_ns != 0 || slot.failures > 0) ++slot.restarts;
  slot.started_ns = now;
  if (!started.ok()) {
    slot.last_exit = std::string(started.status().message());
    slot.start_at_ns = now + absl::ToInt64Nanoseconds(RestartDelay(++slot.failures));
    LogWarning("slot ", slot.number, ": ", slot.last_exit);
    return;
  }
  slot.worker = Identify(started->pid);
  slot.worker.set_pid(started->pid);  // it may have ended already
  slot.pidfd = std::move(started->pidfd);
  slot.heard_ns = now;
  slot.heard = slot.is_silent = slot.restart_asked = false;
  slot.terminated_ns = slot.start_at_ns = slot.down_since_ns = 0;
  LogInfo("slot ", slot.number, ": worker ", started->pid, " started");
  Follow(slot);
  Save();
}

void Supervisor::Follow(Slot& slot) {
  const absl::Status watched = loop_->Watch(slot.pidfd.get(), [this, number = slot.number] { OnExit(number); });
  if (!watched.ok()) LogError("slot ", slot.number, ": its worker cannot be watched: ", watched.message());
}

void Supervisor::OnExit(int number) {
  Slot& slot = slots_.at(number);
  loop_->Unwatch(slot.pidfd.get());
  // Its children would go on reading beside the next worker. The process group's number is not used again before it is reaped.
  kill(-static_cast<pid_t>(slot.worker.pid()), SIGKILL);
  slot.last_exit = ReapExit(slot.pidfd);
  slot.pidfd.Reset();
  const int64_t now = MonotonicNs();
  LogInfo("slot ", number, ": worker ", slot.worker.pid(), " ended: ", slot.last_exit);
  slot.worker.Clear();
  slot.is_silent = false;
  slot.down_since_ns = now;
  const bool steady = now - slot.started_ns >= absl::ToInt64Nanoseconds(kSteadyAfter);
  slot.failures = slot.restart_asked ? 0 : steady ? 1 : slot.failures + 1;
  slot.start_at_ns = slot.restart_asked ? now : now + absl::ToInt64Nanoseconds(RestartDelay(slot.failures));
  if (slot.leaving && !stopping_) {
    EndLeaving(number);
  } else if (!stopping_ && slot.start_at_ns <= now) {
    StartWorker(slot);
  } else {
    Save();
  }
  Tick();
}

void Supervisor::OnNotice(const Notice& notice) {
  Slot* slot = SlotOfProcess(notice.pid);
  if (slot == nullptr) return;
  if (notice.watchdog || notice.ready) {
    slot->heard_ns = MonotonicNs();
    slot->heard = true;
    if (slot->is_silent) {
      slot->is_silent = false;
      LogInfo("slot ", slot->number, ": worker ", slot->worker.pid(), " is heard again");
      ApplyEmpty();
    }
  }
  if (notice.stopping) LogInfo("slot ", slot->number, ": worker ", slot->worker.pid(), " is about to end");
}

// The process itself, or one that it started.
Slot* Supervisor::SlotOfProcess(pid_t pid) {
  for (int generation = 0; generation < 16 && pid > 1; ++generation) {
    for (auto& [number, slot] : slots_) {
      if (slot.has_worker() && slot.worker.pid() == pid) return &slot;
    }
    pid = ParentOf(pid);
  }
  return nullptr;
}

void Supervisor::Terminate(Slot& slot) {
  if (!slot.has_worker() || slot.terminated_ns != 0) return;
  slot.terminated_ns = MonotonicNs();
  if (const absl::Status sent = Signal(slot.pidfd, SIGTERM); !sent.ok()) LogError("slot ", slot.number, ": ", sent.message());
}

// What time brings.

void Supervisor::Tick() {
  const int64_t now = MonotonicNs();
  if (stopping_) {
    bool any = false;
    for (auto& [number, slot] : slots_) {
      TickSlot(slot, now);
      any |= slot.has_worker();
    }
    if (!any) loop_->Stop();
  } else {
    std::vector<int> leaving;
    for (auto& [number, slot] : slots_) {
      TickSlot(slot, now);
      if (slot.leaving) leaving.push_back(number);
    }
    for (const int number : leaving) TickLeaving(slots_.at(number), now);
    ApplyEmpty();
    if (table_->pins() > 0 && now >= next_pins_ns_) {
      next_pins_ns_ = now + kPins_ms * kMs;
      if (const absl::Status polled = table_->Poll(); !polled.ok()) LogError("sources with open connections: ", polled.message());
    }
    if (now >= next_look_ns_) LookAround();
  }
  Pace();
}

void Supervisor::TickSlot(Slot& slot, int64_t now) {
  if (slot.has_worker()) {
    if (slot.terminated_ns != 0 && now - slot.terminated_ns > absl::ToInt64Nanoseconds(settings_.stop_timeout)) {
      LogWarning("slot ", slot.number, ": worker ", slot.worker.pid(), " did not end within ",
                 config::FormatDurationNs(absl::ToInt64Nanoseconds(settings_.stop_timeout)), " and is killed");
      slot.terminated_ns = now;
      if (const absl::Status sent = Signal(slot.pidfd, SIGKILL); !sent.ok()) LogError(sent.message());
    }
    const bool silent = settings_.heartbeat > absl::ZeroDuration() && now - slot.heard_ns > absl::ToInt64Nanoseconds(settings_.heartbeat);
    if (silent && !slot.is_silent) {
      slot.is_silent = true;
      LogWarning("slot ", slot.number, ": worker ", slot.worker.pid(), " is silent: no WATCHDOG=1 for ",
                 config::FormatDurationNs(absl::ToInt64Nanoseconds(settings_.heartbeat)));
    }
  } else if (!stopping_ && !slot.leaving && now >= slot.start_at_ns) {
    StartWorker(slot);
  }
}

// Its listener's closing gives the connections that it has not accepted to other slots.
void Supervisor::TickLeaving(Slot& slot, int64_t now) {
  if (!slot.has_worker()) return EndLeaving(slot.number);
  if (slot.terminated_ns != 0) return;
  const bool read = !slot.socket(Transport::kUdp).valid() || UdpState(slot.fd(Transport::kUdp)).queued_bytes == 0;
  if (!read && now < slot.leave_by_ns) return;
  Terminate(slot);
  if (!slot.socket(Transport::kTcp).valid()) return;
  (void)kernel_->Remove(Transport::kTcp, slot.number);
  shutdown(slot.fd(Transport::kTcp), SHUT_RDWR);
}

void Supervisor::EndLeaving(int number) {
  Slot& slot = slots_.at(number);
  const uint64_t unread = slot.socket(Transport::kUdp).valid() ? UdpState(slot.fd(Transport::kUdp)).queued_bytes : 0;
  for (const Transport transport : settings_.transports()) {
    (void)kernel_->Remove(transport, number);
    if (keeper_.has_value()) (void)keeper_->Drop(transport, number);
  }
  slots_.erase(number);
  LogInfo("slot ", number, " is gone", unread > 0 ? absl::StrCat("; its worker left ", unread, " bytes unread") : "");
  Save();
}

// Whether a worker may have the sources of its empty slot back: one that ends again and again would get them each time.
bool Supervisor::Proven(const Slot& slot, int64_t now) const {
  return slot.heard || (settings_.heartbeat == absl::ZeroDuration() && now - slot.started_ns >= kProven_ms * kMs);
}

void Supervisor::ApplyEmpty() {
  const int64_t now = MonotonicNs();
  const int64_t after = absl::ToInt64Nanoseconds(settings_.empty_after);
  std::vector<bool> empty(HR_STEER_SLOTS);
  bool changed = false;
  for (auto& [number, slot] : slots_) {
    const bool is_empty = slot.has_worker() ? slot.is_silent || (slot.empty && !Proven(slot, now)) : slot.empty || now - slot.down_since_ns >= after;
    changed |= is_empty != slot.empty;
    empty[static_cast<size_t>(number)] = is_empty;
  }
  if (!changed) return;
  const absl::Status applied = table_->SetEmpty(empty);
  const std::string problem = applied.ok() ? "" : absl::StrCat("the table could not be changed: ", applied.message());
  if (problem != table_problem_ && !problem.empty()) LogError(problem);
  table_problem_ = problem;
  if (!applied.ok()) return;
  for (auto& [number, slot] : slots_) {
    const bool is_empty = empty[static_cast<size_t>(number)];
    if (is_empty == slot.empty) continue;
    slot.empty = is_empty;
    LogInfo("slot ", number, is_empty ? absl::StrCat(" is empty: ", settings_.EmptyText()) : " is served again");
  }
}

void Supervisor::LookAround() {
  next_look_ns_ = MonotonicNs() + kLook_ms * kMs;
  for (auto& [number, slot] : slots_) {
    if (slot.has_worker() && slot.terminated_ns == 0) MendListener(slot);
  }
  for (const Transport transport : settings_.transports()) watch_->Look(transport, FdsOf(transport));
  if (!keeper_.has_value()) {
    if (const absl::Status started = StartKeeper(); !started.ok()) LogError("the keeper of the sockets: ", started.message());
  }
}

std::vector<int> Supervisor::FdsOf(Transport transport) const {
  std::vector<int> all;
  for (const auto& [number, slot] : slots_) all.push_back(slot.fd(transport));
  if (const int sink = sinks_[static_cast<size_t>(transport)].get(); sink >= 0) all.push_back(sink);
  return all;
}

void Supervisor::OnKeeperGone() {
  loop_->Unwatch(keeper_->fd());
  if (keeper_->pid() > 0) waitpid(keeper_->pid(), nullptr, WNOHANG);
  keeper_.reset();
  keeper_process_.Clear();
  if (!stopping_) LogWarning("the keeper of the sockets has gone; another one is started");
  next_look_ns_ = 0;
}

bool Supervisor::Busy() const {
  if (stopping_ || table_->pins() > 0) return true;
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& each) {
    const Slot& slot = each.second;
    return !slot.has_worker() || slot.leaving || slot.terminated_ns != 0 || (slot.empty && !slot.is_silent);
  });
}

// A supervisor without work to do wakes once a second.
void Supervisor::Pace() {
  const bool busy = Busy();
  if (busy && fast_timer_ < 0) {
    const auto timer = loop_->StartTimer(absl::Milliseconds(kFast_ms), [this] { Tick(); });
    if (timer.ok()) fast_timer_ = *timer;
  } else if (!busy && fast_timer_ >= 0) {
    loop_->StopTimer(std::exchange(fast_timer_, -1));
  }
}

// Changes that are asked for.

Weights Supervisor::WeightsNow() const {
  Weights weights(HR_STEER_SLOTS);
  for (const auto& [number, slot] : slots_) {
    if (!slot.stand_in && !slot.leaving && !slot.drained) weights[static_cast<size_t>(number)] = slot.weight;
  }
  return weights;
}

int Supervisor::CountWorkers() const {
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(),
                                        [](const auto& each) { return !each.second.stand_in && !each.second.leaving; }));
}

absl::StatusOr<Slot*> Supervisor::FindSlot(uint32_t number) {
  const auto found = slots_.find(static_cast<int>(number));
  if (found != slots_.end()) return &found->second;
  std::vector<std::string> known;
  for (const auto& [each, slot] : slots_) known.push_back(absl::StrCat(each));
  return absl::InvalidArgumentError(absl::StrCat("no slot ", number, "; there are ", absl::StrJoin(known, ", ")));
}

// The slots say what is wanted; `undo` takes that back where it cannot be had.
absl::StatusOr<v1::Change> Supervisor::ChangeWeights(const std::function<void()>& undo) {
  const auto moved = table_->SetWeights(WeightsNow());
  if (!moved.ok()) {
    undo();
    return moved.status();
  }
  LogInfo("table: ", moved->buckets, " buckets moved, ", moved->pinned, " sources stay with their open connections");
  Save();
  v1::Change change;
  change.set_moved_buckets(moved->buckets);
  change.set_fewest_possible(moved->fewest);
  change.set_pinned_sources(moved->pinned);
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  for (const auto& [number, slot] : slots_) *change.add_slots() = ShowSlot(slot, *counts);
  Pace();
  return change;
}

absl::StatusOr<v1::Change> Supervisor::Resize(uint32_t workers) {
  const int most = settings_.stand_in ? kStandIn : HR_STEER_SLOTS;
  if (stopping_) return absl::UnavailableError("the group is ending");
  if (workers < 1 || workers > static_cast<uint32_t>(most)) {
    return absl::InvalidArgumentError(absl::StrCat("got ", workers, " workers, expected 1 to ", most));
  }
  const int wanted = static_cast<int>(workers);
  std::vector<int> added;
  std::vector<int> leaving;
  const auto undo = [&] {
    for (const int number : added) {
      for (const Transport transport : settings_.transports()) {
        (void)kernel_->Remove(transport, number);
        if (keeper_.has_value()) (void)keeper_->Drop(transport, number);
      }
      slots_.erase(number);
    }
    for (const int number : leaving) slots_.at(number).leaving = false;
  };
  for (int number = 0; number < wanted; ++number) {
    const auto found = slots_.find(number);
    if (found != slots_.end() && found->second.leaving) {
      undo();
      return absl::FailedPreconditionError(absl::StrCat("slot ", number, " still waits for the end of worker ", found->second.worker.pid(),
                                                        ": try again when it has ended, at the latest ",
                                                        config::FormatDurationNs(absl::ToInt64Nanoseconds(settings_.stop_timeout)),
                                                        " after it was asked to"));
    }
    if (found != slots_.end()) continue;
    if (const absl::Status made = AddSlot(number, false); !made.ok()) {
      undo();
      return made;
    }
    added.push_back(number);
  }
  for (auto& [number, slot] : slots_) {
    if (slot.stand_in || slot.leaving || number < wanted) continue;
    slot.leaving = true;
    leaving.push_back(number);
  }
  const int64_t now = MonotonicNs();
  auto change = ChangeWeights(undo);
  if (!change.ok()) return change;
  for (const int number : added) StartWorker(slots_.at(number));
  for (const int number : leaving) slots_.at(number).leave_by_ns = now + kQueue_ms * kMs;
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  change->clear_slots();
  for (const auto& [number, slot] : slots_) *change->add_slots() = ShowSlot(slot, *counts);
  Tick();
  return change;
}

absl::StatusOr<v1::Change> Supervisor::SetWeights(const std::vector<double>& weights) {
  if (static_cast<int>(weights.size()) != CountWorkers()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", weights.size(), " weights, expected one for each of the ", CountWorkers(), " slots"));
  }
  std::map<int, double> former;
  for (auto& [number, slot] : slots_) {
    if (slot.stand_in || slot.leaving) continue;
    former[number] = std::exchange(slot.weight, weights[static_cast<size_t>(number)]);
  }
  return ChangeWeights([&] {
    for (const auto& [number, weight] : former) slots_.at(number).weight = weight;
  });
}

absl::StatusOr<v1::Change> Supervisor::Drain(uint32_t number, bool drain) {
  const auto slot = FindSlot(number);
  if (!slot.ok()) return slot.status();
  if ((*slot)->stand_in) return absl::InvalidArgumentError("the stand-in has no buckets of its own");
  if ((*slot)->leaving) return absl::FailedPreconditionError(absl::StrCat("slot ", number, " is about to go"));
  const bool former = std::exchange((*slot)->drained, drain);
  return ChangeWeights([&] { (*slot)->drained = former; });
}

absl::StatusOr<v1::Slot> Supervisor::RestartWorker(uint32_t number) {
  const auto found = FindSlot(number);
  if (!found.ok()) return found.status();
  Slot& slot = **found;
  if (stopping_ || slot.leaving) return absl::FailedPreconditionError(absl::StrCat("slot ", number, " is about to go"));
  if (slot.has_worker()) {
    slot.restart_asked = true;
    Terminate(slot);
  } else {
    slot.failures = 0;
    StartWorker(slot);
  }
  Pace();
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  return ShowSlot(slot, *counts);
}

absl::StatusOr<v1::Group> Supervisor::Reattach() {
  for (const Transport transport : settings_.transports()) {
    const std::vector<int> sockets = FdsOf(transport);
    const auto program = kernel_->ProgramOf(sockets.front());
    if (!program.ok()) return program.status();
    if (*program == kernel_->OwnProgram(transport)) continue;
    if (const absl::Status attached = kernel_->Attach(transport, sockets.front()); !attached.ok()) return attached;
  }
  LookAround();
  return Show(false);
}

absl::StatusOr<v1::StopReply> Supervisor::Stop() {
  v1::StopReply reply;
  reply.set_pid(getpid());
  loop_->Post([this] { BeginStop(); });
  return reply;
}

void Supervisor::BeginStop() {
  for (auto& [number, slot] : slots_) {
    if (stopping_ && slot.has_worker()) (void)Signal(slot.pidfd, SIGKILL);
    Terminate(slot);
  }
  if (!stopping_) LogInfo("ending: workers have ", config::FormatDurationNs(absl::ToInt64Nanoseconds(settings_.stop_timeout)));
  stopping_ = true;
  Tick();
}

// Reports.

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
  if (!keeper_.has_value()) problems.push_back("keeper: no process keeps the sockets for the case that this one dies");
  for (const auto& [number, slot] : slots_) {
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
