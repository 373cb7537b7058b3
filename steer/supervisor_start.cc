// SPDX-License-Identifier: Apache-2.0
//
// Making a group, taking over the group of a dead supervisor, and removing it.
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "operate/log.h"
#include "steer/process.h"
#include "steer/record.h"
#include "steer/sock_diag.h"
#include "steer/sockets.h"
#include "steer/supervisor.h"

namespace hedgerow::steer {
absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Start(EventLoop* loop, const Settings& settings) {
  auto launcher = Launcher::Create(settings);
  if (!launcher.ok()) return launcher.status();
  std::unique_ptr<Supervisor> supervisor(new Supervisor(loop, settings, *std::move(launcher)));
  const auto found = FindLeftovers(settings.places, settings.bpffs);
  if (!found.ok()) return found.status();
  auto stored = TakeStored();
  absl::Status started;
  if (found->adoptable) {
    started = supervisor->TakeOver(found->record, std::move(stored));
  } else {
    if (found->any()) {
      if (const auto removed = RemoveLeftovers(settings.places, *found); !removed.ok()) return removed.status();
    }
    if (!stored.empty()) DropStored(std::move(stored));  // before the address is looked at
    supervisor->remove_at_end_ = true;
    started = supervisor->Make();
  }
  if (!started.ok()) return started;
  if (const absl::Status watching = supervisor->BeginWatching(); !watching.ok()) return watching;
  return supervisor;
}

absl::Status Supervisor::Make() {
  if (const absl::Status free = RefuseHolders(settings_); !free.ok()) return free;
  if (const absl::Status folder = MakeFolder(); !folder.ok()) return folder;
  // By this record the next start finds what an interrupted one made.
  if (const absl::Status saved = Save(); !saved.ok()) return saved;
  if (const absl::Status created = CreateKernel(static_cast<size_t>(settings_.workers)); !created.ok()) return created;
  for (int number = 0; number < settings_.workers; ++number) {
    if (const auto made = AddSlot(number, Role::kServing); !made.ok()) return made.status();
  }
  if (settings_.udp && settings_.receive_buffer == 0) {
    LogInfo(
        "a UDP socket holds ", OptionOf<int>(slots_.at(0).fd(Transport::kUdp), SOL_SOCKET, SO_RCVBUF),
        " bytes (net.core.rmem_default), the kernel's bookkeeping included: what comes beyond that while its worker "
        "restarts is lost and counted; --receive-buffer makes it larger");
  }
  return OpenTable();
}

// Returns the place: the slot's first one behind the newest that has no sockets. The half of the table before a change
// still names older ones.
absl::StatusOr<int> Supervisor::AddSlot(int number, Role role) {
  int generation = 0;
  if (Serving().contains(number)) {
    generation = ServingSlot(number).generation + 1;
  } else if (kernel_->IsChanging()) {
    generation = static_cast<int>(kernel_->ReadGenerations()[static_cast<size_t>(number)]) + 1;
  }
  generation %= HR_STEER_GENERATIONS;
  for (int taken = 0; slots_.contains(PlaceOf(number, generation));) {
    if (++taken == HR_STEER_GENERATIONS)
      return absl::ResourceExhaustedError(absl::StrCat(HR_STEER_GENERATIONS - 1, " former workers have not ended yet"));
    generation = (generation + 1) % HR_STEER_GENERATIONS;
  }
  const int place = PlaceOf(number, generation);
  MadeSlot& slot = slots_[place];
  slot.number = number;
  slot.generation = generation;
  slot.role = role;
  slot.down_since_ns = MonotonicNs();
  if (const absl::Status filled = FillSlot(slot); !filled.ok()) {
    RemoveSockets(place);
    return filled;
  }
  return place;
}

absl::StatusOr<net::UniqueFd> Supervisor::NewSocket(Transport transport) {
  const auto has_one = [transport](const auto& each) { return each.second.fd(transport) >= 0; };
  const bool first = std::none_of(slots_.begin(), slots_.end(), has_one);
  auto socket = MakeSocket(settings_, transport, *kernel_, first);
  if (!socket.ok()) return socket;
  if (first) {
    if (const absl::Status ours = CheckGroupIsOurs(settings_, transport, *kernel_, socket->get()); !ours.ok())
      return ours;
  } else if (const auto program = kernel_->ProgramOf(socket->get()); !program.ok()) {
    return program.status();
  } else if (*program == 0) {  // no other socket of the slots is in the group any more
    if (const absl::Status done = kernel_->Attach(transport, socket->get()); !done.ok()) return done;
  }
  return socket;
}

// Makes the sockets that the slot lacks, and inserts them.
absl::Status Supervisor::FillSlot(MadeSlot& slot) {
  for (const Transport transport : settings_.transports()) {
    if (!slot.socket(transport).valid()) {
      auto socket = NewSocket(transport);
      if (!socket.ok()) return socket.status();
      slot.socket(transport) = *std::move(socket);
      Store(transport, slot.place(), slot.fd(transport));
    }
    const auto inserted = kernel_->CookieOf(transport, slot.place());
    if (!inserted.ok()) return inserted.status();
    if (*inserted == CookieOf(slot.fd(transport))) continue;
    if (*inserted != 0) {
      if (const absl::Status removed = kernel_->Remove(transport, slot.place()); !removed.ok()) return removed;
    }
    if (const absl::Status done = kernel_->Insert(transport, slot.place(), slot.fd(transport)); !done.ok()) return done;
  }
  return absl::OkStatus();
}

absl::Status Supervisor::TakeOver(const v1::Record& record, Stored stored) {
  auto kernel = KernelGroup::Open(settings_.bpffs, settings_.places.name);
  if (!kernel.ok()) return kernel.status();
  kernel_ = *std::move(kernel);
  const auto other = Difference(record, *kernel_);
  if (!other.ok()) return other.status();
  if (!other->empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("group ", settings_.places.name, " is there already, left by a dead supervisor (pid ",
                     record.supervisor_pid(), "), with another ", *other,
                     ": start it as it was, to take it over, or remove it by `hedgerow steer clean --name ",
                     settings_.places.name, "`"));
  }
  if (const absl::Status taken = TakeSlots(record, stored); !taken.ok()) return taken;
  LogInfo("took over group ", settings_.places.name, " from pid ", record.supervisor_pid());
  const int workers = static_cast<int>(Serving().size());
  if (workers != settings_.workers) {
    LogWarning("the group has ", workers, " workers, and keeps them: `hedgerow steer resize ", settings_.workers,
               "` changes that");
    settings_.workers = workers;
  }
  if (const absl::Status opened = OpenTable(); !opened.ok()) return opened;
  for (const auto& [number, slot] : Serving()) {
    const absl::Status set = table_->SetGeneration(number, slot->generation, true);
    if (!set.ok()) return set;
  }
  // An interrupted change may have written the table but not the record.
  return table_->SetWeights(WeightsNow()).status();
}

absl::Status Supervisor::TakeSlots(const v1::Record& record, Stored& stored) {
  const int64_t now = MonotonicNs();
  for (const v1::RecordedSlot& recorded : record.slots()) {
    const Slot known = FromRecord(recorded);
    MadeSlot& slot = slots_[PlaceOf(known.number, known.generation)];
    static_cast<Slot&>(slot) = known;
    slot.started_ns = slot.heard_ns = now;
    slot.leave_by_ns = now + kQueue_ns;
    slot.worker = {};
    auto pidfd = OpenProcess(known.worker);
    if (pidfd.ok()) {
      slot.worker = Identify(known.worker.pid);
      slot.pidfd = *std::move(pidfd);
      continue;
    }
    slot.down_since_ns = now;
    if (known.worker.pid != 0) slot.last_exit = "unknown: it ended while there was no supervisor";
  }
  if (const absl::Status taken = TakeSockets(stored); !taken.ok()) return taken;
  for (auto& [place, slot] : slots_) {
    if (!slot.has_worker()) FindUnrecordedWorker(slot);
    if (slot.role == Role::kFormer) continue;  // its listener may be closed already
    for (const Transport transport : settings_.transports()) {
      if (slot.has_worker() && !slot.socket(transport).valid()) slot.restart_asked = true;
    }
    if (const absl::Status filled = FillSlot(slot); !filled.ok()) return filled;
  }
  return absl::OkStatus();
}

// The kernel's arrays name the sockets, and the workers hold them, or systemd. What no process holds has closed; a slot
// that the record lacks was being added.
absl::Status Supervisor::TakeSockets(Stored& stored) {
  for (const Transport transport : settings_.transports()) {
    std::map<uint64_t, int> places;
    for (int place = 0; place < HR_STEER_PLACES; ++place) {
      const auto cookie = kernel_->CookieOf(transport, place);
      if (!cookie.ok()) return cookie.status();
      if (*cookie == 0) continue;
      const auto kept = stored.find(*cookie);
      if (slots_.contains(place) && kept != stored.end()) {
        slots_.at(place).socket(transport) = std::move(kept->second);
      } else if (slots_.contains(place)) {
        places[*cookie] = place;
      } else {
        Unstore(transport, place);
        if (const absl::Status removed = kernel_->Remove(transport, place); !removed.ok()) return removed;
      }
    }
    auto held = FetchSockets(transport, settings_.listen, places);
    if (!held.ok()) return held.status();
    for (auto& [place, socket] : *held) slots_.at(place).socket(transport) = std::move(socket);
    for (const auto& [place, slot] : slots_) {
      if (slot.fd(transport) >= 0) settings_.socket_uid = OwnerOf(slot.fd(transport));
    }
  }
  return absl::OkStatus();
}

std::set<uint32_t> Supervisor::InodesOf(const MadeSlot& slot) const {
  std::set<uint32_t> inodes;
  for (const Transport transport : settings_.transports()) {
    if (slot.fd(transport) >= 0) inodes.insert(InodeOf(slot.fd(transport)));
  }
  return inodes;
}

// A supervisor that was killed between fork and record left a worker that the record lacks. The slot must not get a
// second one.
void Supervisor::FindUnrecordedWorker(MadeSlot& slot) {
  const std::vector<Process> holders = ProcessesWith(
      InodesOf(slot), [others = SelfAndAncestors()](const Process& each) { return !others.contains(each.pid); });
  const auto is_child = [&holders](const Process& process) {
    return std::any_of(holders.begin(), holders.end(), [&](const Process& each) { return each.pid == process.parent; });
  };
  const auto first = std::find_if_not(holders.begin(), holders.end(), is_child);
  if (first == holders.end()) return;
  auto pidfd = OpenProcess(*first);
  if (!pidfd.ok()) return;
  slot.worker = *first;
  slot.pidfd = *std::move(pidfd);
  slot.down_since_ns = 0;
}

absl::Status Supervisor::BeginWatching() {
  auto notify = NotifySocket::Open(settings_.places.notify());
  if (!notify.ok()) return notify.status();
  notify_ = *std::move(notify);
  // Writable for the workers' user alone: other users could fill its queue.
  const std::string path = settings_.places.notify();
  if (settings_.user.set &&
      (chmod(path.c_str(), 0600) != 0 || chown(path.c_str(), settings_.user.uid, settings_.user.gid) != 0)) {
    return absl::ErrnoToStatus(errno, absl::StrCat("give the workers their socket ", path));
  }
  const absl::Status watched =
      loop_->Watch(notify_->fd(), [this] { return notify_->Read([this](const Notice& notice) { OnNotice(notice); }); });
  if (!watched.ok()) return watched;
  const absl::Duration period = settings_.heartbeat > absl::ZeroDuration()
                                    ? std::min(absl::Seconds(1), settings_.heartbeat / 4)
                                    : absl::Seconds(1);
  const auto timer = loop_->StartTimer(std::max(period, absl::Milliseconds(10)), [this] { Tick(); });
  if (!timer.ok()) return timer.status();
  slow_timer_ = *timer;
  // Before the first worker: a worker without a record is found by the sockets of the recorded slot.
  (void)Save();
  for (auto& [place, slot] : slots_) {
    if (slot.has_worker()) {
      Follow(slot);
      LogInfo("slot ", slot.number, ": worker ", slot.worker.pid, " goes on");
      if (!slot.restart_asked) continue;
      LogWarning("slot ", slot.number, ": worker ", slot.worker.pid,
                 " has lost a socket of its slot, and is restarted");
      Terminate(slot);
    } else if (slot.role == Role::kServing) {
      StartWorker(slot);
    }
  }
  Tick();
  return absl::OkStatus();
}

Supervisor::~Supervisor() {
  if (remove_at_end_ || stopping_) RemoveEverything();
}

void Supervisor::RemoveEverything() {
  for (auto& [place, slot] : slots_) {
    if (!slot.has_worker()) continue;  // only where a start failed half-way
    (void)Signal(slot.pidfd, SIGKILL);
    (void)ReapExit(slot.pidfd);
  }
  RemoveKernel();
  for (const auto& [place, slot] : slots_) {
    for (const Transport transport : settings_.transports()) Unstore(transport, place);
  }
  slots_.clear();
  RemoveFolder(settings_.places);
}

}  // namespace hedgerow::steer
