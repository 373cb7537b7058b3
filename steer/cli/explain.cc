// SPDX-License-Identifier: Apache-2.0
//
// `explain`: the kernel's choice, computed natively by the same function (bpf/steer/bucket.h) from the group's pinned
// maps. The seed is secret, so it needs the right to open the pins.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/ip_address.h"
#include "operate/hex.h"
#include "steer/change.h"
#include "steer/cli/commands.h"
#include "steer/cli/text.h"
#include "steer/process.h"
#include "steer/record.h"
#include "steer/sock_diag.h"

namespace hedgerow::steer::cli {
namespace {

constexpr std::array kNeeded = {net::Capability::kBpf};

// The record may name a worker that has ended since. From another PID namespace none of its processes can be looked at.
bool HasEnded(const v1::Process& worker, const v1::Record& record) {
  const bool looks = Identify(static_cast<pid_t>(record.supervisor_pid())).name == "hedgerow-steer" ||
                     std::any_of(record.slots().begin(), record.slots().end(),
                                 [](const v1::RecordedSlot& each) { return Runs(FromRecord(each.worker())); });
  return looks && !Runs(FromRecord(worker));
}

// The arguments of Explain().
struct View {
  hr_steer_config config{};
  DeviceIndex devices{};
  std::vector<std::pair<hr_steer_source, uint8_t>> pins{};
  TableEntries table{};
  v1::Record record{};
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
  View view{.config = (*kernel)->config(), .record = *record};
  const auto devices = (*kernel)->Devices();
  auto pins = (*kernel)->Pins();
  const auto table = (*kernel)->ReadTable();
  for (const absl::Status& status : {devices.status(), pins.status(), table.status()}) {
    if (!status.ok()) return status;
  }
  view.devices = *devices;
  view.pins = *std::move(pins);
  view.table = *table;
  return view;
}

}  // namespace

int RunExplain(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  if (words.size() != 2) return call.UsageError("explain wants an address");
  const auto address = net::IpAddress::Parse(words[1]);
  if (!address.ok()) return call.UsageError(std::string(address.status().message()));
  const std::string hex = call.arguments.Get("payload");
  if (hex.size() % 2 != 0 ||
      !std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); })) {
    return call.UsageError(absl::StrCat("--payload: got \"", hex, "\", expected bytes in hexadecimal: 000a0b"));
  }
  const auto view = OpenView(call.arguments);
  if (!view.ok()) return call.Fail(view.status());
  const std::string payload = operate::BytesOfHex(hex);
  const Choice choice = Explain(view->config, view->devices, view->pins, view->table, *address,
                                {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()});
  v1::Explanation explanation;
  explanation.set_address(address->ToString());
  explanation.set_source(SourceText(choice.source, view->config));
  explanation.set_bucket(choice.bucket);
  explanation.set_slot(choice.slot);
  explanation.set_pinned(choice.pinned);
  for (const v1::RecordedSlot& slot : view->record.slots()) {
    if (slot.slot() == choice.slot && !slot.leaving() && !HasEnded(slot.worker(), view->record))
      explanation.set_pid(slot.worker().pid());
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

}  // namespace hedgerow::steer::cli
