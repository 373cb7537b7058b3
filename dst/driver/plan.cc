// SPDX-License-Identifier: Apache-2.0
#include "dst/driver/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hedgerow::dst {
namespace {

constexpr std::array<std::pair<absl::string_view, FaultKind>, 11> kKinds = {
    {{"kill", FaultKind::kKill},
     {"stop", FaultKind::kStop},
     {"cut", FaultKind::kCut},
     {"cut-out", FaultKind::kCutOut},
     {"cut-in", FaultKind::kCutIn},
     {"network-fault", FaultKind::kNetworkFault},
     {"disk-full", FaultKind::kDiskFull},
     {"power-cut", FaultKind::kPowerCut},
     {"proxy-kill", FaultKind::kProxyKill},
     {"clock-jump", FaultKind::kClockJump},
     {"hog", FaultKind::kHog}}};
constexpr std::array<std::pair<absl::string_view, Target>, 5> kTargets = {{{"leader", Target::kLeader},
                                                                           {"follower", Target::kFollower},
                                                                           {"any", Target::kAny},
                                                                           {"all", Target::kAll},
                                                                           {"nobody", Target::kNobody}}};

template <typename Table, typename Value>
bool Find(const Table& table, absl::string_view name, Value& value) {
  const auto found =
      std::find_if(table.begin(), table.end(), [name](const auto& entry) { return entry.first == name; });
  if (found == table.end()) return false;
  value = found->second;
  return true;
}

// "fault AT_US FOR_US KIND TARGET DRAW [ARGUMENT]"
bool ParseFault(const std::vector<absl::string_view>& words, Plan& plan) {
  if (words.size() != 6 && words.size() != 7) return false;
  Fault fault;
  if (!absl::SimpleAtoi(words[1], &fault.at_us) || !absl::SimpleAtoi(words[2], &fault.for_us) ||
      !Find(kKinds, words[3], fault.kind) || !Find(kTargets, words[4], fault.target) ||
      !absl::SimpleAtoi(words[5], &fault.draw)) {
    return false;
  }
  if (words.size() == 7) fault.argument = std::string(words[6]);
  plan.faults.push_back(std::move(fault));
  return true;
}

bool ParseSetting(const std::vector<absl::string_view>& words, Plan& plan) {
  if (words.size() != 2) return false;
  if (words[0] == "seed") return absl::SimpleAtoi(words[1], &plan.seed);
  if (words[0] == "load_us") return absl::SimpleAtoi(words[1], &plan.load_us);
  if (words[0] == "clients") return absl::SimpleAtoi(words[1], &plan.clients);
  if (words[0] == "sessions") return absl::SimpleAtoi(words[1], &plan.sessions);
  if (words[0] == "interval_us") return absl::SimpleAtoi(words[1], &plan.interval_us);
  if (words[0] == "timeout_us") return absl::SimpleAtoi(words[1], &plan.timeout_us);
  if (words[0] == "disks") return plan.unsynced = words[1] == "unsynced";
  if (words[0] != "bug") return false;
  plan.bug = std::string(words[1]);
  return true;
}

}  // namespace

absl::StatusOr<Plan> ParsePlan(absl::string_view text) {
  Plan plan;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (!(words[0] == "fault" ? ParseFault(words, plan) : ParseSetting(words, plan))) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": '", line, "' means nothing"));
    }
  }
  if (plan.load_us == 0) return absl::InvalidArgumentError("a plan without load_us has no load");
  return plan;
}

absl::string_view Name(FaultKind kind) {
  for (const auto& [name, known] : kKinds) {
    if (known == kind) return name;
  }
  return "?";
}

}  // namespace hedgerow::dst
