// SPDX-License-Identifier: Apache-2.0
//
// hr-stall-server: one replica of the published experiment. Echoes a request after its service time (2 ms); on
// the first sight of certain ids, anywhere among the replicas, it stalls for 400 ms instead. With --workers a
// queue stands before them, and a stall takes a worker. Prints "ready", stops after --seconds or on SIGTERM and
// then prints its counters as JSON. Started by bench/seed_hedge.py and bench/at_once.py.

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/load/program.h"
#include "bench/serve/queue_server.h"
#include "bench/serve/seen_table.h"
#include "bench/serve/stall_rule.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:9000",
          "address:port; several with commas between them, for the same workers");
ABSL_FLAG(absl::Duration, service, absl::Milliseconds(2), "service time of a request that does not stall");
ABSL_FLAG(absl::Duration, stall, absl::Milliseconds(400), "service time of one that does");
ABSL_FLAG(std::string, rule, "mod", "which ids stall: mod (id % 100 < 100 * fraction) or hash (seeded)");
ABSL_FLAG(double, fraction, 0.02, "share of ids that stall");
ABSL_FLAG(uint64_t, seed, 1, "hash: seed");
ABSL_FLAG(absl::Duration, ttl, absl::Seconds(1), "how long an id counts as seen");
ABSL_FLAG(std::string, shared, "", "file that replicas share to know which ids were seen; private when empty");
ABSL_FLAG(int32_t, workers, 0, "requests served at one time; the others wait. 0: as many as come");
ABSL_FLAG(int32_t, load_offset, -1, "place in an answer for the load, in 1/255 of the workers; -1: nowhere");
ABSL_FLAG(double, seconds, 600, "stops by itself after this time");

namespace hedgerow::bench {
namespace {

absl::Status RunFromFlags() {
  absl::StatusOr<StallRule> rule =
      StallRule::Make(absl::GetFlag(FLAGS_rule), absl::GetFlag(FLAGS_fraction), absl::GetFlag(FLAGS_seed));
  if (!rule.ok()) return rule.status();
  absl::StatusOr<SeenTable> seen =
      SeenTable::Open(absl::GetFlag(FLAGS_shared), absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_ttl)));
  if (!seen.ok()) return seen.status();
  const int64_t service_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_service));
  const int64_t stall_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_stall));
  uint64_t stalled = 0;
  uint64_t spared = 0;  // would have stalled, but had been seen
  absl::StatusOr<QueueServer> server =
      QueueServer::Listen(absl::GetFlag(FLAGS_listen), absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_load_offset),
                          [&](uint32_t id, int64_t now_ns) {
                            if (!rule->Stalls(id)) return service_ns;
                            const bool first = seen->IsFirstSight(id, now_ns);
                            ++(first ? stalled : spared);
                            return first ? stall_ns : service_ns;
                          });
  if (!server.ok()) return server.status();
  server->Run(absl::GetFlag(FLAGS_seconds),
              [&] { return absl::StrCat(",\"stalled\":", stalled, ",\"spared\":", spared); });
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "UDP echo server with deterministic stalls on first sight.",
                                     hedgerow::bench::RunFromFlags);
}
