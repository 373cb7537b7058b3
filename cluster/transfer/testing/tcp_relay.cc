// SPDX-License-Identifier: Apache-2.0
#include "cluster/transfer/testing/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "cluster/raft/check.h"

namespace hedgerow::transfer {
namespace {

constexpr int kPoll_ms = 20;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool SendAll(int socket, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t sent = send(socket, bytes, count, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace

TcpRelay::TcpRelay(const std::string& server, Faults faults)
    : server_port_(static_cast<uint16_t>(std::atoi(server.substr(server.rfind(':') + 1).c_str()))),
      faults_(faults),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  HEDGEROW_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0);
  HEDGEROW_CHECK(listen(listener_, 8) == 0);
  HEDGEROW_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  acceptor_ = std::thread([this] { Accept(); });
}

TcpRelay::~TcpRelay() {
  stopping_ = true;
  acceptor_.join();
  for (std::thread& relay : relays_) relay.join();
  close(listener_);
}

void TcpRelay::Accept() {
  while (!stopping_) {
    pollfd ready{.fd = listener_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPoll_ms) != 1) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client >= 0) relays_.emplace_back([this, client] { Relay(client); });
  }
}

void TcpRelay::Relay(int client) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(server_port_);
  bool whole = connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  std::array<char, 16384> bytes;
  uint64_t handed_on = 0;
  while (whole && !stopping_) {
    std::array<pollfd, 2> ready{pollfd{.fd = client, .events = POLLIN, .revents = 0},
                                pollfd{.fd = server, .events = POLLIN, .revents = 0}};
    if (poll(ready.data(), ready.size(), kPoll_ms) <= 0) continue;
    for (size_t from = 0; from < 2 && whole; ++from) {
      if (ready[from].revents == 0) continue;
      const ssize_t got = recv(ready[from].fd, bytes.data(), bytes.size(), 0);
      whole = got > 0;
      if (!whole) break;
      if (from == 0) {
        handed_on += static_cast<uint64_t>(got);
        if (faults_.corrupt_after_bytes != 0 && handed_on > faults_.corrupt_after_bytes && corrupted_ == 0) {
          char& byte = bytes[static_cast<size_t>(got) / 2];
          byte = static_cast<char>(byte ^ 0x10);
          ++corrupted_;
        }
        if (faults_.break_after_bytes != 0 && handed_on > faults_.break_after_bytes) whole = false;
      }
      whole = whole && SendAll(ready[1 - from].fd, bytes.data(), static_cast<size_t>(got));
    }
  }
  close(client);
  close(server);
}

}  // namespace hedgerow::transfer
