// SPDX-License-Identifier: Apache-2.0
#include "steer/sock_diag.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "net/netlink/netlink.h"

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
  return wildcards && ((holder_any && (same_family || !holder.local.is_v4())) || (any && (same_family || !address.is_v4())));
}

}  // namespace

std::optional<uint32_t> SocketInode(absl::string_view link) {
  uint32_t inode = 0;
  if (!absl::ConsumePrefix(&link, "socket:[") || !absl::ConsumeSuffix(&link, "]") || !absl::SimpleAtoi(link, &inode)) return std::nullopt;
  return inode;
}

std::string ProcessText(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/comm"));
  std::string name;
  std::getline(file, name);
  return absl::StrCat("pid ", pid, name.empty() ? "" : absl::StrCat(" (", name, ")"));
}

std::set<pid_t> ProcessesWith(const std::set<uint32_t>& inodes, const std::function<bool(pid_t)>& among) {
  std::set<pid_t> found;
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(process.path().filename().string(), &pid) || (among && !among(pid))) continue;
    std::error_code unreadable;
    for (std::filesystem::directory_iterator fd(process.path() / "fd", unreadable), end; !unreadable && fd != end; fd.increment(unreadable)) {
      std::error_code gone;
      const auto inode = SocketInode(std::filesystem::read_symlink(fd->path(), gone).string());
      if (!gone && inode.has_value() && inodes.contains(*inode)) found.insert(pid);
    }
  }
  return found;
}

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
    const absl::Status asked = socket->Ask(request, "list the sockets of a port", [&all](const net::netlink::Message& message) {
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
  std::erase_if(all, [local_port](const InetSocket& each) { return each.local_port != local_port; });
  return all;
}

absl::StatusOr<std::vector<InetSocket>> ListHolders(Transport transport, const Listen& listen, bool wildcards) {
  auto all = ListSockets(transport, listen.port, transport == Transport::kUdp ? ~0u : 1u << TCP_LISTEN);
  if (!all.ok()) return all.status();
  std::erase_if(*all, [&](const InetSocket& each) {
    if (each.peer_port != 0) return true;
    return !Meets(each, listen.address, wildcards);
  });
  return all;
}

std::string DescribeHolders(const std::vector<InetSocket>& sockets) {
  std::map<uint32_t, std::set<uint32_t>> by_user;
  for (const InetSocket& each : sockets) by_user[each.uid].insert(each.inode);
  std::vector<std::string> texts;
  for (const auto& [uid, inodes] : by_user) {
    std::vector<std::string> processes;
    for (const pid_t pid : ProcessesWith(inodes)) processes.push_back(ProcessText(pid));
    texts.push_back(processes.empty() ? absl::StrCat("user ", UserText(uid), ", of a process that cannot be seen from here")
                                      : absl::StrCat(absl::StrJoin(processes, " and "), ", user ", UserText(uid)));
  }
  return absl::StrJoin(texts, "; ");
}

uint32_t InodeOf(int socket) {
  struct stat info {};
  return fstat(socket, &info) == 0 ? static_cast<uint32_t>(info.st_ino) : 0;
}

}  // namespace hedgerow::steer
