// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/config/config_check.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cluster/kv/command.h"
#include "cluster/node/config/node_keys.h"
#include "cluster/wire/peer_name.h"
#include "config/format.h"
#include "config/scalar.h"

namespace hedgerow::node {

absl::string_view WhyNotUnicast(const NetAddress& address) {
  const std::array<uint8_t, 16>& b = address.bytes;
  if (address.is_unspecified()) return "an unspecified address";
  if (address.is_v4()) {
    if (b[12] == 0) return "an unspecified address";
    if (b[12] >= 224 && b[12] <= 239) return "a multicast address";
    if (b[12] >= 240) return "a broadcast or reserved address";
    return "";
  }
  if (b[0] == 0xff) return "a multicast address";
  if (b[0] == 0xfe && (b[1] & 0xc0) == 0x80) return "a link-local address";
  return "";
}

namespace {

using config::Quote;

bool IsSet(const NetAddress& address) { return address.port != 0; }

class Checker : config::Checks {
 public:
  Checker(const NodeConfig& config, const config::Locations& locations, config::Diagnostics& errors)
      : config::Checks(locations, errors), config_(config) {}

  void Run() {
    Keys();
    Sockets();
    Members();
    Self();
    Proxies();
    Election();
    Memcached();
    Clients();
    NamedClients();
    PeerTls();
  }

 private:
  void Keys() {
    for (const char* name : {"cluster_key", "announce_key"}) {
      const std::string file = absl::StrCat(name, "_file");
      if (locations_.Has(name) && locations_.Has(file))
        Add(file, absl::StrCat("expected this or ", name, ", not both"));
    }
    if (!locations_.Has("cluster_key") && !locations_.Has("cluster_key_file")) {
      Add("cluster_key", "the key is missing, expected cluster_key_file with the path of a file, or cluster_key");
    }
    if (locations_.Has("beginning") && !config_.join)
      Add("beginning", "expected it with `join: on` alone: what a restored log is of stands in the log");
    const bool announces = locations_.Has("announce_key") || locations_.Has("announce_key_file");
    if (!config_.proxies.empty() && !announces) {
      Add("announce_key", "the key is missing, expected announce_key_file or announce_key, because there are proxies");
    }
    if (const std::string why = WhyNotApart({.cluster = config_.cluster_keys, .announce = config_.announce_keys});
        !why.empty())
      Add(locations_.Has("announce_key") ? "announce_key" : "announce_key_file", why);
  }

  void Sockets() {
    PathsApart();
    MetricsApartFromPeers();
    const operate::HttpAccess& access = config_.metrics_access;
    if (const std::string why = config::WhyNotListened(config_.metrics_listen, "metrics_tls", access.encrypted(),
                                                       "metrics_token_file", !access.token.empty());
        !why.empty())
      Add("metrics_listen", why);
  }

  // Each of them would remove the other's socket, or not start beside a folder of its name.
  void PathsApart() {
    std::map<std::string, std::string> taken = {
        {std::filesystem::path(config_.data_dir).lexically_normal(), "data_dir"}};
    for (const auto& [key, path] :
         {std::pair("admin_socket", config_.admin_socket), std::pair("monitor_socket", config_.monitor_socket),
          std::pair("metrics_listen", operate::UnixPathOf(config_.metrics_listen))}) {
      if (path.empty()) continue;
      const auto [other, first] = taken.try_emplace(std::filesystem::path(path).lexically_normal(), key);
      if (!first) Add(key, absl::StrCat("got the path of ", other->second, ", expected one of its own"));
    }
  }

  // The peers' port is TCP as well: snapshots.
  void MetricsApartFromPeers() {
    const MemberConfig* const own = config_.Find(config_.self);
    const absl::StatusOr<NetAddress> metrics = NetAddress::Parse(config_.metrics_listen);
    if (own == nullptr || !IsSet(own->peer) || !metrics.ok() || metrics->port != own->peer.port) return;
    if (*metrics != own->peer && !metrics->is_unspecified()) return;
    Add("metrics_listen", absl::StrCat("got ", Quote(config_.metrics_listen),
                                       ", expected another address or port than the node's own peer, ",
                                       own->peer.ToString(), ", whose port is TCP, too"));
  }

  // The text of a member's id or of an address, under which later ones are compared.
  using FirstSeen = std::map<std::string, std::string>;

  void Unique(FirstSeen& seen, const std::string& value, const std::string& path, absl::string_view expected) {
    const auto [entry, inserted] = seen.try_emplace(value, path);
    if (inserted) return;
    Add(path, absl::StrCat("got ", Quote(value), ", expected ", expected, " (", entry->second, " in line ",
                           locations_.Find(entry->second).line, " is the same)"));
  }

  void Usable(const NetAddress& address, const std::string& path) {
    const absl::string_view why = WhyNotUnicast(address);
    if (why.empty()) return;
    Add(path, absl::StrCat("got ", Quote(address.ToString()), ", expected a unicast address (this is ", why, ")"));
  }

  void Members() {
    FirstSeen ids;
    FirstSeen addresses;
    const MemberConfig* first = nullptr;
    for (size_t i = 0; i < config_.members.size(); ++i) {
      const MemberConfig& member = config_.members[i];
      const std::string path = absl::StrCat("members[", i, "]");
      if (member.id.IsSet()) {
        Unique(ids, absl::StrCat(member.id.value()), path + ".id", "an id no other member has");
      }
      // Both are UDP, so that not even a member's own two may be the same.
      for (const auto& [address, key] : {std::pair(&member.peer, ".peer"), std::pair(&member.serve, ".serve")}) {
        if (!IsSet(*address)) continue;
        Usable(*address, path + key);
        Unique(addresses, address->ToString(), path + key, "an address and port that no other entry has");
      }
      if (!IsSet(member.peer)) continue;
      if (first == nullptr) {
        first = &member;
      } else {
        Reachable(first->peer, member.peer, path + ".peer");
      }
    }
  }

  // Every node sends from its own peer address to all others.
  void Reachable(const NetAddress& first, const NetAddress& other, const std::string& path) {
    if (first.is_v4() != other.is_v4()) {
      Add(path, absl::StrCat("got ", Quote(other.ToString()), ", expected an ", first.is_v4() ? "IPv4" : "IPv6",
                             " address like the first member's ", first.ToString()));
    } else if (IsLoopback(first) != IsLoopback(other)) {
      Add(path, absl::StrCat("got ", Quote(other.ToString()), ", expected ",
                             IsLoopback(first) ? "a loopback address" : "an address that other hosts reach",
                             " like the first member's ", first.ToString()));
    }
  }

  void Self() {
    if (!config_.self.IsSet() || config_.members.empty()) return;
    std::vector<std::string> ids;
    for (const MemberConfig& member : config_.members) {
      if (member.id.IsSet()) ids.push_back(absl::StrCat(member.id.value()));
      if (member.id == config_.self) {
        Serve(member);
        return;
      }
    }
    Add("node", absl::StrCat("got ", config_.self.value(),
                             ", expected the id of a member (there are: ", absl::StrJoin(ids, ", "), ")"));
  }

  // What the node listens on must be what others, and announcements, send clients to.
  void Serve(const MemberConfig& own) {
    const NetAddress& serve = config_.serve;
    if (!IsSet(serve) || !IsSet(own.serve) || serve == own.serve) return;
    const bool covers = serve.is_unspecified() && serve.port == own.serve.port && serve.is_v4() == own.serve.is_v4();
    if (covers) {
      if (IsSet(own.peer) && own.peer.port == serve.port) {
        Add("serve", absl::StrCat("got ", Quote(serve.ToString()),
                                  ", expected another port than that of the node's own peer, ", own.peer.ToString()));
      }
      return;
    }
    Add("serve", absl::StrCat("got ", Quote(serve.ToString()), ", expected ", own.serve.ToString(), ", as the member ",
                              own.id.value(), " says, or ", own.serve.is_v4() ? "0.0.0.0:" : "[::]:", own.serve.port));
  }

  void Proxies() {
    FirstSeen names;
    FirstSeen addresses;
    for (size_t i = 0; i < config_.proxies.size(); ++i) {
      const ProxyConfig& proxy = config_.proxies[i];
      const std::string path = absl::StrCat("proxies[", i, "]");
      if (!proxy.name.empty()) Unique(names, proxy.name, path + ".name", "a name no other proxy has");
      if (!IsSet(proxy.address)) continue;
      Usable(proxy.address, path + ".address");
      Unique(addresses, proxy.address.ToString(), path + ".address", "an address and port no other proxy has");
    }
  }

  void Election() {
    if (config_.election_cap_ns == 0 || config_.election_floor_ns < config_.election_cap_ns) return;
    // Said at the value that was written; both may have been.
    const auto text = [](uint64_t ns) { return config::FormatDurationNs(static_cast<int64_t>(ns)); };
    if (locations_.Has("election.cap")) {
      Add("election.cap", absl::StrCat("got \"", text(config_.election_cap_ns), "\", expected more than the floor of ",
                                       text(config_.election_floor_ns)));
    } else {
      Add("election.floor", absl::StrCat("got \"", text(config_.election_floor_ns),
                                         "\", expected less than the cap of ", text(config_.election_cap_ns)));
    }
  }

  void Memcached() {
    const MemcachedConfig& memcached = config_.memcached;
    if (!memcached.on()) return;
    if (!memcached.listen.is_unspecified()) Usable(memcached.listen, "memcached.listen");
    // All three are UDP on this host.
    for (const MemberConfig& member : config_.members) {
      if (member.id != config_.self) continue;
      for (const NetAddress* own : {&member.peer, &member.serve}) {
        const bool everywhere =
            memcached.listen.is_unspecified() || (own == &member.serve && config_.serve.is_unspecified());
        if (!(everywhere ? memcached.listen.port == own->port : memcached.listen == *own)) continue;
        Add("memcached.listen",
            absl::StrCat("got ", Quote(memcached.listen.ToString()),
                         ", expected another address or port than the node's own ", own->ToString()));
      }
    }
  }

  // What strangers can reach is served to a list that the administrator has written.
  void Clients() {
    const NetAddress& serve =
        IsSet(config_.serve) || config_.Find(config_.self) == nullptr ? config_.serve : config_.own().serve;
    ListedClients(serve, IsSet(config_.serve) ? "serve" : "the own member's serve", "clients");
    ListedClients(config_.memcached.listen, "memcached.listen", "memcached.clients");
  }

  void ListedClients(const NetAddress& address, absl::string_view listens, const std::string& path) {
    if (!IsSet(address) || locations_.Has(path) || net::PrivateNetworks().Contains(address.bytes)) return;
    if (!address.is_unspecified() && !WhyNotUnicast(address).empty()) return;  // has an error of its own
    Add(path, absl::StrCat("the list is missing, expected the networks of the clients, such as `clients: [10.0.0.0/8, "
                           "fd00::/8]`, because ",
                           listens, " (", address.ToString(), ") is ",
                           address.is_unspecified() ? "every address of this host"
                                                    : "no private address: the Internet may reach it"));
  }

  void NamedClients() {
    FirstSeen names;
    for (size_t i = 0; i < config_.named_clients.size(); ++i) {
      const NamedClientConfig& client = config_.named_clients[i];
      const std::string path = absl::StrCat("named_clients[", i, "]");
      if (!client.name.empty()) Unique(names, client.name, path + ".name", "a name no other client has");
      if (client.read.empty() && client.write.empty()) {
        Add(path,
            "a client without rights, expected prefixes of keys in `read` or `write`, such as `read: [\"app/\"]`, or "
            "`[\"\"]` for all keys");
      }
      KeyOfItsOwn(i, path + ".key_file");
      Prefixes(client.read, path + ".read");
      Prefixes(client.write, path + ".write");
    }
    if (config_.anonymous) return;
    if (config_.named_clients.empty())
      Add("anonymous", "got \"off\", expected clients in `named_clients`: nothing could be served");
    if (config_.memcached.on() && !config_.memcached.anonymous) {
      Add("memcached",
          "got memcached's protocol, by which no client can prove itself, and `anonymous: off`: expected `anonymous: on` in "
          "this block, which serves whoever `memcached.clients` lists, or no such block");
    }
  }

  void KeyOfItsOwn(size_t i, const std::string& path) {
    const wire::KeyRing& keys = config_.named_clients[i].keys;
    if (keys == wire::KeyRing()) return;  // its file has an error of its own
    std::vector<wire::KeyRing> others;
    for (size_t j = 0; j < i; ++j) others.push_back(config_.named_clients[j].keys);
    const absl::string_view with = SharesKeyWith(
        keys, {.cluster = config_.cluster_keys, .announce = config_.announce_keys}, config_.ProxyNames(), others);
    if (!with.empty())
      Add(path, absl::StrCat("got the same key as ", with, ", expected one that this client alone has"));
  }

  void PeerTls() {
    if (!config_.peer_tls.has_value()) return;
    const std::string& pattern = config_.peer_tls->name;
    const std::string name = wire::PeerName(pattern, raft::NodeId(1));
    const auto allowed = [](char c) {
      return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
             c == '-' || c == '.';
    };
    if (name != pattern && name.size() <= 253 && std::all_of(name.begin(), name.end(), allowed)) return;
    Add("peer_tls.name",
        absl::StrCat("got ", Quote(pattern), ", expected a DNS name of a-z, 0-9, - and . with ", wire::kNodeInName,
                     " in the place of a member's id, such as node-", wire::kNodeInName, ".hedgerow"));
  }

  void Prefixes(const std::vector<std::string>& prefixes, const std::string& path) {
    for (size_t i = 0; i < prefixes.size(); ++i) {
      if (prefixes[i].size() <= kv::kKeyMax_bytes) continue;
      Add(absl::StrCat(path, "[", i, "]"),
          absl::StrCat("got ", prefixes[i].size(), " bytes, expected at most the ", kv::kKeyMax_bytes, " of a key"));
    }
  }

  const NodeConfig& config_;
};

}  // namespace

bool IsLoopback(const NetAddress& address) {
  if (address.is_v4()) return address.bytes[12] == 127;
  return std::all_of(address.bytes.begin(), address.bytes.end() - 1, [](uint8_t byte) { return byte == 0; }) &&
         address.bytes[15] == 1;
}

void CheckNodeConfig(const NodeConfig& config, const config::Locations& locations, config::Diagnostics& errors) {
  Checker(config, locations, errors).Run();
}

void CompleteNodeConfig(NodeConfig& config, const config::Locations& locations) {
  std::sort(config.members.begin(), config.members.end(),
            [](const MemberConfig& a, const MemberConfig& b) { return a.id < b.id; });
  if (locations.Has("serve")) return;
  for (const MemberConfig& member : config.members) {
    if (member.id == config.self) config.serve = member.serve;
  }
}

}  // namespace hedgerow::node
