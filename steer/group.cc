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
#include "operate/log.h"
#include "steer/process.h"
#include "steer/record.h"

namespace hedgerow::steer {
namespace {

constexpr int64_t kPins_ns = 250'000'000;

std::set<std::array<uint64_t, 6>> SetOf(const std::vector<Device>& devices) {
  std::set<std::array<uint64_t, 6>> all;
  for (const auto& [network, device] : devices) {
    all.insert({network.prefix_bits, network.family, network.words[0], network.words[1], device.id, device.is_gateway});
  }
  return all;
}

// A problem is logged once.
void Note(std::string& problem, std::string now) {
  if (problem != now && !now.empty()) LogError(now);
  problem = std::move(now);
}

}  // namespace

std::string Group::Text() {
  std::vector<std::string> transports;
  for (const Transport transport : settings_.transports()) transports.push_back(TransportText(transport));
  return absl::StrCat("group ", settings_.places.name, ": ", settings_.listen.ToString(), " (",
                      absl::StrJoin(transports, ", "), "), ", WorkersText());
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

absl::Status Group::CreateKernel(const Weights& weights) {
  auto config = NewConfig();
  if (!config.ok()) return config.status();
  config->ipv6_prefix = settings_.ipv6_prefix;
  config->field_offset = settings_.field_offset;
  config->field_bytes = settings_.field_bytes;
  config->openers = static_cast<uint32_t>(settings_.openers.size());
  std::copy(settings_.openers.begin(), settings_.openers.end(), config->opener);
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
                  same))
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
  moved_until_ns_ = MonotonicNs() + absl::ToInt64Nanoseconds(settings_.drain_timeout);
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
  record.set_mounted_bpffs(mounted_bpffs_);
  Record(record);
  for (const auto& [number, share] : Shares()) {
    v1::RecordedSlot& slot = *record.add_slots();
    slot = RecordWorker(number);
    slot.set_slot(static_cast<uint32_t>(number));
    slot.set_weight(share->weight);
    slot.set_drained(share->drained);
  }
  const absl::Status saved = SaveRecord(settings_.places, record);
  Note(record_problem_, saved.ok() ? ""
                                   : absl::StrCat("record: ", saved.message(),
                                                  ": a next supervisor could not take the group over as it is"));
  return saved;
}

// Timers.

void Group::ApplyEmpty() {
  const int64_t now = MonotonicNs();
  std::vector<bool> empty(HR_STEER_SLOTS);
  std::vector<int> changed;
  for (const auto& [number, share] : Shares()) {
    empty[static_cast<size_t>(number)] = IsEmpty(number, now);
    if (empty[static_cast<size_t>(number)] != table_->IsEmpty(number)) changed.push_back(number);
  }
  const absl::Status applied = table_->SetEmpty(empty);
  Note(table_problem_, applied.ok() ? "" : absl::StrCat("the table could not be changed: ", applied.message()));
  if (!applied.ok()) return;
  for (const int number : changed) {
    LogInfo("slot ", number,
            table_->IsEmpty(number) ? absl::StrCat(" is empty: ", settings_.EmptyText()) : " is served again");
  }
}

void Group::PollPins(int64_t now_ns) {
  if (kernel_->IsChanging() && now_ns >= moved_until_ns_ && !HasFormer()) kernel_->EndChange();
  if (table_->pins() == 0 || now_ns < next_pins_ns_) return;
  if (const absl::Status polled = table_->Poll(); !polled.ok())
    LogError("sources with open connections: ", polled.message());
  // With tens of thousands of connections a dump takes some 50 ms.
  const int64_t end_ns = MonotonicNs();
  next_pins_ns_ = end_ns + std::max(kPins_ns, 20 * (end_ns - now_ns));
}

// Operations.

Weights Group::WeightsNow() {
  Weights weights(HR_STEER_SLOTS);
  for (const auto& [number, share] : Shares()) {
    if (!share->drained) weights[static_cast<size_t>(number)] = share->weight;
  }
  return weights;
}

int Group::CountWorkers() { return static_cast<int>(Shares().size()); }

absl::StatusOr<Share*> Group::FindShare(uint32_t slot) {
  const std::map<int, Share*> shares = Shares();
  const auto found = shares.find(static_cast<int>(slot));
  if (found != shares.end()) return found->second;
  std::vector<int> known;
  for (const auto& [number, share] : shares) known.push_back(number);
  return absl::InvalidArgumentError(absl::StrCat("no slot ", slot, "; there are ", absl::StrJoin(known, ", ")));
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
  change.set_fewest_possible(moved->fewest);
  change.set_pinned_sources(moved->pinned);
  TableChanged();
  if (const absl::Status shown = ShowSlots(change.mutable_slots()); !shown.ok()) return shown;
  return change;
}

absl::StatusOr<v1::Change> Group::SetWeights(const std::vector<double>& weights) {
  if (static_cast<int>(weights.size()) != CountWorkers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", weights.size(), " weights, expected one for each of the ", CountWorkers(), " slots"));
  }
  std::map<Share*, double> former;
  auto weight = weights.begin();
  for (const auto& [number, share] : Shares()) former[share] = std::exchange(share->weight, *weight++);
  return ChangeTable([&] {
    for (const auto& [share, before] : former) share->weight = before;
  });
}

absl::StatusOr<v1::Change> Group::Drain(uint32_t slot, bool drain) {
  const auto share = FindShare(slot);
  if (!share.ok()) return share.status();
  const bool former = std::exchange((*share)->drained, drain);
  return ChangeTable([&] { (*share)->drained = former; });
}

absl::StatusOr<v1::StopReply> Group::Stop() {
  v1::StopReply reply;
  reply.set_pid(getpid());
  loop_->Post([this] { BeginStop(); });
  return reply;
}

// Reports.

v1::Slot Group::ShowSlot(int slot, const Share& share, const GroupCounts& counts) const {
  v1::Slot out = ShowWorker(slot);
  out.set_slot(static_cast<uint32_t>(slot));
  out.set_weight(share.weight);
  out.set_buckets(table_->BucketsOf(slot));
  const hr_steer_slot_counts& count = counts.slots[static_cast<size_t>(slot)];
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
  for (const auto& [number, share] : Shares()) *slots->Add() = ShowSlot(number, *share, *counts);
  return absl::OkStatus();
}

absl::StatusOr<v1::Group> Group::Show(bool buckets) {
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
  for (const auto& [number, share] : Shares()) *group.add_slots() = ShowSlot(number, *share, *counts);
  if (buckets) ShowBuckets(*table_, *counts, group);
  group.set_pinned_sources(table_->pins());
  group.set_pinned(counts->all.pinned);
  group.set_pins_full(counts->all.pins_full);
  group.set_unreadable(counts->all.unreadable);
  group.set_sessions_opened(counts->all.opened);
  group.set_sessions_kept(counts->all.kept);
  std::vector<std::string> problems = Problems();
  problems.insert(problems.end(), {table_problem_, record_problem_});
  if (also_report_) {
    for (std::string& problem : also_report_()) problems.push_back(std::move(problem));
  }
  for (const std::string& problem : problems) {
    if (!problem.empty()) group.add_problems(problem);
  }
  group.set_ipv6_prefix(kernel_->config().ipv6_prefix);
  group.set_devices(static_cast<uint32_t>(settings_.devices.size()));
  ShowFormer(group);
  return group;
}

}  // namespace hedgerow::steer
