// SPDX-License-Identifier: Apache-2.0
//
// The commands that work on what is pinned, with or without a supervisor. `explain`: the kernel's choice, computed
// natively by the same function (bpf/steer/bucket.h); the seed is secret, so it needs the right to open the pins.
// `clean`: removes the group of a dead supervisor.
#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/ip_address.h"
#include "operate/hex.h"
#include "operate/instance_lock.h"
#include "steer/adopt/adopted_sockets.h"
#include "steer/cli/commands.h"
#include "steer/process.h"
#include "steer/record.h"

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

std::string EmptyText(const hr_steer_entry& entry) {
  return absl::StrCat("slot ", entry.slot, ", its own, is empty: ",
                      (entry.empty & HR_STEER_OTHER) != 0 ? absl::StrCat("slot ", entry.other_slot, " takes its place")
                      : entry.empty == HR_STEER_KERNEL    ? "the kernel gives the packet to any socket of the daemon"
                                                          : "the packet is rejected");
}

absl::StatusOr<v1::Explanation> ExplanationOf(const Arguments& arguments, const net::IpAddress& address,
                                              const std::string& payload) {
  const auto places = FindGroup(arguments);
  if (!places.ok()) return places.status();
  const auto record = LoadRecord(*places);
  if (absl::IsNotFound(record.status())) return absl::UnavailableError(record.status().message());
  if (!record.ok()) return record.status();
  if (const absl::Status allowed = net::RequireCapabilities(kNeeded); !allowed.ok()) return allowed;
  const auto kernel = KernelGroup::Open(record->bpffs(), places->name);
  if (!kernel.ok()) return kernel.status();
  const auto devices = (*kernel)->Devices();
  const auto pins = (*kernel)->Pins();
  const auto table = (*kernel)->ReadTable();
  for (const absl::Status& status : {devices.status(), pins.status(), table.status()}) {
    if (!status.ok()) return status;
  }
  const Choice choice = Explain((*kernel)->config(), *devices, *pins, *table, address,
                                {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()});
  v1::Explanation explanation;
  explanation.set_address(address.ToString());
  explanation.set_source(SourceText(choice.source, (*kernel)->config()));
  explanation.set_bucket(choice.bucket);
  explanation.set_slot(choice.slot);
  explanation.set_pinned(choice.pinned);
  for (const v1::RecordedSlot& slot : record->slots()) {
    if (slot.slot() == choice.slot && !slot.leaving() && !HasEnded(slot.worker(), *record))
      explanation.set_pid(slot.worker().pid());
  }
  if (!choice.pinned && choice.entry.is_vacant) explanation.set_empty(EmptyText(choice.entry));
  return explanation;
}

// An adopted daemon goes on, without the programs.
void ReleaseAdopted(const Leftovers& found) {
  const auto listen = Listen::Parse(found.record.listen());
  const auto kernel = KernelGroup::Open(found.bpffs, found.record.name());
  if (listen.ok()) GiveBack(kernel.ok() ? kernel->get() : nullptr, {.listen = *listen}, FiltersOf(found.record));
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
  const auto explanation = ExplanationOf(call.arguments, *address, operate::BytesOfHex(hex));
  return explanation.ok() ? call.Print(*explanation, ExplanationText(*explanation)) : call.Fail(explanation.status());
}

int RunClean(const Call& call) {
  const auto places = FindGroup(call.arguments);
  if (!places.ok()) return call.Fail(places.status());
  if (const absl::Status allowed = net::RequireCapabilities(kNeeded); !allowed.ok()) return call.Fail(allowed);
  const auto lock = InstanceLock::Acquire(places->run_dir, places->name, "group");
  if (!lock.ok()) return call.Fail(lock.status());
  const Leftovers found = LookForLeftovers(*places, call.arguments.Get("bpffs", net::kDefaultBpffs));
  if (found.record.mode() == "adopt" && found.has_pins) ReleaseAdopted(found);
  const auto removed = RemoveLeftovers(*places, found);
  if (!removed.ok()) return call.Fail(removed.status());
  (void)net::ReleaseBpffs(found.bpffs);
  v1::Cleaned report;
  report.set_name(places->name);
  std::string text;
  for (const std::string& line : *removed) {
    report.add_removed(line);
    absl::StrAppend(&text, "removed ", line, "\n");
  }
  return call.Print(report, text.empty() ? absl::StrCat("nothing of group ", places->name, " is left\n") : text);
}

}  // namespace hedgerow::steer::cli
