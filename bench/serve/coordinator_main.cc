// SPDX-License-Identifier: Apache-2.0
//
// hr-coordinator: LAEDGE's coordinator (bench/serve/coordinator.h) between clients and servers of raw requests.
// One thread, as many datagrams for each system call as there are. Prints "ready", stops after --seconds or on
// SIGTERM and then prints its counters as JSON. Started by bench/at_once.py.
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/load/program.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/coordinator.h"
#include "bench/serve/server_loop.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:9000", "address:port for clients");
ABSL_FLAG(std::string, servers, "", "address:port of each server, with commas between them");
ABSL_FLAG(uint64_t, workers, 32, "of each server");
ABSL_FLAG(double, seconds, 600, "stops by itself after this time");

namespace hedgerow::bench {
namespace {

constexpr size_t kMostServers = 8;
constexpr int64_t kForgetEveryNs = 10'000'000;

// Sends when it is full or when it is told to.
class Outbox {
 public:
  explicit Outbox(UdpSocket& socket) : socket_(socket) {}

  void Add(const Address& to, std::span<const uint8_t> datagram) {
    std::copy(datagram.begin(), datagram.end(), batch_.Next().begin());
    batch_.Commit(datagram.size(), to);
    if (batch_.full()) Flush();
  }

  void Flush() {
    if (batch_.size() > 0) socket_.Send(batch_);
    batch_.clear();
  }

 private:
  UdpSocket& socket_;
  Batch batch_;
};

std::optional<size_t> PlaceOf(const std::vector<Address>& servers, const Address& peer) {
  for (size_t i = 0; i < servers.size(); ++i) {
    if (servers[i].SameAs(peer)) return i;
  }
  return std::nullopt;
}

Coordinator::Counters Run(UdpSocket clients, UdpSocket upstream, const std::vector<Address>& servers, int64_t end_ns) {
  Outbox to_clients(clients);
  Outbox to_servers(upstream);
  Coordinator coordinator(
      {.servers = servers.size(), .workers = absl::GetFlag(FLAGS_workers)},
      [&](size_t server, std::span<const uint8_t> request) { to_servers.Add(servers[server], request); },
      [&](const Address& client, std::span<const uint8_t> answer) { to_clients.Add(client, answer); });
  const std::array<int, 2> fds{clients.fd(), upstream.fd()};
  std::array<bool, 2> readable;
  Batch batch;
  while (!MustStop(end_ns)) {
    WaitReadable(fds, MonotonicNs() + kForgetEveryNs, readable);
    const int64_t now_ns = MonotonicNs();
    // Answers first: they make servers idle.
    if (readable[1]) {
      upstream.Receive(batch);
      for (size_t i = 0; i < batch.size(); ++i) {
        if (const std::optional<size_t> server = PlaceOf(servers, batch.Peer(i)))
          coordinator.OnAnswer(*server, batch.Bytes(i), now_ns);
      }
    }
    if (readable[0]) {
      clients.Receive(batch);
      for (size_t i = 0; i < batch.size(); ++i) coordinator.OnRequest(batch.Bytes(i), batch.Peer(i), now_ns);
    }
    coordinator.Forget(now_ns);
    to_servers.Flush();
    to_clients.Flush();
  }
  return coordinator.counters();
}

absl::Status RunFromFlags() {
  absl::StatusOr<Address> local = ParseAddress(absl::GetFlag(FLAGS_listen));
  if (!local.ok()) return local.status();
  std::vector<Address> servers;
  for (absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_servers), ',')) {
    absl::StatusOr<Address> server = ParseAddress(text);
    if (!server.ok()) return server.status();
    servers.push_back(*server);
  }
  if (servers.size() > kMostServers)
    return absl::InvalidArgumentError(absl::StrCat("at most ", kMostServers, " servers"));
  if (absl::GetFlag(FLAGS_workers) == 0) return absl::InvalidArgumentError("--workers is at least 1");
  absl::StatusOr<UdpSocket> clients = UdpSocket::Listen(*local);
  if (!clients.ok()) return clients.status();
  absl::StatusOr<UdpSocket> upstream = UdpSocket::Open(servers.front());
  if (!upstream.ok()) return upstream.status();
  StopOnSignals();
  SayReady();
  const Coordinator::Counters counters = Run(*std::move(clients), *std::move(upstream), servers,
                                             MonotonicNs() + static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e9));
  absl::PrintF(
      "{\"requests\":%d,\"copies\":%d,\"queued\":%d,\"losers\":%d,\"forgotten\":%d,\"refused\":%d,"
      "\"stray\":%d}\n",
      counters.requests, counters.copies, counters.queued, counters.losers, counters.forgotten, counters.refused,
      counters.stray);
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv,
                                     "Sends each raw request to two idle servers, or to one, or lets it wait.",
                                     hedgerow::bench::RunFromFlags);
}
