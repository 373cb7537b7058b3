// SPDX-License-Identifier: Apache-2.0
//
// hr-echo-server: one replica. It echoes a request in the same turn, or after a time of its own that is drawn from its
// id and the seed, so that every run meets the same times: --service, with an exponential part of mean --tail, or a
// bounded Pareto distribution (--pareto). On the first sight of a --fraction of the ids, anywhere among the replicas,
// it stalls instead. With --workers a queue stands before them, and a stall takes a worker. SIGUSR1 makes it --factor
// times slower, SIGUSR2 as it was. Prints "ready", stops after
// --seconds or on SIGTERM and then prints its counters as JSON. Started by bench/replicas.py.
#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/load/program.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/seen_table.h"
#include "bench/serve/server_loop.h"
#include "bench/serve/service_tail.h"
#include "bench/serve/stall_rule.h"
#include "bench/serve/worker_queue.h"

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

// At 100,000 requests/s and a stall of 400 ms 40,000 wait at once.
constexpr size_t kMaxHeld = 200'000;
constexpr size_t kIdBytes = 4;

// An echo by way of a WorkerQueue, over one or several sockets. What a request takes is a function of its id.
struct QueueServer {
  // Says "ready", and serves until the time has passed or a signal asks to stop; then prints its counters with
  // `more`, a JSON object's members that begin with a comma.
  void Run(double seconds, const std::function<std::string()>& more);
  void TakeRequests(uint8_t socket);
  void SendAnswers();

  std::vector<UdpSocket> sockets;
  WorkerQueue queue;
  std::function<int64_t(uint32_t id, int64_t now_ns)> service_ns;  // none: whole batches are answered at once
  std::function<double()> factor;                                  // how many times slower everything is now
  Batch received{};
  std::vector<Batch> answers{sockets.size()};  // by socket
  uint64_t requests = 0;
  uint64_t refused = 0;  // too short, too many held, or not taken by the kernel
};

void QueueServer::Run(double seconds, const std::function<std::string()>& more) {
  StopOnSignals();
  AskForExactTimers();
  std::vector<int> fds;
  for (const UdpSocket& socket : sockets) fds.push_back(socket.fd());
  std::array<bool, UINT8_MAX + 1> readable{};
  SayReady();
  const int64_t end_ns = MonotonicNs() + static_cast<int64_t>(seconds * 1e9);
  while (!MustStop(end_ns)) {
    WaitReadable(fds, std::min(queue.NextDueNs(), end_ns), readable);
    // Requests first: their service time counts from here. Answers next, so that a busy socket cannot hold them
    // up.
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (readable[i]) TakeRequests(static_cast<uint8_t>(i));
    }
    SendAnswers();
  }
  absl::PrintF("{\"requests\":%d,\"refused\":%d,\"served_ns\":%d%s}\n", requests, refused, queue.served_ns(), more());
}

void QueueServer::TakeRequests(uint8_t socket) {
  sockets[socket].Receive(received);
  if (!service_ns) {
    // A received batch has peers and lengths where a batch to be sent has them.
    requests += received.size();
    refused += received.size() - sockets[socket].Send(received);
    return;
  }
  const int64_t now_ns = MonotonicNs();
  queue.SetFactor(factor());
  for (size_t i = 0; i < received.size(); ++i) {
    const auto bytes = received.Bytes(i);
    ++requests;
    if (bytes.size() < kIdBytes) {
      ++refused;
      continue;
    }
    const uint32_t id = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<uint32_t>(bytes[3]) << 24;
    if (!queue.Push(now_ns, service_ns(id, now_ns), bytes, received.Peer(i), socket)) ++refused;
  }
}

void QueueServer::SendAnswers() {
  const int64_t now_ns = MonotonicNs();
  queue.SetFactor(factor());
  for (size_t answered = 0; answered < Batch::kCapacity; ++answered) {
    const DelayQueue::Held* held = queue.PopDue(now_ns);
    if (held == nullptr) break;
    Batch& batch = answers[held->socket];
    std::copy_n(held->data, held->bytes, batch.Next().begin());
    batch.Commit(held->bytes, held->peer);
  }
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (answers[i].size() > 0) sockets[i].Send(answers[i]);
    answers[i].clear();
  }
}

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
  absl::StatusOr<WorkerQueue> queue =
      WorkerQueue::Make(kMaxHeld, absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_load_offset));
  if (!queue.ok()) return queue.status();
  absl::StatusOr<std::vector<UdpSocket>> sockets = ListenOnAll(absl::GetFlag(FLAGS_listen));
  if (!sockets.ok()) return sockets.status();
  QueueServer server{.sockets = *std::move(sockets),
                     .queue = *std::move(queue),
                     .service_ns = std::move(service_ns),
                     .factor = [factor] { return slow != 0 ? factor : 1.0; }};
  struct sigaction action = {};
  action.sa_handler = MakeSlow;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGUSR2, &action, nullptr);
  server.Run(absl::GetFlag(FLAGS_seconds), [&] {
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
