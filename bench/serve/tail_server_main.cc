// SPDX-License-Identifier: Apache-2.0
//
// hr-tail-server: one replica whose answer times have a tail, as real ones do: an echo after --base and an
// exponential part of mean --tail, or after a time of a bounded Pareto distribution (--pareto), drawn from the
// request's id and the seed, so that every run meets the same times. With --workers a queue stands before them.
// SIGUSR1 makes it --factor times slower, SIGUSR2 as it was. Prints "ready", stops after --seconds or on
// SIGTERM and then prints its counters as JSON. Started by bench/phases.py and bench/at_once.py.
#include <csignal>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/load/program.h"
#include "bench/serve/queue_server.h"
#include "bench/serve/service_tail.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:9000",
          "address:port; several with commas between them, for the same workers");
ABSL_FLAG(absl::Duration, base, absl::Milliseconds(1), "what every answer takes");
ABSL_FLAG(absl::Duration, tail, absl::Microseconds(500), "mean of what comes on top");
ABSL_FLAG(double, pareto, 0, "above 0: service times of a bounded Pareto distribution of this shape");
ABSL_FLAG(absl::Duration, mean, absl::Milliseconds(2), "of that distribution");
ABSL_FLAG(absl::Duration, longest, absl::Milliseconds(400), "of that distribution");
ABSL_FLAG(int32_t, workers, 0, "requests served at one time; the others wait. 0: as many as come");
ABSL_FLAG(int32_t, load_offset, -1, "place in an answer for the load, in 1/255 of the workers; -1: nowhere");
ABSL_FLAG(double, factor, 20, "how many times slower after SIGUSR1");
ABSL_FLAG(uint64_t, seed, 1, "of the tail");
ABSL_FLAG(double, seconds, 600, "stops by itself after this time");

namespace hedgerow::bench {
namespace {

volatile std::sig_atomic_t slow = 0;

void MakeSlow(int signal) { slow = signal == SIGUSR1; }

absl::StatusOr<ServiceTail> TailFromFlags() {
  const double shape = absl::GetFlag(FLAGS_pareto);
  if (shape == 0) {
    return ServiceTail(absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_base)),
                       absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_tail)), absl::GetFlag(FLAGS_seed));
  }
  return ServiceTail::BoundedPareto(absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_mean)), shape,
                                    absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_longest)), absl::GetFlag(FLAGS_seed));
}

absl::Status RunFromFlags() {
  const absl::StatusOr<ServiceTail> tail = TailFromFlags();
  if (!tail.ok()) return tail.status();
  const double factor = absl::GetFlag(FLAGS_factor);
  uint64_t slow_requests = 0;
  absl::StatusOr<QueueServer> server = QueueServer::Listen(
      absl::GetFlag(FLAGS_listen), absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_load_offset),
      [&](uint32_t id, int64_t) {
        slow_requests += slow != 0;
        return tail->ServiceTimeNs(id);
      },
      [factor] { return slow != 0 ? factor : 1.0; });
  if (!server.ok()) return server.status();
  struct sigaction action = {};
  action.sa_handler = MakeSlow;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGUSR2, &action, nullptr);
  server->Run(absl::GetFlag(FLAGS_seconds), [&] { return absl::StrCat(",\"slow_requests\":", slow_requests); });
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "UDP echo server with a tail of answer times, and a slow state.",
                                     hedgerow::bench::RunFromFlags);
}
