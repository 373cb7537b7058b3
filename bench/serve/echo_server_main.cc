// SPDX-License-Identifier: Apache-2.0
//
// hr-echo-server: echoes datagrams in batches as fast as it can (or after --service), for throughput runs.
// Prints "ready", stops after --seconds or on SIGTERM, then prints its counters as JSON. Started by
// bench/parking.py.

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "bench/load/program.h"
#include "bench/serve/queue_server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:9000", "address:port");
ABSL_FLAG(absl::Duration, service, absl::ZeroDuration(), "service time; 0 answers in the same turn");
ABSL_FLAG(double, seconds, 600, "stops by itself after this time");

namespace hedgerow::bench {
namespace {

absl::Status RunFromFlags() {
  const int64_t service_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_service));
  std::function<int64_t(uint32_t, int64_t)> after;
  if (service_ns > 0) after = [service_ns](uint32_t, int64_t) { return service_ns; };
  absl::StatusOr<QueueServer> server = QueueServer::Listen(absl::GetFlag(FLAGS_listen), 0, -1, after);
  if (!server.ok()) return server.status();
  server->Run(absl::GetFlag(FLAGS_seconds), [] { return ""; });
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "UDP echo server.", hedgerow::bench::RunFromFlags);
}
