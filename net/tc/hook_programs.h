// SPDX-License-Identifier: Apache-2.0
//
// The programs of one TC hook in the order in which the kernel runs them: TCX programs, then the filters of clsact or
// ingress. One that returns a verdict (TC_ACT_OK, a redirect, ...) ends the packet for those behind it; only
// TC_ACT_UNSPEC lets them see it. Which one a program returns cannot be seen from outside. Called by the daemon's
// self-test and by doctor, to name what stands in front.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/tc/tc_attach.h"

namespace hedgerow::net {

struct HookProgram {
  uint32_t program_id = 0;  // 0: a filter that is no BPF program, or the kernel does not tell
  Mechanism mechanism = Mechanism::kTcx;
  uint16_t priority = 0;  // of a filter
  std::string kind{};     // of a filter: "bpf", "flower", ...
  std::string name{};     // "" when it may not be looked at

  bool IsHedgerows() const;      // by its name
  std::string ToString() const;  // "foreign_pass (tcx, program 12)", "u32 filter (priority 1)"
};

// Of the calling thread's namespace. Empty where the interface is gone.
absl::StatusOr<std::vector<HookProgram>> ListHook(int ifindex, Direction direction);

// What runs before `attachment`'s program on its hook. Empty where the program is not on the hook.
absl::StatusOr<std::vector<HookProgram>> ProgramsBefore(const Attachment& attachment);

// "a (tcx, program 3) and b (...)".
std::string Join(const std::vector<HookProgram>& programs);

}  // namespace hedgerow::net
