// SPDX-License-Identifier: Apache-2.0
#include "steer/adopt/adopted_group.h"

#include <linux/capability.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operate/log.h"
#include "steer/leftovers.h"
#include "steer/process.h"
#include "steer/record.h"
#include "steer/socket_state.h"
#include "steer/sock_diag.h"
#include "steer/sockets.h"

namespace hedgerow::steer {
namespace {

constexpr int64_t kMs = 1'000'000;
// How often the daemon's sockets are listed: two dumps of sock_diag, which cost some 50 us where nothing has changed.
constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr int64_t kPins_ms = 250;
// How long workers are looked for that are known by more than their order.
constexpr absl::Duration kSettle = absl::Seconds(1);

absl::Status MakeFolder(const Places& places) {
  std::error_code error;
  std::filesystem::create_directories(places.folder(), error);
  if (error || chmod(places.folder().c_str(), 0711) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot make ", places.folder(), ": ", error ? error.message() : strerror(errno)));
  }
  return absl::OkStatus();
}

// As the user whose sockets the group has: the kernel lets no other into it.
class AsUser {
 public:
  // The kernel takes the effective capabilities with the user id; a low port and a map still ask for them.
  explicit AsUser(uint32_t uid) : own_(geteuid()) {
    changed_ = uid != own_ && seteuid(uid) == 0;
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
    if (!changed_ || syscall(SYS_capget, &header, sets) != 0) return;
    for (auto& set : sets) set.effective = set.permitted;
    if (syscall(SYS_capset, &header, sets) != 0) LogWarning("cannot keep the capabilities as the user ", uid);
  }
  ~AsUser() {
    if (changed_ && seteuid(own_) != 0) LogError("cannot take back the user id ", own_);
  }

 private:
  uid_t own_;
  bool changed_ = false;
};

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

// Sources with open connections keep their worker until these close: so UDP follows them from the first packet on.
absl::StatusOr<int> PinConnections(KernelGroup& kernel, const Listen& listen, const AdoptedWorkers& found) {
  auto connections = ListSockets(Transport::kTcp, listen.port, ~(1u << TCP_LISTEN));
  if (!connections.ok()) return connections.status();
  std::erase_if(*connections, [](const InetSocket& each) { return each.inode == 0; });
  std::set<uint32_t> inodes;
  for (const InetSocket& each : *connections) inodes.insert(each.inode);
  const auto devices = kernel.Devices();
  if (!devices.ok()) return devices.status();
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
      const Choice choice = Explain(kernel.config(), *devices, {}, *table, each.peer.is_v4() ? 4 : 6, address, {});
      if (choice.slot == slot) continue;
      if (const absl::Status done = kernel.Pin(choice.source, static_cast<uint8_t>(slot)); !done.ok()) return done;
      ++pinned;
    }
  }
  return pinned;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdoptedGroup>> AdoptedGroup::Start(EventLoop* loop, const Settings& settings, const SocketSearch& search,
                                                                  bool mounted_bpffs) {
  std::unique_ptr<AdoptedGroup> group(new AdoptedGroup(loop, settings, mounted_bpffs));
  if (const absl::Status adopted = group->Adopt(search); !adopted.ok()) return adopted;
  const auto timer = loop->StartTimer(kLook, [raw = group.get()] { raw->Tick(); });
  if (!timer.ok()) return timer.status();
  group->timer_ = *timer;
  group->Save();
  return group;
}

absl::Status AdoptedGroup::Adopt(SocketSearch search) {
  const auto found = FindSettled(search);
  if (!found.ok()) return found.status();
  if (const absl::Status alone = RefuseOthers(*found); !alone.ok()) return alone;
  const auto has = [&](auto member) {
    return std::any_of(found->workers.begin(), found->workers.end(), [&](const AdoptedWorker& each) { return (each.*member).has_value(); });
  };
  settings_.udp = has(&AdoptedWorker::udp);
  settings_.tcp = has(&AdoptedWorker::tcp);
  const std::vector<Transport> transports = settings_.transports();
  search.transports = {transports.begin(), transports.end()};  // a later socket of the other transport is not the group's

  const Leftovers left = LookForLeftovers(settings_.places, settings_.bpffs);
  if (left.has_record && left.record.mode() != "adopt" && (left.has_keeper || !left.workers.empty())) {
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
    // Without a record that can be read, what is pinned still tells whether the daemon's sockets have these programs.
    if (left.has_pins && left.record.mode() != "adopt") {
      if (const auto former = KernelGroup::Open(left.bpffs, settings_.places.name); former.ok()) GiveBack(**former, search);
    }
    if (const absl::Status removed = RemoveLeftovers(settings_.places, left); !removed.ok()) return removed;
  }
  return Begin(search, *found);
}

absl::Status AdoptedGroup::Begin(const SocketSearch& search, const AdoptedWorkers& found) {
  if (const absl::Status folder = MakeFolder(settings_.places); !folder.ok()) return folder;
  remove_at_end_ = true;
  shares_.assign(found.workers.size(), Share{.since_ns = MonotonicNs()});
  auto config = NewConfig();
  if (!config.ok()) return config.status();
  config->ipv6_prefix = settings_.ipv6_prefix;
  config->field_offset = settings_.field_offset;
  config->field_bytes = settings_.field_bytes;
  auto entries = GroupTable::Initial(WeightsNow(), policy());
  if (!entries.ok()) return entries.status();
  auto kernel = KernelGroup::Create(settings_.bpffs, settings_.places.name,
                                    {.config = *config, .devices = settings_.devices, .table = *entries});
  if (!kernel.ok()) return kernel.status();
  kernel_ = *std::move(kernel);
  if (settings_.tcp) {
    const auto pinned = PinConnections(*kernel_, settings_.listen, found);
    if (!pinned.ok()) return pinned.status();
    if (*pinned > 0) LogInfo(*pinned, " sources stay with the workers that have their open connections");
  }
  auto slots = AdoptedSlots::Adopt(kernel_.get(), search, found);
  if (!slots.ok()) return slots.status();
  slots_ = *std::move(slots);
  for (const std::string& guess : Guesses(found)) LogWarning(guess);
  uid_ = found.uid;
  return OpenTable();
}

// False: what the dead supervisor left is another group than the one that is asked for.
absl::StatusOr<bool> AdoptedGroup::Resume(const v1::Record& record, const SocketSearch& search, const AdoptedWorkers& found) {
  auto kernel = KernelGroup::Open(settings_.bpffs, settings_.places.name);
  if (!kernel.ok()) return kernel.status();
  const hr_steer_config& config = (*kernel)->config();
  const auto devices = (*kernel)->Devices();
  if (!devices.ok()) return devices.status();
  const bool same = record.listen() == settings_.listen.ToString() && record.udp() == settings_.udp && record.tcp() == settings_.tcp &&
                    config.ipv6_prefix == settings_.ipv6_prefix && config.field_offset == settings_.field_offset &&
                    config.field_bytes == settings_.field_bytes && devices->size() == settings_.devices.size() &&
                    static_cast<int>(found.workers.size()) <= record.slots_size();
  if (!same) {
    GiveBack(**kernel, search);
    return false;
  }
  std::vector<AdoptedSlot> slots;
  for (const v1::RecordedSlot& recorded : record.slots()) {
    slots.push_back({.worker = {.pid = static_cast<pid_t>(recorded.worker().pid()), .start_ticks = recorded.worker().start_ticks()},
                     .has_worker = recorded.worker().pid() != 0,
                     .udp = {.cookie = recorded.udp_cookie()},
                     .tcp = {.cookie = recorded.tcp_cookie()},
                     .restarts = recorded.restarts()});
    shares_.push_back({.weight = recorded.weight(), .drained = recorded.drained(), .since_ns = MonotonicNs()});
  }
  kernel_ = *std::move(kernel);
  auto resumed = AdoptedSlots::Resume(kernel_.get(), search, found, std::move(slots));
  if (!resumed.ok()) return resumed.status();
  slots_ = *std::move(resumed);
  uid_ = found.uid;
  LogInfo("took over group ", settings_.places.name, " from pid ", record.supervisor_pid());
  for (const std::string& line : slots_->Poll(absl::Now())) LogInfo(line);
  return true;
}

// After the programs are attached: the kernel's own spreading would give the sink a share.
absl::Status AdoptedGroup::MakeSinks() {
  if (settings_.empty != HR_STEER_DROP) return absl::OkStatus();
  for (const Transport transport : settings_.transports()) {
    const AsUser owner(uid_);
    auto sink = MakeSink(settings_, transport);
    if (!sink.ok()) return sink.status();
    if (const absl::Status done = kernel_->Insert(transport, HR_STEER_SINK, sink->get()); !done.ok()) return done;
    sinks_[static_cast<size_t>(transport)] = *std::move(sink);
  }
  return absl::OkStatus();
}

absl::Status AdoptedGroup::OpenTable() {
  if (const absl::Status made = MakeSinks(); !made.ok()) return made;
  std::vector<bool> empty(HR_STEER_SLOTS);
  auto table = GroupTable::Open(kernel_.get(), settings_.listen, settings_.tcp, policy(), WeightsNow(), std::move(empty));
  if (!table.ok()) return table.status();
  table_ = *std::move(table);
  return absl::OkStatus();
}

AdoptedGroup::~AdoptedGroup() {
  if (timer_ >= 0) loop_->StopTimer(timer_);
  if (!remove_at_end_ || kernel_ == nullptr) return;
  if (slots_ != nullptr) slots_->GiveBack();
  kernel_.reset();
  if (const absl::Status removed = KernelGroup::Remove(settings_.bpffs, settings_.places.name); !removed.ok()) LogError(removed.message());
  RemoveFolder(settings_.places);
}

void AdoptedGroup::BeginStop() {
  remove_at_end_ = true;
  loop_->Stop();
}

std::string AdoptedGroup::Text() const {
  std::vector<std::string> transports;
  for (const Transport transport : settings_.transports()) transports.push_back(TransportText(transport));
  std::vector<std::string> workers;
  for (const AdoptedSlot& slot : slots_->slots()) workers.push_back(ToString(slot.worker));
  return absl::StrCat("group ", settings_.places.name, ": ", settings_.listen.ToString(), " (", absl::StrJoin(transports, ", "), "), workers ",
                      absl::StrJoin(workers, ", "));
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
    Share& share = shares_[i];
    const bool down = IsDown(i);
    if (down == (share.down_since_ns != 0)) continue;
    share.down_since_ns = down ? now : 0;
    share.since_ns = now;
  }
  ApplyEmpty();
  if (table_->pins() > 0 && now >= next_pins_ns_) {
    next_pins_ns_ = now + kPins_ms * kMs;
    if (const absl::Status polled = table_->Poll(); !polled.ok()) LogError(polled.message());
  }
  const std::vector<std::string> problems = slots_->problems();
  for (const std::string& problem : problems) {
    if (std::find(problems_.begin(), problems_.end(), problem) == problems_.end()) LogError(problem);
  }
  for (const std::string& problem : problems_) {
    if (std::find(problems.begin(), problems.end(), problem) == problems.end()) LogInfo("over: ", problem);
  }
  problems_ = problems;
  if (!lines.empty()) Save();
}

void AdoptedGroup::ApplyEmpty() {
  const int64_t now = MonotonicNs();
  const int64_t after = absl::ToInt64Nanoseconds(settings_.empty_after);
  std::vector<bool> empty(HR_STEER_SLOTS);
  bool changed = false;
  for (size_t i = 0; i < shares_.size(); ++i) {
    const Share& share = shares_[i];
    empty[i] = share.down_since_ns != 0 && (share.empty || now - share.down_since_ns >= after);
    changed |= empty[i] != share.empty;
  }
  if (!changed) return;
  const absl::Status applied = table_->SetEmpty(empty);
  const std::string problem = applied.ok() ? "" : absl::StrCat("the table could not be changed: ", applied.message());
  if (problem != table_problem_ && !problem.empty()) LogError(problem);
  table_problem_ = problem;
  if (!applied.ok()) return;
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (empty[i] == shares_[i].empty) continue;
    shares_[i].empty = empty[i];
    LogInfo("slot ", i, empty[i] ? absl::StrCat(" is empty: ", settings_.EmptyText()) : " is served again");
  }
}

void AdoptedGroup::Save() {
  v1::Record record;
  record.set_name(settings_.places.name);
  record.set_listen(settings_.listen.ToString());
  record.set_udp(settings_.udp);
  record.set_tcp(settings_.tcp);
  record.set_bpffs(settings_.bpffs);
  record.set_mode("adopt");
  record.set_supervisor_pid(getpid());
  record.set_mounted_bpffs(mounted_bpffs_);
  for (size_t i = 0; i < shares_.size(); ++i) {
    const AdoptedSlot& slot = slots_->slots()[i];
    v1::RecordedSlot& out = *record.add_slots();
    out.set_slot(static_cast<uint32_t>(i));
    out.mutable_worker()->set_pid(slot.worker.pid);
    out.mutable_worker()->set_start_ticks(slot.worker.start_ticks);
    out.set_weight(shares_[i].weight);
    out.set_drained(shares_[i].drained);
    out.set_restarts(slot.restarts);
    out.set_udp_cookie(slot.udp.cookie);
    out.set_tcp_cookie(slot.tcp.cookie);
  }
  if (const absl::Status saved = SaveRecord(settings_.places, record); !saved.ok()) LogError(saved.message());
}

// Changes that are asked for.

Weights AdoptedGroup::WeightsNow() const {
  Weights weights(HR_STEER_SLOTS);
  for (size_t i = 0; i < shares_.size(); ++i) weights[i] = shares_[i].drained ? 0 : shares_[i].weight;
  return weights;
}

absl::StatusOr<v1::Change> AdoptedGroup::ChangeWeights(const std::function<void()>& undo) {
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
  for (size_t i = 0; i < shares_.size(); ++i) *change.add_slots() = ShowSlot(i, *counts);
  return change;
}

// The daemon's own number of workers has changed before.
absl::StatusOr<v1::Change> AdoptedGroup::Resize(uint32_t workers) {
  if (workers < 1 || workers > HR_STEER_SLOTS) {
    return absl::InvalidArgumentError(absl::StrCat("got ", workers, " workers, expected 1 to ", HR_STEER_SLOTS));
  }
  const size_t former = shares_.size();
  if (const absl::Status resized = slots_->Resize(workers); !resized.ok()) return resized;
  shares_.resize(workers, Share{.since_ns = MonotonicNs()});
  for (const std::string& line : slots_->Poll(absl::Now())) LogInfo(line);
  for (size_t i = former; i < workers; ++i) {
    if (!IsDown(i)) continue;
    (void)slots_->Resize(former);
    shares_.resize(former);
    return absl::FailedPreconditionError(absl::StrCat("the daemon has no worker for slot ", i, ": raise its number of workers first"));
  }
  return ChangeWeights([] {});
}

absl::StatusOr<v1::Change> AdoptedGroup::SetWeights(const std::vector<double>& weights) {
  if (weights.size() != shares_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", weights.size(), " weights, expected one for each of the ", shares_.size(), " slots"));
  }
  const std::vector<Share> former = shares_;
  for (size_t i = 0; i < weights.size(); ++i) shares_[i].weight = weights[i];
  return ChangeWeights([&] { shares_ = former; });
}

absl::Status AdoptedGroup::CheckSlot(uint32_t slot) const {
  if (slot < shares_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no slot ", slot, "; there are 0 to ", shares_.size() - 1));
}

absl::StatusOr<v1::Change> AdoptedGroup::Drain(uint32_t slot, bool drain) {
  if (const absl::Status known = CheckSlot(slot); !known.ok()) return known;
  const bool former = std::exchange(shares_[slot].drained, drain);
  return ChangeWeights([&] { shares_[slot].drained = former; });
}

absl::StatusOr<v1::Slot> AdoptedGroup::RestartWorker(uint32_t slot) {
  if (const absl::Status known = CheckSlot(slot); !known.ok()) return known;
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

absl::StatusOr<v1::StopReply> AdoptedGroup::Stop() {
  v1::StopReply reply;
  reply.set_pid(getpid());
  loop_->Post([this] { BeginStop(); });
  return reply;
}

// Reports.

v1::Slot AdoptedGroup::ShowSlot(size_t number, const GroupCounts& counts) const {
  const AdoptedSlot& slot = slots_->slots()[number];
  const Share& share = shares_[number];
  v1::Slot out;
  out.set_slot(static_cast<uint32_t>(number));
  out.set_pid(slot.has_worker ? slot.worker.pid : 0);
  out.set_state(share.empty ? "empty" : IsDown(number) ? "restarting" : share.drained ? "drained" : "serving");
  out.set_weight(share.weight);
  out.set_buckets(table_->BucketsOf(static_cast<int>(number)));
  out.set_restarts(slot.restarts);
  out.set_seconds_in_state(static_cast<double>(MonotonicNs() - share.since_ns) / 1e9);
  const hr_steer_slot_counts& count = counts.slots[number];
  out.set_selected_udp(count.selected_udp);
  out.set_selected_tcp(count.selected_tcp);
  out.set_migrated(count.migrated);
  out.set_empty_udp(count.empty_udp);
  out.set_empty_tcp(count.empty_tcp);
  if (const auto udp = slots_->Open(number, Transport::kUdp); udp.ok()) {
    const UdpSocketState state = UdpState(udp->get());
    out.set_udp_dropped(state.dropped);
    out.set_udp_queued_bytes(state.queued_bytes);
  }
  if (const auto tcp = slots_->Open(number, Transport::kTcp); tcp.ok()) out.set_tcp_backlog(TcpBacklog(tcp->get()));
  return out;
}

absl::StatusOr<v1::Group> AdoptedGroup::Show(bool buckets) {
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  v1::Group group;
  group.set_name(settings_.places.name);
  group.set_address(settings_.listen.ToString());
  for (const Transport transport : settings_.transports()) group.add_transports(TransportText(transport));
  group.set_supervisor_pid(getpid());
  group.set_mode("adopt");
  group.set_empty(settings_.EmptyText());
  group.set_empty_after_seconds(absl::ToDoubleSeconds(settings_.empty_after));
  for (size_t i = 0; i < shares_.size(); ++i) *group.add_slots() = ShowSlot(i, *counts);
  if (buckets) ShowBuckets(*table_, *counts, group);
  group.set_pinned_sources(table_->pins());
  group.set_pinned(counts->all.pinned);
  group.set_pins_full(counts->all.pins_full);
  group.set_unreadable(counts->all.unreadable);
  for (const std::string& problem : slots_->problems()) group.add_problems(problem);
  if (!table_problem_.empty()) group.add_problems(table_problem_);
  group.set_ipv6_prefix(kernel_->config().ipv6_prefix);
  group.set_devices(static_cast<uint32_t>(settings_.devices.size()));
  return group;
}

}  // namespace hedgerow::steer
