// SPDX-License-Identifier: Apache-2.0
//
// The words of `hedgerow check`: of each address, of each service, and of all. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/probe.h"
#include "proxy/profiles/query.h"

namespace hedgerow::cli {

enum class ProbedPlace { kBackend, kVip };

// `profile` judges a reply to `query`.
v1::Probe JudgeProbe(ProbedPlace place, const v1::Profile& profile, absl::string_view query, const ProbeResult& result);

// Fills in `ok` and `verdict` of each service, and `ok` of all. `daemon_runs`: a daemon looks after the services,
// whether or not this user may ask it.
void Conclude(bool daemon_runs, v1::CheckReport& report);

std::string CheckText(const v1::CheckReport& report);

}  // namespace hedgerow::cli
