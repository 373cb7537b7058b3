// SPDX-License-Identifier: Apache-2.0
//
// The outcome of a reload, for the client that asked for it, and for status and metrics, which keep it. Used by the
// daemon.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proxy/admin/status.h"
#include "proxy/api/admin.pb.h"
#include "proxy/config/diff.h"

namespace hedgerow {

// The differences, and as problems those that cannot be applied.
void FillChanges(const std::vector<config::Change>& changes, v1::ReloadReply& reply);

// Records a reload that was not a dry run. Where the reload came to no answer, `reply` is the error: a file with errors
// (InvalidArgument), or what went wrong on the way.
void NoteReload(const absl::StatusOr<v1::ReloadReply>& reply, int64_t now_ns, ReloadFacts& facts);
// This configuration is in force from now on.
void NoteConfig(const v1::Config& config, int64_t now_ns, absl::Time now, ReloadFacts& facts);

// "applied", or why not.
std::string OutcomeText(const absl::StatusOr<v1::ReloadReply>& reply);

}  // namespace hedgerow
