// SPDX-License-Identifier: Apache-2.0
//
// Writes what a run of the load engine measured: one JSON object with the summary and the raw histograms, and
// on request a CSV with a line per request.
#pragma once

#include <string>

#include "bench/load/engine.h"

namespace hedgerow::bench {

// {"summary": {"n", "lost", .., "p50_ms", .., "cpu_us_per_request"}, "histograms": {"latency", "fire_error",
// "send_lag"}}. `mode` is what the caller wants the run to be called.
std::string ReportJson(absl::string_view mode, const LoadOptions& options, const LoadResult& result);

// seq, intended_us, send_lag_us, latency_us, fire_error_us, winner; empty where something did not happen.
std::string RecordsCsv(const LoadResult& result);

}  // namespace hedgerow::bench
