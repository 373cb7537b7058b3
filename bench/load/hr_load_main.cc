// SPDX-License-Identifier: Apache-2.0
//
// hr-load: the UDP load generator. Closed loop (the published workload) or open loop (send times fixed ahead),
// raw or dns requests or heartbeats, with or without application hedging (`--hedge_target`). Prints progress as JSON
// lines on stderr and the report as JSON on stdout or into --out. Started by the runners in bench/*.py;
// docs/benchmarks.md explains the figures.
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "bench/load/engine.h"
#include "bench/load/pacing.h"
#include "bench/load/program.h"
#include "bench/load/workload.h"

ABSL_FLAG(std::string, target, "",
          "where requests go, address:port (IPv6: [address]:port); of several with commas between them, each "
          "goes to the "
          "one with the fewest in flight");
ABSL_FLAG(std::string, hedge_target, "", "hedge in the application: send a second copy there after --hedge_delay");
ABSL_FLAG(bool, hedge, false, "several targets: hedge in the application, to another of them after --hedge_delay");
ABSL_FLAG(absl::Duration, hedge_delay, absl::Milliseconds(10), "from the send to the hedge");
ABSL_FLAG(double, hedge_budget, 0,
          "hedge in the application: extra load that hedges may cause, as a share of the requests; 0: any");
ABSL_FLAG(std::string, copies, "never",
          "several targets: send a second copy with the request never, always, or while both replicas are idle "
          "(idle)");
ABSL_FLAG(double, idle_below, 0.3,
          "--copies=idle: a replica with a smaller share of its workers taken is idle, in the client's own "
          "view and by "
          "the load in its answers");
ABSL_FLAG(uint64_t, workers, 32, "--copies=idle: workers of a replica");
ABSL_FLAG(std::string, loop, "closed", "closed or open");
ABSL_FLAG(double, rate, 1000, "open loop: requests per second");
ABSL_FLAG(std::string, arrivals, "even", "open loop: gaps between requests, even or poisson");
ABSL_FLAG(uint64_t, seed, 1, "--arrivals=poisson: of the gaps");
ABSL_FLAG(double, seconds, 0, "open loop: how long, instead of --requests");
ABSL_FLAG(uint64_t, requests, 5000, "measured requests");
ABSL_FLAG(uint64_t, warmup, 200, "requests sent first and not measured");
ABSL_FLAG(absl::Duration, pause, absl::Milliseconds(1), "closed loop: from an answer to the next request");
ABSL_FLAG(uint64_t, in_flight, 1, "closed loop: requests that wait for an answer at one time");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(1), "when the client gives a request up");
ABSL_FLAG(absl::Duration, linger, absl::Milliseconds(500), "how long to listen for late answers at the end");
ABSL_FLAG(uint64_t, sockets, 1, "how many sockets (client ports) to send from");
ABSL_FLAG(std::string, from, "", "own address:port; empty: any");
ABSL_FLAG(absl::Duration, poll_ahead, absl::ZeroDuration(), "open loop: polls so long before a request is due");
ABSL_FLAG(std::string, workload, "raw", "raw, dns or heartbeat");
ABSL_FLAG(uint32_t, first_id, 0, "raw: id of the first request");
ABSL_FLAG(uint32_t, request_bytes, 4, "raw: length of a request, the id included");
ABSL_FLAG(int32_t, load_offset, -1, "raw: place of the server's load in an answer; -1: it reports none");
ABSL_FLAG(uint64_t, cluster_id, 0, "heartbeat: of the cluster of two whose node 1 is asked by its leader");
ABSL_FLAG(std::string, cluster_key, "", "heartbeat: in hexadecimal");
ABSL_FLAG(std::string, names, "", "dns: names separated by commas, or @FILE with one per line");
ABSL_FLAG(std::string, mode, "", "what the report calls this run");
ABSL_FLAG(std::string, out, "", "file for the JSON report; standard output when empty");
ABSL_FLAG(std::string, csv, "", "file for one line per measured request");
ABSL_FLAG(bool, progress, false, "a JSON line per second on standard error");

namespace hedgerow::bench {
namespace {

constexpr uint64_t kMaxRequests = 50'000'000;

absl::StatusOr<std::vector<std::string>> Names() {
  const std::string flag = absl::GetFlag(FLAGS_names);
  if (flag.empty() || flag[0] != '@') return std::vector<std::string>(absl::StrSplit(flag, ',', absl::SkipEmpty()));
  std::ifstream file(flag.substr(1));
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read the list of names '", flag.substr(1), "'"));
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    const auto name = std::string(absl::StripAsciiWhitespace(line));
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Workload>> WorkloadFromFlags() {
  const std::string kind = absl::GetFlag(FLAGS_workload);
  if (kind == "raw") {
    const int32_t load_offset = absl::GetFlag(FLAGS_load_offset);
    return MakeRawWorkload(absl::GetFlag(FLAGS_first_id), absl::GetFlag(FLAGS_request_bytes),
                           load_offset < 0 ? std::nullopt : std::optional<size_t>(load_offset));
  }
  if (kind == "heartbeat")
    return MakeHeartbeatWorkload(absl::GetFlag(FLAGS_cluster_id), absl::GetFlag(FLAGS_cluster_key));
  if (kind != "dns")
    return absl::InvalidArgumentError(absl::StrCat("--workload is raw, dns or heartbeat, not '", kind, "'"));
  absl::StatusOr<std::vector<std::string>> names = Names();
  if (!names.ok()) return names.status();
  return MakeDnsWorkload(*names, absl::GetFlag(FLAGS_sockets));
}

absl::Status AddTargets(LoadOptions& options) {
  std::vector<std::string> targets = absl::StrSplit(absl::GetFlag(FLAGS_target), ',');
  options.spread = targets.size() > 1;
  options.hedges = absl::GetFlag(FLAGS_hedge);
  if (const std::string hedge_target = absl::GetFlag(FLAGS_hedge_target); !hedge_target.empty()) {
    if (options.spread) return absl::InvalidArgumentError("--hedge_target is for one --target; of several: --hedge");
    targets.push_back(hedge_target);
    options.hedges = true;
  }
  for (const std::string& text : targets) {
    absl::StatusOr<Address> address = ParseAddress(text);
    if (!address.ok()) return address.status();
    if (&text == &targets.front()) {
      options.target = *address;
    } else {
      options.others.push_back(*address);
    }
  }
  const std::string copies = absl::GetFlag(FLAGS_copies);
  if (copies == "always") {
    options.copies.at_once = CopyAtOnce::kAlways;
  } else if (copies == "idle") {
    options.copies.at_once = CopyAtOnce::kIdle;
  } else if (copies != "never") {
    return absl::InvalidArgumentError(absl::StrCat("--copies is never, always or idle, not '", copies, "'"));
  }
  options.copies.idle_below = absl::GetFlag(FLAGS_idle_below);
  options.copies.workers = absl::GetFlag(FLAGS_workers);
  return absl::OkStatus();
}

absl::StatusOr<LoadOptions> OptionsFromFlags() {
  LoadOptions options;
  const std::string loop = absl::GetFlag(FLAGS_loop);
  if (loop != "closed" && loop != "open") {
    return absl::InvalidArgumentError(absl::StrCat("--loop is closed or open, not '", loop, "'"));
  }
  options.loop = loop == "open" ? LoadOptions::Loop::kOpen : LoadOptions::Loop::kClosed;
  if (absl::Status status = AddTargets(options); !status.ok()) return status;
  if (const std::string text = absl::GetFlag(FLAGS_from); !text.empty()) {
    absl::StatusOr<Address> from = ParseAddress(text);
    if (!from.ok()) return from.status();
    options.from = *from;
  }
  options.poll_ahead_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_poll_ahead));
  options.hedge_delay_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_hedge_delay));
  options.hedge_budget = absl::GetFlag(FLAGS_hedge_budget);
  options.rate_per_second = absl::GetFlag(FLAGS_rate);
  const std::string arrivals = absl::GetFlag(FLAGS_arrivals);
  if (arrivals == "poisson") {
    options.poisson_seed = absl::GetFlag(FLAGS_seed);
  } else if (arrivals != "even") {
    return absl::InvalidArgumentError(absl::StrCat("--arrivals is even or poisson, not '", arrivals, "'"));
  }
  const double seconds = absl::GetFlag(FLAGS_seconds);
  options.requests = seconds > 0 ? Pacing::RequestsIn(seconds, options.rate_per_second) : absl::GetFlag(FLAGS_requests);
  options.warmup = absl::GetFlag(FLAGS_warmup);
  if (options.requests + options.warmup > kMaxRequests) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", kMaxRequests, " requests in a run"));
  }
  options.pause_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_pause));
  options.in_flight = absl::GetFlag(FLAGS_in_flight);
  options.timeout_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_timeout));
  options.linger_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_linger));
  options.flows = absl::GetFlag(FLAGS_sockets);
  options.keep_records = !absl::GetFlag(FLAGS_csv).empty();
  return options;
}

const char* EventName(LoadProgress::Event event) {
  switch (event) {
    case LoadProgress::Event::kMeasuring: return "measuring";
    case LoadProgress::Event::kTick: return "tick";
    case LoadProgress::Event::kMeasured: return "measured";
  }
  return "unknown";
}

void PrintProgress(const LoadProgress& progress) {
  absl::FPrintF(
      stderr,
      R"({"event":"%s","sent":%d,"total":%d,"answered":%d,"timeouts":%d,"hedges":%d,"p50_ms":%.3f,"max_ms":%.3f})"
      "\n",
      EventName(progress.event), progress.sent, progress.total, progress.answered, progress.timeouts, progress.hedges,
      static_cast<double>(progress.window_p50_ns) / 1e6, static_cast<double>(progress.window_max_ns) / 1e6);
}

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

// {"summary": {"n", "lost", .., "p50_ms", .., "cpu_us_per_request"}, "histograms": {"latency", "fire_error",
// "send_lag"}}. `mode` is what the caller wants the run to be called.
std::string ReportJson(absl::string_view mode, const LoadOptions& options, const LoadResult& result) {
  return absl::StrCat(R"({"summary":{"mode":")", mode, R"(",)", Counters(options, result), ",", Times(options, result),
                      R"(},"histograms":{"latency":)", result.latency.ToJson(), R"(,"fire_error":)",
                      result.fire_error.ToJson(), R"(,"send_lag":)", result.send_lag.ToJson(), "}}\n");
}

// Empty where something did not happen.
std::string RecordsCsv(const LoadResult& result) {
  std::string csv = "seq,intended_us,send_lag_us,latency_us,fire_error_us,winner\n";
  for (const RequestRecord& record : result.records) {
    absl::StrAppend(&csv, record.seq, ",", MicrosecondsOrEmpty(record.intended_ns), ",",
                    MicrosecondsOrEmpty(record.send_lag_ns), ",", MicrosecondsOrEmpty(record.latency_ns), ",",
                    MicrosecondsOrEmpty(record.fire_error_ns), ",", static_cast<int>(record.winner), "\n");
  }
  return csv;
}

absl::Status RunFromFlags() {
  absl::StatusOr<std::unique_ptr<Workload>> workload = WorkloadFromFlags();
  if (!workload.ok()) return workload.status();
  absl::StatusOr<LoadOptions> options = OptionsFromFlags();
  if (!options.ok()) return options.status();
  absl::StatusOr<LoadEngine> engine =
      LoadEngine::Make(*options, workload->get(), absl::GetFlag(FLAGS_progress) ? PrintProgress : nullptr);
  if (!engine.ok()) return engine.status();
  const LoadResult result = engine->Run();
  const std::string csv = absl::GetFlag(FLAGS_csv);
  if (!csv.empty()) {
    if (absl::Status status = WriteTo(csv, RecordsCsv(result)); !status.ok()) return status;
  }
  std::string mode = absl::GetFlag(FLAGS_mode);
  if (mode.empty()) mode = options->hedges ? "app-cc" : "baseline";
  return WriteTo(absl::GetFlag(FLAGS_out), ReportJson(mode, *options, result));
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv,
                                     "UDP load generator: closed or open loop, with or without application hedging.",
                                     hedgerow::bench::RunFromFlags);
}
