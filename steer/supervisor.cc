// SPDX-License-Identifier: Apache-2.0
#include "steer/supervisor.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "config/scalar.h"
#include "operate/log.h"
#include "steer/process.h"
#include "steer/sockets.h"

namespace hedgerow::steer {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kFast_ms = 20;
constexpr int64_t kSlow_ms = 1000;
constexpr int kEnd_ms = 1000;  // of a process that was killed
constexpr int kIdleLooks = 5;  // most looks in a row at all processes that find nothing

}  // namespace

// Workers.

// shutdown(2) by one worker closes the listener for its successors as well.
void Supervisor::MendListener(MadeSlot& slot) {
  if (!settings_.tcp || slot.role == Role::kFormer || IsListening(slot.fd(Transport::kTcp))) return;
  (void)kernel_->Remove(Transport::kTcp, slot.place());
  absl::Status mended = ListenAgain(slot.fd(Transport::kTcp));
  if (mended.ok()) mended = kernel_->Insert(Transport::kTcp, slot.place(), slot.fd(Transport::kTcp));
  LogWarning("slot ", slot.number, ": its worker has shut the TCP socket down; ",
             mended.ok() ? "it listens again" : mended.message());
}

// A UDP socket that a worker connected or shut down has left the group for good: the slot gets a new one.
// The old one is kept until then: the first socket of a group is made differently.
absl::Status Supervisor::MendUdp(MadeSlot& slot) {
  const bool has_one = slot.fd(Transport::kUdp) >= 0 && !IsSpoilt(slot.fd(Transport::kUdp));
  if (!settings_.udp || slot.role == Role::kFormer || has_one) return absl::OkStatus();
  constexpr absl::string_view kWhy = "its worker has connected the UDP socket, or shut it down; ";
  auto socket = NewSocket(Transport::kUdp);
  absl::Status mended = socket.status();
  if (mended.ok()) {
    std::swap(slot.socket(Transport::kUdp), *socket);
    mended = FillSlot(slot);
    if (!mended.ok()) std::swap(slot.socket(Transport::kUdp), *socket);
  }
  if (!mended.ok()) return absl::Status(mended.code(), absl::StrCat(kWhy, mended.message()));
  Unstore(Transport::kUdp, slot.place());
  Store(Transport::kUdp, slot.place(), slot.fd(Transport::kUdp));
  LogWarning("slot ", slot.number, ": ", kWhy, "the next one has another");
  return absl::OkStatus();
}

void Supervisor::StartWorker(MadeSlot& slot) {
  MendListener(slot);
  absl::Status mended = MendUdp(slot);
  std::vector<int> sockets;
  for (const Transport transport : settings_.transports()) {
    sockets.push_back(slot.fd(transport));
    if (mended.ok() && sockets.back() < 0)
      mended = absl::FailedPreconditionError(absl::StrCat("it has no ", NameOf(transport), " socket"));
  }
  auto started = mended.ok() ? launcher_.Start(slot.number, sockets) : absl::StatusOr<StartedWorker>(mended);
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
  slot.worker.pid = started->pid;  // it may have ended already
  slot.pidfd = std::move(started->pidfd);
  slot.heard_ns = now;
  slot.heard = slot.ready = slot.is_silent = slot.restart_asked = false;
  slot.terminated_ns = slot.start_at_ns = slot.down_since_ns = 0;
  LogInfo("slot ", slot.number, ": worker ", started->pid, " started");
  Follow(slot);
  (void)Save();
}

void Supervisor::Follow(MadeSlot& slot) {
  const absl::Status watched = loop_->Watch(slot.pidfd.get(), [this, place = slot.place()] { return OnExit(place); });
  if (!watched.ok() && !slot.unwatched)
    LogError("slot ", slot.number, ": its worker cannot be watched yet: ", watched.message());
  slot.unwatched = !watched.ok();
}

bool Supervisor::OnExit(int place) {
  MadeSlot& slot = slots_.at(place);
  loop_->Unwatch(slot.pidfd.get());
  // Children of the worker would read beside the next worker. Its group's number is no other's until the worker is
  // reaped, but init may have reaped one that was taken over.
  siginfo_t info{};
  const bool is_child = waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(slot.pidfd.get()), &info,
                               WEXITED | WNOHANG | WNOWAIT) == 0;
  if (is_child) kill(-slot.worker.pid, SIGKILL);
  slot.last_exit = ReapExit(slot.pidfd);
  slot.pidfd.Reset();
  EndLeftBehind(slot, slot.worker, is_child);
  const int64_t now = MonotonicNs();
  LogInfo("slot ", slot.number, ": worker ", slot.worker.pid, " ended: ", slot.last_exit);
  slot.worker = {};
  slot.is_silent = false;
  slot.down_since_ns = now;
  const bool steady = now - slot.started_ns >= absl::ToInt64Nanoseconds(kSteadyAfter);
  slot.failures = slot.restart_asked ? 0 : steady ? 1 : slot.failures + 1;
  slot.start_at_ns = slot.restart_asked ? now : now + absl::ToInt64Nanoseconds(RestartDelay(slot.failures));
  if (slot.role == Role::kFormer && !stopping_) {
    EndFormer(place);
  } else if (slot.role == Role::kNext && !stopping_) {
    FailReload(slot, slot.terminated_ns != 0
                         ? NotReady(slot)
                         : absl::StrCat("the next worker ended before it was ready (", slot.last_exit, ")"));
  } else if (!stopping_ && slot.start_at_ns <= now) {
    StartWorker(slot);
  } else {
    (void)Save();
  }
  Tick();
  return true;
}

// A daemon that forked into the background has left its process group and would read beside the next worker. Only
// processes of the workers' user are killed: a worker may have passed its sockets to another user's process.
void Supervisor::EndLeftBehind(const MadeSlot& slot, const Process& worker, bool group_ended) {
  const auto may_be = [&, others = SelfAndAncestors()](const Process& process) {
    struct stat owner {};
    return process.start_ticks >= worker.start_ticks && !others.contains(process.pid) &&
           (process.group != worker.pid || !group_ended) &&
           stat(absl::StrCat("/proc/", process.pid).c_str(), &owner) == 0 &&
           (owner.st_uid == settings_.user.uid || settings_.user.uid == 0);
  };
  // Repeated, because a process may fork before it is killed: and also where nothing was found while processes were
  // made, since one that ends before it is looked at hides its child, which was not there when the look began.
  for (int idle = 0; idle < kIdleLooks;) {
    const std::string made = LastMadeProcess();
    const std::vector<Process> found = ProcessesWith(InodesOf(slot), may_be);
    if (found.empty() && made == LastMadeProcess()) return;
    idle = found.empty() ? idle + 1 : 0;
    for (const Process& process : found) {
      const auto pidfd = OpenProcess(process);
      if (!pidfd.ok()) continue;
      LogWarning("slot ", slot.number, ": worker ", worker.pid, " left pid ", ToString(process),
                 " behind, which has its sockets and is killed: a worker stays in the foreground (nginx: daemon off)");
      if (!Signal(*pidfd, SIGKILL).ok() || !WaitForEnd(*pidfd, kEnd_ms)) return;
    }
  }
}

void Supervisor::OnNotice(const Notice& notice) {
  MadeSlot* slot = SlotOfProcess(notice.pid);
  if (slot == nullptr) return;
  if (notice.watchdog || notice.ready) {
    slot->heard_ns = MonotonicNs();
    slot->heard = true;
    if (slot->is_silent) {
      slot->is_silent = false;
      LogInfo("slot ", slot->number, ": worker ", slot->worker.pid, " is heard again");
      ApplyEmpty();
    }
  }
  slot->ready |= notice.ready;
  if (notice.ready && !std::exchange(slot->says_ready, true)) (void)Save();
  if (notice.stopping) LogInfo("slot ", slot->number, ": worker ", slot->worker.pid, " is about to end");
}

// `pid` is the worker or a descendant of it.
MadeSlot* Supervisor::SlotOfProcess(pid_t pid) {
  for (int generation = 0; generation < 16 && pid > 1; ++generation) {
    for (auto& [place, slot] : slots_) {
      if (slot.has_worker() && slot.worker.pid == pid) return &slot;
    }
    const auto process = ReadProcess(pid);
    pid = process.has_value() ? process->parent : 0;
  }
  return nullptr;
}

void Supervisor::Terminate(MadeSlot& slot) {
  if (!slot.has_worker() || slot.terminated_ns != 0) return;
  slot.terminated_ns = MonotonicNs();
  const bool drains = slot.role == Role::kFormer && !stopping_;
  if (const absl::Status sent = Signal(slot.pidfd, drains ? settings_.drain_signal : SIGTERM); !sent.ok())
    LogError("slot ", slot.number, ": ", sent.message());
}

// Timers.

// After a pause of this process (SIGSTOP, suspend) heartbeats may be unread: the deadline of every worker is extended.
void Supervisor::ForgiveOwnPause(int64_t now) {
  const int64_t heartbeat = absl::ToInt64Nanoseconds(settings_.heartbeat);
  const int64_t pause = now - std::exchange(ticked_ns_, now);
  if (heartbeat == 0 || !notify_.has_value()) return;
  if (pause <= std::max(heartbeat / 2, 2 * kSlow_ms * kMs) || pause == now) return;
  for (auto& [place, slot] : slots_) slot.heard_ns = std::max(slot.heard_ns, now - heartbeat / 2);
}

// As the first process of a container, the supervisor becomes the parent of every orphan and has to reap it.
void Supervisor::ReapOrphans() {
  if (getpid() != 1) return;
  for (siginfo_t info{}; waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0; info = {}) {
    const pid_t pid = info.si_pid;
    const bool ours =
        std::any_of(slots_.begin(), slots_.end(), [pid](const auto& each) { return each.second.worker.pid == pid; });
    if (ours) return;  // reaped by its pidfd's handler; orphans behind it wait for the next tick
    waitpid(pid, nullptr, WNOHANG);
  }
}

void Supervisor::Tick() {
  const int64_t now = MonotonicNs();
  ForgiveOwnPause(now);
  ReapOrphans();
  if (stopping_) {
    bool any = false;
    for (auto& [place, slot] : slots_) {
      TickSlot(slot, now);
      any |= slot.has_worker();
    }
    if (!any) loop_->Stop();
  } else {
    std::vector<int> others;
    for (auto& [place, slot] : slots_) {
      TickSlot(slot, now);
      if (slot.role != Role::kServing) others.push_back(place);
    }
    for (const int place : others) {
      MadeSlot& slot = slots_.at(place);
      slot.role == Role::kFormer ? TickFormer(slot, now) : TickNext(slot, now);
    }
    LookAround();
    ApplyEmpty();
    PollPins(now);
  }
  Pace();
}

void Supervisor::TickSlot(MadeSlot& slot, int64_t now) {
  if (slot.has_worker()) {
    if (slot.unwatched) Follow(slot);
    const int64_t patience = absl::ToInt64Nanoseconds(
        slot.role == Role::kFormer && !stopping_ ? settings_.drain_timeout : settings_.stop_timeout);
    if (slot.terminated_ns != 0 && now - slot.terminated_ns > patience) {
      LogWarning("slot ", slot.number, ": worker ", slot.worker.pid, " did not end within ",
                 config::FormatDurationNs(patience), " and is killed");
      slot.terminated_ns = now;
      if (const absl::Status sent = Signal(slot.pidfd, SIGKILL); !sent.ok()) LogError(sent.message());
    }
    const bool silent = settings_.heartbeat > absl::ZeroDuration() &&
                        now - slot.heard_ns > absl::ToInt64Nanoseconds(settings_.heartbeat);
    if (slot.role == Role::kServing) slot.is_silent |= silent;
    // Another daemon may have taken the place of one that did.
    if (slot.role == Role::kServing && slot.says_ready && !slot.ready && now - slot.started_ns >= kReady_ns) {
      slot.says_ready = false;
      (void)Save();
    }
  } else if (!stopping_ && slot.role == Role::kServing && now >= slot.start_at_ns) {
    StartWorker(slot);
  }
}

// shutdown(2) of its listener migrates connections that it has not accepted to workers that serve.
void Supervisor::TickFormer(MadeSlot& slot, int64_t now) {
  if (!slot.has_worker()) return EndFormer(slot.place());
  if (slot.terminated_ns != 0) return;
  if (now < slot.leave_by_ns) return;
  Terminate(slot);
  if (!slot.socket(Transport::kTcp).valid()) return;
  (void)kernel_->Remove(Transport::kTcp, slot.place());
  shutdown(slot.fd(Transport::kTcp), SHUT_RDWR);
}

void Supervisor::RemoveSockets(int place) {
  for (const Transport transport : settings_.transports()) {
    (void)kernel_->Remove(transport, place);
    Unstore(transport, place);
  }
  slots_.erase(place);
}

void Supervisor::EndFormer(int place) {
  MadeSlot& slot = slots_.at(place);
  const int number = slot.number;
  const uint64_t unread = slot.socket(Transport::kUdp).valid() ? UdpState(slot.fd(Transport::kUdp)).queued_bytes : 0;
  RemoveSockets(place);
  LogInfo("slot ", number, ": the former sockets are closed",
          unread > 0 ? absl::StrCat("; their worker left ", unread, " bytes unread") : "");
  (void)Save();
}

bool Supervisor::Busy() const {
  if (stopping_ || table_->pins() > 0) return true;
  return std::any_of(slots_.begin(), slots_.end(), [this](const auto& each) {
    const MadeSlot& slot = each.second;
    return !slot.has_worker() || slot.role != Role::kServing || slot.terminated_ns != 0 ||
           (table_->IsEmpty(slot.number) && !slot.is_silent);
  });
}

// An idle supervisor wakes once a second.
void Supervisor::Pace() {
  const bool busy = Busy();
  if (busy && fast_timer_ < 0) {
    const auto timer = loop_->StartTimer(absl::Milliseconds(kFast_ms), [this] { Tick(); });
    if (timer.ok()) fast_timer_ = *timer;
  } else if (!busy && fast_timer_ >= 0) {
    loop_->StopTimer(std::exchange(fast_timer_, -1));
  }
}

}  // namespace hedgerow::steer
