// SPDX-License-Identifier: Apache-2.0
//
// The kernel's events in the words of the configuration: services, backends and reasons by name. Called by the
// administration service for everything that it streams.
#pragma once

#include "absl/strings/string_view.h"
#include "bpf/abi/trace_abi.h"
#include "proxy/api/config.pb.h"
#include "proxy/api/trace.pb.h"

namespace hedgerow {

// "split", "hedge", ...; empty when the number has no meaning. Stable.
absl::string_view TraceKindName(int kind);

// A service or backend that the configuration does not have leaves its name empty. Pure.
v1::TraceEvent DescribeTraceEvent(const v1::Config& config, const hr_trace_event& event);

// What TraceReply.services holds.
void DescribeServices(const v1::Config& config, v1::TraceReply& reply);

}  // namespace hedgerow
