// SPDX-License-Identifier: Apache-2.0
#include "steer/adopt/adopted_group.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operate/log.h"
#include "steer/leftovers.h"
#include "steer/process.h"
#include "steer/socket_state.h"
#include "steer/sock_diag.h"
#include "steer/sockets.h"

namespace hedgerow::steer {
namespace {

// How often the daemon's sockets are listed: two dumps of sock_diag, which cost some 50 us where nothing has changed.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// How long the start waits for evidence that is better than the order of sockets.
constexpr absl::Duration kSettle = absl::Seconds(1);

// All processes of a daemon that is starting: they were the same for a while.
absl::StatusOr<std::vector<pid_t>> FindStarted(const SocketSearch& search) {
  auto found = FindDaemon(search);
  for (absl::Time since = absl::Now(); found.ok() && absl::Now() < since + kSettle;) {
    absl::SleepFor(kLook);
    auto next = FindDaemon(search);
    if (!next.ok() || *next != *found) since = absl::Now();
    found = std::move(next);
  }
  return found;
}

// A daemon that is starting has made its sockets before its workers poll them.
absl::StatusOr<AdoptedWorkers> FindSettled(const SocketSearch& search) {
  auto found = FindWorkers(search);
  for (const absl::Time end = absl::Now() + kSettle; absl::Now() < end; found = FindWorkers(search)) {
    const bool is_certain = found.ok() && Guesses(*found).empty();
    if (is_certain || (!found.ok() && !absl::IsFailedPrecondition(found.status()))) break;
    absl::SleepFor(kLook);
  }
  return found;
}

// Pins sources with open connections to the workers that hold these, so that their UDP follows from the first packet on.
absl::StatusOr<int> PinConnections(KernelGroup& kernel, const Listen& listen, const AdoptedWorkers& found) {
  auto connections = ListSockets(Transport::kTcp, listen.port, ~(1u << TCP_LISTEN));
  if (!connections.ok()) return connections.status();
  std::erase_if(*connections, [](const InetSocket& each) { return each.inode == 0; });
  std::set<uint32_t> inodes;
  for (const InetSocket& each : *connections) inodes.insert(each.inode);
  const auto listed = kernel.Devices();
  if (!listed.ok()) return listed.status();
  const DeviceIndex devices(*listed);
  const auto table = kernel.ReadTable();
  if (!table.ok()) return table.status();
  int pinned = 0;
  std::set<net::IpAddress> known;
  for (size_t slot = 0; slot < found.workers.size(); ++slot) {
    const auto held = SocketsOf(found.workers[slot].process, inodes);
    if (!held.ok()) continue;
    for (const InetSocket& each : *connections) {
      if (!held->descriptors.contains(each.inode) || !known.insert(each.peer).second) continue;
      uint8_t address[16] = {};
      const auto wire = each.peer.wire();
      memcpy(address, wire.data(), wire.size());
      const Choice choice = Explain(kernel.config(), devices, {}, *table, each.peer.is_v4() ? 4 : 6, address, {});
      if (choice.slot == slot) continue;
      const absl::Status done = kernel.Pin(choice.source, static_cast<uint8_t>(slot));
      if (!done.ok() && !absl::IsResourceExhausted(done)) return done;
      pinned += done.ok();
    }
  }
  return pinned;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdoptedGroup>> AdoptedGroup::Start(EventLoop* loop, const Settings& settings, const SocketSearch& search,
                                                                  bool mounted_bpffs) {
  std::unique_ptr<AdoptedGroup> group(new AdoptedGroup(loop, settings, mounted_bpffs));
  if (const absl::Status adopted = group->Adopt(search); !adopted.ok()) return adopted;
  if (const absl::Status made = group->MakeSinks(); !made.ok()) return made;
  const auto timer = loop->StartTimer(kLook, [raw = group.get()] { raw->Tick(); });
  if (!timer.ok()) return timer.status();
  group->timer_ = *timer;
  (void)group->Save();
  return group;
}

absl::Status AdoptedGroup::Adopt(SocketSearch search) {
  if (search.pids.empty()) {
    auto pids = FindStarted(search);
    if (!pids.ok()) return pids.status();
    search.pids = *std::move(pids);
  }
  const auto found = FindSettled(search);
  if (!found.ok()) return found.status();
  if (const absl::Status alone = RefuseOthers(*found); !alone.ok()) return alone;
  const auto has = [&](auto member) {
    return std::any_of(found->workers.begin(), found->workers.end(), [&](const AdoptedWorker& each) { return (each.*member).has_value(); });
  };
  settings_.udp = has(&AdoptedWorker::udp);
  settings_.tcp = has(&AdoptedWorker::tcp);
  const std::vector<Transport> transports = settings_.transports();
  settings_.socket_uid = found->uid;
  search.transports = {transports.begin(), transports.end()};  // a later socket of the other transport is not the group's

  const Leftovers left = LookForLeftovers(settings_.places, settings_.bpffs);
  if (left.has_record && left.record.mode() != "adopt" && !left.workers.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("group ", settings_.places.name,
                                                      " was left by `hedgerow steer run`, with its workers: start that again, or remove it by "
                                                      "`hedgerow steer clean --name ", settings_.places.name, "`"));
  }
  if (left.has_pins && left.record.mode() == "adopt") {
    const auto resumed = Resume(left.record, search, *found);
    if (!resumed.ok()) return resumed.status();
    if (*resumed) return OpenTable();
  }
  if (left.any()) {
    // Without a readable record the pins show whether the daemon's sockets have these programs.
    if (left.has_pins && left.record.mode() != "adopt") {
      if (const auto former = KernelGroup::Open(left.bpffs, settings_.places.name); former.ok())
        GiveBack(**former, search, {});
    }
    if (const absl::Status removed = RemoveLeftovers(settings_.places, left); !removed.ok()) return removed;
  }
  return Begin(search, *found);
}

absl::Status AdoptedGroup::Begin(const SocketSearch& search, const AdoptedWorkers& found) {
  if (const absl::Status folder = MakeFolder(); !folder.ok()) return folder;
  remove_at_end_ = true;
  AddShares(found.workers.size());
  if (const absl::Status created = CreateKernel(WeightsNow()); !created.ok()) return created;
  if (settings_.udp && settings_.tcp) {
    const auto pinned = PinConnections(*kernel_, settings_.listen, found);
    if (!pinned.ok()) return pinned.status();
    if (*pinned > 0) LogInfo(*pinned, " sources stay with the workers that have their open connections");
  }
  auto slots = AdoptedSlots::Adopt(kernel_.get(), search, found);
  if (!slots.ok()) return slots.status();
  slots_ = *std::move(slots);
  for (const std::string& guess : Guesses(found)) LogWarning(guess);
  return OpenTable();
}

// False: the dead supervisor's group differs from the wanted one, or its programs are an older build's, and they are
// detached.
absl::StatusOr<bool> AdoptedGroup::Resume(const v1::Record& record, const SocketSearch& search, const AdoptedWorkers& found) {
  auto kernel = KernelGroup::Open(settings_.bpffs, settings_.places.name);
  if (!kernel.ok()) return kernel.status();
  const auto other = Difference(record, **kernel);
  if (!other.ok()) return other.status();
  if (!other->empty() || (*kernel)->config().layout != HR_STEER_LAYOUT ||
      static_cast<int>(found.workers.size()) > record.slots_size()) {
    GiveBack(**kernel, search, FiltersOf(record));
    return false;
  }
  std::vector<AdoptedSlot> slots;
  for (const v1::RecordedSlot& recorded : record.slots()) {
    slots.push_back({.worker = FromRecord(recorded.worker()),
                     .has_worker = recorded.worker().pid() != 0,
                     .udp = {.cookie = recorded.udp_cookie()},
                     .tcp = {.cookie = recorded.tcp_cookie()},
                     .restarts = recorded.restarts()});
    AddShares(1);
    shares_.back().weight = recorded.weight();
    shares_.back().drained = recorded.drained();
  }
  kernel_ = *std::move(kernel);
  auto resumed = AdoptedSlots::Resume(kernel_.get(), search, found, std::move(slots), FiltersOf(record));
  if (!resumed.ok()) return resumed.status();
  slots_ = *std::move(resumed);
  LogInfo("took over group ", settings_.places.name, " from pid ", record.supervisor_pid());
  for (const std::string& line : slots_->Poll(absl::Now())) LogInfo(line);
  return true;
}

// After the programs are attached: the kernel's own spreading would give the sink a share. It lasts while the daemon
// has a socket: alone it would hold the daemon's port.
absl::Status AdoptedGroup::MakeSinks() {
  if (settings_.empty != HR_STEER_DROP) return absl::OkStatus();
  const auto& slots = slots_->slots();
  for (const Transport transport : settings_.transports()) {
    net::UniqueFd& sink = sinks_[static_cast<size_t>(transport)];
    const bool serves = std::any_of(slots.begin(), slots.end(),
                                    [&](const AdoptedSlot& each) { return each.socket(transport).cookie != 0; });
    if (!serves) sink.Reset();
    if (!serves || sink.valid()) continue;
    auto made = MakeSink(settings_, transport);
    if (!made.ok()) return made.status();
    if (const absl::Status done = kernel_->Insert(transport, HR_STEER_SINK, made->get()); !done.ok()) return done;
    sink = *std::move(made);
  }
  return absl::OkStatus();
}

AdoptedGroup::~AdoptedGroup() {
  if (timer_ >= 0) loop_->StopTimer(timer_);
  if (!remove_at_end_ || kernel_ == nullptr) return;
  if (slots_ != nullptr) slots_->GiveBack();
  RemoveKernel();
  RemoveFolder(settings_.places);
}

void AdoptedGroup::BeginStop() {
  remove_at_end_ = true;
  loop_->Stop();
}

std::string AdoptedGroup::WorkersText() {
  std::vector<std::string> workers;
  for (const AdoptedSlot& slot : slots_->slots()) workers.push_back(ToString(slot.worker));
  return absl::StrCat("workers ", absl::StrJoin(workers, ", "));
}

void AdoptedGroup::AddShares(size_t count) {
  shares_.resize(shares_.size() + count);
  for (auto share = shares_.end() - static_cast<ptrdiff_t>(count); share != shares_.end(); ++share) share->since_ns = MonotonicNs();
}

std::map<int, Share*> AdoptedGroup::Shares() {
  std::map<int, Share*> shares;
  for (size_t i = 0; i < shares_.size(); ++i) shares[static_cast<int>(i)] = &shares_[i];
  return shares;
}

bool AdoptedGroup::IsDown(size_t number) const {
  const AdoptedSlot& slot = slots_->slots()[number];
  return !slot.has_worker || (settings_.udp && slot.udp.cookie == 0) || (settings_.tcp && slot.tcp.cookie == 0);
}

void AdoptedGroup::Tick() {
  const std::vector<std::string> lines = slots_->Poll(absl::Now());
  for (const std::string& line : lines) LogInfo(line);
  const int64_t now = MonotonicNs();
  for (size_t i = 0; i < shares_.size(); ++i) {
    AdoptedShare& share = shares_[i];
    const bool down = IsDown(i);
    if (down == (share.down_since_ns != 0)) continue;
    share.down_since_ns = down ? now : 0;
    share.since_ns = now;
  }
  ApplyEmpty();
  PollPins(now);
  const absl::Status made = MakeSinks();
  sink_problem_ = made.ok() ? "" : absl::StrCat("--empty drop: ", made.message(), ": an empty slot rejects");
  const std::vector<std::string> problems = Problems();
  for (const std::string& problem : problems) {
    if (std::find(problems_.begin(), problems_.end(), problem) == problems_.end()) LogError(problem);
  }
  for (const std::string& problem : problems_) {
    if (std::find(problems.begin(), problems.end(), problem) == problems.end()) LogInfo("over: ", problem);
  }
  problems_ = problems;
  if (!lines.empty()) (void)Save();
}

std::vector<std::string> AdoptedGroup::Problems() const {
  std::vector<std::string> all = slots_->problems();
  if (!sink_problem_.empty()) all.push_back(sink_problem_);
  return all;
}

bool AdoptedGroup::IsEmpty(int number, int64_t now_ns) const {
  const AdoptedShare& share = shares_[static_cast<size_t>(number)];
  return share.down_since_ns != 0 &&
         (table_->IsEmpty(number) || now_ns - share.down_since_ns >= absl::ToInt64Nanoseconds(settings_.empty_after));
}

v1::RecordedSlot AdoptedGroup::RecordWorker(int number) const {
  const AdoptedSlot& slot = slots_->slots()[static_cast<size_t>(number)];
  v1::RecordedSlot out;
  *out.mutable_worker() = ToRecord(slot.worker);
  out.set_restarts(slot.restarts);
  out.set_udp_cookie(slot.udp.cookie);
  out.set_tcp_cookie(slot.tcp.cookie);
  return out;
}

void AdoptedGroup::Record(v1::Record& record) const {
  for (const auto& [transport, filter] : slots_->filters()) {
    (transport == Transport::kUdp ? record.mutable_udp_filter() : record.mutable_tcp_filter())
        ->Add(filter.begin(), filter.end());
  }
}

// Operations.

// The daemon's number of workers is changed first, by its own means.
absl::StatusOr<v1::Change> AdoptedGroup::Resize(uint32_t workers) {
  if (workers < 1 || workers > HR_STEER_SLOTS) {
    return absl::InvalidArgumentError(absl::StrCat("got ", workers, " workers, expected 1 to ", HR_STEER_SLOTS));
  }
  const size_t former = shares_.size();
  if (const absl::Status resized = slots_->Resize(workers); !resized.ok()) return resized;
  if (workers < former) shares_.resize(workers);
  if (workers > former) AddShares(workers - former);
  for (const std::string& line : slots_->Poll(absl::Now())) LogInfo(line);
  for (size_t i = former; i < workers; ++i) {
    if (!IsDown(i)) continue;
    (void)slots_->Resize(former);
    shares_.resize(former);
    return absl::FailedPreconditionError(absl::StrCat("the daemon has no worker for slot ", i, ": raise its number of workers first"));
  }
  return ChangeTable([] {});
}

absl::StatusOr<v1::Slot> AdoptedGroup::RestartWorker(uint32_t slot) {
  if (const auto known = FindShare(slot); !known.ok()) return known.status();
  return absl::FailedPreconditionError(absl::StrCat("the workers of an adopted group are the daemon's: restart process ",
                                                    ToString(slots_->slots()[slot].worker), " by the daemon's own means"));
}

absl::StatusOr<v1::Group> AdoptedGroup::Reattach() {
  for (const Transport transport : settings_.transports()) {
    if (const absl::Status attached = slots_->Reattach(transport); !attached.ok()) return attached;
  }
  Tick();
  return Show(false);
}

v1::Slot AdoptedGroup::ShowWorker(int number) const {
  const auto index = static_cast<size_t>(number);
  const AdoptedSlot& slot = slots_->slots()[index];
  const AdoptedShare& share = shares_[index];
  v1::Slot out;
  out.set_pid(slot.has_worker ? slot.worker.pid : 0);
  out.set_state(table_->IsEmpty(number) ? "empty"
                : IsDown(index)         ? "restarting"
                : share.drained         ? "drained"
                                        : "serving");
  out.set_restarts(slot.restarts);
  out.set_seconds_in_state(static_cast<double>(MonotonicNs() - share.since_ns) / 1e9);
  if (const auto udp = slots_->Open(index, Transport::kUdp); udp.ok()) {
    const UdpSocketState state = UdpState(udp->get());
    out.set_udp_dropped(state.dropped);
    out.set_udp_queued_bytes(state.queued_bytes);
  }
  if (const auto tcp = slots_->Open(index, Transport::kTcp); tcp.ok()) out.set_tcp_backlog(TcpBacklog(tcp->get()));
  return out;
}

}  // namespace hedgerow::steer
