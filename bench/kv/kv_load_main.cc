// SPDX-License-Identifier: Apache-2.0
//
// hr-kv-load: closed-loop clients of a replicated store, each with a socket or a call of its own under way; the
// phases as JSON lines on stderr, and the report as JSON on stdout. Started by bench/store_load.py.

#include <cstdio>
#include <ctime>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "bench/kv/closed_loop.h"
#include "bench/kv/etcd_loop.h"
#include "bench/load/program.h"
#include "operate/clock.h"

ABSL_FLAG(std::string, store, "hkv", "hkv, ours over UDP, or etcd, over its own protocol");
ABSL_FLAG(std::string, server, "", "address:port of the node, or of the proxy's service");
ABSL_FLAG(uint32_t, clients, 1, "clients, each with one request under way; at most 10000");
ABSL_FLAG(std::string, operation, "put", "put or get");
ABSL_FLAG(uint32_t, keys, 1000, "keys of each client");
ABSL_FLAG(uint32_t, value_bytes, 64, "length of what is put; at most 1024");
ABSL_FLAG(absl::Duration, warm_up, absl::Seconds(1), "not measured");
ABSL_FLAG(absl::Duration, measured, absl::Seconds(5), "measured; at most 10 minutes");
ABSL_FLAG(double, rate, 0,
          "requests per second of all clients together, at fixed times; 0: each client asks when it has its answer");
ABSL_FLAG(std::string, client, "", "the name that the clients prove, with --key; empty: none");
ABSL_FLAG(std::string, key, "", "the name's key, in hexadecimal");
ABSL_FLAG(uint32_t, connections, 1, "etcd: of all clients together, which take turns on them; 0: one for each client");

namespace hedgerow::bench {
namespace {

// The load's own processor time, of all its threads: who watches from outside may come when it has ended.
int64_t CpuTime_us() { return static_cast<int64_t>(operate::Clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000); }

int64_t measured_cpu_us = 0;

// The phases come in turn: "measuring", then "measured".
void Say(const char* phase) {
  measured_cpu_us = CpuTime_us() - measured_cpu_us;
  fprintf(stderr, "{\"event\":\"%s\"}\n", phase);
}

absl::StatusOr<ClosedLoopOptions> OptionsFromFlags() {
  ClosedLoopOptions options;
  options.server = absl::GetFlag(FLAGS_server);
  options.clients = absl::GetFlag(FLAGS_clients);
  options.keys = absl::GetFlag(FLAGS_keys);
  options.value_bytes = absl::GetFlag(FLAGS_value_bytes);
  options.warm_up = absl::GetFlag(FLAGS_warm_up);
  options.measured = absl::GetFlag(FLAGS_measured);
  if (const std::string name = absl::GetFlag(FLAGS_client); !name.empty()) {
    const absl::StatusOr<wire::Key> key = wire::ParseKey(absl::GetFlag(FLAGS_key));
    if (!key.ok()) return key.status();
    options.credentials = client::Credentials{.client = name, .key = *key};
  }
  const std::string operation = absl::GetFlag(FLAGS_operation);
  if (operation != "put" && operation != "get") {
    return absl::InvalidArgumentError(absl::StrCat("--operation is put or get, not '", operation, "'"));
  }
  options.operation = operation == "put" ? KvOperation::kPut : KvOperation::kGet;
  if (options.clients < 1 || options.clients > 10'000) {
    return absl::InvalidArgumentError("--clients is 1 to 10000");
  }
  options.rate_per_s = absl::GetFlag(FLAGS_rate);
  if (!(options.rate_per_s >= 0 && options.rate_per_s <= 1e6)) {
    return absl::InvalidArgumentError("--rate is 0 to 1000000");
  }
  if (options.keys < 1) return absl::InvalidArgumentError("--keys is at least 1");
  if (options.value_bytes > 1024) return absl::InvalidArgumentError("--value_bytes is at most 1024");
  if (options.measured > absl::Minutes(10)) {
    return absl::InvalidArgumentError("--measured is at most 10 minutes");
  }
  return options;
}

absl::StatusOr<ClosedLoopReport> RunLoop(const ClosedLoopOptions& options) {
  const std::string store = absl::GetFlag(FLAGS_store);
  if (store == "hkv") return RunClosedLoop(options, Say);
  if (store == "etcd") return RunEtcdClosedLoop(options, absl::GetFlag(FLAGS_connections), Say);
  return absl::InvalidArgumentError(absl::StrCat("--store is hkv or etcd, not '", store, "'"));
}

absl::Status Run() {
  const absl::StatusOr<ClosedLoopOptions> options = OptionsFromFlags();
  if (!options.ok()) return options.status();
  const absl::StatusOr<ClosedLoopReport> report = RunLoop(*options);
  if (!report.ok()) return report.status();
  printf(
      "{\"answered\":%llu,\"failed\":%llu,\"lost\":%llu,\"behind\":%llu,\"seconds\":%.6f,\"cpu_us\":%lld,"
      "\"latency\":%s}\n",
      static_cast<unsigned long long>(report->answered), static_cast<unsigned long long>(report->failed),
      static_cast<unsigned long long>(report->lost), static_cast<unsigned long long>(report->behind), report->seconds,
      static_cast<long long>(measured_cpu_us), report->latency_ns.ToJson().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "clients of a replicated store, each with one request under way",
                                     hedgerow::bench::Run);
}
