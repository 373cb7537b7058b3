// SPDX-License-Identifier: Apache-2.0
#include "steer/group.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/steady_wait.h"
#include "operate/log.h"
#include "steer/record.h"
#include "steer/sockets.h"

namespace hedgerow::steer {
namespace {

constexpr int64_t kPins_ns = 250'000'000;
constexpr int64_t kProven_ns = 1'000'000'000;

std::set<std::string> SetOf(const std::vector<Device>& devices) {
  std::set<std::string> all;
  for (const Device& device : devices) all.emplace(reinterpret_cast<const char*>(&device), sizeof(device));
  return all;
}

v1::RecordedSlot ToRecord(const Slot& slot) {
  v1::RecordedSlot recorded;
  recorded.set_slot(static_cast<uint32_t>(slot.number));
  recorded.set_generation(static_cast<uint32_t>(slot.generation));
  recorded.set_leaving(slot.role != Role::kServing);  // a next worker is not the successor of a dead supervisor's
  recorded.mutable_worker()->set_pid(slot.worker.pid);
  recorded.mutable_worker()->set_start_ticks(slot.worker.start_ticks);
  recorded.set_weight(slot.weight);
  recorded.set_drained(slot.drained);
  recorded.set_restarts(slot.restarts);
  recorded.set_last_exit(slot.last_exit);
  recorded.set_says_ready(slot.says_ready);
  recorded.set_udp_cookie(slot.udp.cookie);
  recorded.set_tcp_cookie(slot.tcp.cookie);
  return recorded;
}

}  // namespace

Slot FromRecord(const v1::RecordedSlot& recorded) {
  return {.number = static_cast<int>(recorded.slot()),
          .generation = static_cast<int>(recorded.generation()),
          .role = recorded.leaving() ? Role::kFormer : Role::kServing,
          .weight = recorded.weight(),
          .drained = recorded.drained(),
          .worker = FromRecord(recorded.worker()),
          .restarts = recorded.restarts(),
          .last_exit = recorded.last_exit(),
          .heard = true,
          .ready = true,
          .says_ready = recorded.says_ready(),
          .udp = {.cookie = recorded.udp_cookie()},
          .tcp = {.cookie = recorded.tcp_cookie()}};
}

std::string Group::Text() {
  std::vector<std::string> transports, workers;
  for (const Transport transport : settings_.transports()) transports.push_back(TransportText(transport));
  for (const auto& [number, slot] : Serving()) workers.push_back(ToString(slot->worker));
  return absl::StrCat("group ", settings_.places.name, ": ", settings_.listen.ToString(), " (",
                      absl::StrJoin(transports, ", "), "), workers ", absl::StrJoin(workers, ", "));
}

// Creation and takeover.

absl::Status Group::MakeFolder() const {
  const std::string folder = settings_.places.folder();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // Workers may pass through it to their notify socket, and list nothing.
  if (error || chmod(folder.c_str(), 0711) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make ", folder, ": ", error ? error.message() : strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status Group::CreateKernel(size_t workers) {
  auto config = NewConfig();
  if (!config.ok()) return config.status();
  config->ipv6_prefix = settings_.ipv6_prefix;
  config->field_offset = settings_.field_offset;
  config->field_bytes = settings_.field_bytes;
  config->openers = static_cast<uint32_t>(settings_.openers.size());
  config->any = settings_.any_session;
  std::copy(settings_.openers.begin(), settings_.openers.end(), config->opener);
  Weights weights(HR_STEER_SLOTS);
  std::fill_n(weights.begin(), workers, 1.0);
  const auto entries = GroupTable::Initial(weights, settings_.empty);
  if (!entries.ok()) return entries.status();
  auto kernel = KernelGroup::Create(settings_.bpffs, settings_.places.name,
                                    {.config = *config, .devices = settings_.devices, .table = *entries});
  if (!kernel.ok()) return kernel.status();
  kernel_ = *std::move(kernel);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Group::Difference(const v1::Record& record, const KernelGroup& kernel) const {
  if (record.listen() != settings_.listen.ToString()) return absl::StrCat("address (", record.listen(), ")");
  if (record.udp() != settings_.udp || record.tcp() != settings_.tcp) return "--transport";
  const hr_steer_config& config = kernel.config();
  if (config.ipv6_prefix != settings_.ipv6_prefix) return absl::StrCat("--ipv6-prefix (", config.ipv6_prefix, ")");
  if (config.field_offset != settings_.field_offset || config.field_bytes != settings_.field_bytes) {
    return absl::StrCat("--gateway-field (", config.field_offset, ":", config.field_bytes, ")");
  }
  const auto same = [](const hr_steer_opener& one, const hr_steer_opener& other) {
    return memcmp(&one, &other, sizeof(one)) == 0;
  };
  if (!std::equal(settings_.openers.begin(), settings_.openers.end(), config.opener, config.opener + config.openers,
                  same) ||
      config.any != settings_.any_session)
    return "--sessions";
  const auto devices = kernel.Devices();
  if (!devices.ok()) return devices.status();
  return SetOf(*devices) == SetOf(settings_.devices) ? "" : "list of --devices";
}

absl::Status Group::OpenTable() {
  // Pins keep a source's UDP with its connections: a group of one transport has none.
  auto table =
      GroupTable::Open(kernel_.get(), settings_.listen, settings_.udp && settings_.tcp, settings_.empty, WeightsNow());
  if (!table.ok()) return table.status();
  table_ = *std::move(table);
  kernel_->Tick();  // the first flows come before the first turn of a timer
  if (kernel_->IsChanging()) moved_until_ns_ = MonotonicNs() + absl::ToInt64Nanoseconds(settings_.drain_timeout);
  return absl::OkStatus();
}

void Group::RemoveKernel() {
  if (kernel_ == nullptr) return;
  kernel_.reset();
  if (const absl::Status removed = KernelGroup::Remove(settings_.bpffs, settings_.places.name); !removed.ok())
    LogError(removed.message());
}

absl::Status Group::Save() {
  v1::Record record;
  record.set_name(settings_.places.name);
  record.set_listen(settings_.listen.ToString());
  record.set_udp(settings_.udp);
  record.set_tcp(settings_.tcp);
  record.set_bpffs(settings_.bpffs);
  record.set_mode(mode());
  record.set_supervisor_pid(getpid());
  Record(record);
  for (const Slot* slot : Slots()) *record.add_slots() = ToRecord(*slot);
  const absl::Status saved = SaveRecord(settings_.places, record);
  record_problem_ = saved.ok() ? ""
                               : absl::StrCat("record: ", saved.message(),
                                              ": a next supervisor could not take the group over as it is");
  return saved;
}

// Timers.

bool Group::IsProven(const Slot& slot, int64_t now_ns) const {
  if (slot.says_ready && !slot.ready && now_ns - slot.started_ns < kReady_ns) return false;
  if (slot.heard || settings_.heartbeat > absl::ZeroDuration()) return slot.heard;
  return now_ns - slot.started_ns >= kProven_ns;
}

// Whether the slot's sources go elsewhere now.
bool Group::IsEmpty(const Slot& slot, int64_t now_ns) const {
  const bool was_empty = table_->IsEmpty(slot.number);
  if (slot.down_since_ns == 0) return slot.is_silent || (was_empty && !IsProven(slot, now_ns));
  return was_empty || now_ns - slot.down_since_ns >= absl::ToInt64Nanoseconds(settings_.empty_after);
}

void Group::ApplyEmpty() {
  const int64_t now = MonotonicNs();
  std::vector<bool> empty(HR_STEER_SLOTS);
  std::vector<int> changed;
  for (const auto& [number, slot] : Serving()) {
    empty[static_cast<size_t>(number)] = IsEmpty(*slot, now);
    if (empty[static_cast<size_t>(number)] != table_->IsEmpty(number)) changed.push_back(number);
  }
  const absl::Status applied = table_->SetEmpty(empty);
  table_problem_ = applied.ok() ? "" : absl::StrCat("the table could not be changed: ", applied.message());
  if (!applied.ok()) return;
  for (const int number : changed) {
    LogInfo("slot ", number,
            table_->IsEmpty(number) ? absl::StrCat(" is empty: ", settings_.EmptyText()) : " is served again");
  }
}

void Group::PollPins(int64_t now_ns) {
  kernel_->Tick();
  if (kernel_->IsChanging() && now_ns >= moved_until_ns_ && !Has(Role::kFormer)) kernel_->EndChange();
  if (table_->pins() == 0 || now_ns < next_pins_ns_) return;
  if (const absl::Status polled = table_->Poll(); !polled.ok())
    LogError("sources with open connections: ", polled.message());
  // With tens of thousands of connections a dump takes some 50 ms.
  const int64_t end_ns = MonotonicNs();
  next_pins_ns_ = end_ns + std::max(kPins_ns, 20 * (end_ns - now_ns));
}

void Group::LogProblems() { problem_log_.Update(AllProblems(), net::MonotonicNow()); }

// Operations.

std::map<int, Slot*> Group::Serving() {
  std::map<int, Slot*> serving;
  for (Slot* slot : Slots()) {
    if (slot->role == Role::kServing) serving[slot->number] = slot;
  }
  return serving;
}

bool Group::Has(Role role) {
  const std::vector<Slot*> slots = Slots();
  return std::any_of(slots.begin(), slots.end(), [role](const Slot* each) { return each->role == role; });
}

Weights Group::WeightsNow() {
  Weights weights(HR_STEER_SLOTS);
  for (const auto& [number, slot] : Serving()) {
    if (!slot->drained) weights[static_cast<size_t>(number)] = slot->weight;
  }
  return weights;
}

absl::StatusOr<Slot*> Group::FindSlot(uint32_t number) {
  const std::map<int, Slot*> slots = Serving();
  const auto found = slots.find(static_cast<int>(number));
  if (found != slots.end()) return found->second;
  std::vector<int> known;
  for (const auto& [each, slot] : slots) known.push_back(each);
  return absl::InvalidArgumentError(absl::StrCat("no slot ", number, "; there are ", absl::StrJoin(known, ", ")));
}

absl::Status Group::CheckWorkers(uint32_t workers) {
  if (workers >= 1 && workers <= HR_STEER_SLOTS) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("got ", workers, " workers, expected 1 to ", HR_STEER_SLOTS));
}

absl::StatusOr<v1::Change> Group::ChangeTable(const std::function<void()>& undo) {
  const auto moved = table_->SetWeights(WeightsNow());
  if (!moved.ok()) {
    undo();
    return moved.status();
  }
  moved_until_ns_ = MonotonicNs() + absl::ToInt64Nanoseconds(settings_.drain_timeout);
  LogInfo("table: ", moved->buckets, " buckets moved, ", moved->pinned, " sources stay with their open connections",
          table_->pins() == HR_STEER_PINS ? ", and there is no place for more" : "");
  (void)Save();
  v1::Change change;
  change.set_moved_buckets(moved->buckets);
  change.set_pinned_sources(moved->pinned);
  TableChanged();
  if (const absl::Status shown = ShowSlots(change.mutable_slots()); !shown.ok()) return shown;
  return change;
}

absl::StatusOr<v1::Change> Group::SetWeights(const std::vector<double>& weights) {
  const std::map<int, Slot*> slots = Serving();
  if (weights.size() != slots.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", weights.size(), " weights, expected one for each of the ", slots.size(), " slots"));
  }
  std::map<Slot*, double> former;
  auto weight = weights.begin();
  for (const auto& [number, slot] : slots) former[slot] = std::exchange(slot->weight, *weight++);
  return ChangeTable([&] {
    for (const auto& [slot, before] : former) slot->weight = before;
  });
}

absl::StatusOr<v1::Change> Group::Drain(uint32_t number, bool drain) {
  const auto slot = FindSlot(number);
  if (!slot.ok()) return slot.status();
  const bool former = std::exchange((*slot)->drained, drain);
  return ChangeTable([&] { (*slot)->drained = former; });
}

absl::StatusOr<v1::StopReply> Group::Stop() {
  v1::StopReply reply;
  reply.set_pid(getpid());
  loop_->Post([this] { BeginStop(); });
  return reply;
}

// Reports.

std::vector<std::string> Group::AllProblems() const {
  std::vector<std::string> problems = Problems();
  problems.insert(problems.end(), {table_problem_, record_problem_});
  std::erase(problems, "");
  return problems;
}

std::string Group::StateOf(const Slot& slot) const {
  if (slot.role != Role::kServing) return slot.role == Role::kNext ? "starting" : "leaving";
  if (slot.down_since_ns != 0) return table_->IsEmpty(slot.number) ? "empty" : "restarting";
  if (slot.is_silent) return "silent";
  if (settings_.heartbeat > absl::ZeroDuration() && !slot.heard) return "starting";
  return slot.drained ? "drained" : "serving";
}

v1::Slot Group::ShowSlot(const Slot& slot, const GroupCounts& counts) const {
  v1::Slot out;
  out.set_slot(static_cast<uint32_t>(slot.number));
  out.set_generation(static_cast<uint32_t>(slot.generation));
  out.set_pid(slot.down_since_ns == 0 ? slot.worker.pid : 0);
  out.set_state(StateOf(slot));
  out.set_restarts(slot.restarts);
  out.set_last_exit(slot.last_exit);
  const int64_t since = slot.down_since_ns != 0 ? slot.down_since_ns : slot.is_silent ? slot.heard_ns : slot.started_ns;
  out.set_seconds_in_state(static_cast<double>(MonotonicNs() - since) / 1e9);
  WithSocket(slot, Transport::kUdp, [&out](int socket) {
    const UdpSocketState state = UdpState(socket);
    out.set_udp_dropped(state.dropped);
    out.set_udp_queued_bytes(state.queued_bytes);
  });
  WithSocket(slot, Transport::kTcp, [&out](int socket) { out.set_tcp_backlog(TcpBacklog(socket)); });
  if (slot.role != Role::kServing) return out;
  out.set_weight(slot.weight);
  out.set_buckets(table_->BucketsOf(slot.number));
  const hr_steer_slot_counts& count = counts.slots[static_cast<size_t>(slot.number)];
  out.set_selected_udp(count.selected_udp);
  out.set_selected_tcp(count.selected_tcp);
  out.set_migrated(count.migrated);
  out.set_empty_udp(count.empty_udp);
  out.set_empty_tcp(count.empty_tcp);
  return out;
}

absl::Status Group::ShowSlots(google::protobuf::RepeatedPtrField<v1::Slot>* slots) {
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  slots->Clear();
  for (const auto& [number, slot] : Serving()) *slots->Add() = ShowSlot(*slot, *counts);
  return absl::OkStatus();
}

absl::StatusOr<v1::Group> Group::Show() {
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  v1::Group group;
  group.set_name(settings_.places.name);
  group.set_address(settings_.listen.ToString());
  for (const Transport transport : settings_.transports()) group.add_transports(TransportText(transport));
  group.set_supervisor_pid(getpid());
  group.set_mode(mode());
  group.set_empty(settings_.EmptyText());
  group.set_empty_after_seconds(absl::ToDoubleSeconds(settings_.empty_after));
  for (const auto& [number, slot] : Serving()) *group.add_slots() = ShowSlot(*slot, *counts);
  for (const Slot* slot : Slots()) {
    if (slot->role != Role::kServing) *group.add_others() = ShowSlot(*slot, *counts);
  }
  group.set_pinned_sources(table_->pins());
  group.set_pinned(counts->all.pinned);
  group.set_pins_full(counts->all.pins_full);
  group.set_unreadable(counts->all.unreadable);
  group.set_sessions_opened(counts->all.opened);
  group.set_sessions_kept(counts->all.kept);
  for (const std::string& problem : AllProblems()) group.add_problems(problem);
  for (const std::string& problem : also_report_ ? also_report_() : std::vector<std::string>()) {
    if (!problem.empty()) group.add_problems(problem);
  }
  group.set_ipv6_prefix(kernel_->config().ipv6_prefix);
  group.set_devices(static_cast<uint32_t>(settings_.devices.size()));
  group.set_reloading(IsReloading());
  return group;
}

}  // namespace hedgerow::steer
