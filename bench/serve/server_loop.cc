// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/server_loop.h"

#include <csignal>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hedgerow::bench {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void RequestStop(int) { stop_requested = 1; }

}  // namespace

void StopOnSignals() {
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool StopRequested() { return stop_requested != 0; }

bool MustStop(int64_t end_ns) { return StopRequested() || MonotonicNs() >= end_ns; }

absl::StatusOr<std::vector<UdpSocket>> ListenOnAll(const std::string& addresses) {
  constexpr size_t kMost = 8;
  std::vector<UdpSocket> sockets;
  for (absl::string_view text : absl::StrSplit(addresses, ',')) {
    absl::StatusOr<Address> local = ParseAddress(text);
    if (!local.ok()) return local.status();
    if (sockets.size() == kMost) return absl::InvalidArgumentError(absl::StrCat("at most ", kMost, " addresses"));
    absl::StatusOr<UdpSocket> socket = UdpSocket::Listen(*local);
    if (!socket.ok()) return socket.status();
    sockets.push_back(*std::move(socket));
  }
  return sockets;
}

void SayReady() {
  std::puts("ready");
  std::fflush(stdout);
}

}  // namespace hedgerow::bench
