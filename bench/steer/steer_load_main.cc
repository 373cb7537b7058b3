// SPDX-License-Identifier: Apache-2.0
//
// hr-steer-load: the sources of the experiments on steering, each with an address of its own. They go on sending (open
// loop), or with
// --visits come once each. Prints "measuring" and "measured" as JSON lines on stderr and the report as JSON into --out.
// Started by bench/steer.py and chaos/.
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/load/program.h"
#include "bench/serve/server_loop.h"
#include "bench/steer/stream.h"
#include "bench/steer/visits.h"

ABSL_FLAG(std::string, target, "", "the collector, address:port");
ABSL_FLAG(std::string, first_source, "127.1.0.1", "address of the first source; the others follow");
ABSL_FLAG(uint32_t, sources, 512, "how many");
ABSL_FLAG(bool, one_address, false, "all sources have the first one's address, and differ by their sockets");
ABSL_FLAG(std::string, transport, "both", "udp, tcp or both");
ABSL_FLAG(double, rate, 10'000, "messages per second, of all sources together");
ABSL_FLAG(double, seconds, 3, "how long");
ABSL_FLAG(double, warm_up, 0.2, "seconds before, not measured");
ABSL_FLAG(uint32_t, bytes, 256, "of a message");
ABSL_FLAG(uint32_t, answer_every, 1, "so many of a source's messages, one asks for an answer");
ABSL_FLAG(absl::Duration, linger, absl::Seconds(1), "how long answers are waited for at the end");
ABSL_FLAG(absl::Duration, retry, absl::Milliseconds(20), "from a connection attempt that failed to the next");
ABSL_FLAG(bool, patient, false, "begins where the first connections fail, too");
ABSL_FLAG(uint32_t, visits, 0, "visits instead of a stream: a new socket, a message, its answer, the end");
ABSL_FLAG(uint32_t, at_once, 0, "so many visits at a time; 0: all");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(10), "of a visit");
ABSL_FLAG(std::string, out, "", "file for the JSON report; standard output when empty");
ABSL_FLAG(std::string, records, "", "file for what became of each message, 24 bytes each (stream.h)");
ABSL_FLAG(bool, progress, false, "a JSON line on standard error when the measured part begins and ends");

namespace hedgerow::bench {
namespace {

struct Ends {
  Address target, first_source;
};

absl::StatusOr<Ends> EndsFromFlags() {
  const absl::StatusOr<Address> target = ParseAddress(absl::GetFlag(FLAGS_target));
  if (!target.ok()) return target.status();
  const std::string first = absl::GetFlag(FLAGS_first_source);
  const bool is_ipv6 = first.find(':') != std::string::npos;
  const absl::StatusOr<Address> source =
      ParseAddress(is_ipv6 ? absl::StrCat("[", first, "]:0") : absl::StrCat(first, ":0"));
  if (!source.ok()) return absl::InvalidArgumentError(absl::StrCat("--first_source '", first, "' is no address"));
  if (source->storage.ss_family != target->storage.ss_family) {
    return absl::InvalidArgumentError("--target and --first_source are of different families");
  }
  return Ends{*target, *source};
}

absl::Status Stream(const Ends& ends, const std::string& transport) {
  const StreamOptions options{.target = ends.target,
                              .first_source = ends.first_source,
                              .sources = absl::GetFlag(FLAGS_sources),
                              .udp = transport != "tcp",
                              .tcp = transport != "udp",
                              .rate = absl::GetFlag(FLAGS_rate),
                              .seconds = absl::GetFlag(FLAGS_seconds),
                              .warm_up = absl::GetFlag(FLAGS_warm_up),
                              .bytes = static_cast<uint16_t>(absl::GetFlag(FLAGS_bytes)),
                              .answer_every = absl::GetFlag(FLAGS_answer_every),
                              .linger_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_linger)),
                              .retry_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_retry)),
                              .one_address = absl::GetFlag(FLAGS_one_address),
                              .patient = absl::GetFlag(FLAGS_patient)};
  const bool progress = absl::GetFlag(FLAGS_progress);
  absl::StatusOr<std::unique_ptr<SourceStream>> stream = SourceStream::Open(options, [progress](const char* event) {
    if (!progress) return;
    absl::FPrintF(stderr, "{\"event\":\"%s\"}\n", event);
    // The runner reads this process's time when it sees the line, and must find it alive.
    if (std::string_view(event) == "measured") absl::SleepFor(absl::Milliseconds(250));
  });
  if (!stream.ok()) return stream.status();
  const absl::StatusOr<StreamResult> result = (*stream)->Run(StopRequested);
  if (!result.ok()) return result.status();
  uint64_t wanted = 0;
  uint64_t answered = 0;
  for (const StreamRecord& record : result->records) {
    wanted += record.latency_us != StreamRecord::kNoneWanted;
    answered += record.latency_us < StreamRecord::kNoneWanted;
  }
  if (const std::string file = absl::GetFlag(FLAGS_records); !file.empty()) {
    const std::string bytes(reinterpret_cast<const char*>(result->records.data()),
                            result->records.size() * sizeof(StreamRecord));
    if (absl::Status status = WriteTo(file, bytes); !status.ok()) return status;
  }
  return WriteTo(
      absl::GetFlag(FLAGS_out),
      absl::StrCat(
          absl::StrFormat(
              R"({"summary":{"n":%d,"sent":%d,"wanted":%d,"answered":%d,"unsent":%d,"udp_refused":%d,"connects":%d,)"
              R"("connect_failures":%d,"connections_lost":%d,"duplicates":%d,"overflowed":%d,"user_us":%d,)"
              R"("system_us":%d},)",
              result->records.size(), result->sent, wanted, answered, result->unsent, result->udp_refused,
              result->connects, result->connect_failures, result->connections_lost, result->duplicates,
              result->overflowed, result->user_us, result->system_us),
          R"("histograms":{"udp":)", result->udp_latency_ns.ToJson(), R"(,"tcp":)", result->tcp_latency_ns.ToJson(),
          R"(,"send_lag":)", result->send_lag_ns.ToJson(), "}}\n"));
}

absl::Status Visits(const Ends& ends, const std::string& transport) {
  if (transport == "both") return absl::InvalidArgumentError("visits have one --transport, udp or tcp");
  const absl::StatusOr<VisitResult> result =
      Visit({.target = ends.target,
             .first_source = ends.first_source,
             .sources = absl::GetFlag(FLAGS_sources),
             .tcp = transport == "tcp",
             .visits = absl::GetFlag(FLAGS_visits),
             .at_once = absl::GetFlag(FLAGS_at_once),
             .timeout_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_timeout)),
             .bytes = static_cast<uint16_t>(absl::GetFlag(FLAGS_bytes))},
            StopRequested);
  if (!result.ok()) return result.status();
  return WriteTo(
      absl::GetFlag(FLAGS_out),
      absl::StrFormat(R"({"visits":%d,"answered":%d,"failed":%d,"refused":%d,"reset":%d,"timed_out":%d,"not_sent":%d,)"
                      R"("took_ms":%.3f,"connect":%s,"answer":%s})"
                      "\n",
                      absl::GetFlag(FLAGS_visits), result->answered, result->failed(), result->refused, result->reset,
                      result->timed_out, result->not_sent, static_cast<double>(result->took_ns) / 1e6,
                      result->connect_ns.ToJson(), result->answer_ns.ToJson()));
}

absl::Status RunFromFlags() {
  const std::string transport = absl::GetFlag(FLAGS_transport);
  if (transport != "udp" && transport != "tcp" && transport != "both") {
    return absl::InvalidArgumentError(absl::StrCat("--transport is udp, tcp or both, not '", transport, "'"));
  }
  if (absl::GetFlag(FLAGS_bytes) < sizeof(SteerMessage) || absl::GetFlag(FLAGS_bytes) > kSteerMessageMost) {
    return absl::InvalidArgumentError(absl::StrCat("--bytes is ", sizeof(SteerMessage), " to ", kSteerMessageMost));
  }
  const absl::StatusOr<Ends> ends = EndsFromFlags();
  if (!ends.ok()) return ends.status();
  StopOnSignals();
  return absl::GetFlag(FLAGS_visits) > 0 ? Visits(*ends, transport) : Stream(*ends, transport);
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "Sources with an address each, which send to a collector.",
                                     hedgerow::bench::RunFromFlags);
}
