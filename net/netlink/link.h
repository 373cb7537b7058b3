// SPDX-License-Identifier: Apache-2.0
//
// Network interfaces: find any, and make, configure and remove our own veth pairs. Every look-up asks the
// kernel over rtnetlink, never /sys/class/net: the daemon may live in a network namespace whose /sys belongs to
// another one. Called by the daemon (hr0, the clock's veth), by doctor and by clean.
//
// All functions act in the network namespace of the calling thread, are thread-safe, and need CAP_NET_ADMIN to
// change anything. NotFound: there is no such interface.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::net {

// lo's, in every network namespace.
inline constexpr int kLoopbackIfindex = 1;

using MacAddress = std::array<uint8_t, 6>;

struct LinkInfo {
  int ifindex = 0;
  std::string name{};
  std::string kind{};   // "veth", "bridge", ...; "" for hardware and lo
  std::string alias{};  // IFLA_IFALIAS
  MacAddress mac{};
  uint32_t mtu_bytes = 0;
  uint32_t flags = 0;          // IFF_*
  uint16_t hardware_type = 0;  // ARPHRD_*
  uint32_t group = 0;          // IFLA_GROUP; our own links carry OwnerGroup()
  int peer_ifindex = 0;        // a veth's other end, when it is in this namespace; 0 otherwise

  bool up() const;
  bool carrier() const;   // up, and packets can leave (IFF_RUNNING)
  bool resolves() const;  // it asks for neighbours' addresses (ARP, neighbour discovery)
  bool ethernet() const;  // frames start with an Ethernet header
};

absl::StatusOr<LinkInfo> FindLink(absl::string_view name);
absl::StatusOr<LinkInfo> FindLink(int ifindex);
// Not where it cannot be asked.
bool LinkIsGone(int ifindex);
// For messages; "interface number 7" where it has none.
std::string LinkName(int ifindex);
absl::StatusOr<std::vector<LinkInfo>> ListLinks();

absl::Status SetLinkUp(absl::string_view name);
absl::Status SetLinkDown(absl::string_view name);
absl::Status SetLinkMtu(absl::string_view name, uint32_t mtu_bytes);
// A number of /proc/sys/net, such as "ipv4/ip_forward"; nothing where the kernel has none.
std::optional<int> NetworkSetting(const std::string& name);
// The kernel's filter of sources on an interface, as it takes effect: the larger of net.ipv4.conf.all.rp_filter and the
// interface's own. 0: none, 1: strict, 2: loose.
int ReversePathFilterOf(const std::string& name);
// Lets packets in whose source is routed by another interface (net.ipv4.conf.IF.rp_filter=2, which also stands against
// a strict `all`), by the interface's own attribute. IPv6 has no such filter.
absl::Status LoosenReversePathFilter(int ifindex);

// Makes one of our own interfaces again what it was made as: up, with its hardware address, and without ARP. `made` is
// what CreateVethPair() returned of it; the interface may have another name by now. Returns whether anything had been
// changed.
absl::StatusOr<bool> KeepAsMade(const LinkInfo& made);

struct VethOptions {
  std::string name{};
  std::string peer_name{};
  std::string instance{};  // owns the pair: both ends are tagged with OwnerTag(instance)
  uint32_t mtu_bytes = 1500;
};

struct VethPair {
  LinkInfo link;
  LinkInfo peer;
};

// Makes the pair, tags it and sets both ends up. Our veths carry packets we address ourselves: no ARP, no neighbour
// discovery, no link-local address. No sysctl is written for it; the interface's own netlink attributes do.
// AlreadyExists when one of the names is taken; the message says whether by an instance of ours or by something
// foreign. On any error nothing is left behind. The pair carries the instance's mark from its first moment (an
// interface group number), before the readable alias can be set: a daemon killed in between leaves nothing that clean
// would not recognise.
absl::StatusOr<VethPair> CreateVethPair(const VethOptions& options);

// Removes an interface (with a veth's other end). FailedPrecondition when it does not belong to `instance`. OK
// when there is none: removing is idempotent.
absl::Status DeleteOwnedLink(absl::string_view name, absl::string_view instance);

// The alias and the group number our interfaces of an instance carry.
std::string OwnerTag(absl::string_view instance);
uint32_t OwnerGroup(absl::string_view instance);
bool BelongsTo(const LinkInfo& link, absl::string_view instance);
// The owning instance by alias; empty optional: not one of ours.
std::optional<std::string> OwnerOf(const LinkInfo& link);

// Transmit checksum offload of one of our own interfaces. With it off, a packet sent through the interface
// arrives with its checksum filled in (CHECKSUM_NONE) and stays so when BPF clones it.
absl::Status SetTxChecksumOffload(absl::string_view name, bool on);

}  // namespace hedgerow::net
