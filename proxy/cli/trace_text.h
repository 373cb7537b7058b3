// SPDX-License-Identifier: Apache-2.0
//
// What `hedgerow trace` prints for people: an event or a whole request on one
// line. Pure.

#pragma once

#include <cstdint>
#include <string>

#include "proxy/api/trace.pb.h"

namespace hedgerow::cli {

// "hedge to b", "loser a dropped", "no hedge: no_budget".
std::string StepText(const v1::TraceEvent& event);

// "12:00:01.123456  +10.2ms  dns  10.77.0.1:40000  2a01  hedge to b". `unix_ns` is when it happened.
std::string EventLine(const v1::TraceEvent& event, int64_t unix_ns);

// "12:00:01.123456  dns  10.77.0.1:40000  2a01  10.9ms hedge b |  0 to a, parked for 10ms | 10.2ms hedge to b
// | ...". `unix_ns` is when the splitter saw it.
std::string RequestLine(const v1::TracedRequest& request, int64_t unix_ns);

}  // namespace hedgerow::cli
