// SPDX-License-Identifier: Apache-2.0
//
// Which privileges the process has, by name. The daemon asks before it touches anything, so that "not root" is
// one clear sentence instead of an EPERM from the middle of an attach; doctor lists them.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hedgerow::net {

enum class Capability {  // the kernel's numbers
  kNetAdmin = 12,
  kNetRaw = 13,
  kSysAdmin = 21,  // only to mount (and unmount) a bpffs, and to try features in a namespace of one's own (doctor)
  kPerfmon = 38,
  kBpf = 39,
};

// The daemon's. Without CAP_PERFMON the verifier refuses what clang makes of our programs ("attempt to corrupt
// spilled pointer on stack", the splitter on 6.18), and would slow the rest by its measures against
// speculation.
inline constexpr std::array kCapabilitiesAlways = {Capability::kBpf, Capability::kNetAdmin, Capability::kNetRaw,
                                                   Capability::kPerfmon};
// To take everything down again. Measured by capabilities_test.cc: with these two everything in net/
// works, on a bpffs that is mounted already.
inline constexpr std::array kCapabilitiesToClean = {Capability::kBpf, Capability::kNetAdmin};

// The wanted ones that the calling thread's effective set lacks, each with what it is for: "CAP_BPF (maps, loading
// programs)".
absl::StatusOr<std::vector<std::string>> MissingCapabilities(std::span<const Capability> wanted);
// PermissionDenied with all of these.
absl::Status RequireCapabilities(std::span<const Capability> wanted);

}  // namespace hedgerow::net
