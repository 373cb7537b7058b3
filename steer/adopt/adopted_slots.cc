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

// Workers that are known only by the order of their sockets are searched again at this interval: no event reports their change.
constexpr absl::Duration kLookAgain = absl::Seconds(1);
// The same while a socket waits for its worker.
constexpr absl::Duration kLookSoon = absl::Milliseconds(200);
// During a daemon's reload a new worker briefly has one of its two sockets, or shares them with the old worker.
constexpr absl::Duration kPatience = absl::Seconds(3);
// Interval of the check which program the kernel runs.
constexpr absl::Duration kCheck = absl::Seconds(1);

const char* Name(Transport transport) { return transport == Transport::kUdp ? "UDP" : "TCP"; }

std::optional<size_t> SlotOf(const std::vector<AdoptedSlot>& slots, const AdoptedWorker& worker) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (worker.udp && worker.udp->cookie == slots[i].udp.cookie) return i;
    if (worker.tcp && worker.tcp->cookie == slots[i].tcp.cookie) return i;
  }
  return std::nullopt;
}

std::optional<size_t> EmptySlotFor(const std::vector<AdoptedSlot>& slots, const AdoptedWorker& worker) {
  std::optional<size_t> chosen;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].empty()) continue;
    if (slots[i].worker.pid == worker.process.pid) return i;
    if (!chosen) chosen = i;
  }
  return chosen;
}

// The worker's socket, while another one is in its slot.
bool IsElsewhere(const std::optional<AdoptedSocket>& own, const AdoptedSocket& present) {
  return own.has_value() && present.cookie != 0 && present.cookie != own->cookie;
}

}  // namespace

Placement Place(const std::vector<AdoptedSlot>& slots, const std::vector<AdoptedWorker>& found) {
  Placement placement{.slots = slots};
  std::vector<const AdoptedWorker*> homeless;
  const auto fill = [&](size_t slot, Transport transport, const std::optional<AdoptedSocket>& socket) {
    AdoptedSocket& present = placement.slots[slot].socket(transport);
    if (!socket || (present.cookie != 0 && present.cookie != socket->cookie)) return;
    if (std::exchange(present, *socket).cookie != 0) return;
    placement.fills.push_back({.slot = static_cast<int>(slot), .transport = transport, .socket = *socket});
  };
  const auto settle = [&](size_t number, const AdoptedWorker& worker) {
    AdoptedSlot& slot = placement.slots[number];
    fill(number, Transport::kUdp, worker.udp);
    fill(number, Transport::kTcp, worker.tcp);
    if (!worker.reads) {
      slot.has_worker = false;
      return;
    }
    const bool is_other = slot.worker.pid != worker.process.pid || slot.worker.start_ticks != worker.process.start_ticks;
    // kOrder is a guess, and does not replace a worker that runs.
    if (is_other && !(worker.evidence == Evidence::kOrder && slot.has_worker)) {
      const bool is_correction = slot.evidence == Evidence::kOrder && slot.has_worker;
      if (slot.worker.pid != 0 && !is_correction) ++slot.restarts;
      slot.worker = worker.process;
      slot.evidence = worker.evidence;
    }
    if (!is_other) slot.worker.name = worker.process.name;
    slot.has_worker = true;
  };
  // Workers with a slot first, so that a new worker never takes an occupied slot.
  for (const AdoptedWorker& worker : found) {
    if (const auto slot = SlotOf(placement.slots, worker)) {
      const AdoptedSlot& there = placement.slots[*slot];
      const bool is_split = IsElsewhere(worker.udp, there.udp) || IsElsewhere(worker.tcp, there.tcp);
      if (is_split && worker.evidence != Evidence::kOrder) placement.split.push_back(worker.process);
      settle(*slot, worker);
    } else {
      homeless.push_back(&worker);
    }
  }
  for (const AdoptedWorker* worker : homeless) {
    if (const auto slot = EmptySlotFor(placement.slots, *worker)) {
      settle(*slot, *worker);
    } else {
      placement.waiting.push_back(worker->process);
    }
  }
  return placement;
}

absl::StatusOr<std::unique_ptr<AdoptedSlots>> AdoptedSlots::Adopt(KernelGroup* group, const SocketSearch& search, const AdoptedWorkers& workers) {
  if (const absl::Status status = RefuseOthers(workers); !status.ok()) return status;
  auto adopted = std::unique_ptr<AdoptedSlots>(new AdoptedSlots(group, search));
  Placement placement = Place(std::vector<AdoptedSlot>(workers.workers.size()), workers.workers);
  // All sockets before the programs: an attached program rejects packets for sockets that are not inserted yet.
  std::map<Transport, net::UniqueFd> any;
  for (const Placement::Fill& fill : placement.fills) {
    auto socket = OpenSocket(fill.socket);
    if (!socket.ok()) return socket.status();
    const auto foreign = group->ProgramOf(socket->get());
    if (!foreign.ok()) return foreign.status();
    if (*foreign != 0 && *foreign != HR_STEER_CLASSIC_PROGRAM && *foreign != group->OwnProgram(fill.transport)) {
      return absl::FailedPreconditionError(absl::StrCat("another program (id ", *foreign, ", `bpftool prog show id ", *foreign, "`) spreads the ",
                                                        Name(fill.transport), " packets of process ", fill.socket.holder, " already"));
    }
    if (const absl::Status status = group->Insert(fill.transport, fill.slot, socket->get()); !status.ok()) return status;
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
                                                                   std::vector<AdoptedSlot> slots, Filters filters) {
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
    programs_.insert(ProgramOf(worker.process.pid));
    if (worker.udp) cookies_.insert(worker.udp->cookie);
    if (worker.tcp) cookies_.insert(worker.tcp->cookie);
    certain_ &= worker.evidence != Evidence::kOrder;
  }
  programs_.erase("");
}

// A classic filter is the daemon's own way to choose (knot: by the processor). It is kept for the end.
absl::Status AdoptedSlots::Attach(Transport transport, int socket) {
  auto filter = group_->ClassicFilterOf(socket);
  if (!filter.ok()) return filter.status();
  if (!filter->empty()) filters_[transport] = *std::move(filter);
  return group_->Attach(transport, socket);
}

// When a daemon's last socket has closed, its next bind makes a reuseport group without a program, and the daemon may attach a filter of
// its own. Attaches again in both cases. A foreign program stays, and is returned as a problem.
std::string AdoptedSlots::AttachWhereNeeded(Transport transport, int socket, std::vector<std::string>& lines) {
  const auto program = group_->ProgramOf(socket);
  if (!program.ok()) return std::string(program.status().message());
  if (*program == group_->OwnProgram(transport)) return "";
  if (*program != 0 && *program != HR_STEER_CLASSIC_PROGRAM) {
    return absl::StrCat("takeover: the program ", *program, " chooses among the ", Name(transport), " sockets, in place of this group's ",
                        group_->OwnProgram(transport), ", so sources meet any worker");
  }
  if (*program == 0) filters_.erase(transport);  // it went with the former group
  if (const absl::Status status = Attach(transport, socket); !status.ok()) return std::string(status.message());
  lines.push_back(absl::StrCat("the ", Name(transport), " sockets had ", *program == 0 ? "no program" : "a classic filter", ": attached again"));
  return "";
}

void AdoptedSlots::CheckPrograms(std::vector<std::string>& lines) {
  takeovers_.clear();
  std::vector<Process> holders;
  for (const AdoptedSlot& slot : slots_) holders.push_back(slot.worker);
  for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
    const bool has_any = std::any_of(slots_.begin(), slots_.end(),
                                     [&](AdoptedSlot& slot) { return slot.socket(transport).cookie != 0; });
    if (!has_any) continue;
    const auto socket = AnySocket(search_, transport, holders);
    if (!socket.ok()) continue;  // it has closed
    if (std::string wrong = AttachWhereNeeded(transport, socket->get(), lines); !wrong.empty()) takeovers_.push_back(std::move(wrong));
  }
}

std::vector<std::string> AdoptedSlots::problems() const {
  std::vector<std::string> all = takeovers_;
  all.insert(all.end(), problems_.begin(), problems_.end());
  return all;
}

absl::Status AdoptedSlots::Resize(size_t slots) {
  for (size_t i = slots; i < slots_.size(); ++i) {
    if (!slots_[i].empty()) {
      return absl::FailedPreconditionError(absl::StrCat("slot ", i, " has the sockets of process ", ToString(slots_[i].worker),
                                                        ": end that worker first, which is the daemon's to do"));
    }
  }
  slots_.resize(slots);
  cookies_.clear();
  return absl::OkStatus();
}

absl::Status AdoptedSlots::Reattach(Transport transport) {
  std::vector<Process> holders;
  for (const AdoptedSlot& slot : slots_) holders.push_back(slot.worker);
  const auto socket = AnySocket(search_, transport, holders);
  if (!socket.ok()) return socket.status();
  next_check_ = absl::InfinitePast();
  return group_->Attach(transport, socket->get());
}

absl::StatusOr<net::UniqueFd> AdoptedSlots::Open(size_t slot, Transport transport) const {
  const AdoptedSocket& socket = slots_[slot].socket(transport);
  if (socket.cookie == 0) return absl::NotFoundError(absl::StrCat("slot ", slot, " has no ", Name(transport), " socket"));
  return OpenSocket(socket);
}

void AdoptedSlots::GiveBack() { steer::GiveBack(*group_, search_, filters_); }

absl::Status AdoptedSlots::Insert(const Placement::Fill& fill) {
  const auto socket = OpenSocket(fill.socket);
  if (!socket.ok()) return socket.status();
  return group_->Insert(fill.transport, fill.slot, socket->get());
}

void AdoptedSlots::Close(const std::set<uint64_t>& cookies, std::vector<std::string>& lines) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
      AdoptedSocket& socket = slots_[i].socket(transport);
      if (socket.cookie == 0 || cookies.contains(socket.cookie)) continue;
      socket = {};
      lines.push_back(absl::StrCat("slot ", i, ": process ", ToString(slots_[i].worker), " closed its ", Name(transport), " socket"));
    }
  }
}

bool AdoptedSlots::NoteEndedWorkers(std::vector<std::string>& lines) {
  bool ended = false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].has_worker || Runs(slots_[i].worker)) continue;
    slots_[i].has_worker = false;
    ended = true;
    lines.push_back(absl::StrCat("slot ", i, ": process ", ToString(slots_[i].worker), " ended",
                                 slots_[i].empty() ? "" : "; another process holds its sockets"));
  }
  return ended;
}

void AdoptedSlots::Take(Placement placement, std::vector<std::string>& lines) {
  if (!placement.fills.empty()) next_check_ = absl::InfinitePast();
  for (const Placement::Fill& fill : placement.fills) {
    const absl::Status status = Insert(fill);
    if (status.ok()) continue;
    placement.slots[static_cast<size_t>(fill.slot)].socket(fill.transport) = {};
    cookies_.clear();  // search again: one of the two sockets is closing
    if (!absl::IsNotFound(status) && !absl::IsAlreadyExists(status)) problems_.push_back(std::string(status.message()));
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    const AdoptedSlot& now = placement.slots[i];
    if (now.empty() || (now.restarts == slots_[i].restarts && now.worker.pid == slots_[i].worker.pid &&
                        now.udp.cookie == slots_[i].udp.cookie && now.tcp.cookie == slots_[i].tcp.cookie)) continue;
    lines.push_back(absl::StrCat("slot ", i, ": process ", ToString(now.worker), " serves it"));
  }
  for (const Process& process : placement.waiting) {
    problems_.push_back(
        absl::StrCat("process ", ToString(process),
                     " has sockets of the group, and no slot is free: it has no sources of its own until one is. "
                     "`hedgerow steer resize ",
                     slots_.size() + placement.waiting.size(), "` makes room"));
  }
  for (const Process& process : placement.split) {
    problems_.push_back(absl::StrCat("process ", ToString(process), " has its UDP socket in one slot and its TCP socket in another, because their "
                                     "order was a wrong guess: a source meets two workers. Stop this group and adopt the daemon again"));
  }
  slots_ = std::move(placement.slots);
}

absl::Status AdoptedSlots::Follow(absl::Time now, std::vector<std::string>& lines) {
  const auto holders = HoldersOf(search_);
  if (!holders.ok()) return holders.status();
  SocketSearch search = search_;
  search.pids.clear();
  std::set<std::string> programs;
  for (const Process& holder : *holders) {
    if (programs_.contains(ProgramOf(holder.pid))) search.pids.push_back(holder.pid);
    programs.insert(ProgramOf(holder.pid));
  }
  problems_.clear();
  if (holders->empty()) return absl::OkStatus();
  // Of the daemon as it was no process holds a socket: an upgrade to another path.
  if (search.pids.empty() && programs.size() == 1) {
    lines.push_back(absl::StrCat("the daemon is ", *programs.begin(), " now"));
    programs_ = programs;
    return Follow(now, lines);
  }
  if (search.pids.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the daemon has gone, and programs of several paths have ",
                                                      search_.listen.ToString(), ": ", absl::StrJoin(programs, ", "),
                                                      ". Stop this group and adopt one of them"));
  }
  const auto found = FindWorkers(search);
  if (!found.ok()) return found.status();
  for (const Process& process : found->others) {
    problems_.push_back(
        absl::StrCat("process ", ToString(process),
                     " has sockets of the group and is none of the daemon's: it has no sources of its own"));
  }
  Take(Place(slots_, found->workers), lines);
  for (const AdoptedWorker& worker : found->workers) {
    certain_ &= worker.evidence != Evidence::kOrder;
    if (!worker.reads) next_look_ = now + kLookSoon;
  }
  return absl::OkStatus();
}

std::vector<std::string> AdoptedSlots::Poll(absl::Time now) {
  std::vector<std::string> lines;
  const auto cookies = CookiesOf(search_);
  if (!cookies.ok()) return {std::string(cookies.status().message())};
  Close(*cookies, lines);
  const bool ended = NoteEndedWorkers(lines);
  LookWhereNeeded(*cookies, ended, now, lines);
  if (now >= next_check_) {
    next_check_ = now + kCheck;
    CheckPrograms(lines);
  }
  return lines;
}

void AdoptedSlots::LookWhereNeeded(const std::set<uint64_t>& cookies, bool ended, absl::Time now, std::vector<std::string>& lines) {
  if (cookies == cookies_ && !ended && (certain_ || now < next_look_)) return;
  next_look_ = now + kLookAgain;
  cookies_ = cookies;
  certain_ = true;
  const absl::Status status = Follow(now, lines);
  if (status.ok()) {
    failing_since_ = absl::InfiniteFuture();
    return;
  }
  cookies_.clear();  // search again at the next poll
  failing_since_ = std::min(failing_since_, now);
  if (now - failing_since_ >= kPatience) problems_ = {std::string(status.message())};
}

}  // namespace hedgerow::steer
