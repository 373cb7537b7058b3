// SPDX-License-Identifier: Apache-2.0
//
// Two readings of the daemon's counts, and what happened between them: rates,
// percentiles of just this second, nanoseconds per run. Pure; `hedgerow top` prints it
// as JSON, top_screen.h lays it out for people.

#pragma once

#include <string>
#include <vector>

#include "proxy/api/admin.pb.h"

namespace hedgerow::cli {

// Services that are not in `only` are left out; empty: all. A counter that went back (the daemon was started
// anew) counts from 0.
v1::TopReport BuildTopReport(const v1::Counts& before, const v1::Counts& now, const std::vector<std::string>& only);

}  // namespace hedgerow::cli
