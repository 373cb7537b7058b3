// SPDX-License-Identifier: Apache-2.0
#include "steer/group_sockets_test.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "net/bpffs.h"
#include "steer/table.h"

namespace hedgerow::steer {
namespace {

int FamilyOf(const std::string& ip) { return ip.find(':') == std::string::npos ? AF_INET : AF_INET6; }

void Set(int socket, int level, int option, int value) {
  EXPECT_EQ(setsockopt(socket, level, option, &value, sizeof(value)), 0) << strerror(errno);
}

net::UniqueFd Client(int type, const std::string& source_ip, uint16_t source_port) {
  net::UniqueFd fd(socket(FamilyOf(source_ip), type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(fd.valid()) << strerror(errno);
  const bool ipv4 = FamilyOf(source_ip) == AF_INET;
  Set(fd.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_FREEBIND : IPV6_FREEBIND, 1);
  Set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  const SocketAddress source = AddressOf(source_ip, source_port);
  EXPECT_EQ(bind(fd.get(), source.get(), source.bytes), 0) << source_ip << ": " << strerror(errno);
  return fd;
}

// The first of the sockets that is readable; kSilence.
int FirstReadable(const std::map<int, net::UniqueFd>& sockets, int timeout_ms) {
  std::vector<pollfd> polled;
  std::vector<int> slots;
  for (const auto& [slot, fd] : sockets) {
    polled.push_back({fd.get(), POLLIN, 0});
    slots.push_back(slot);
  }
  if (poll(polled.data(), polled.size(), timeout_ms) <= 0) return kSilence;
  for (size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents & POLLIN) return slots[i];
  }
  return kSilence;
}

}  // namespace

SocketAddress AddressOf(const std::string& ip, uint16_t port) {
  SocketAddress address;
  if (FamilyOf(ip) == AF_INET) {
    auto* const ipv4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    ipv4->sin_family = AF_INET;
    ipv4->sin_port = htons(port);
    EXPECT_EQ(inet_pton(AF_INET, ip.c_str(), &ipv4->sin_addr), 1) << ip;
    address.bytes = sizeof(*ipv4);
  } else {
    auto* const ipv6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    ipv6->sin6_family = AF_INET6;
    ipv6->sin6_port = htons(port);
    EXPECT_EQ(inet_pton(AF_INET6, ip.c_str(), &ipv6->sin6_addr), 1) << ip;
    address.bytes = sizeof(*ipv6);
  }
  return address;
}

net::UniqueFd GroupSocket(Transport transport, const std::string& listen_ip) {
  const int type = transport == Transport::kUdp ? SOCK_DGRAM : SOCK_STREAM;
  net::UniqueFd fd(socket(FamilyOf(listen_ip), type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(fd.valid()) << strerror(errno);
  if (FamilyOf(listen_ip) == AF_INET6) Set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  Set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  Set(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1);
  return fd;
}

void BindAndListen(Transport transport, int socket, const std::string& listen_ip, uint16_t port) {
  const SocketAddress address = AddressOf(listen_ip, port);
  ASSERT_EQ(bind(socket, address.get(), address.bytes), 0) << strerror(errno);
  if (transport == Transport::kTcp) {
    ASSERT_EQ(listen(socket, 512), 0) << strerror(errno);
  }
}

net::UniqueFd UdpClient(const std::string& source_ip, uint16_t source_port, const std::string& target_ip) {
  net::UniqueFd fd = Client(SOCK_DGRAM, source_ip, source_port);
  const SocketAddress target = AddressOf(target_ip, kPort);
  EXPECT_EQ(connect(fd.get(), target.get(), target.bytes), 0) << strerror(errno);
  return fd;
}

net::UniqueFd TcpClient(const std::string& source_ip, const std::string& target_ip) {
  net::UniqueFd fd = Client(SOCK_STREAM, source_ip, 0);
  const linger reset = {1, 0};  // so that no port waits
  EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
  const SocketAddress target = AddressOf(target_ip, kPort);
  if (connect(fd.get(), target.get(), target.bytes) != 0) {
    EXPECT_EQ(errno, EINPROGRESS);
  }
  return fd;
}

GroupSockets::GroupSockets(KernelGroup& group, std::string listen_ip, int slots) {
  for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
    bool attached = false;
    for (int slot = 0; slot < slots; ++slot) {
      net::UniqueFd fd = GroupSocket(transport, listen_ip);
      if (!attached) EXPECT_THAT(group.Attach(transport, fd.get()), net::IsOk());
      attached = true;
      BindAndListen(transport, fd.get(), listen_ip);
      EXPECT_THAT(group.Insert(transport, slot, fd.get()), net::IsOk());
      sockets_[Index(transport)].emplace(slot, std::move(fd));
    }
  }
}

int GroupSockets::Receive(int timeout_ms) {
  const int slot = FirstReadable(sockets_[0], timeout_ms);
  char byte = 0;
  if (slot >= 0) EXPECT_GE(recv(sockets_[0].at(slot).get(), &byte, sizeof(byte), 0), 0);
  return slot;
}

std::pair<int, net::UniqueFd> GroupSockets::Accept(int timeout_ms) {
  const int slot = FirstReadable(sockets_[1], timeout_ms);
  if (slot < 0) return {slot, net::UniqueFd()};
  net::UniqueFd accepted(accept4(sockets_[1].at(slot).get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(accepted.valid()) << strerror(errno);
  return {slot, std::move(accepted)};
}

int GroupSockets::Udp(const std::string& source_ip, const std::string& payload, uint16_t source_port, int timeout_ms) {
  const net::UniqueFd client = UdpClient(source_ip, source_port, TargetFor(source_ip));
  EXPECT_EQ(send(client.get(), payload.data(), payload.size(), 0), static_cast<ssize_t>(payload.size()))
      << strerror(errno);
  for (int waited_ms = 0; waited_ms < timeout_ms; waited_ms += 5) {
    if (const int slot = Receive(5); slot >= 0) return slot;
    char byte = 0;
    if (recv(client.get(), &byte, sizeof(byte), 0) < 0 && errno == ECONNREFUSED) return kRefused;
  }
  return kSilence;
}

int GroupSockets::Tcp(const std::string& source_ip, int timeout_ms) {
  const net::UniqueFd client = TcpClient(source_ip, TargetFor(source_ip));
  for (int waited_ms = 0; waited_ms < timeout_ms; waited_ms += 5) {
    if (const auto [slot, connection] = Accept(5); slot >= 0) return slot;
    int error = 0;
    socklen_t bytes = sizeof(error);
    EXPECT_EQ(getsockopt(client.get(), SOL_SOCKET, SO_ERROR, &error, &bytes), 0);
    if (error == ECONNREFUSED) return kRefused;
    EXPECT_EQ(error, 0) << strerror(error);
  }
  return kSilence;
}

GroupTest::GroupTest() {
  std::string folder = (std::filesystem::temp_directory_path() / "hedgerow-steer-XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  bpffs_ = folder;
}

GroupTest::~GroupTest() { rmdir(bpffs_.c_str()); }

void GroupTest::InGroupNamespace(const std::function<void()>& body) {
  InNamespace([&] {
    ASSERT_EQ(Shell("ip route add local 198.18.0.0/15 dev lo && ip -6 route add local fd77::/16 dev lo"), 0);
    const auto mounted = net::EnsureBpffs(bpffs_);
    ASSERT_THAT(mounted.status(), net::IsOk());
    body();
  });
}

GroupSpec GroupTest::SpecOf(int slots, hr_steer_empty empty) {
  GroupSpec spec;
  const auto config = NewConfig();
  EXPECT_THAT(config.status(), net::IsOk());
  spec.config = *config;
  const std::vector<double> weights(static_cast<size_t>(slots), 1.0);
  spec.table = Entries(*NewHome(weights), weights, {}, empty);
  return spec;
}

std::unique_ptr<KernelGroup> GroupTest::MakeGroup(const GroupSpec& spec) {
  auto group = KernelGroup::Create(bpffs_, "test", spec);
  EXPECT_THAT(group.status(), net::IsOk());
  return group.ok() ? *std::move(group) : nullptr;
}

Choice GroupTest::Explained(const KernelGroup& group, const std::string& ip, const std::string& payload) {
  const auto devices = group.Devices();
  const auto pins = group.Pins();
  const auto table = group.ReadTable();
  EXPECT_TRUE(devices.ok() && pins.ok() && table.ok());
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(payload.data()), payload.size());
  return Explain(group.config(), *devices, *pins, *table, *net::IpAddress::Parse(ip), bytes);
}

}  // namespace hedgerow::steer
