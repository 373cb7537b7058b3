// SPDX-License-Identifier: Apache-2.0
//
// hr-stall-server: one replica of the published experiment. Echoes a request after its service time (2 ms); on
// the first sight of certain ids, anywhere among the replicas, it stalls for 400 ms instead. With --workers a
// queue stands before them, and a stall takes a worker. Prints "ready", stops after --seconds or on SIGTERM and
// then prints its counters as JSON. Started by bench/seed_hedge.py and bench/at_once.py.
#include <array>
#include <iostream>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/load/histogram.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/seen_table.h"
#include "bench/serve/server_loop.h"
#include "bench/serve/stall_rule.h"
#include "bench/serve/worker_queue.h"

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

// At 100,000 requests/s and a stall of 400 ms 40,000 wait at once.
constexpr size_t kMaxHeld = 200'000;
constexpr size_t kIdBytes = 4;

struct Counters {
  uint64_t requests = 0;
  uint64_t stalled = 0;
  uint64_t spared = 0;  // Would have stalled, but had been seen.
  uint64_t short_datagrams = 0;
  uint64_t refused_full = 0;
  Histogram answer_error;  // Really answered - due.
  int64_t served_ns = 0;   // Service times of all requests.
};

class StallServer {
 public:
  StallServer(std::vector<UdpSocket> sockets, StallRule rule, SeenTable seen, WorkerQueue queue)
      : sockets_(std::move(sockets)),
        rule_(rule),
        seen_(std::move(seen)),
        service_ns_(absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_service))),
        stall_ns_(absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_stall))),
        queue_(std::move(queue)) {}

  const Counters& Run(int64_t end_ns) {
    std::vector<int> fds;
    for (const UdpSocket& socket : sockets_) fds.push_back(socket.fd());
    std::array<bool, UINT8_MAX + 1> readable{};
    while (!MustStop(end_ns)) {
      WaitReadable(fds, std::min(queue_.NextDueNs(), end_ns), readable);
      // Requests first: their service time counts from here. Answers next, so that a busy socket cannot hold
      // them up.
      for (size_t i = 0; i < sockets_.size(); ++i) {
        if (readable[i]) TakeRequests(static_cast<uint8_t>(i));
      }
      SendAnswers();
    }
    counters_.served_ns = queue_.served_ns();
    return counters_;
  }

 private:
  void TakeRequests(uint8_t socket) {
    sockets_[socket].Receive(requests_);
    const int64_t now_ns = MonotonicNs();
    for (size_t i = 0; i < requests_.size(); ++i) {
      const auto bytes = requests_.Bytes(i);
      ++counters_.requests;
      if (bytes.size() < kIdBytes) {
        ++counters_.short_datagrams;
        continue;
      }
      if (!queue_.Push(now_ns, ServiceTimeNs(bytes, now_ns), bytes, requests_.Peer(i), socket))
        ++counters_.refused_full;
    }
  }

  int64_t ServiceTimeNs(std::span<const uint8_t> bytes, int64_t now_ns) {
    const uint32_t id = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<uint32_t>(bytes[3]) << 24;
    if (!rule_.Stalls(id)) return service_ns_;
    if (!seen_.IsFirstSight(id, now_ns)) {
      ++counters_.spared;
      return service_ns_;
    }
    ++counters_.stalled;
    return stall_ns_;
  }

  void SendAnswers() {
    const int64_t now_ns = MonotonicNs();
    for (size_t answered = 0; answered < Batch::kCapacity; ++answered) {
      const int64_t due_ns = queue_.NextDueNs();
      const DelayQueue::Held* held = queue_.PopDue(now_ns);
      if (held == nullptr) break;
      counters_.answer_error.Record(static_cast<uint64_t>(now_ns - due_ns));
      Batch& answers = answers_[held->socket];
      std::copy_n(held->data, held->bytes, answers.Next().begin());
      answers.Commit(held->bytes, held->peer);
    }
    for (size_t i = 0; i < sockets_.size(); ++i) {
      if (answers_[i].size() > 0) sockets_[i].Send(answers_[i]);
      answers_[i].clear();
    }
  }

  std::vector<UdpSocket> sockets_;
  StallRule rule_;
  SeenTable seen_;
  int64_t service_ns_;
  int64_t stall_ns_;
  WorkerQueue queue_;
  Batch requests_;
  std::vector<Batch> answers_{sockets_.size()};  // By socket.
  Counters counters_;
};

absl::Status RunFromFlags() {
  absl::StatusOr<StallRule> rule =
      StallRule::Make(absl::GetFlag(FLAGS_rule), absl::GetFlag(FLAGS_fraction), absl::GetFlag(FLAGS_seed));
  if (!rule.ok()) return rule.status();
  absl::StatusOr<SeenTable> seen =
      SeenTable::Open(absl::GetFlag(FLAGS_shared), absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_ttl)));
  if (!seen.ok()) return seen.status();
  absl::StatusOr<WorkerQueue> queue =
      WorkerQueue::Make(kMaxHeld, absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_load_offset));
  if (!queue.ok()) return queue.status();
  absl::StatusOr<std::vector<UdpSocket>> sockets = ListenOnAll(absl::GetFlag(FLAGS_listen));
  if (!sockets.ok()) return sockets.status();
  StopOnSignals();
  AskForExactTimers();
  StallServer server(*std::move(sockets), *rule, *std::move(seen), *std::move(queue));
  SayReady();
  const Counters& counters =
      server.Run(MonotonicNs() + static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e9));
  absl::PrintF(
      R"({"requests":%d,"stalled":%d,"spared":%d,"short":%d,"refused_full":%d,"served_ns":%d,"answer_error":%s})"
      "\n",
      counters.requests, counters.stalled, counters.spared, counters.short_datagrams, counters.refused_full,
      counters.served_ns, counters.answer_error.ToJson());
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("UDP echo server with deterministic stalls on first sight.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = hedgerow::bench::RunFromFlags();
  if (!status.ok()) std::cerr << "hr-stall-server: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
