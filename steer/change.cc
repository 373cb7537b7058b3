// SPDX-License-Identifier: Apache-2.0
#include "steer/change.h"

#include <algorithm>
#include <utility>

#include "bpf/steer/bucket.h"
#include "steer/sock_diag.h"

namespace hedgerow::steer {
namespace {

std::array<uint64_t, 3> KeyOf(const hr_steer_source& source) { return {source.kind, source.words[0], source.words[1]}; }

bool Same(const TableEntries& one, const TableEntries& other) {
  return std::equal(one.begin(), one.end(), other.begin(),
                    [](const auto& a, const auto& b) { return a.word == b.word; });
}

}  // namespace

int SlotOf(const hr_steer_entry& entry) {
  if (!entry.is_vacant) return entry.slot;
  return (entry.empty & HR_STEER_OTHER) != 0 ? entry.other_slot : -1;
}

absl::StatusOr<TableEntries> GroupTable::Initial(const Weights& weights, hr_steer_empty policy) {
  const auto home = NewHome(weights);
  if (!home.ok()) return home.status();
  return Entries(*home, weights, std::vector<bool>(weights.size()), policy);
}

absl::StatusOr<GroupTable> GroupTable::Open(KernelGroup* kernel, const Listen& listen, bool records,
                                            hr_steer_empty policy, Weights weights) {
  GroupTable table(kernel, listen, records, policy);
  const auto entries = kernel->ReadTable();
  if (!entries.ok()) return entries.status();
  auto devices = kernel->Devices();
  if (!devices.ok()) return devices.status();
  table.devices_ = *std::move(devices);
  table.entries_ = *entries;
  table.generations_ = kernel->ReadGenerations();
  for (size_t bucket = 0; bucket < entries->size(); ++bucket) {
    const hr_steer_entry& entry = (*entries)[bucket];
    table.home_[bucket] = entry.slot;
    if (entry.is_vacant) table.empty_[entry.slot] = true;
  }
  table.weights_ = std::move(weights);
  // The former supervisor may have ended between two steps of a change.
  if (const absl::Status stopped = kernel->SetRecording(false); !stopped.ok()) return stopped;
  if (const absl::Status counted = table.CountPins(); !counted.ok()) return counted;
  const auto written = table.Write(Entries(table.home_, table.weights_, table.empty_, policy), false);
  if (!written.ok()) return written.status();
  return table;
}

absl::StatusOr<GroupTable::Moved> GroupTable::SetWeights(const Weights& weights) {
  const auto home = MoveHome(home_, weights);
  if (!home.ok()) return home.status();
  Moved moved;
  for (size_t bucket = 0; bucket < home->size(); ++bucket) moved.buckets += (*home)[bucket] != home_[bucket];
  const auto pinned = Write(Entries(*home, weights, empty_, policy_), true);
  if (!pinned.ok()) return pinned.status();
  home_ = *home;
  weights_ = weights;
  moved.pinned = *pinned;
  return moved;
}

absl::Status GroupTable::SetEmpty(const std::vector<bool>& empty) {
  if (empty == empty_) return absl::OkStatus();
  const auto pins = kernel_->Pins();
  if (!pins.ok()) return pins.status();
  for (const auto& [source, slot] : *pins) {
    if (!empty[slot] || empty_[slot]) continue;
    if (const absl::Status unpinned = kernel_->Unpin(source); !unpinned.ok()) return unpinned;
  }
  const std::vector<bool> before = std::exchange(empty_, empty);
  // A slot that is empty has no sessions to be kept.
  const auto written = Write(Entries(home_, weights_, empty, policy_), false);
  if (!written.ok()) empty_ = before;
  return written.status();
}

absl::Status GroupTable::SetGeneration(int slot, int generation, bool ends) {
  Generations wanted = generations_;
  wanted[static_cast<size_t>(slot)] = static_cast<uint8_t>(generation);
  if (wanted == generations_) return absl::OkStatus();
  const absl::Status written = kernel_->WriteTable(entries_, wanted, true);
  if (!written.ok()) return written;
  if (ends) kernel_->Leave({PlaceOf(slot, generations_[static_cast<size_t>(slot)])});
  generations_ = wanted;
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> GroupTable::Write(const TableEntries& wanted, bool keeps) {
  if (Same(wanted, entries_)) return 0;
  const bool moves = !std::equal(wanted.begin(), wanted.end(), entries_.begin(),
                                 [](const auto& a, const auto& b) { return SlotOf(a) == SlotOf(b); });
  const bool records = records_ && moves;
  uint32_t pinned = 0;
  const auto change = [&]() -> absl::Status {
    if (records) {
      if (const absl::Status on = kernel_->SetRecording(true); !on.ok()) return on;
      const auto count = PinMoving(wanted);
      if (!count.ok()) return count.status();
      pinned = *count;
    }
    if (const absl::Status written = kernel_->WriteTable(wanted, generations_, keeps); !written.ok()) return written;
    entries_ = wanted;
    return absl::OkStatus();
  }();
  if (records) {
    const absl::Status off = kernel_->SetRecording(false);
    if (change.ok() && !off.ok()) return off;
  }
  if (!change.ok()) {
    (void)CountPins();  // so that Poll() gives up those that the change did not come to need
    return change;
  }
  if (const absl::Status counted = CountPins(); !counted.ok()) return counted;
  return pinned;
}

absl::StatusOr<uint32_t> GroupTable::PinMoving(const TableEntries& wanted) {
  const auto peers = OpenConnections(listen_);
  if (!peers.ok()) return peers.status();
  const auto known = kernel_->Pins();
  if (!known.ok()) return known.status();
  std::set<std::array<uint64_t, 3>> pinned;
  for (const auto& [source, slot] : *known) pinned.insert(KeyOf(source));
  uint32_t count = 0;
  for (const net::IpAddress& peer : *peers) {
    const Choice choice = ChoiceOf(peer);
    const int had = SlotOf(choice.entry);
    const int gets = SlotOf(wanted[choice.bucket]);
    // The connections of a slot that has become empty are gone, or are what it is to be relieved of.
    const bool ended = had < 0 || IsEmpty(had);
    if (had == gets || ended || !pinned.insert(KeyOf(choice.source)).second) continue;
    const absl::Status made = kernel_->Pin(choice.source, static_cast<uint8_t>(had));
    if (!made.ok() && !absl::IsResourceExhausted(made)) return made;
    count += made.ok();
  }
  return count;
}

Choice GroupTable::ChoiceOf(const net::IpAddress& peer) const {
  return Explain(kernel_->config(), devices_, {}, entries_, peer, {});
}

uint32_t GroupTable::BucketsOf(int slot) const {
  return static_cast<uint32_t>(std::count(home_.begin(), home_.end(), static_cast<uint8_t>(slot)));
}

absl::Status GroupTable::CountPins() {
  const auto pins = kernel_->Pins();
  if (!pins.ok()) return pins.status();
  pins_ = static_cast<uint32_t>(pins->size());
  return absl::OkStatus();
}

absl::Status GroupTable::Poll() {
  const auto pins = kernel_->Pins();
  if (!pins.ok()) return pins.status();
  pins_ = static_cast<uint32_t>(pins->size());
  if (pins->empty()) return absl::OkStatus();
  const auto peers = OpenConnections(listen_);
  if (!peers.ok()) return peers.status();
  std::set<std::array<uint64_t, 3>> open, closed;
  for (const net::IpAddress& peer : *peers) open.insert(KeyOf(ChoiceOf(peer).source));
  for (const auto& [source, slot] : *pins) {
    const bool has_connection = open.contains(KeyOf(source));
    const bool needless = SlotOf(entries_[hr_steer_bucket(&kernel_->config(), &source)]) == slot;
    if (!has_connection) closed.insert(KeyOf(source));
    if (!needless && (has_connection || !closed_before_.contains(KeyOf(source)))) continue;
    if (const absl::Status unpinned = kernel_->Unpin(source); !unpinned.ok()) return unpinned;
    closed.erase(KeyOf(source));
    --pins_;
  }
  closed_before_ = std::move(closed);
  return absl::OkStatus();
}

}  // namespace hedgerow::steer
