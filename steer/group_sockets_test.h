// SPDX-License-Identifier: Apache-2.0
//
// What the tests of a group stand on: a bpffs and addresses in a namespace of the test's own, real sockets in
// the group's slots, and clients that tell what became of a datagram or a connection. Test code only.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "net/namespace_test.h"
#include "net/unique_fd.h"
#include "steer/kernel_group.h"

namespace hedgerow::steer {

// Beside the numbers of slots.
inline constexpr int kRefused = -1;  // ICMP port unreachable, RST
inline constexpr int kSilence = -2;

inline constexpr int kPatience_ms = 5000;  // on a busy host
inline constexpr int kShort_ms = 100;      // where silence is expected

inline constexpr uint16_t kPort = 2055;
inline constexpr char kAny4[] = "0.0.0.0";
inline constexpr char kAny6[] = "::";
inline constexpr char kTarget4[] = "198.18.0.1";
inline constexpr char kTarget6[] = "fd77::1";
// Every address of these networks is local in the namespace.
inline std::string Source4(int i) { return "198.19." + std::to_string(i / 250) + "." + std::to_string(1 + i % 250); }
inline std::string Source6(int i) {
  char text[64];
  snprintf(text, sizeof(text), "fd77:%x:%x::%x", 1 + i % 7, i, 1 + i * 31 % 65000);
  return text;
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
SocketAddress AddressOf(const std::string& ip, uint16_t port);

// A socket of a group: with SO_REUSEPORT, not bound.
net::UniqueFd GroupSocket(Transport transport, const std::string& listen_ip);
void BindAndListen(Transport transport, int socket, const std::string& listen_ip, uint16_t port = kPort);

// A bound and connected client.
net::UniqueFd UdpClient(const std::string& source_ip, uint16_t source_port, const std::string& target_ip);
// Its connect(2) is under way or done.
net::UniqueFd TcpClient(const std::string& source_ip, const std::string& target_ip);

// The sockets of slots 0 to n-1.
class GroupSockets {
 public:
  GroupSockets(KernelGroup& group, std::string listen_ip, int slots);

  int socket(Transport transport, int slot) const { return sockets_[Index(transport)].at(slot).get(); }
  void Close(Transport transport, int slot) { sockets_[Index(transport)].erase(slot); }

  // The slot that got it, kRefused, or kSilence after the time.
  int Udp(const std::string& source_ip, const std::string& payload = "x", uint16_t source_port = 0,
          int timeout_ms = kPatience_ms);
  int Tcp(const std::string& source_ip, int timeout_ms = kPatience_ms);
  // The slot that takes a datagram that waits in its queue; kSilence where none comes.
  int Receive(int timeout_ms = kPatience_ms);
  // The slot that has a connection to accept, and the connection.
  std::pair<int, net::UniqueFd> Accept(int timeout_ms = kPatience_ms);

 private:
  static size_t Index(Transport transport) { return transport == Transport::kUdp ? 0 : 1; }
  const char* TargetFor(const std::string& source_ip) const {
    return source_ip.find(':') == std::string::npos ? kTarget4 : kTarget6;
  }

  std::map<int, net::UniqueFd> sockets_[2];
};

class GroupTest : public net::NamespaceTest {
 protected:
  GroupTest();
  ~GroupTest() override;

  // With a bpffs at bpffs(), and the addresses above.
  void InGroupNamespace(const std::function<void()>& body);
  const std::string& bpffs() const { return bpffs_; }

  // Buckets to slots 0 to n-1 in turn.
  static GroupSpec SpecOf(int slots, hr_steer_empty empty = HR_STEER_REJECT);
  std::unique_ptr<KernelGroup> MakeGroup(const GroupSpec& spec);
  // What Explain says of it.
  static Choice Explained(const KernelGroup& group, const std::string& ip, const std::string& payload = "");

 private:
  std::string bpffs_;
};

}  // namespace hedgerow::steer
