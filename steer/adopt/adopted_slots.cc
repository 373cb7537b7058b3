// SPDX-License-Identifier: Apache-2.0
#include "steer/adopt/adopted_slots.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::steer {
namespace {

// While a socket's worker is not certain it is searched again at this interval: no event reports its change.
constexpr absl::Duration kLookAgain = absl::Seconds(1);
// During a daemon's reload a new worker briefly has one of its two sockets, or shares them with the old worker.
constexpr absl::Duration kPatience = absl::Seconds(3);
// Interval of the check which program the kernel runs.
constexpr absl::Duration kCheck = absl::Seconds(1);

std::optional<size_t> SlotOf(const std::vector<Slot>& slots, const AdoptedWorker& worker) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (worker.udp && worker.udp->cookie == slots[i].udp.cookie) return i;
    if (worker.tcp && worker.tcp->cookie == slots[i].tcp.cookie) return i;
  }
  return std::nullopt;
}

size_t CountServing(const std::vector<Slot>& slots) {
  return static_cast<size_t>(
      std::count_if(slots.begin(), slots.end(), [](const Slot& each) { return each.role == Role::kServing; }));
}

// The slot's next generation that has no sockets, behind the newest; -1: none.
int NextGeneration(const std::vector<Slot>& slots, const Slot& slot) {
  for (int i = 1; i < HR_STEER_GENERATIONS; ++i) {
    const int generation = (slot.generation + i) % HR_STEER_GENERATIONS;
    if (std::none_of(slots.begin(), slots.end(),
                     [&](const Slot& each) { return each.number == slot.number && each.generation == generation; }))
      return generation;
  }
  return -1;
}

std::optional<size_t> EmptySlotFor(const std::vector<Slot>& slots, const AdoptedWorker& worker) {
  std::optional<size_t> chosen;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].empty() || slots[i].role != Role::kServing) continue;
    if (slots[i].worker.pid == worker.process.pid) return i;
    if (!chosen) chosen = i;
  }
  return chosen;
}

bool HasSlot(const std::vector<Slot>& slots, const Process& process) {
  return std::any_of(slots.begin(), slots.end(),
                     [&](const Slot& slot) { return slot.worker.pid == process.pid && !slot.empty(); });
}

std::string Without(const Process& process, const std::string& why) {
  return absl::StrCat("process ", ToString(process), " has sockets of the group and no slot, ", why,
                      ": it gets nothing but what finds no other worker");
}

}  // namespace

Placement Place(const std::vector<Slot>& slots, const std::vector<AdoptedWorker>& found, bool next) {
  Placement placement{.slots = slots};
  std::vector<const AdoptedWorker*> unassigned, left;
  const auto fill = [&](size_t slot, Transport transport, const std::optional<AdoptedSocket>& socket) {
    AdoptedSocket& present = placement.slots[slot].socket(transport);
    if (!socket || (present.cookie != 0 && present.cookie != socket->cookie)) return;
    if (std::exchange(present, *socket).cookie != 0) return;
    placement.fills.push_back({.slot = static_cast<int>(slot), .transport = transport, .socket = *socket});
  };
  const auto settle = [&](size_t number, const AdoptedWorker& worker) {
    Slot& slot = placement.slots[number];
    fill(number, Transport::kUdp, worker.udp);
    fill(number, Transport::kTcp, worker.tcp);
    if (slot.worker.pid != worker.process.pid || slot.worker.start_ticks != worker.process.start_ticks) {
      // A socket whose worker is not certain keeps the one that it has.
      if (!worker.certain && Runs(slot.worker)) return;
      if (slot.worker.pid != 0) ++slot.restarts;
    }
    slot.worker = worker.process;
  };
  // Workers with a slot first, so that a new worker never takes an occupied slot.
  for (const AdoptedWorker& worker : found) {
    if (const auto slot = SlotOf(placement.slots, worker)) {
      settle(*slot, worker);
    } else {
      unassigned.push_back(&worker);
    }
  }
  for (const AdoptedWorker* worker : unassigned) {
    if (const auto slot = EmptySlotFor(placement.slots, *worker)) {
      settle(*slot, *worker);
    } else {
      left.push_back(worker);
    }
  }
  const size_t serving = CountServing(slots);
  const bool overlaps = slots.size() > serving;
  size_t i = 0;
  for (const AdoptedWorker* worker : left) {
    // One worker of the next generation that restarts: the others have their slots.
    while (!next && i < serving && !(overlaps && slots[i].came_back)) ++i;
    const bool takes = i < serving && (next || !HasSlot(placement.slots, worker->process));
    const int generation = takes ? NextGeneration(placement.slots, placement.slots[i]) : -1;
    if (generation < 0) {
      placement.waiting.push_back(worker->process);
      i += takes;
      continue;
    }
    placement.slots.push_back(placement.slots[i]);
    placement.slots.back().role = Role::kFormer;
    placement.slots[i].udp = placement.slots[i].tcp = {};
    placement.slots[i].generation = generation;
    placement.slots[i].came_back = false;
    settle(i++, *worker);
  }
  return placement;
}

std::vector<int> ComeBack(std::vector<Slot>& slots) {
  std::vector<int> back;
  const size_t serving = CountServing(slots);
  for (size_t i = 0; i < serving; ++i) {
    size_t newest = 0;
    const auto age = [&](size_t at) {
      return (slots[i].generation - slots[at].generation + HR_STEER_GENERATIONS) % HR_STEER_GENERATIONS;
    };
    for (size_t at = serving; slots[i].empty() && at < slots.size(); ++at) {
      if (slots[at].number == slots[i].number && !slots[at].empty() && (newest == 0 || age(at) < age(newest)))
        newest = at;
    }
    if (newest == 0) continue;
    slots[newest].role = Role::kServing;
    slots[newest].weight = slots[i].weight;
    slots[newest].drained = slots[i].drained;
    slots[newest].came_back = true;
    slots[i] = slots[newest];
    slots.erase(slots.begin() + static_cast<ptrdiff_t>(newest));
    back.push_back(static_cast<int>(i));
  }
  return back;
}

absl::StatusOr<std::unique_ptr<AdoptedSlots>> AdoptedSlots::Adopt(KernelGroup* group, const SocketSearch& search,
                                                                  const AdoptedWorkers& workers) {
  if (const absl::Status status = RefuseOthers(workers); !status.ok()) return status;
  auto adopted = std::unique_ptr<AdoptedSlots>(new AdoptedSlots(group, search));
  std::vector<Slot> none(workers.workers.size());
  for (size_t i = 0; i < none.size(); ++i) none[i].number = static_cast<int>(i);
  Placement placement = Place(none, workers.workers);
  // All sockets before the programs: an attached program rejects packets for sockets that are not inserted yet.
  std::map<Transport, net::UniqueFd> any;
  for (const Placement::Fill& fill : placement.fills) {
    auto socket = OpenSocket(fill.socket);
    if (!socket.ok()) return socket.status();
    const auto foreign = group->ProgramOf(socket->get());
    if (!foreign.ok()) return foreign.status();
    if (*foreign != 0 && *foreign != HR_STEER_CLASSIC_PROGRAM && *foreign != group->OwnProgram(fill.transport)) {
      return absl::FailedPreconditionError(absl::StrCat("another program (id ", *foreign, ", `bpftool prog show id ",
                                                        *foreign, "`) spreads the ", NameOf(fill.transport),
                                                        " packets of process ", fill.socket.holder, " already"));
    }
    if (const absl::Status status =
            group->Insert(fill.transport, placement.slots[static_cast<size_t>(fill.slot)].place(), socket->get());
        !status.ok())
      return status;
    any[fill.transport] = *std::move(socket);
  }
  for (const auto& [transport, socket] : any) {
    if (const absl::Status status = adopted->Attach(transport, socket.get()); !status.ok()) return status;
  }
  adopted->slots_ = std::move(placement.slots);
  adopted->Know(workers);
  return adopted;
}

absl::StatusOr<std::unique_ptr<AdoptedSlots>> AdoptedSlots::Resume(KernelGroup* group, const SocketSearch& search,
                                                                   const AdoptedWorkers& workers,
                                                                   std::vector<Slot> slots, Filters filters) {
  if (const absl::Status status = RefuseOthers(workers); !status.ok()) return status;
  auto adopted = std::unique_ptr<AdoptedSlots>(new AdoptedSlots(group, search));
  adopted->slots_ = std::move(slots);
  adopted->filters_ = std::move(filters);
  adopted->Know(workers);
  adopted->cookies_.clear();  // the first poll takes all that is new
  return adopted;
}

void AdoptedSlots::Know(const AdoptedWorkers& workers) {
  for (const AdoptedWorker& worker : workers.workers) {
    commands_.insert(CommandOf(worker.process.pid));
    if (worker.udp) cookies_.insert(worker.udp->cookie);
    if (worker.tcp) cookies_.insert(worker.tcp->cookie);
    certain_ &= worker.certain;
  }
}

// A classic filter is the daemon's own way to choose (knot: by the processor). It is kept for the end.
absl::Status AdoptedSlots::Attach(Transport transport, int socket) {
  auto filter = group_->ClassicFilterOf(socket);
  if (!filter.ok()) return filter.status();
  if (!filter->empty()) filters_[transport] = *std::move(filter);
  return group_->Attach(transport, socket);
}

// For a moment: all sockets of a transport are in one reuseport group. -1: they have closed.
net::UniqueFd AdoptedSlots::AnySocket(Transport transport) const {
  for (const Slot& slot : slots_) {
    if (auto socket = OpenSocket(slot.socket(transport)); socket.ok()) return *std::move(socket);
  }
  return {};
}

// When a daemon's last socket has closed, its next bind makes a reuseport group without a program, and the daemon may
// attach a filter of its own. Attaches again in both cases. A foreign program stays, and is a problem.
void AdoptedSlots::CheckPrograms(std::vector<std::string>& lines) {
  takeovers_.clear();
  for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
    const net::UniqueFd socket = AnySocket(transport);
    if (!socket.valid()) continue;
    const auto program = group_->ProgramOf(socket.get());
    absl::Status status = program.status();
    if (program.ok() && *program == group_->OwnProgram(transport)) continue;
    if (program.ok() && *program != 0 && *program != HR_STEER_CLASSIC_PROGRAM) {
      takeovers_.push_back(absl::StrCat("takeover: the program ", *program, " chooses among the ", NameOf(transport),
                                        " sockets, in place of this group's ", group_->OwnProgram(transport),
                                        ", so sources meet any worker"));
      continue;
    }
    if (program.ok() && *program == 0) filters_.erase(transport);  // it went with the former group
    status.Update(status.ok() ? Attach(transport, socket.get()) : status);
    if (!status.ok()) {
      takeovers_.emplace_back(status.message());
    } else {
      lines.push_back(absl::StrCat("the ", NameOf(transport), " sockets had ",
                                   *program == 0 ? "no program" : "a classic filter", ": attached again"));
    }
  }
}

std::vector<std::string> AdoptedSlots::problems() const {
  std::vector<std::string> all = takeovers_;
  all.insert(all.end(), problems_.begin(), problems_.end());
  return all;
}

absl::Status AdoptedSlots::Resize(size_t slots, std::vector<std::string>& lines) {
  for (size_t i = slots; i < count(); ++i) {
    if (!slots_[i].empty()) {
      return absl::FailedPreconditionError(absl::StrCat("slot ", i, " has the sockets of process ",
                                                        ToString(slots_[i].worker),
                                                        ": end that worker first, which is the daemon's to do"));
    }
  }
  const auto found = Find(true, lines);
  if (!found.ok()) return found.status();
  const size_t former = count();
  std::vector<Slot> wanted(slots_.begin(), slots_.begin() + static_cast<ptrdiff_t>(former));
  std::vector<Slot> leaving(slots_.begin() + static_cast<ptrdiff_t>(former), slots_.end());
  wanted.resize(slots);
  for (size_t i = former; i < slots; ++i) wanted[i].number = static_cast<int>(i);
  // More slots may take the former generations' sockets.
  if (slots <= former)
    wanted.insert(wanted.end(), std::move_iterator(leaving.begin()), std::move_iterator(leaving.end()));
  Placement placement = Place(wanted, found->workers);
  for (size_t i = former; i < slots; ++i) {
    if (placement.slots[i].empty())
      return absl::FailedPreconditionError(
          absl::StrCat("the daemon has no worker for slot ", i, ": raise its number of workers first"));
  }
  for (const Slot& slot : slots > former ? leaving : std::vector<Slot>()) RemoveSockets(slot);
  slots_ = std::move(wanted);
  problems_.clear();
  Take(std::move(placement), lines);
  Know(*found);
  cookies_.clear();
  return absl::OkStatus();
}

void AdoptedSlots::Shrink(size_t slots) {
  std::erase_if(slots_, [&](const Slot& slot) {
    if (static_cast<size_t>(slot.number) < slots) return false;
    RemoveSockets(slot);
    return true;
  });
  cookies_.clear();
}

void AdoptedSlots::RemoveSockets(const Slot& slot) {
  for (const Transport transport : {Transport::kUdp, Transport::kTcp}) (void)group_->Remove(transport, slot.place());
}

absl::Status AdoptedSlots::Next(std::vector<std::string>& lines) {
  const auto found = Find(true, lines);
  if (!found.ok()) return found.status();
  Placement placement = Place(slots_, found->workers, true);
  if (placement.fills.empty())
    return absl::FailedPreconditionError(
        "no process waits for a slot: start the daemon's next processes beside the present ones first");
  problems_.clear();
  Take(std::move(placement), lines);
  Know(*found);
  cookies_.clear();
  return absl::OkStatus();
}

size_t AdoptedSlots::count() const { return CountServing(slots_); }

void AdoptedSlots::GiveBack() { steer::GiveBack(group_, search_, filters_); }

void AdoptedSlots::Close(const std::set<uint64_t>& cookies, std::vector<std::string>& lines) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
      AdoptedSocket& socket = slots_[i].socket(transport);
      if (socket.cookie == 0 || cookies.contains(socket.cookie)) continue;
      socket = {};
      slots_[i].came_back = false;
      lines.push_back(absl::StrCat("slot ", slots_[i].number, ": process ", ToString(slots_[i].worker), " closed its ",
                                   NameOf(transport), " socket"));
    }
  }
  const std::vector<Slot> before = slots_;
  for (const int slot : ComeBack(slots_)) {
    Slot& now = slots_[static_cast<size_t>(slot)];
    now.restarts = before[static_cast<size_t>(slot)].restarts + 1;
    lines.push_back(absl::StrCat("slot ", slot, ": process ", ToString(now.worker), " serves it again"));
  }
  std::erase_if(slots_, [](const Slot& slot) { return slot.role == Role::kFormer && slot.empty(); });
}

void AdoptedSlots::Take(Placement placement, std::vector<std::string>& lines) {
  if (!placement.fills.empty()) next_check_ = absl::InfinitePast();
  std::set<size_t> failed;
  for (const Placement::Fill& fill : placement.fills) {
    const auto socket = OpenSocket(fill.socket);
    const absl::Status status =
        socket.ok()
            ? group_->Insert(fill.transport, placement.slots[static_cast<size_t>(fill.slot)].place(), socket->get())
            : socket.status();
    if (status.ok()) continue;
    failed.insert(static_cast<size_t>(fill.slot));
    placement.slots[static_cast<size_t>(fill.slot)].socket(fill.transport) = {};
    certain_ = false;  // search again: one of the two sockets is closing
    if (!absl::IsNotFound(status) && !absl::IsAlreadyExists(status)) problems_.push_back(std::string(status.message()));
  }
  // A next worker is taken with all of its sockets, or the former one serves on.
  for (const size_t i : failed) {
    if (i >= count() || placement.slots[i].generation == slots_[i].generation) continue;
    RemoveSockets(placement.slots[i]);
    placement.slots[i].udp = placement.slots[i].tcp = {};
  }
  ComeBack(placement.slots);
  for (size_t i = 0; i < count(); ++i) {
    const Slot& now = placement.slots[i];
    if (now.empty() || (now.restarts == slots_[i].restarts && now.worker.pid == slots_[i].worker.pid &&
                        now.udp.cookie == slots_[i].udp.cookie && now.tcp.cookie == slots_[i].tcp.cookie))
      continue;
    lines.push_back(absl::StrCat("slot ", i, ": process ", ToString(now.worker), " serves it"));
  }
  for (const Process& process : placement.waiting) {
    problems_.push_back(absl::StrCat(Without(process, "because none is free"), ". `hedgerow steer resize ",
                                     count() + placement.waiting.size(), "` makes room"));
  }
  slots_ = std::move(placement.slots);
}

// The daemon's workers: processes that run a command of its workers so far, and their children. An interpreter's path
// says nothing, and one daemon's workers may differ in their arguments: what was started otherwise gets a slot by
// `resize` (`any_command`), or when no other process has the port.
absl::StatusOr<AdoptedWorkers> AdoptedSlots::Find(bool any_command, std::vector<std::string>& lines) {
  SocketSearch search = search_;
  search.pids.clear();
  search.choose = [&](const std::vector<Process>& holders) -> absl::StatusOr<std::vector<pid_t>> {
    std::vector<pid_t> own, all;
    std::set<std::string> programs;
    for (const Process& holder : holders) {
      if (any_command || commands_.contains(CommandOf(holder.pid))) own.push_back(holder.pid);
      all.push_back(holder.pid);
      programs.insert(ProgramOf(holder.pid));
    }
    if (!own.empty() || all.empty()) return own;
    if (programs.size() > 1) {
      return absl::FailedPreconditionError(absl::StrCat("the daemon has gone, and programs of several paths have ",
                                                        search_.listen.ToString(), ": ", absl::StrJoin(programs, ", "),
                                                        ". Stop this group and adopt one of them"));
    }
    lines.push_back(absl::StrCat("the daemon is ", *programs.begin(), " now"));  // upgraded, or with other arguments
    return all;
  };
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (const AdoptedSocket* socket : {&slots_[i].udp, &slots_[i].tcp}) {
      if (socket->cookie != 0) search.slots[socket->cookie] = i;
    }
  }
  return FindWorkers(search);
}

absl::Status AdoptedSlots::Follow(absl::Time now, std::vector<std::string>& lines) {
  const auto found = Find(false, lines);
  if (!found.ok()) return found.status();
  problems_.clear();
  const auto in_use = static_cast<size_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Slot& each) { return each.role == Role::kServing && !each.empty(); }));
  for (const Process& process : found->others) {
    problems_.push_back(absl::StrCat(Without(process, "because its command is none of the daemon's workers'"),
                                     ". If it is one of them, `hedgerow steer resize ",
                                     std::max(count(), in_use + found->others.size()),
                                     "` gives it a slot, and `hedgerow steer reload` that of a former one"));
  }
  Placement placement = Place(slots_, found->workers);
  // As many new workers as there are slots, none of a process that has one, are the daemon that follows.
  const bool is_next = placement.waiting.size() >= count() &&
                       std::none_of(placement.waiting.begin(), placement.waiting.end(),
                                    [&](const Process& waiting) { return HasSlot(slots_, waiting); });
  certain_ = true;
  Know(*found);
  Take(is_next ? Place(slots_, found->workers, true) : std::move(placement), lines);
  if (!certain_) next_look_ = now + kLookAgain;
  return absl::OkStatus();
}

std::vector<std::string> AdoptedSlots::Poll(absl::Time now) {
  std::vector<std::string> lines;
  const auto cookies = CookiesOf(search_);
  if (!cookies.ok()) return {std::string(cookies.status().message())};
  Close(*cookies, lines);
  // Its sockets may be another process's now.
  const bool ended =
      std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.empty() && !Runs(slot.worker); });
  if (*cookies != cookies_ || ended || (!certain_ && now >= next_look_)) {
    cookies_ = *cookies;
    const absl::Status followed = Follow(now, lines);
    failing_since_ = followed.ok() ? absl::InfiniteFuture() : std::min(failing_since_, now);
    if (!followed.ok()) cookies_.clear();  // search again at the next poll
    if (now - failing_since_ >= kPatience) problems_ = {std::string(followed.message())};
  }
  if (now >= next_check_) {
    next_check_ = now + kCheck;
    CheckPrograms(lines);
  }
  return lines;
}

}  // namespace hedgerow::steer
