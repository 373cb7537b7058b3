// SPDX-License-Identifier: Apache-2.0
//
// `explain` and `simulate`: the kernel's choice, computed natively by the same function (bpf/steer/bucket.h) from the group's pinned
// maps. The seed is secret, so they need the right to open the pins.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/ip_address.h"
#include "operate/hex.h"
#include "steer/change.h"
#include "steer/cli/commands.h"
#include "steer/cli/text.h"
#include "steer/line_file.h"
#include "steer/process.h"
#include "steer/record.h"
#include "steer/sock_diag.h"
#include "steer/table.h"

namespace hedgerow::steer::cli {
namespace {

// So many lines that are no address, and none that is: more would not make it a file of addresses.
constexpr uint64_t kUnreadableMax = 100'000;

constexpr std::array kNeeded = {net::Capability::kBpf};

bool IsAlive(const v1::Process& process) {
  const v1::Process now = Identify(static_cast<pid_t>(process.pid()));
  return now.pid() != 0 && now.start_ticks() == process.start_ticks();
}

// The record may name a worker that has ended since. From another PID namespace none of its processes can be looked at.
bool HasEnded(const v1::Process& worker, const v1::Record& record) {
  const auto supervisor = static_cast<pid_t>(record.supervisor_pid());
  const bool looks = IsAlive(record.keeper()) || absl::StrContains(ProcessText(supervisor), "(hedgerow-steer)");
  return looks && !IsAlive(worker);
}

// The arguments of Explain().
struct View {
  hr_steer_config config{};
  DeviceIndex devices{};
  std::vector<std::pair<hr_steer_source, uint8_t>> pins{};
  TableEntries table{};
  Weights weights{};  // of the slots of the table
  v1::Record record{};

  Choice ChoiceOf(const net::IpAddress& address, absl::Span<const uint8_t> payload) const {
    uint8_t bytes[16] = {};
    memcpy(bytes, address.wire().data(), address.wire().size());
    return Explain(config, devices, pins, table, address.is_v4() ? 4 : 6, bytes, payload);
  }
};

absl::StatusOr<View> OpenView(const Arguments& arguments) {
  const auto places = FindGroup(arguments);
  if (!places.ok()) return places.status();
  const auto record = LoadRecord(*places);
  if (absl::IsNotFound(record.status())) return absl::UnavailableError(record.status().message());
  if (!record.ok()) return record.status();
  if (const absl::Status allowed = net::RequireCapabilities(kNeeded); !allowed.ok()) return allowed;
  const auto kernel = KernelGroup::Open(record->bpffs(), places->name);
  if (!kernel.ok()) return kernel.status();
  View view{.config = (*kernel)->config(), .weights = Weights(HR_STEER_SLOTS), .record = *record};
  const auto devices = (*kernel)->Devices();
  auto pins = (*kernel)->Pins();
  const auto table = (*kernel)->ReadTable();
  for (const absl::Status& status : {devices.status(), pins.status(), table.status()}) {
    if (!status.ok()) return status;
  }
  view.devices = *devices;
  view.pins = *std::move(pins);
  view.table = *table;
  for (const v1::RecordedSlot& slot : record->slots()) {
    if (!slot.stand_in() && !slot.leaving() && !slot.drained()) view.weights[slot.slot()] = slot.weight();
  }
  return view;
}

absl::StatusOr<View> NewView(uint32_t workers) {
  const auto config = NewConfig();
  if (!config.ok()) return config.status();
  View view{.config = *config, .weights = Weights(HR_STEER_SLOTS)};
  view.config.ipv6_prefix = 128;
  std::fill_n(view.weights.begin(), workers, 1.0);
  const auto table = GroupTable::Initial(view.weights, {});
  if (!table.ok()) return table.status();
  view.table = *table;
  return view;
}

Home HomeOf(const TableEntries& table) {
  Home home;
  std::transform(table.begin(), table.end(), home.begin(), [](const hr_steer_entry& entry) { return entry.slot; });
  return home;
}

// The value that a chi-square distribution stays below in 99 of 100 cases (Wilson and Hilferty, "The distribution of chi-square", 1931).
double ChiSquare99(int freedom) {
  if (freedom < 1) return 0;
  const double part = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1 - part + 2.326348 * std::sqrt(part), 3);
}

// The spread over slots, each of which is due its buckets.
void Judge(const View& view, v1::Simulation& simulation) {
  std::vector<double> due(HR_STEER_SLOTS);
  for (const hr_steer_entry& entry : view.table) {
    if (SlotOf(entry) >= 0) due[static_cast<size_t>(SlotOf(entry))] += 1;
  }
  int slots = 0;
  for (size_t slot = 0; slot < due.size(); ++slot) {
    if (due[slot] == 0) continue;
    ++slots;
    const double expected = due[slot] / HR_STEER_BUCKETS * static_cast<double>(simulation.addresses());
    const auto got = static_cast<double>(simulation.slots(static_cast<int>(slot)));
    simulation.set_worst_over_mean(std::max(simulation.worst_over_mean(), expected > 0 ? got / expected : 0));
    simulation.set_chi_square(simulation.chi_square() + (expected > 0 ? (got - expected) * (got - expected) / expected : 0));
  }
  simulation.set_chi_square_99(ChiSquare99(slots - 1));
}

absl::StatusOr<v1::Simulation> Simulate(LineFile& lines, const View& view, const View* changed) {
  v1::Simulation simulation;
  for (int slot = 0; slot < HR_STEER_SLOTS; ++slot) simulation.add_slots(0);
  while (true) {
    const absl::StatusOr<std::optional<std::string>> line = lines.Next();
    if (!line.ok()) return line.status();
    if (!line->has_value()) break;
    const absl::string_view text = absl::StripAsciiWhitespace(absl::string_view(**line).substr(0, (*line)->find('#')));
    if (text.empty()) continue;
    const auto address = net::IpAddress::Parse(text);
    if (!address.ok()) {
      simulation.set_unreadable_lines(simulation.unreadable_lines() + 1);
      if (simulation.addresses() == 0 && simulation.unreadable_lines() == kUnreadableMax) break;
      continue;
    }
    const Choice choice = view.ChoiceOf(*address, {});
    simulation.set_addresses(simulation.addresses() + 1);
    simulation.set_slots(choice.slot, simulation.slots(choice.slot) + 1);
    if (changed != nullptr && changed->ChoiceOf(*address, {}).slot != choice.slot) simulation.set_moved(simulation.moved() + 1);
  }
  if (simulation.addresses() == 0) return absl::InvalidArgumentError("the file has no address; it wants one a line");
  simulation.set_with_change(changed != nullptr);
  Judge(view, simulation);
  while (simulation.slots_size() > 1 && simulation.slots(simulation.slots_size() - 1) == 0) simulation.mutable_slots()->RemoveLast();
  return simulation;
}

// As `resize` would do it: the slots that there are keep their weights.
absl::StatusOr<View> Resized(const View& view, int64_t workers) {
  View changed = view;
  for (size_t slot = 0; slot < changed.weights.size(); ++slot) {
    if (static_cast<int64_t>(slot) >= workers) {
      changed.weights[slot] = 0;
    } else if (std::none_of(view.record.slots().begin(), view.record.slots().end(),
                            [slot](const v1::RecordedSlot& each) { return each.slot() == slot && !each.stand_in(); }) &&
               changed.weights[slot] == 0) {
      changed.weights[slot] = 1;
    }
  }
  const auto home = MoveHome(HomeOf(view.table), changed.weights);
  if (!home.ok()) return home.status();
  changed.table = Entries(*home, changed.weights, std::vector<bool>(HR_STEER_SLOTS), HR_STEER_REJECT, -1);
  return changed;
}

}  // namespace

int RunExplain(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  if (words.size() != 2) return call.UsageError("explain wants an address");
  const auto address = net::IpAddress::Parse(words[1]);
  if (!address.ok()) return call.UsageError(std::string(address.status().message()));
  const std::string hex = call.arguments.Get("payload");
  if (hex.size() % 2 != 0 || !std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); })) {
    return call.UsageError(absl::StrCat("--payload: got \"", hex, "\", expected bytes in hexadecimal: 000a0b"));
  }
  const auto view = OpenView(call.arguments);
  if (!view.ok()) return call.Fail(view.status());
  const std::string payload = operate::BytesOfHex(hex);
  const Choice choice = view->ChoiceOf(*address, {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()});
  v1::Explanation explanation;
  explanation.set_address(address->ToString());
  explanation.set_source(SourceText(choice.source, view->config));
  explanation.set_bucket(choice.bucket);
  explanation.set_slot(choice.slot);
  explanation.set_pinned(choice.pinned);
  for (const v1::RecordedSlot& slot : view->record.slots()) {
    if (slot.slot() == choice.slot && !HasEnded(slot.worker(), view->record)) explanation.set_pid(slot.worker().pid());
  }
  if (!choice.pinned && choice.entry.is_vacant) {
    const std::string home = absl::StrCat("slot ", choice.entry.slot, ", its own, is empty: ");
    explanation.set_empty(home + ((choice.entry.empty & HR_STEER_OTHER) != 0
                                      ? absl::StrCat("slot ", choice.entry.other_slot, " takes its place")
                                  : choice.entry.empty == HR_STEER_KERNEL
                                      ? "the kernel gives the packet to any socket of the daemon"
                                  : choice.entry.empty == HR_STEER_DROP ? "the packet is dropped"
                                                                        : "the packet is rejected"));
  }
  return call.Print(explanation, ExplanationText(explanation));
}

int RunSimulate(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  if (words.size() != 2) return call.UsageError("simulate wants a file of addresses");
  const auto workers = NumberOption(call.arguments, "workers", 0, 1, HR_STEER_SLOTS);
  if (!workers.ok()) return call.Fail(workers.status());
  const auto to = NumberOption(call.arguments, "to", 0, 1, HR_STEER_SLOTS);
  if (!to.ok()) return call.Fail(to.status());
  const auto view = *workers > 0 ? NewView(static_cast<uint32_t>(*workers)) : OpenView(call.arguments);
  if (!view.ok()) return call.Fail(view.status());
  auto lines = LineFile::Open(words[1], call.err);
  if (!lines.ok()) return call.Fail(lines.status());
  const auto changed = *to > 0 ? Resized(*view, *to) : *view;
  if (!changed.ok()) return call.Fail(changed.status());
  const auto simulation = Simulate(*lines, *view, *to > 0 ? &*changed : nullptr);
  return simulation.ok() ? call.Print(*simulation, SimulationText(*simulation)) : call.Fail(simulation.status());
}

}  // namespace hedgerow::steer::cli
