// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/sniffer.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <cstring>

namespace hedgerow::packets {
namespace {

constexpr int kReceiveMark = 75;  // SO_RCVMARK, Linux 5.19
constexpr int kBufferBytes = 8 << 20;

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

std::unique_ptr<Sniffer> Sniffer::Open(int ifindex) {
  net::UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL)));
  if (!socket.valid()) return nullptr;
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, kReceiveMark, &on, sizeof(on));
  setsockopt(socket.get(), SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on));
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kBufferBytes, sizeof(kBufferBytes));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = ifindex;
  if (bind(socket.get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0) return nullptr;
  return std::unique_ptr<Sniffer>(new Sniffer(std::move(socket), ifindex));
}

bool Sniffer::TakeOne(std::vector<Captured> &into) {
  Captured captured;
  captured.packet.resize(4096);
  sockaddr_ll from{};
  alignas(cmsghdr) char control[256];
  iovec part{captured.packet.data(), captured.packet.size()};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof(from);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(socket_.get(), &message, 0);
  if (bytes < 0) return false;
  if (from.sll_pkttype == PACKET_OUTGOING) return true;
  captured.packet.resize(static_cast<size_t>(bytes));
  for (cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_MARK) memcpy(&captured.mark, CMSG_DATA(c), 4);
    if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
      tpacket_auxdata auxiliary{};
      memcpy(&auxiliary, CMSG_DATA(c), sizeof(auxiliary));
      captured.checksum_ready = (auxiliary.tp_status & TP_STATUS_CSUMNOTREADY) == 0;
    }
  }
  into.push_back(std::move(captured));
  return true;
}

std::vector<Captured> Sniffer::Take(size_t expected, int timeout_ms) {
  std::vector<Captured> all;
  const int64_t end_ms = NowMs() + timeout_ms;
  for (;;) {
    while (TakeOne(all)) {
    }
    const int64_t left_ms = end_ms - NowMs();
    if (all.size() >= expected || left_ms <= 0) return all;
    pollfd wait{socket_.get(), POLLIN, 0};
    poll(&wait, 1, static_cast<int>(left_ms));
  }
}

bool Sniffer::Send(const Bytes &packet) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = ifindex_;
  return sendto(socket_.get(), packet.data(), packet.size(), 0, reinterpret_cast<sockaddr *>(&address),
                sizeof(address)) == static_cast<ssize_t>(packet.size());
}

}  // namespace hedgerow::packets
