// SPDX-License-Identifier: Apache-2.0
//
// Which privileges the process has, by name. The daemon asks before it touches anything, so that "not root" is
// one clear sentence instead of an EPERM from the middle of an attach; doctor lists them.
#ifndef HEDGEROW_NET_CAPABILITIES_H_
#define HEDGEROW_NET_CAPABILITIES_H_

#include <array>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::net {

enum class Capability {  // the kernel's numbers
  kNetAdmin = 12,
  kNetRaw = 13,
  kSysAdmin = 21,
  kPerfmon = 38,
  kBpf = 39,
};

absl::string_view Name(Capability capability);     // "CAP_NET_ADMIN"
absl::string_view WhatFor(Capability capability);  // "interfaces, routes, attaching TC programs"

// The daemon's. Without CAP_PERFMON the verifier refuses what clang makes of our programs ("attempt to corrupt
// spilled pointer on stack", the splitter on 6.18), and would slow the rest by its measures against
// speculation.
inline constexpr std::array kCapabilitiesAlways = {Capability::kBpf, Capability::kNetAdmin, Capability::kNetRaw,
                                                   Capability::kPerfmon};
// To take everything down again. Measured by capabilities_test.cc: with these two everything in net/
// works, on a bpffs that is mounted already.
inline constexpr std::array kCapabilitiesToClean = {Capability::kBpf, Capability::kNetAdmin};
// Only to mount (and unmount) a bpffs where there is none, and to try features in a namespace of one's own
// (doctor).
inline constexpr std::array kCapabilitiesToMount = {Capability::kSysAdmin};

// The wanted ones that the calling thread's effective set lacks.
absl::StatusOr<std::vector<Capability>> MissingCapabilities(std::span<const Capability> wanted);
// PermissionDenied that names each missing one and what it is for.
absl::Status RequireCapabilities(std::span<const Capability> wanted);

}  // namespace hedgerow::net

#endif  // HEDGEROW_NET_CAPABILITIES_H_
