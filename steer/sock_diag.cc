// SPDX-License-Identifier: Apache-2.0
#include "steer/sock_diag.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/netlink/netlink.h"
#include "steer/process.h"
#include "steer/sockets.h"

namespace hedgerow::steer {
namespace {

net::IpAddress AddressOf(int family, const __be32 (&words)[4]) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(words);
  const auto address = net::IpAddress::FromBytes(std::span<const uint8_t>(bytes, family == AF_INET ? 4 : 16));
  return *address;  // of 4 or 16 bytes, always
}

std::string UserText(uint32_t uid) {
  const passwd* entry = getpwuid(uid);
  return entry == nullptr ? absl::StrCat(uid) : std::string(entry->pw_name);
}

bool IsAny(const net::IpAddress& address) { return Listen{address, 0}.wildcard(); }

// [::] takes IPv4 as well; a group's does.
bool Meets(const InetSocket& holder, const net::IpAddress& address, bool wildcards) {
  if (holder.local == address) return true;
  const bool holder_any = IsAny(holder.local), any = IsAny(address);
  if (holder.local.is_v4() != address.is_v4() && holder.only_ipv6) return false;
  if (holder_any && any) return true;
  const bool same_family = holder.local.is_v4() == address.is_v4();
  return wildcards &&
         ((holder_any && (same_family || !holder.local.is_v4())) || (any && (same_family || !address.is_v4())));
}

}  // namespace

absl::StatusOr<std::vector<InetSocket>> ListSockets(Transport transport, uint16_t local_port, uint32_t states) {
  auto socket = net::netlink::Socket::Open({}, NETLINK_SOCK_DIAG);
  if (!socket.ok()) return socket.status();
  std::vector<InetSocket> all;
  for (const int family : {AF_INET, AF_INET6}) {
    inet_diag_req_v2 header{};
    header.sdiag_family = static_cast<__u8>(family);
    header.sdiag_protocol = transport == Transport::kUdp ? IPPROTO_UDP : IPPROTO_TCP;
    header.idiag_states = states;
    header.id.idiag_sport = htons(local_port);
    net::netlink::Request request(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, header);
    const absl::Status asked =
        socket->Ask(request, "list the sockets of a port", [&all](const net::netlink::Message& message) {
          if (message.payload.size() < sizeof(inet_diag_msg)) return;
          const auto found = message.Header<inet_diag_msg>();
          const auto only_ipv6 = message.AttributesAfter<inet_diag_msg>().Value<uint8_t>(INET_DIAG_SKV6ONLY);
          all.push_back({.family = found.idiag_family,
                         .state = found.idiag_state,
                         .local = AddressOf(found.idiag_family, found.id.idiag_src),
                         .peer = AddressOf(found.idiag_family, found.id.idiag_dst),
                         .local_port = ntohs(found.id.idiag_sport),
                         .peer_port = ntohs(found.id.idiag_dport),
                         .uid = found.idiag_uid,
                         .ifindex = found.id.idiag_if,
                         .cookie = static_cast<uint64_t>(found.id.idiag_cookie[1]) << 32 | found.id.idiag_cookie[0],
                         .inode = found.idiag_inode,
                         .only_ipv6 = only_ipv6.value_or(0) != 0});
        });
    if (absl::IsNotFound(asked)) {
      if (family == AF_INET6) continue;  // a kernel without IPv6 has none of its sockets
      return absl::FailedPreconditionError(absl::StrCat("this kernel does not list its sockets: it lacks the module ",
                                                        TransportText(transport), "_diag"));
    }
    if (!asked.ok()) return asked;
  }
  std::erase_if(all, [local_port](const InetSocket& each) { return local_port != 0 && each.local_port != local_port; });
  return all;
}

absl::StatusOr<std::set<net::IpAddress>> OpenConnections(const Listen& listen) {
  constexpr uint32_t kOpen = 1u << TCP_SYN_RECV | 1u << TCP_ESTABLISHED | 1u << TCP_CLOSE_WAIT;
  constexpr uint32_t kHalfClosed =
      1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2;  // of a process that still reads, if it has an inode
  const auto sockets = ListSockets(Transport::kTcp, listen.port, kOpen | kHalfClosed);
  if (!sockets.ok()) return sockets.status();
  std::set<net::IpAddress> peers;
  for (const InetSocket& each : *sockets) {
    const bool ours = listen.wildcard() || each.local == listen.address;
    const bool open = (1u << each.state & kOpen) != 0 || each.inode != 0;
    if (ours && open) peers.insert(each.peer);
  }
  return peers;
}

absl::StatusOr<std::vector<InetSocket>> ListHolders(Transport transport, const Listen& listen, bool wildcards) {
  auto all = ListSockets(transport, listen.port, transport == Transport::kUdp ? ~0u : 1u << TCP_LISTEN);
  if (!all.ok()) return all.status();
  std::erase_if(*all,
                [&](const InetSocket& each) { return each.peer_port != 0 || !Meets(each, listen.address, wildcards); });
  return all;
}

std::string DescribeHolders(const std::vector<InetSocket>& sockets) {
  std::map<uint32_t, std::set<uint32_t>> by_user;
  for (const InetSocket& each : sockets) by_user[each.uid].insert(each.inode);
  std::vector<std::string> texts;
  for (const auto& [uid, inodes] : by_user) {
    std::vector<std::string> processes;
    for (const Process& process : ProcessesWith(inodes)) processes.push_back(absl::StrCat("pid ", ToString(process)));
    texts.push_back(processes.empty()
                        ? absl::StrCat("user ", UserText(uid), ", of a process that cannot be seen from here")
                        : absl::StrCat(absl::StrJoin(processes, " and "), ", user ", UserText(uid)));
  }
  return absl::StrJoin(texts, "; ");
}

absl::StatusOr<std::map<int, net::UniqueFd>> FetchSockets(Transport transport, const Listen& listen,
                                                          const std::map<uint64_t, int>& numbers) {
  std::map<int, net::UniqueFd> fetched;
  const auto sockets = ListSockets(transport, listen.port, ~0u);
  if (!sockets.ok()) return sockets.status();
  std::map<uint32_t, uint64_t> cookies;
  std::set<uint32_t> inodes;
  for (const InetSocket& each : *sockets) {
    if (numbers.contains(each.cookie) && inodes.insert(each.inode).second) cookies[each.inode] = each.cookie;
  }
  for (const Process& process : ProcessesWith(inodes)) {
    const auto held = SocketsOf(process, inodes);
    if (!held.ok()) continue;  // it has ended
    for (const auto& [inode, descriptor] : held->descriptors) {
      auto copy = DescriptorOf(process.pid, descriptor);
      if (absl::IsPermissionDenied(copy.status())) return copy.status();
      if (copy.ok() && CookieOf(copy->get()) == cookies[inode]) fetched[numbers.at(cookies[inode])] = *std::move(copy);
    }
  }
  return fetched;
}

uint32_t InodeOf(int socket) {
  struct stat info {};
  return fstat(socket, &info) == 0 ? static_cast<uint32_t>(info.st_ino) : 0;
}

}  // namespace hedgerow::steer
