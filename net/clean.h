// SPDX-License-Identifier: Apache-2.0
//
// Removes everything of an instance that a crashed daemon left: attached programs, routes, interfaces, pins. It
// finds them by the marks we put on them, never by a configuration, so that it works when the configuration is
// lost. Called by `hedgerow clean`, and by the daemon when its start fails half-way.
//
// It does not ask whether a daemon lives: the caller does. Acts in the network namespace of the calling thread;
// pinned TCX links are detached wherever they are.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hedgerow::net {

struct CleanReport {
  std::vector<std::string> removed{};   // one line each, in the order it happened
  std::vector<std::string> failures{};  // what could not be removed, and why; everything else was still tried
};

// Idempotent: a second run removes nothing and fails at nothing. `bpffs` is also unmounted when it was ours and
// is empty.
CleanReport Clean(const std::string& instance, const std::string& bpffs);

// The instances of which anything is found: by pins and by interfaces.
absl::StatusOr<std::vector<std::string>> FindInstances(const std::string& bpffs);

}  // namespace hedgerow::net
