// SPDX-License-Identifier: Apache-2.0
//
// hr-echo-server: echoes datagrams in batches as fast as it can (or after --service), for throughput runs.
// Prints "ready", stops after --seconds or on SIGTERM, then prints its counters as JSON. Started by
// bench/parking.py.
#include <array>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/load/program.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/delay_queue.h"
#include "bench/serve/server_loop.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:9000", "address:port");
ABSL_FLAG(absl::Duration, service, absl::ZeroDuration(), "service time; 0 answers in the same turn");
ABSL_FLAG(double, seconds, 600, "stops by itself after this time");

namespace hedgerow::bench {
namespace {

constexpr size_t kMaxHeld = 200'000;

struct Counters {
  uint64_t requests = 0;
  uint64_t unsent = 0;
};

void EchoAtOnce(UdpSocket& socket, Batch& batch, Counters& counters) {
  // A received batch has peers and lengths where a batch to be sent has them.
  counters.unsent += batch.size() - socket.Send(batch);
}

void Hold(DelayQueue& queue, Batch& batch, int64_t due_ns, Counters& counters) {
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!queue.Push(due_ns, batch.Bytes(i), batch.Peer(i))) ++counters.unsent;
  }
}

Counters Serve(UdpSocket& socket, int64_t service_ns, int64_t end_ns) {
  Counters counters;
  Batch batch;
  DelayQueue queue(kMaxHeld);
  const std::array<int, 1> fds{socket.fd()};
  std::array<bool, 1> readable;
  while (!MustStop(end_ns)) {
    WaitReadable(fds, std::min(queue.NextDueNs(), end_ns), readable);
    if (readable[0]) {
      socket.Receive(batch);
      counters.requests += batch.size();
      if (service_ns == 0) {
        EchoAtOnce(socket, batch, counters);
      } else {
        Hold(queue, batch, MonotonicNs() + service_ns, counters);
      }
    }
    const int64_t now_ns = MonotonicNs();
    while (const DelayQueue::Held* held = queue.PopDue(now_ns)) {
      if (!socket.SendOne(held->datagram(), held->peer)) ++counters.unsent;
    }
  }
  return counters;
}

absl::Status RunFromFlags() {
  absl::StatusOr<Address> local = ParseAddress(absl::GetFlag(FLAGS_listen));
  if (!local.ok()) return local.status();
  absl::StatusOr<UdpSocket> socket = UdpSocket::Listen(*local);
  if (!socket.ok()) return socket.status();
  StopOnSignals();
  AskForExactTimers();
  SayReady();
  const Counters counters = Serve(*socket, absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_service)),
                                  MonotonicNs() + static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e9));
  absl::PrintF("{\"requests\":%d,\"unsent\":%d}\n", counters.requests, counters.unsent);
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "UDP echo server.", hedgerow::bench::RunFromFlags);
}
