// SPDX-License-Identifier: Apache-2.0
//
// As `nft list ruleset` shows it, where FAMILY is ip and ip6:
//
//   table inet hedgerow-INSTANCE {
//     chain prerouting { type filter hook prerouting priority raw;
//       FAMILY daddr . meta l4proto . th dport @live fib daddr oifname "hr0" notrack
//       iifname "hr0" FAMILY saddr . meta l4proto . th sport @known notrack
//     }
//     chain output { type filter hook output priority raw;
//       oifname "hr0" FAMILY daddr . meta l4proto . th dport @live notrack
//     }
//     chain lent_in { type nat hook prerouting priority dstnat - 1;     (of each network of clients and each address)
//       FAMILY saddr NETWORK FAMILY daddr ADDRESS th dport PORT dnat FAMILY to FAMILY daddr . meta l4proto . th dport
//       map @lent
//     }
//     chain lent_out { type nat hook output priority dstnat - 1;
//       meta mark != 0x48520000 dnat FAMILY to FAMILY daddr . meta l4proto . th dport map @lent
//     }
//     chain lent_way { type nat hook postrouting priority srcnat - 1;
//       oifname "hr0" ct status dnat FAMILY daddr . meta l4proto . th dport @behind masquerade
//     }
//   }
//   table bridge hedgerow-INSTANCE {
//     chain prerouting { type filter hook prerouting priority -300;
//       ether daddr set FAMILY saddr . meta l4proto . th sport map @live meta pkttype set host
//     }
//   }
//
// Answers are led past connection tracking also while nothing is taken over: a tracked one would hold its socket's
// later requests back from the owner's rules.
#include "net/netlink/in_place.h"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/netlink/netlink.h"

namespace hedgerow::net {
namespace {

using netlink::Request;
using Bytes = std::vector<uint8_t>;
using Numbers = std::vector<std::pair<uint16_t, uint32_t>>;  // attributes

constexpr int kRawPriority = -300;                              // of bridges the first of their priorities
constexpr int kBeforeDestinations = -101, kBeforeSources = 99;  // of nat: what translates first is the only one
constexpr uint32_t kRegister = NFT_REG32_00;
constexpr int kSendBytes = 8 << 20;   // of a transaction: every backend of a full instance on a bridge
constexpr size_t kRegisterBytes = 4;  // and each part of a key is padded to it
// What the program nft calls these types.
constexpr uint32_t kMacType = 9, kProtocolType = 12, kPortType = 13, kTypeBits = 6;

struct Family {
  const char *live, *known, *lent, *behind;  // its sets
  uint8_t protocol;                          // enum nf_inet_proto
  uint16_t ethertype;
  uint32_t address_bytes, source_offset, type;

  size_t KeyBytes() const { return address_bytes + 2 * kRegisterBytes; }
  uint32_t KeyType() const { return (type << kTypeBits | kProtocolType) << kTypeBits | kPortType; }
};
constexpr Family kFamilies[] = {{"live4", "known4", "lent4", "behind4", NFPROTO_IPV4, ETH_P_IP, 4, 12, 7},
                                {"live6", "known6", "lent6", "behind6", NFPROTO_IPV6, ETH_P_IPV6, 16, 8, 8}};
const Family& FamilyOf(const Endpoint& endpoint) { return kFamilies[endpoint.address.is_v4() ? 0 : 1]; }
Bytes BytesOf(const IpAddress& address) { return {address.wire().begin(), address.wire().end()}; }
Bytes BytesOf(uint16_t port) { return {static_cast<uint8_t>(port >> 8), static_cast<uint8_t>(port & 0xff)}; }
// As the kernel has it.
Bytes BytesOf(uint32_t number) {
  Bytes bytes(sizeof(number));
  std::memcpy(bytes.data(), &number, bytes.size());
  return bytes;
}

// Of both sets: address, protocol, port.
Bytes KeyOf(const Endpoint& endpoint, int protocol) {
  Bytes key = BytesOf(endpoint.address);
  key.insert(key.end(), {static_cast<uint8_t>(protocol), 0, 0, 0});
  key.insert(key.end(), {static_cast<uint8_t>(endpoint.port >> 8), static_cast<uint8_t>(endpoint.port & 0xff), 0, 0});
  return key;
}

// A rule's expression: its numbers, the name of a set, and data.
struct Expression {
  const char* name;
  Numbers numbers{};
  const char* set = nullptr;
  std::vector<std::pair<uint16_t, Bytes>> data{};
};
Expression Meta(uint32_t key, uint32_t into = kRegister) {
  return {"meta", {{NFTA_META_KEY, key}, {NFTA_META_DREG, into}}};
}
Expression Payload(uint16_t to_or_from, uint32_t at, uint32_t base, uint32_t offset, uint32_t bytes) {
  return {"payload",
          {{to_or_from, at}, {NFTA_PAYLOAD_BASE, base}, {NFTA_PAYLOAD_OFFSET, offset}, {NFTA_PAYLOAD_LEN, bytes}}};
}
Expression Equals(Bytes bytes, uint32_t how = NFT_CMP_EQ) {
  return {"cmp", {{NFTA_CMP_SREG, kRegister}, {NFTA_CMP_OP, how}}, nullptr, {{NFTA_CMP_DATA, std::move(bytes)}}};
}
Expression Equals(const std::string& interface) {
  Bytes name(interface.begin(), interface.end());
  name.resize(IFNAMSIZ);
  return Equals(std::move(name));
}
Expression In(const char* set) { return {"lookup", {{NFTA_LOOKUP_SREG, kRegister}}, set}; }
Expression Address(const Family& family, bool source) {
  return Payload(NFTA_PAYLOAD_DREG, kRegister, NFT_PAYLOAD_NETWORK_HEADER,
                 family.source_offset + (source ? 0 : family.address_bytes), family.address_bytes);
}
Expression Port(bool source, uint32_t into = kRegister) {
  return Payload(NFTA_PAYLOAD_DREG, into, NFT_PAYLOAD_TRANSPORT_HEADER, source ? 0 : 2, 2);
}
// What is loaded, without the bits beyond a network's.
Expression Masked(Bytes mask) {
  const auto bytes = static_cast<uint32_t>(mask.size());
  return {"bitwise",
          {{NFTA_BITWISE_SREG, kRegister}, {NFTA_BITWISE_DREG, kRegister}, {NFTA_BITWISE_LEN, bytes}},
          nullptr,
          {{NFTA_BITWISE_MASK, std::move(mask)}, {NFTA_BITWISE_XOR, Bytes(bytes)}}};
}
const Expression kNotrack = {"notrack"}, kMasquerade = {"masq"};

// What becomes of one table, in one transaction.
class Changes {
 public:
  Changes(const std::string& instance, int family)
      : family_(static_cast<uint8_t>(family)), table_(absl::StrCat("hedgerow-", instance)) {}

  Request& Add(int type, uint16_t table_attribute) {
    const nfgenmsg header = {.nfgen_family = family_, .version = NFNETLINK_V0, .res_id = 0};
    requests_.emplace_back(static_cast<uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | type), NLM_F_CREATE | NLM_F_APPEND,
                           header);
    return requests_.back().PutString(table_attribute, table_);
  }
  // Empty; and what is deleted must be there.
  void BeginAnew() {
    for (const int type : {NFT_MSG_NEWTABLE, NFT_MSG_DELTABLE, NFT_MSG_NEWTABLE}) Add(type, NFTA_TABLE_NAME);
  }
  void Chain(const char* name, uint32_t hook, int priority = kRawPriority) {
    Request& request = Add(NFT_MSG_NEWCHAIN, NFTA_CHAIN_TABLE).PutString(NFTA_CHAIN_NAME, name);
    const size_t nested = request.Begin(NFTA_CHAIN_HOOK);
    Put(request, {{NFTA_HOOK_HOOKNUM, hook}, {NFTA_HOOK_PRIORITY, static_cast<uint32_t>(priority)}});
    request.End(nested);
    request.PutString(NFTA_CHAIN_TYPE, priority == kRawPriority ? "filter" : "nat");
  }
  // The elements of one with flags die after kInPlaceLife. `data`: of a map.
  void Set(const char* name, uint32_t flags, uint32_t type, size_t key_bytes, uint32_t data = kMacType,
           uint32_t data_bytes = ETH_ALEN) {
    Request& request = Add(NFT_MSG_NEWSET, NFTA_SET_TABLE).PutString(NFTA_SET_NAME, name);
    Put(request, {{NFTA_SET_ID, ++sets_},
                  {NFTA_SET_FLAGS, flags},
                  {NFTA_SET_KEY_TYPE, type},
                  {NFTA_SET_KEY_LEN, static_cast<uint32_t>(key_bytes)}});
    if (flags & NFT_SET_MAP) Put(request, {{NFTA_SET_DATA_TYPE, data}, {NFTA_SET_DATA_LEN, data_bytes}});
    if (flags != 0)
      request.PutValue(NFTA_SET_TIMEOUT, htobe64(static_cast<uint64_t>(absl::ToInt64Milliseconds(kInPlaceLife))));
  }
  void Element(int type, const char* set, const Bytes& key, const Bytes& data = {}) {
    Request& request = Add(type, NFTA_SET_ELEM_LIST_TABLE).PutString(NFTA_SET_ELEM_LIST_SET, set);
    const size_t list = request.Begin(NFTA_SET_ELEM_LIST_ELEMENTS), element = request.Begin(NFTA_LIST_ELEM);
    PutData(request, NFTA_SET_ELEM_KEY, key);
    if (!data.empty()) PutData(request, NFTA_SET_ELEM_DATA, data);
    request.End(element);
    request.End(list);
  }
  // Whether they stand or not. Before Linux 6.13 the time of an element that stands does not change.
  void Renew(const Endpoint& endpoint, const char* set, const Bytes& data = {}) {
    for (const int protocol : {IPPROTO_UDP, IPPROTO_TCP})
      for (const int type : {NFT_MSG_NEWSETELEM, NFT_MSG_DELSETELEM, NFT_MSG_NEWSETELEM})
        Element(type, set, KeyOf(endpoint, protocol), data);
  }
  void Rule(const char* chain, const std::vector<Expression>& expressions) {
    Request& request = Add(NFT_MSG_NEWRULE, NFTA_RULE_TABLE).PutString(NFTA_RULE_CHAIN, chain);
    const size_t list = request.Begin(NFTA_RULE_EXPRESSIONS);
    for (const Expression& each : expressions) {
      const size_t one = request.Begin(NFTA_LIST_ELEM);
      const size_t data = request.PutString(NFTA_EXPR_NAME, each.name).Begin(NFTA_EXPR_DATA);
      if (each.set != nullptr) request.PutString(NFTA_LOOKUP_SET, each.set);
      Put(request, each.numbers);
      for (const auto& [attribute, bytes] : each.data) PutData(request, attribute, bytes);
      request.End(data);
      request.End(one);
    }
    request.End(list);
  }

  bool is_bridge() const { return family_ == NFPROTO_BRIDGE; }
  std::vector<Request>& requests() { return requests_; }

 private:
  static void Put(Request& request, const Numbers& numbers) {
    for (const auto& [attribute, value] : numbers) request.PutU32(attribute, htonl(value));
  }
  static void PutData(Request& request, uint16_t attribute, const Bytes& bytes) {
    const size_t nested = request.Begin(attribute);
    request.Put(NFTA_DATA_VALUE, bytes);
    request.End(nested);
  }

  const uint8_t family_;
  const std::string table_;
  std::vector<Request> requests_;
  uint32_t sets_ = 0;
};

// Expressions one after the other, the key of a set between them.
std::vector<Expression> Matching(std::initializer_list<Expression> before, const Family& family, bool source,
                                 std::initializer_list<Expression> after) {
  const uint32_t next = kRegister + family.address_bytes / kRegisterBytes;
  std::vector<Expression> all(before);
  all.insert(all.end(), {Address(family, source), Meta(NFT_META_L4PROTO, next), Port(source, next + 1)});
  all.insert(all.end(), after);
  return all;
}

Expression Lent(const Family& family) {
  Expression to_vip = In(family.lent);
  to_vip.numbers.push_back({NFTA_LOOKUP_DREG, kRegister});
  return to_vip;
}

// What asks a lent address goes to the VIP, and its answers back, by connection tracking. Masquerading makes the end of
// the proxy interface that of all its entries. Only of those: the splitter tells by its source what asks the VIP
// itself.
void MakeLent(const InPlaceRules& rules, Changes& out) {
  out.Chain("lent_in", NF_INET_PRE_ROUTING, kBeforeDestinations);
  out.Chain("lent_out", NF_INET_LOCAL_OUT, kBeforeDestinations);
  out.Chain("lent_way", NF_INET_POST_ROUTING, kBeforeSources);
  const auto version_of = [](const Family& family) {
    return std::pair(Meta(NFT_META_NFPROTO), Equals(Bytes{family.protocol}));
  };
  const auto translated = [](const Family& family) -> Expression {
    return {"nat",
            {{NFTA_NAT_TYPE, NFT_NAT_DNAT}, {NFTA_NAT_FAMILY, family.protocol}, {NFTA_NAT_REG_ADDR_MIN, kRegister}}};
  };
  const Bytes own = BytesOf(kOwnQuestionMark), none = BytesOf(uint32_t{0});
  const Expression status = {"ct", {{NFTA_CT_KEY, NFT_CT_STATUS}, {NFTA_CT_DREG, kRegister}}};
  for (const Family& family : kFamilies) {
    const auto [version, is_it] = version_of(family);
    out.Rule("lent_out", Matching({version, is_it, Meta(NFT_META_MARK), Equals(own, NFT_CMP_NEQ)}, family, false,
                                  {Lent(family), translated(family)}));
    out.Rule("lent_way", Matching({version, is_it, Meta(NFT_META_OIFNAME), Equals(rules.interface), status,
                                   Masked(BytesOf(uint32_t{IPS_DST_NAT})), Equals(none, NFT_CMP_NEQ)},
                                  family, false, {In(family.behind), kMasquerade}));
  }
  for (const auto& [network, asked] : rules.lent_to) {
    const Family& family = FamilyOf(asked);
    const auto [version, is_it] = version_of(family);
    const auto mask = network.mask();
    out.Rule("lent_in",
             Matching({version, is_it, Address(family, true), Masked({mask.end() - family.address_bytes, mask.end()}),
                       Equals(BytesOf(network.address)), Address(family, false), Equals(BytesOf(asked.address)),
                       Port(false), Equals(BytesOf(asked.port))},
                      family, false, {Lent(family), translated(family)}));
  }
  std::set<Endpoint> vips;
  for (const auto& [asked, vip] : rules.lent) vips.insert({vip, asked.port});
  for (const Endpoint& vip : vips)
    for (const int protocol : {IPPROTO_UDP, IPPROTO_TCP})
      out.Element(NFT_MSG_NEWSETELEM, FamilyOf(vip).behind, KeyOf(vip, protocol));
}

void MakeInet(const InPlaceRules& rules, Changes& out) {
  const Expression leads_there = {
      "fib",
      {{NFTA_FIB_DREG, kRegister}, {NFTA_FIB_RESULT, NFT_FIB_RESULT_OIFNAME}, {NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR}}};
  const Expression ours = Equals(rules.interface);
  out.BeginAnew();
  out.Chain("prerouting", NF_INET_PRE_ROUTING);
  out.Chain("output", NF_INET_LOCAL_OUT);
  for (const Family& family : kFamilies) {
    const Expression version = Meta(NFT_META_NFPROTO), is_it = Equals(Bytes{family.protocol});
    out.Set(family.live, NFT_SET_TIMEOUT, family.KeyType(), family.KeyBytes());
    out.Set(family.known, 0, family.KeyType(), family.KeyBytes());
    out.Set(family.behind, 0, family.KeyType(), family.KeyBytes());
    out.Set(family.lent, NFT_SET_TIMEOUT | NFT_SET_MAP, family.KeyType(), family.KeyBytes(), family.type,
            family.address_bytes);
    out.Rule("prerouting", Matching({version, is_it}, family, false, {In(family.live), leads_there, ours, kNotrack}));
    out.Rule("prerouting",
             Matching({version, is_it, Meta(NFT_META_IIFNAME), ours}, family, true, {In(family.known), kNotrack}));
    out.Rule("output",
             Matching({version, is_it, Meta(NFT_META_OIFNAME), ours}, family, false, {In(family.live), kNotrack}));
  }
  for (const Endpoint& each : rules.known)
    for (const int protocol : {IPPROTO_UDP, IPPROTO_TCP})
      out.Element(NFT_MSG_NEWSETELEM, FamilyOf(each).known, KeyOf(each, protocol));
  if (!rules.lent.empty()) MakeLent(rules, out);  // which a kernel may lack
}

void MakeBridge(Changes& out) {
  const Expression to_bridge = Payload(NFTA_PAYLOAD_SREG, kRegister, NFT_PAYLOAD_LL_HEADER, 0, ETH_ALEN);
  const Expression host = {"immediate",
                           {{NFTA_IMMEDIATE_DREG, kRegister}},
                           nullptr,
                           {{NFTA_IMMEDIATE_DATA, Bytes(kRegisterBytes)}}};  // PACKET_HOST
  const Expression for_it = {"meta", {{NFTA_META_KEY, NFT_META_PKTTYPE}, {NFTA_META_SREG, kRegister}}};
  out.BeginAnew();
  out.Chain("prerouting", NF_INET_PRE_ROUTING);
  for (const Family& family : kFamilies) {
    const Expression is_it =
        Equals(Bytes{static_cast<uint8_t>(family.ethertype >> 8), static_cast<uint8_t>(family.ethertype)});
    Expression bridge_of = In(family.live);
    bridge_of.numbers.push_back({NFTA_LOOKUP_DREG, kRegister});
    out.Set(family.live, NFT_SET_TIMEOUT | NFT_SET_MAP, family.KeyType(), family.KeyBytes());
    out.Rule("prerouting",
             Matching({Meta(NFT_META_PROTOCOL), is_it}, family, true, {bridge_of, to_bridge, host, for_it}));
  }
}

// In one transaction.
absl::Status Commit(std::initializer_list<Changes*> tables, absl::string_view what) {
  auto socket = netlink::Socket::Open({}, NETLINK_NETFILTER);
  if (!socket.ok()) return socket.status();
  setsockopt(socket->fd(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBytes, sizeof(kSendBytes));  // else send() refuses it
  const nfgenmsg edge = {.nfgen_family = 0, .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES)};
  std::vector<Request> requests(1, Request(NFNL_MSG_BATCH_BEGIN, 0, edge));
  for (Changes* table : tables) requests.insert(requests.end(), table->requests().begin(), table->requests().end());
  if (requests.size() == 1) return absl::OkStatus();
  requests.emplace_back(NFNL_MSG_BATCH_END, 0, edge);
  return socket->DoAll(requests, what);
}

absl::Status CommitRenewed(const InPlaceRules& rules, Changes& inet, Changes& bridge) {
  for (const Endpoint& each : rules.live) inet.Renew(each, FamilyOf(each).live);
  for (const auto& [each, vip] : rules.lent) inet.Renew(each, FamilyOf(each).lent, BytesOf(vip));
  for (const auto& [each, mac] : rules.bridged) bridge.Renew(each, FamilyOf(each).live, Bytes(mac.begin(), mac.end()));
  return Commit({&inet, &bridge}, "the rules for VIPs in place (nftables, with fib)");
}

// A kernel without nftables, or without its tables of bridges, has none.
absl::Status OkIfNone(absl::Status status) {
  return absl::IsNotFound(status) || absl::IsUnimplemented(status) ? absl::OkStatus() : status;
}

// Of what stands; false: nothing does.
absl::StatusOr<bool> ChangeEach(const std::string& instance, absl::string_view what,
                                const std::function<void(Changes&)>& change) {
  bool any = false;
  for (const int family : {NFPROTO_INET, NFPROTO_BRIDGE}) {
    Changes table(instance, family);
    change(table);
    const absl::Status status = Commit({&table}, what);
    if (absl::Status failed = OkIfNone(status); !failed.ok()) return failed;
    any |= status.ok();
  }
  return any;
}

}  // namespace

absl::Status PutInPlaceRules(const InPlaceRules& rules) {
  Changes inet(rules.instance, NFPROTO_INET), bridge(rules.instance, NFPROTO_BRIDGE);
  MakeInet(rules, inet);
  if (!rules.bridged.empty()) MakeBridge(bridge);  // which a kernel may lack
  const absl::Status status = CommitRenewed(rules, inet, bridge);
  if (!status.ok() || !rules.bridged.empty()) return status;
  bridge.Add(NFT_MSG_DELTABLE, NFTA_TABLE_NAME);
  return OkIfNone(Commit({&bridge}, "removing the rules for backends on bridges"));
}

absl::Status RenewInPlace(const InPlaceRules& rules) {
  Changes inet(rules.instance, NFPROTO_INET), bridge(rules.instance, NFPROTO_BRIDGE);
  return CommitRenewed(rules, inet, bridge);
}

absl::Status GiveBackInPlace(const std::string& instance) {
  const auto flush = [](Changes& table) {
    for (const Family& family : kFamilies)
      for (const char* set : {family.live, table.is_bridge() ? family.live : family.lent})  // without elements: all
        table.Add(NFT_MSG_DELSETELEM, NFTA_SET_ELEM_LIST_TABLE).PutString(NFTA_SET_ELEM_LIST_SET, set);
  };
  return ChangeEach(instance, "giving back the VIPs in place", flush).status();
}

absl::StatusOr<bool> RemoveInPlaceRules(const std::string& instance) {
  return ChangeEach(instance, "removing the rules for VIPs in place",
                    [](Changes& table) { table.Add(NFT_MSG_DELTABLE, NFTA_TABLE_NAME); });
}

}  // namespace hedgerow::net
