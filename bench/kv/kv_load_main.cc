// SPDX-License-Identifier: Apache-2.0
//
// hr-kv-load: closed-loop clients of the store. Prints the phases as JSON lines on stderr and the report as
// JSON on stdout. Started by bench/kv.py.
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "bench/kv/closed_loop.h"

ABSL_FLAG(std::string, server, "", "address:port of the node, or of the proxy's service");
ABSL_FLAG(uint32_t, clients, 1, "clients, each with a socket and one request under way; at most 10000");
ABSL_FLAG(std::string, operation, "put", "put or get");
ABSL_FLAG(uint32_t, keys, 1000, "keys of each client");
ABSL_FLAG(uint32_t, value_bytes, 64, "length of what is put; at most 1024");
ABSL_FLAG(absl::Duration, warm_up, absl::Seconds(1), "not measured");
ABSL_FLAG(absl::Duration, measured, absl::Seconds(5), "measured; at most 10 minutes");

namespace {

void Say(const char* phase) { fprintf(stderr, "{\"event\":\"%s\"}\n", phase); }

int Usage(const std::string& why) {
  fprintf(stderr, "hr-kv-load: %s\n", why.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("closed-loop clients of the store");
  absl::ParseCommandLine(argc, argv);
  hedgerow::bench::ClosedLoopOptions options;
  options.server = absl::GetFlag(FLAGS_server);
  options.clients = absl::GetFlag(FLAGS_clients);
  options.keys = absl::GetFlag(FLAGS_keys);
  options.value_bytes = absl::GetFlag(FLAGS_value_bytes);
  options.warm_up = absl::GetFlag(FLAGS_warm_up);
  options.measured = absl::GetFlag(FLAGS_measured);
  const std::string operation = absl::GetFlag(FLAGS_operation);
  if (operation != "put" && operation != "get") {
    return Usage(absl::StrCat("--operation is put or get, not '", operation, "'"));
  }
  options.operation =
      operation == "put" ? hedgerow::bench::KvOperation::kPut : hedgerow::bench::KvOperation::kGet;
  if (options.clients < 1 || options.clients > 10'000) return Usage("--clients is 1 to 10000");
  if (options.keys < 1) return Usage("--keys is at least 1");
  if (options.value_bytes > 1024) return Usage("--value_bytes is at most 1024");
  if (options.measured > absl::Minutes(10)) return Usage("--measured is at most 10 minutes");
  const auto report = hedgerow::bench::RunClosedLoop(options, Say);
  if (!report.ok()) {
    fprintf(stderr, "hr-kv-load: %s\n", std::string(report.status().message()).c_str());
    return 1;
  }
  printf("{\"answered\":%llu,\"failed\":%llu,\"lost\":%llu,\"seconds\":%.6f,\"latency\":%s}\n",
         static_cast<unsigned long long>(report->answered), static_cast<unsigned long long>(report->failed),
         static_cast<unsigned long long>(report->lost), report->seconds, report->latency_ns.ToJson().c_str());
  return 0;
}
