// SPDX-License-Identifier: Apache-2.0
//
// hr-tail-server: one replica whose answer times have a tail, as real ones do: an echo after --base and an
// exponential part of mean --tail, or after a time of a bounded Pareto distribution (--pareto), drawn from the
// request's id and the seed, so that every run meets the same times. With --workers a queue stands before them.
// SIGUSR1 makes it --factor times slower, SIGUSR2 as it was. Prints "ready", stops after --seconds or on
// SIGTERM and then prints its counters as JSON. Started by bench/adaptive.py and bench/at_once.py.
#include <array>
#include <cmath>
#include <csignal>
#include <iostream>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/server_loop.h"
#include "bench/serve/service_tail.h"
#include "bench/serve/worker_queue.h"

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

constexpr size_t kMaxHeld = 100'000;
constexpr size_t kIdBytes = 4;

volatile std::sig_atomic_t slow = 0;

void MakeSlow(int signal) { slow = signal == SIGUSR1; }

struct Counters {
  uint64_t requests = 0;
  uint64_t slow_requests = 0;
  uint64_t refused = 0;   // Too short, or too many held.
  int64_t served_ns = 0;  // Service times of all requests.
};

class TailServer {
 public:
  TailServer(std::vector<UdpSocket> sockets, ServiceTail tail, WorkerQueue queue)
      : sockets_(std::move(sockets)),
        tail_(tail),
        factor_(absl::GetFlag(FLAGS_factor)),
        queue_(std::move(queue)) {}

  const Counters& Run(int64_t end_ns) {
    std::vector<int> fds;
    for (const UdpSocket& socket : sockets_) fds.push_back(socket.fd());
    std::array<bool, UINT8_MAX + 1> readable{};
    while (!MustStop(end_ns)) {
      WaitReadable(fds, std::min(queue_.NextDueNs(), end_ns), readable);
      for (size_t i = 0; i < sockets_.size(); ++i) {
        if (readable[i]) TakeRequests(static_cast<uint8_t>(i));
      }
      const int64_t now_ns = MonotonicNs();
      queue_.SetFactor(slow != 0 ? factor_ : 1);
      while (const DelayQueue::Held* held = queue_.PopDue(now_ns))
        sockets_[held->socket].SendOne(held->datagram(), held->peer);
    }
    counters_.served_ns = queue_.served_ns();
    return counters_;
  }

 private:
  void TakeRequests(uint8_t socket) {
    sockets_[socket].Receive(requests_);
    const int64_t now_ns = MonotonicNs();
    queue_.SetFactor(slow != 0 ? factor_ : 1);
    for (size_t i = 0; i < requests_.size(); ++i) {
      const auto bytes = requests_.Bytes(i);
      ++counters_.requests;
      if (bytes.size() < kIdBytes) {
        ++counters_.refused;
        continue;
      }
      const uint32_t id = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<uint32_t>(bytes[3]) << 24;
      counters_.slow_requests += slow != 0;
      if (!queue_.Push(now_ns, tail_.ServiceTimeNs(id), bytes, requests_.Peer(i), socket)) ++counters_.refused;
    }
  }

  std::vector<UdpSocket> sockets_;
  ServiceTail tail_;
  double factor_;
  WorkerQueue queue_;
  Batch requests_;
  Counters counters_;
};

absl::StatusOr<ServiceTail> TailFromFlags() {
  const double shape = absl::GetFlag(FLAGS_pareto);
  if (shape == 0) {
    return ServiceTail(absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_base)),
                       absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_tail)), absl::GetFlag(FLAGS_seed));
  }
  return ServiceTail::BoundedPareto(absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_mean)), shape,
                                    absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_longest)),
                                    absl::GetFlag(FLAGS_seed));
}

absl::Status RunFromFlags() {
  absl::StatusOr<ServiceTail> tail = TailFromFlags();
  if (!tail.ok()) return tail.status();
  absl::StatusOr<WorkerQueue> queue =
      WorkerQueue::Make(kMaxHeld, absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_load_offset));
  if (!queue.ok()) return queue.status();
  absl::StatusOr<std::vector<UdpSocket>> sockets = ListenOnAll(absl::GetFlag(FLAGS_listen));
  if (!sockets.ok()) return sockets.status();
  StopOnSignals();
  struct sigaction action = {};
  action.sa_handler = MakeSlow;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGUSR2, &action, nullptr);
  AskForExactTimers();
  TailServer server(*std::move(sockets), *tail, *std::move(queue));
  SayReady();
  const Counters& counters =
      server.Run(MonotonicNs() + static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e9));
  absl::PrintF("{\"requests\":%d,\"slow_requests\":%d,\"refused\":%d,\"served_ns\":%d}\n", counters.requests,
               counters.slow_requests, counters.refused, counters.served_ns);
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("UDP echo server with a tail of answer times, and a slow state.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = hedgerow::bench::RunFromFlags();
  if (!status.ok()) std::cerr << "hr-tail-server: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
