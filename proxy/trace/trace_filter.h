// SPDX-License-Identifier: Apache-2.0
//
// What a client of the trace asks for, in names and text, as the kernel compares it. Called by the
// administration service for each trace.
#pragma once

#include "absl/status/statusor.h"
#include "bpf/abi/trace_abi.h"
#include "proxy/api/config.pb.h"
#include "proxy/api/trace.pb.h"

namespace hedgerow {

inline constexpr uint32_t kDefaultTraceRate = 1'000;
inline constexpr uint32_t kMaxTraceRate = 100'000;

// NotFound for a service or backend that the configuration does not have, with those it has; InvalidArgument
// for text that is no address, prefix or key. Pure.
absl::StatusOr<hr_trace_filter> MakeTraceFilter(const v1::Config& config, const v1::TraceRequest& request);

}  // namespace hedgerow
