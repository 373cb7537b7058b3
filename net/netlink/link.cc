// SPDX-License-Identifier: Apache-2.0
//
// Interfaces over rtnetlink; ethtool's legacy ioctl only for the checksum switch, which needs no library there.
#include "net/netlink/link.h"

#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "net/fnv.h"
#include "net/netlink/netlink.h"

namespace hedgerow::net {
namespace {

constexpr absl::string_view kOwnerPrefix = "hedgerow:";
constexpr uint32_t kOwnerGroupBase =
    0x48000000;  // 'H' as the high byte: other software is unlikely to use such group numbers
constexpr uint32_t kOwnerGroupMask = 0x00ffffff;

LinkInfo ParseLink(const netlink::Message& message) {
  const auto header = message.Header<ifinfomsg>();
  const auto attributes = message.AttributesAfter<ifinfomsg>();
  LinkInfo link;
  link.ifindex = header.ifi_index;
  link.flags = header.ifi_flags;
  link.hardware_type = header.ifi_type;
  link.name = attributes.String(IFLA_IFNAME);
  link.alias = attributes.String(IFLA_IFALIAS);
  link.kind = attributes.Nested(IFLA_LINKINFO).String(IFLA_INFO_KIND);
  link.mtu_bytes = attributes.Value<uint32_t>(IFLA_MTU).value_or(0);
  link.group = attributes.Value<uint32_t>(IFLA_GROUP).value_or(0);
  if (!attributes.Find(IFLA_LINK_NETNSID)) {
    link.peer_ifindex = static_cast<int>(attributes.Value<uint32_t>(IFLA_LINK).value_or(0));
  }
  link.mac = attributes.Value<MacAddress>(IFLA_ADDRESS).value_or(MacAddress{});
  return link;
}

// Locally administered, unicast (IEEE 802 section 8.4). An address given at creation counts as set by user
// space, so systemd-udevd keeps it. If the kernel draws the address, udevd replaces it a moment later
// (MACAddressPolicy=persistent of its 99-default.link), when we have read it already.
MacAddress RandomMac() {
  std::random_device random;
  MacAddress mac;
  for (uint8_t& byte : mac) byte = static_cast<uint8_t>(random());
  mac[0] = static_cast<uint8_t>((mac[0] & 0xfc) | 0x02);
  return mac;
}

absl::Status CheckName(absl::string_view name) {
  const bool good = !name.empty() && name.size() < IFNAMSIZ && name != "." && name != ".." &&
                    name.find_first_of("/: \t\n%") == absl::string_view::npos;
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no interface name (1 to 15 characters, no '/', ':', '%' or space)"));
}

absl::StatusOr<LinkInfo> GetLink(netlink::Request& request, absl::string_view what) {
  LinkInfo link;
  const absl::Status status =
      netlink::Ask(request, what, [&](const netlink::Message& message) { link = ParseLink(message); });
  if (!status.ok()) return status;
  return link;
}

// The header of a change to an existing interface.
ifinfomsg ChangeHeader(int ifindex, uint32_t flags, uint32_t change) {
  ifinfomsg header{};
  header.ifi_index = ifindex;
  header.ifi_flags = flags;
  header.ifi_change = change;
  return header;
}

absl::Status SetFlags(absl::string_view name, uint32_t flags, uint32_t change, absl::string_view what) {
  const auto link = FindLink(name);
  if (!link.ok()) return link.status();
  netlink::Request request(RTM_NEWLINK, 0, ChangeHeader(link->ifindex, flags, change));
  return netlink::Do(request, absl::StrCat(what, " ", name));
}

// No automatic IPv6 address, by the interface's own attribute. It must be set before the interface is up.
absl::Status DisableIpv6Autoconf(int ifindex, absl::string_view name) {
  netlink::Request request(RTM_NEWLINK, 0, ChangeHeader(ifindex, 0, 0));
  const size_t families = request.Begin(IFLA_AF_SPEC);
  const size_t inet6 = request.Begin(AF_INET6);
  request.PutU8(IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
  request.End(inet6);
  request.End(families);
  const absl::Status status = netlink::Do(request, absl::StrCat("switch off IPv6 autoconfiguration of ", name));
  // A kernel booted with ipv6.disable=1 refuses the attribute (EAFNOSUPPORT): there is nothing to switch off
  // then.
  return absl::IsUnimplemented(status) ? absl::OkStatus() : status;
}

// What the kernel does not take when it makes a link.
absl::Status FinishOwnLink(int ifindex, absl::string_view name, const VethOptions& options) {
  netlink::Request request(RTM_NEWLINK, 0, ChangeHeader(ifindex, 0, 0));
  const std::string tag = OwnerTag(options.instance);
  request.Put(IFLA_IFALIAS, std::span(reinterpret_cast<const uint8_t*>(tag.data()), tag.size()));
  if (absl::Status status = netlink::Do(request, absl::StrCat("tag interface ", name)); !status.ok()) return status;
  if (absl::Status status = DisableIpv6Autoconf(ifindex, name); !status.ok()) return status;
  return SetLinkUp(name);
}

absl::Status DescribeTaken(const LinkInfo& taken) {
  if (const auto owner = OwnerOf(taken)) {
    return absl::AlreadyExistsError(
        absl::StrCat("interface ", taken.name, " exists and belongs to hedgerow instance '", *owner, "'"));
  }
  return absl::AlreadyExistsError(absl::StrCat("interface ", taken.name, " exists and is not ours",
                                               taken.kind.empty() ? "" : absl::StrCat(" (", taken.kind, ")")));
}

}  // namespace

bool LinkInfo::up() const { return (flags & IFF_UP) != 0; }
bool LinkInfo::carrier() const { return up() && (flags & IFF_RUNNING) != 0; }
bool LinkInfo::resolves() const { return (flags & IFF_NOARP) == 0; }
bool LinkInfo::ethernet() const { return hardware_type == ARPHRD_ETHER; }

absl::StatusOr<LinkInfo> FindLink(absl::string_view name) {
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  netlink::Request request(RTM_GETLINK, 0, ifinfomsg{});
  request.PutString(IFLA_IFNAME, name);
  return GetLink(request, absl::StrCat("look up interface ", name));
}

absl::StatusOr<LinkInfo> FindLink(int ifindex) {
  if (ifindex <= 0) return absl::InvalidArgumentError(absl::StrCat("interface number ", ifindex, "; expected > 0"));
  netlink::Request request(RTM_GETLINK, 0, ChangeHeader(ifindex, 0, 0));
  return GetLink(request, absl::StrCat("look up interface number ", ifindex));
}

absl::StatusOr<std::vector<LinkInfo>> ListLinks() {
  std::vector<LinkInfo> links;
  netlink::Request request(RTM_GETLINK, NLM_F_DUMP, ifinfomsg{});
  const absl::Status status = netlink::Ask(
      request, "list interfaces", [&](const netlink::Message& message) { links.push_back(ParseLink(message)); });
  if (!status.ok()) return status;
  return links;
}

absl::Status SetLinkUp(absl::string_view name) { return SetFlags(name, IFF_UP, IFF_UP, "set up"); }
absl::Status SetLinkDown(absl::string_view name) { return SetFlags(name, 0, IFF_UP, "set down"); }

absl::Status SetLinkMtu(absl::string_view name, uint32_t mtu_bytes) {
  const auto link = FindLink(name);
  if (!link.ok()) return link.status();
  netlink::Request request(RTM_NEWLINK, 0, ChangeHeader(link->ifindex, 0, 0));
  request.PutU32(IFLA_MTU, mtu_bytes);
  return netlink::Do(request, absl::StrCat("set the MTU of ", name, " to ", mtu_bytes));
}

std::optional<int> NetworkSetting(const std::string& name) {
  int value = 0;
  std::ifstream file(absl::StrCat("/proc/sys/net/", name));
  if (!(file >> value)) return std::nullopt;
  return value;
}

int ReversePathFilterOf(const std::string& name) {
  const auto of = [](absl::string_view interface) {
    return NetworkSetting(absl::StrCat("ipv4/conf/", interface, "/rp_filter")).value_or(0);
  };
  return std::max(of("all"), of(name));
}

absl::Status LoosenReversePathFilter(int ifindex) {
  constexpr uint32_t kLoose = 2;
  netlink::Request request(RTM_NEWLINK, 0, ChangeHeader(ifindex, 0, 0));
  const size_t families = request.Begin(IFLA_AF_SPEC);
  const size_t inet = request.Begin(AF_INET);
  const size_t settings = request.Begin(IFLA_INET_CONF);
  request.PutU32(IPV4_DEVCONF_RP_FILTER, kLoose);
  request.End(settings);
  request.End(inet);
  request.End(families);
  return netlink::Do(request, absl::StrCat("loosen the reverse-path filter of interface number ", ifindex));
}

absl::StatusOr<bool> KeepAsMade(const LinkInfo& made) {
  const auto now = FindLink(made.ifindex);
  if (!now.ok()) return now.status();
  if (now->up() && !now->resolves() && now->mac == made.mac) return false;
  netlink::Request request(RTM_NEWLINK, 0, ChangeHeader(made.ifindex, IFF_UP | IFF_NOARP, IFF_UP | IFF_NOARP));
  if (now->mac != made.mac) request.Put(IFLA_ADDRESS, made.mac);
  if (absl::Status status = netlink::Do(request, absl::StrCat("make ", now->name, " again what it was made as"));
      !status.ok())
    return status;
  return true;
}

std::string LinkName(int ifindex) {
  const auto link = FindLink(ifindex);
  return link.ok() ? link->name : absl::StrCat("interface number ", ifindex);
}

bool LinkIsGone(int ifindex) { return absl::IsNotFound(FindLink(ifindex).status()); }

absl::StatusOr<VethPair> CreateVethPair(const VethOptions& options) {
  for (const std::string& name : {options.name, options.peer_name}) {
    if (absl::Status status = CheckName(name); !status.ok()) return status;
    const auto taken = FindLink(name);
    if (taken.ok()) return DescribeTaken(*taken);
    if (!absl::IsNotFound(taken.status())) return taken.status();
  }
  const auto describe_end = [&](netlink::Request& request, const std::string& name) {
    request.PutString(IFLA_IFNAME, name);
    request.PutU32(IFLA_MTU, options.mtu_bytes);
    request.PutU32(IFLA_GROUP, OwnerGroup(options.instance));
    request.Put(IFLA_ADDRESS, RandomMac());
  };
  const ifinfomsg header = ChangeHeader(0, IFF_NOARP, IFF_NOARP);
  netlink::Request request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, header);
  describe_end(request, options.name);
  const size_t info = request.Begin(IFLA_LINKINFO);
  request.PutString(IFLA_INFO_KIND, "veth");
  const size_t data = request.Begin(IFLA_INFO_DATA);
  const size_t peer = request.Begin(VETH_INFO_PEER);
  request.Append(&header, sizeof(header));
  describe_end(request, options.peer_name);
  request.End(peer);
  request.End(data);
  request.End(info);
  const std::string what = absl::StrCat("make the veth pair ", options.name, "/", options.peer_name);
  if (absl::Status status = netlink::Do(request, what); !status.ok()) return status;

  VethPair pair;
  const auto finish = [&]() -> absl::Status {
    for (const std::string* name : {&options.peer_name, &options.name}) {
      const auto made = FindLink(*name);
      if (!made.ok()) return made.status();
      if (absl::Status status = FinishOwnLink(made->ifindex, *name, options); !status.ok()) return status;
    }
    for (auto [name, link] : {std::pair(&options.peer_name, &pair.peer), std::pair(&options.name, &pair.link)}) {
      const auto made = FindLink(*name);
      if (!made.ok()) return made.status();
      *link = *made;
    }
    return absl::OkStatus();
  };
  if (absl::Status status = finish(); !status.ok())
    return netlink::Undone(std::move(status), [&] { return DeleteOwnedLink(options.name, options.instance); });
  return pair;
}

absl::Status DeleteOwnedLink(absl::string_view name, absl::string_view instance) {
  const auto link = FindLink(name);
  if (absl::IsNotFound(link.status())) return absl::OkStatus();
  if (!link.ok()) return link.status();
  if (!BelongsTo(*link, instance)) {
    return absl::FailedPreconditionError(absl::StrCat("not removed: ", DescribeTaken(*link).message()));
  }
  netlink::Request request(RTM_DELLINK, 0, ChangeHeader(link->ifindex, 0, 0));
  return netlink::OkIfGone(netlink::Do(request, absl::StrCat("remove interface ", name)));
}

std::string OwnerTag(absl::string_view instance) { return absl::StrCat(kOwnerPrefix, instance); }

uint32_t OwnerGroup(absl::string_view instance) { return kOwnerGroupBase | (Fnv1a(instance) & kOwnerGroupMask); }

bool BelongsTo(const LinkInfo& link, absl::string_view instance) {
  if (link.alias.empty()) return link.kind == "veth" && link.group == OwnerGroup(instance);
  return link.alias == OwnerTag(instance);
}

std::optional<std::string> OwnerOf(const LinkInfo& link) {
  absl::string_view alias = link.alias;
  if (!absl::ConsumePrefix(&alias, kOwnerPrefix)) return std::nullopt;
  return std::string(alias);
}

absl::Status SetTxChecksumOffload(absl::string_view name, bool on) {
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "open a socket for ethtool");
  ethtool_value request{.cmd = ETHTOOL_STXCSUM, .data = on ? 1u : 0u};
  ifreq interface {};
  std::copy(name.begin(), name.end(), interface.ifr_name);
  interface.ifr_data = reinterpret_cast<char*>(&request);
  if (ioctl(fd.get(), SIOCETHTOOL, &interface) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("ethtool tx-checksum of ", name));
}

}  // namespace hedgerow::net
