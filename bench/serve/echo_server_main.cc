// SPDX-License-Identifier: Apache-2.0
//
// hr-echo-server: one replica. It echoes a request in the same turn, or after a time of its own that is drawn from its
// id and the seed, so that every run meets the same times: --service, with an exponential part of mean --tail, or a
// bounded Pareto distribution (--pareto). On the first sight of a --fraction of the ids, anywhere among the replicas,
// it stalls instead. With --workers a queue stands before them, and a stall takes a worker. SIGUSR1 makes it --factor
// times slower, SIGUSR2 as it was. Prints "ready", stops after
// --seconds or on SIGTERM and then prints its counters as JSON. Started by bench/replicas.py.
#include <csignal>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/load/program.h"
#include "bench/serve/queue_server.h"
#include "bench/serve/seen_table.h"
#include "bench/serve/service_tail.h"
#include "bench/serve/stall_rule.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:9000",
          "address:port; several with commas between them, for the same workers");
ABSL_FLAG(absl::Duration, service, absl::ZeroDuration(), "what every answer takes that does not stall");
ABSL_FLAG(absl::Duration, tail, absl::ZeroDuration(), "mean of what comes on top");
ABSL_FLAG(double, pareto, 0, "above 0: service times of a bounded Pareto distribution of this shape");
ABSL_FLAG(absl::Duration, mean, absl::Milliseconds(2), "of that distribution");
ABSL_FLAG(absl::Duration, longest, absl::Milliseconds(400), "of that distribution");
ABSL_FLAG(double, factor, 20, "how many times slower after SIGUSR1");
ABSL_FLAG(double, fraction, 0, "share of ids that stall");
ABSL_FLAG(absl::Duration, stall, absl::Milliseconds(400), "what such an answer takes");
ABSL_FLAG(std::string, rule, "mod", "which ids stall: mod (id % 100 < 100 * fraction) or hash (seeded)");
ABSL_FLAG(absl::Duration, ttl, absl::Seconds(1), "how long an id counts as seen");
ABSL_FLAG(std::string, shared, "", "file that replicas share to know which ids were seen; private when empty");
ABSL_FLAG(uint64_t, seed, 1, "of the times and of --rule=hash");
ABSL_FLAG(int32_t, workers, 0, "requests served at one time; the others wait. 0: as many as come");
ABSL_FLAG(int32_t, load_offset, -1, "place in an answer for the load, in 1/255 of the workers; -1: nowhere");
ABSL_FLAG(double, seconds, 600, "stops by itself after this time");

namespace hedgerow::bench {
namespace {

volatile std::sig_atomic_t slow = 0;

void MakeSlow(int signal) { slow = signal == SIGUSR1; }

int64_t Nanoseconds(const absl::Flag<absl::Duration>& flag) { return absl::ToInt64Nanoseconds(absl::GetFlag(flag)); }

absl::StatusOr<ServiceTail> TailFromFlags() {
  const double shape = absl::GetFlag(FLAGS_pareto);
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  if (shape == 0) return ServiceTail(Nanoseconds(FLAGS_service), Nanoseconds(FLAGS_tail), seed);
  return ServiceTail::BoundedPareto(Nanoseconds(FLAGS_mean), shape, Nanoseconds(FLAGS_longest), seed);
}

absl::Status RunFromFlags() {
  const double fraction = absl::GetFlag(FLAGS_fraction);
  const absl::StatusOr<ServiceTail> tail = TailFromFlags();
  if (!tail.ok()) return tail.status();
  const absl::StatusOr<StallRule> rule =
      StallRule::Make(absl::GetFlag(FLAGS_rule), fraction, absl::GetFlag(FLAGS_seed));
  if (!rule.ok()) return rule.status();
  absl::StatusOr<SeenTable> seen = SeenTable::Open(absl::GetFlag(FLAGS_shared), Nanoseconds(FLAGS_ttl));
  if (!seen.ok()) return seen.status();
  const int64_t stall_ns = Nanoseconds(FLAGS_stall);
  const double factor = absl::GetFlag(FLAGS_factor);
  uint64_t stalled = 0;
  uint64_t spared = 0;  // would have stalled, but had been seen
  uint64_t slow_requests = 0;
  std::function<int64_t(uint32_t, int64_t)> service_ns = [&](uint32_t id, int64_t now_ns) {
    slow_requests += slow != 0;
    if (!rule->Stalls(id)) return tail->ServiceTimeNs(id);
    const bool first = seen->IsFirstSight(id, now_ns);
    ++(first ? stalled : spared);
    return first ? stall_ns : tail->ServiceTimeNs(id);
  };
  const absl::Duration service = absl::GetFlag(FLAGS_service) + absl::GetFlag(FLAGS_tail);
  if (service == absl::ZeroDuration() && absl::GetFlag(FLAGS_pareto) == 0 && fraction == 0) service_ns = nullptr;
  absl::StatusOr<QueueServer> server =
      QueueServer::Listen(absl::GetFlag(FLAGS_listen), absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_load_offset),
                          service_ns, [factor] { return slow != 0 ? factor : 1.0; });
  if (!server.ok()) return server.status();
  struct sigaction action = {};
  action.sa_handler = MakeSlow;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGUSR2, &action, nullptr);
  server->Run(absl::GetFlag(FLAGS_seconds), [&] {
    return absl::StrCat(",\"stalled\":", stalled, ",\"spared\":", spared, ",\"slow_requests\":", slow_requests);
  });
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "UDP echo server with answer times, stalls and a slow state.",
                                     hedgerow::bench::RunFromFlags);
}
