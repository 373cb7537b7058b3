// SPDX-License-Identifier: Apache-2.0
#include "bench/load/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hedgerow::bench {
namespace {

double Ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }
double Us(uint64_t ns) { return static_cast<double>(ns) / 1e3; }

std::string MicrosecondsOrEmpty(int64_t ns) {
  return ns < 0 ? std::string() : absl::StrFormat("%.3f", static_cast<double>(ns) / 1e3);
}

std::string Counters(const LoadOptions& options, const LoadResult& result) {
  const LoadCounters& counters = result.counters;
  return absl::StrFormat(
      R"("n":%d,"warmup":%d,"lost":%d,"timeouts":%d,"send_errors":%d,"hedges":%d,"copies":%d,"losers":%d,)"
      R"("duplicates":%d,"late":%d,"wrong":%d,"wrong_waiting":%d,"stray":%d)",
      options.requests, options.warmup, options.requests - counters.answered, counters.timeouts, counters.send_errors,
      counters.hedges, counters.copies, counters.losers, counters.duplicates, counters.late, counters.wrong,
      counters.wrong_waiting, counters.stray);
}

std::string Times(const LoadOptions& options, const LoadResult& result) {
  const auto requests = static_cast<double>(options.requests);
  const auto cpu_ns = static_cast<double>(result.cpu_user_ns + result.cpu_system_ns);
  const Histogram& latency = result.latency;
  return absl::StrFormat(
      R"("p50_ms":%.4f,"p95_ms":%.4f,"p99_ms":%.4f,"p999_ms":%.4f,"max_ms":%.4f,"mean_ms":%.4f,)"
      R"("fire_error_p50_us":%.3f,"fire_error_p99_us":%.3f,"fire_error_max_us":%.3f,"send_lag_p50_us":%.3f,)"
      R"("send_lag_p99_us":%.3f,"cpu_user_us_per_request":%.3f,"cpu_system_us_per_request":%.3f,)"
      R"("cpu_us_per_request":%.3f,"wall_s":%.6f,"rate_per_second":%.1f)",
      Ms(latency.Quantile(0.5)), Ms(latency.Quantile(0.95)), Ms(latency.Quantile(0.99)), Ms(latency.Quantile(0.999)),
      Ms(latency.max()), latency.mean() / 1e6, Us(result.fire_error.Quantile(0.5)),
      Us(result.fire_error.Quantile(0.99)), Us(result.fire_error.max()), Us(result.send_lag.Quantile(0.5)),
      Us(result.send_lag.Quantile(0.99)), static_cast<double>(result.cpu_user_ns) / 1e3 / requests,
      static_cast<double>(result.cpu_system_ns) / 1e3 / requests, cpu_ns / 1e3 / requests,
      static_cast<double>(result.wall_ns) / 1e9, requests / (static_cast<double>(result.wall_ns) / 1e9));
}

}  // namespace

std::string ReportJson(absl::string_view mode, const LoadOptions& options, const LoadResult& result) {
  return absl::StrCat(R"({"summary":{"mode":")", mode, R"(",)", Counters(options, result), ",", Times(options, result),
                      R"(},"histograms":{"latency":)", result.latency.ToJson(), R"(,"fire_error":)",
                      result.fire_error.ToJson(), R"(,"send_lag":)", result.send_lag.ToJson(), "}}\n");
}

std::string RecordsCsv(const LoadResult& result) {
  std::string csv = "seq,intended_us,send_lag_us,latency_us,fire_error_us,winner\n";
  for (const RequestRecord& record : result.records) {
    absl::StrAppend(&csv, record.seq, ",", MicrosecondsOrEmpty(record.intended_ns), ",",
                    MicrosecondsOrEmpty(record.send_lag_ns), ",", MicrosecondsOrEmpty(record.latency_ns), ",",
                    MicrosecondsOrEmpty(record.fire_error_ns), ",", static_cast<int>(record.winner), "\n");
  }
  return csv;
}

}  // namespace hedgerow::bench
