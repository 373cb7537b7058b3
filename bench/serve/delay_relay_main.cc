// SPDX-License-Identifier: Apache-2.0
//
// hr-delay-relay: stands in front of a real server and holds every answer for a fixed time, any number at once.
// It is what `netem delay` would do to the server's link; many kernels (and the floor's cloud kernels) have no
// netem, and tbf delays by rate, not by time. Each client address gets its own socket towards the server, as
// behind a NAT. Prints "ready", stops after --seconds or on SIGTERM. Started by bench/dns_stall.py.
#include <array>
#include <iostream>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/delay_queue.h"
#include "bench/serve/server_loop.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:9000", "where clients come in, address:port");
ABSL_FLAG(std::string, server, "", "the real server, address:port");
ABSL_FLAG(absl::Duration, delay, absl::Milliseconds(15), "how long an answer is held");
ABSL_FLAG(double, seconds, 600, "stops by itself after this time");

namespace hedgerow::bench {
namespace {

constexpr size_t kMaxHeld = 100'000;
constexpr size_t kMaxClients = 32;  // Client addresses with ports; a relay for benchmarks meets one or a few.

struct Counters {
  uint64_t requests = 0;
  uint64_t answers = 0;
  uint64_t refused = 0;  // Too many clients, or too many answers held.
};

class DelayRelay {
 public:
  DelayRelay(UdpSocket front, const Address& server, int64_t delay_ns)
      : front_(std::move(front)), server_(server), delay_ns_(delay_ns) {
    fds_.push_back(front_.fd());
  }

  const Counters& Run(int64_t end_ns) {
    std::array<bool, kMaxClients + 1> readable{};
    while (!MustStop(end_ns)) {
      WaitReadable(fds_, std::min(held_.NextDueNs(), end_ns), readable);
      const size_t clients = backs_.size();
      if (readable[0]) TakeRequests();
      for (size_t i = 0; i < clients; ++i) {
        if (readable[i + 1]) TakeAnswers(i);
      }
      const int64_t now_ns = MonotonicNs();
      while (const DelayQueue::Held* held = held_.PopDue(now_ns)) front_.SendOne(held->datagram(), held->peer);
    }
    return counters_;
  }

 private:
  void TakeRequests() {
    front_.Receive(batch_);
    counters_.requests += batch_.size();
    for (size_t i = 0; i < batch_.size(); ++i) {
      UdpSocket* back = BackFor(batch_.Peer(i));
      if (back == nullptr || !back->SendOne(batch_.Bytes(i), server_)) ++counters_.refused;
    }
  }

  void TakeAnswers(size_t client) {
    backs_[client].Receive(batch_);
    counters_.answers += batch_.size();
    const int64_t due_ns = MonotonicNs() + delay_ns_;
    for (size_t i = 0; i < batch_.size(); ++i) {
      if (!held_.Push(due_ns, batch_.Bytes(i), clients_[client])) ++counters_.refused;
    }
  }

  UdpSocket* BackFor(const Address& client) {
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i].SameAs(client)) return &backs_[i];
    }
    if (clients_.size() == kMaxClients) return nullptr;
    absl::StatusOr<UdpSocket> back = UdpSocket::Open(server_);
    if (!back.ok()) return nullptr;
    fds_.push_back(back->fd());
    clients_.push_back(client);
    backs_.push_back(*std::move(back));
    return &backs_.back();
  }

  UdpSocket front_;
  Address server_;
  int64_t delay_ns_;
  std::vector<int> fds_;  // The front, then one per client.
  std::vector<Address> clients_;
  std::vector<UdpSocket> backs_;
  DelayQueue held_{kMaxHeld};
  Batch batch_;
  Counters counters_;
};

absl::Status RunFromFlags() {
  absl::StatusOr<Address> local = ParseAddress(absl::GetFlag(FLAGS_listen));
  if (!local.ok()) return local.status();
  absl::StatusOr<Address> server = ParseAddress(absl::GetFlag(FLAGS_server));
  if (!server.ok()) return server.status();
  absl::StatusOr<UdpSocket> front = UdpSocket::Listen(*local);
  if (!front.ok()) return front.status();
  StopOnSignals();
  AskForExactTimers();
  DelayRelay relay(*std::move(front), *server, absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_delay)));
  SayReady();
  const Counters& counters =
      relay.Run(MonotonicNs() + static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e9));
  absl::PrintF("{\"requests\":%d,\"answers\":%d,\"refused\":%d}\n", counters.requests, counters.answers,
               counters.refused);
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Holds every answer of a UDP server for a fixed time.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = hedgerow::bench::RunFromFlags();
  if (!status.ok()) std::cerr << "hr-delay-relay: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
