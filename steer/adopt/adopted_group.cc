// SPDX-License-Identifier: Apache-2.0
#include "steer/adopt/adopted_group.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/steady_wait.h"
#include "operate/log.h"
#include "steer/process.h"
#include "steer/record.h"
#include "steer/sock_diag.h"

namespace hedgerow::steer {
namespace {

// How often the daemon's sockets are listed: two dumps of sock_diag, which cost some 50 us where nothing has changed.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// A daemon that is starting makes its workers one after the other: its sockets were the same for a while, or the last
// time has come.
constexpr absl::Duration kSettle = absl::Seconds(1), kSettleMost = absl::Seconds(5);

absl::StatusOr<AdoptedWorkers> FindSettled(const SocketSearch& search) {
  const bool finds_daemon = search.pids.empty();
  std::set<uint64_t> before;
  const absl::Time last = net::MonotonicNow() + kSettleMost;
  for (absl::Time since = net::MonotonicNow();; absl::SleepFor(kLook)) {
    auto cookies = CookiesOf(search);
    if (!cookies.ok()) return cookies.status();
    if (*cookies != before) since = net::MonotonicNow();
    before = *std::move(cookies);
    const bool is_settled =
        !before.empty() &&
        net::MonotonicNow() >= std::min(since + (finds_daemon ? kSettle : absl::ZeroDuration()), last);
    if (!before.empty() && !is_settled) continue;
    auto found = FindWorkers(search);
    // Some of its sockets are made, and others not yet; or children that held them have ended meanwhile.
    const bool may_come = absl::IsFailedPrecondition(found.status()) ||
                          (!before.empty() && finds_daemon && absl::IsNotFound(found.status()));
    if (!may_come || net::MonotonicNow() >= std::min(since + 2 * kSettle, last)) return found;
  }
}

// Pins sources with open connections to the workers that hold these, so that their UDP follows from the first packet
// on.
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
      const Choice choice = Explain(kernel.config(), devices, {}, *table, each.peer, {});
      if (choice.slot == slot) continue;
      const absl::Status done = kernel.Pin(choice.source, static_cast<uint8_t>(slot));
      if (!done.ok() && !absl::IsResourceExhausted(done)) return done;
      pinned += done.ok();
    }
  }
  return pinned;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdoptedGroup>> AdoptedGroup::Start(EventLoop* loop, const Settings& settings,
                                                                  const SocketSearch& search) {
  std::unique_ptr<AdoptedGroup> group(new AdoptedGroup(loop, settings));
  if (const absl::Status adopted = group->Adopt(search); !adopted.ok()) return adopted;
  const auto timer = loop->StartTimer(kLook, [raw = group.get()] { raw->Tick(); });
  if (!timer.ok()) return timer.status();
  group->timer_ = *timer;
  group->Tick();  // before it is ready: what ended without a supervisor has its sources elsewhere
  (void)group->Save();
  return group;
}

absl::Status AdoptedGroup::Adopt(SocketSearch search) {
  const auto found = FindSettled(search);
  if (!found.ok()) return found.status();
  if (const absl::Status alone = RefuseOthers(*found); !alone.ok()) return alone;
  settings_.udp = settings_.tcp = false;
  for (const AdoptedWorker& worker : found->workers) {
    settings_.udp |= worker.udp.has_value();
    settings_.tcp |= worker.tcp.has_value();
  }
  const std::vector<Transport> transports = settings_.transports();
  search.transports = {transports.begin(),
                       transports.end()};  // a later socket of the other transport is not the group's

  const Leftovers left = LookForLeftovers(settings_.places, settings_.bpffs);
  if (left.has_record && left.record.mode() != "adopt" && !left.workers.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("group ", settings_.places.name,
                     " was left by `hedgerow steer run`, with its workers: start that again, or remove it by "
                     "`hedgerow steer clean --name ",
                     settings_.places.name, "`"));
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
        GiveBack(former->get(), search, {});
    }
    if (const auto removed = RemoveLeftovers(settings_.places, left); !removed.ok()) return removed.status();
  }
  return Begin(search, *found);
}

absl::Status AdoptedGroup::Begin(const SocketSearch& search, const AdoptedWorkers& found) {
  if (const absl::Status folder = MakeFolder(); !folder.ok()) return folder;
  remove_at_end_ = true;
  if (const absl::Status created = CreateKernel(found.workers.size()); !created.ok()) return created;
  if (settings_.udp && settings_.tcp) {
    const auto pinned = PinConnections(*kernel_, settings_.listen, found);
    if (!pinned.ok()) return pinned.status();
    if (*pinned > 0) LogInfo(*pinned, " sources stay with the workers that have their open connections");
  }
  auto slots = AdoptedSlots::Adopt(kernel_.get(), search, found);
  if (!slots.ok()) return slots.status();
  slots_ = *std::move(slots);
  return OpenTable();
}

// False: the dead supervisor's group differs from the wanted one, or its programs are an older build's, and they are
// detached.
absl::StatusOr<bool> AdoptedGroup::Resume(const v1::Record& record, const SocketSearch& search,
                                          const AdoptedWorkers& found) {
  auto kernel = KernelGroup::Open(settings_.bpffs, settings_.places.name);
  if (absl::IsFailedPrecondition(kernel.status())) {
    GiveBack(nullptr, search, FiltersOf(record));
    return false;
  }
  if (!kernel.ok()) return kernel.status();
  const auto other = Difference(record, **kernel);
  if (!other.ok()) return other.status();
  if (!other->empty() || static_cast<int>(found.workers.size()) > record.slots_size()) {
    GiveBack(kernel->get(), search, FiltersOf(record));
    return false;
  }
  std::vector<Slot> slots;
  for (const v1::RecordedSlot& recorded : record.slots()) slots.push_back(FromRecord(recorded));
  kernel_ = *std::move(kernel);
  auto resumed = AdoptedSlots::Resume(kernel_.get(), search, found, std::move(slots), FiltersOf(record));
  if (!resumed.ok()) return resumed.status();
  slots_ = *std::move(resumed);
  LogInfo("took over group ", settings_.places.name, " from pid ", record.supervisor_pid());
  for (const std::string& line : slots_->Poll(net::MonotonicNow())) LogInfo(line);
  return true;
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

std::vector<Slot*> AdoptedGroup::Slots() {
  std::vector<Slot*> all;
  for (Slot& slot : slots_->slots()) all.push_back(&slot);
  return all;
}

void AdoptedGroup::WithSocket(const Slot& slot, Transport transport, const std::function<void(int)>& visit) const {
  if (const auto socket = OpenSocket(slot.socket(transport)); socket.ok()) visit(socket->get());
}

void AdoptedGroup::Tick() {
  const std::vector<std::string> lines = slots_->Poll(net::MonotonicNow());
  for (const std::string& line : lines) LogInfo(line);
  const int64_t now = MonotonicNs();
  for (Slot& slot : slots_->slots()) {
    const bool down = (settings_.udp && slot.udp.cookie == 0) || (settings_.tcp && slot.tcp.cookie == 0);
    if (slot.started_ns != 0 && down == (slot.down_since_ns != 0)) continue;
    slot.down_since_ns = down ? now : 0;
    slot.started_ns = now;
    slot.heard = true;  // it serves when it has its sockets
  }
  for (const auto& [number, slot] : Serving()) {
    if (const absl::Status done = table_->SetGeneration(number, slot->generation, false); !done.ok())
      LogError("slot ", number, ": ", done.message());
  }
  ApplyEmpty();
  PollPins(now);
  LogProblems();
  if (!lines.empty()) (void)Save();
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
  if (const absl::Status good = CheckWorkers(workers); !good.ok()) return good;
  const size_t former = slots_->count();
  std::vector<std::string> lines;
  if (const absl::Status resized = slots_->Resize(workers, lines); !resized.ok()) return resized;
  for (const std::string& line : lines) LogInfo(line);
  return ChangeTable([this, former] { slots_->Shrink(former); });
}

absl::StatusOr<v1::Slot> AdoptedGroup::RestartWorker(uint32_t number) {
  const auto slot = FindSlot(number);
  if (!slot.ok()) return slot.status();
  return absl::FailedPreconditionError(
      absl::StrCat("the workers of an adopted group are the daemon's: restart process ", ToString((*slot)->worker),
                   " by the daemon's own means"));
}

absl::StatusOr<v1::Group> AdoptedGroup::Reload(std::optional<uint32_t> slot) {
  if (slot.has_value())
    return absl::FailedPreconditionError("the workers of an adopted group are the daemon's: reload all its slots");
  std::vector<std::string> lines;
  const absl::Status next = slots_->Next(lines);
  for (const std::string& line : lines) LogInfo(line);
  if (!next.ok()) return next;
  Tick();
  (void)Save();
  return Show();
}

}  // namespace hedgerow::steer
