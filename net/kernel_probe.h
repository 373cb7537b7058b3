// SPDX-License-Identifier: Apache-2.0
//
// What the running kernel offers, found by trying, never by its version alone: distributions leave things out
// and put things in. Called by `hedgerow doctor`, and by the daemon to say why it refuses a kernel.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::net {

enum class Found {
  kYes,
  kNo,
  kUnknown,  // could not be tried; the detail says why
};

struct ProbeResult {
  std::string name{};  // stable: "kernel", "btf", "jit", "tcx", "clsact", "htb", "fq"
  Found found = Found::kUnknown;
  bool required = false;  // Hedgerow does not run without it
  std::string offers{};   // what it is good for
  std::string detail{};   // what was seen: a version, an error
};

// Tries everything, in well under a second. Qdiscs are tried on a veth in a network namespace that vanishes
// afterwards (needs CAP_SYS_ADMIN and CAP_NET_ADMIN; without them those are kUnknown). Trying may load the
// kernel's module for a qdisc.
std::vector<ProbeResult> ProbeKernel();

// "6.18.44-foo" -> 6018. InvalidArgument when it does not start with two numbers.
absl::StatusOr<int> ParseKernelVersion(absl::string_view release);

absl::string_view ToString(Found found);

}  // namespace hedgerow::net
