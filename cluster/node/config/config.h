// SPDX-License-Identifier: Apache-2.0
//
// A node's configuration: a YAML file to a checked NodeConfig, every error with its place, all at once. The
// only way `hedgerow-node` obtains one. docs/node-config.md explains each key to users. Pure but for reading the
// file and the key files that it names; opens no socket and makes nothing.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/kv/features.h"
#include "cluster/kv/settings.h"
#include "cluster/node/net/net_address.h"
#include "cluster/raft/types.h"
#include "cluster/wire/key.h"
#include "config/diagnostics.h"
#include "net/networks.h"
#include "operate/file_rights.h"
#include "operate/http_access.h"
#include "operate/tls_files.h"

namespace hedgerow::node {

constexpr size_t kMembersMax = 7;
// An announcement goes to each of them with every heartbeat round.
constexpr size_t kProxiesMax = 64;

// What an acknowledgement promises; docs/node-config.md.
enum class Durability : uint8_t {
  kDisk,    // synced to the disk of a majority
  kMemory,  // in the page cache of a majority: outlives the process, not the host
};
absl::string_view Name(Durability durability);  // "disk", "memory"

struct MemberConfig {
  raft::NodeId id{};
  NetAddress peer{};   // where the other nodes reach it
  NetAddress serve{};  // where clients reach it, and what announcements say
};

struct ProxyConfig {
  std::string name{};
  NetAddress address{};  // where its announcements are sent
};

// How XDP programs are attached; docs/node-config.md.
enum class XdpMode : uint8_t { kAuto, kNative, kGeneric };

// What the kernel may do for the node (cluster/offload). Each is off, with its reason in the status, where the
// kernel or the durability mode does not allow it.
struct OffloadsConfig {
  bool heartbeat = true;
  bool vote = true;
  bool append = true;  // memory mode only
  bool quorum = true;
  bool broadcast = true;
  bool watchdog = true;
  XdpMode xdp = XdpMode::kAuto;

  bool any() const { return heartbeat || vote || append || quorum || broadcast || watchdog; }
  bool operator==(const OffloadsConfig&) const = default;
};

// When a node takes a snapshot of its own, what its log keeps before it, and how fast it sends one.
struct SnapshotsConfig {
  uint64_t every_entries = 1'000'000;  // whichever comes first
  uint64_t every_bytes = 256 * 1024 * 1024;
  uint64_t tail_entries = 100'000;  // at most, and
  uint64_t tail_bytes = 32 * 1024 * 1024;
  uint64_t rate_bytes_per_s = 64 * 1024 * 1024;  // to each follower

  bool operator==(const SnapshotsConfig&) const = default;
};

// The second front end (docs/memcached.md). What a committed command does is not its to say (kv::Settings).
struct MemcachedConfig {
  NetAddress listen{};                 // to bind; port 0: there is none
  size_t value_max_bytes = 32 * 1024;  // larger ones are refused
  uint64_t rate_per_s = 0;             // of one client's socket at one node; 0 or too much: MemcachedRateMax
  bool once_in_window = false;         // incr, decr, append and prepend are served
  net::Networks clients = net::PrivateNetworks();  // the sources that are served
  bool anonymous = false;  // served though hkv serves named clients alone: this protocol cannot name any

  bool on() const { return listen.port != 0; }
};

// So that a client that counts its frame ids up cannot have used all of them within the window and what may be
// added to it, though it asks all members: docs/adr/0014.
uint64_t MemcachedRateMax(size_t members, uint64_t window_ns);

// A client of hkv that proves itself, and the prefixes of the keys that it may read and write.
struct NamedClientConfig {
  std::string name{};
  std::string key_file{};
  wire::KeyRing keys{};  // two while its key is changed
  std::vector<std::string> read{};
  std::vector<std::string> write{};
};

// What a source that has proved nothing may make this node do; docs/node-config.md.
struct SourcesConfig {
  net::Networks trusted{};                          // no address of theirs can be forged: answers of any length
  uint64_t answer_bytes_per_s = 128 * 1024 * 1024;  // to each prefix that is not trusted
  uint64_t opens_per_s = 32;                        // OPENs of one address; a prefix has eight times as many
};

// Certificates of the peers' TCP port.
struct PeerTlsConfig {
  operate::TlsPaths files{};
  std::string name{};  // of a member, with {node} in the place of its id (wire::PeerName)
};

struct NodeConfig {
  uint64_t cluster_id = 0;  // 1 to 2^63 - 1
  wire::KeyRing cluster_keys{};
  std::optional<wire::KeyRing> announce_keys{};  // there if `proxies` has any
  std::string cluster_key_file{};  // empty: the key stands in the configuration, and cannot be changed while it runs
  std::string announce_key_file{};
  raft::NodeId self{};  // one of `members`
  // This node joins a cluster that is there: it listens until it is added, and learns the members from the log.
  bool join = false;
  Durability durability = Durability::kDisk;
  std::string data_dir = "/var/lib/hedgerow-node";
  NetAddress serve{};  // to bind: the own member's, or the unspecified address with its port
  net::Networks clients = net::PrivateNetworks();  // the sources that hkv serves
  bool anonymous = true;                           // hkv serves clients that do not prove themselves
  std::vector<NamedClientConfig> named_clients{};  // those that do
  // Other sources than members' addresses from which peers are heard. Not set: any, up to a rate (Peers::SetSources).
  std::optional<net::Networks> peer_clients{};
  std::optional<PeerTlsConfig> peer_tls{};  // not set: snapshots cross without TLS
  std::string admin_socket = "/run/hedgerow-node/admin.sock";
  std::string monitor_socket{};          // empty: none
  std::vector<std::string> read_from{};  // the file, and those of keys and certificates that it names
  std::string monitor_group = "hedgerow-monitor";
  std::string metrics_listen = "127.0.0.1:9465";  // empty: off
  operate::HttpAccess metrics_access{};
  std::vector<MemberConfig> members{};  // in the order of their ids
  std::vector<ProxyConfig> proxies{};
  uint64_t election_floor_ns = 20'000'000;
  uint64_t election_cap_ns = 2'000'000'000;
  OffloadsConfig offloads{};
  uint64_t spin_ns = 50'000;  // how long the loop looks for more work before it sleeps
  // Seeds a new cluster; `settings_in_file` are those that the file has, and the others are the defaults.
  kv::Settings settings{};
  std::vector<kv::Setting> settings_in_file{};
  size_t waiting_max = 16'384;  // requests that wait for an outcome; more are refused
  SnapshotsConfig snapshots{};
  uint64_t check_every_entries = 16'384;  // of the state; no key: all members must compare after the same entries
  uint32_t features = kv::kAllFeatures;   // that are announced; no key: tests have nodes that can do less
  MemcachedConfig memcached{};
  SourcesConfig sources{};

  // Not of the file but of the log, once that is open (docs/adr/0019): which recovery generation of the cluster
  // this is. `cluster_keys` are that generation's then. Before, what a log of one that joins is made as:
  // `beginning`, or FollowRejoin, says it.
  uint64_t cluster_epoch = 0;
  uint64_t recovery_nonce = 0;

  // The entry of `members` that is this node.
  const MemberConfig& own() const;
  std::vector<std::string> ProxyNames() const;
  // Null: none of `members`.
  const MemberConfig* Find(raft::NodeId id) const;
  // What the cluster begins with: all `members` vote; nothing if this node joins.
  raft::Configuration Initial() const;
  // Of a configuration that no change has made, addresses are what this file says; later they are the log's to
  // say.
  void Readdress(raft::Configuration& configuration) const;
  // `members` and `join` against what the log began with and has by now (raft::BeginsWith): a file that differs
  // was edited in the hope of a change that it does not make. FailedPrecondition says what to do.
  absl::Status CheckMembers(const raft::Configuration& began_with, const raft::Configuration& latest) const;
};

// InvalidArgument with one line for each error, every one starting with FILE, and with LINE:COLUMN where it has
// one. No error repeats any part of a key.
absl::StatusOr<NodeConfig> LoadNodeConfig(const std::string& path, operate::Reader reader = operate::Reader::kShows);

// The same with the errors as data. The configuration means something only where `errors` stays empty. The
// first also refuses a file that holds a key and that others may read, and what `reader` does not follow.
NodeConfig LoadNodeConfig(const std::string& path, config::Diagnostics& errors,
                          operate::Reader reader = operate::Reader::kShows);
NodeConfig ParseNodeConfig(absl::string_view text, config::Diagnostics& errors);

}  // namespace hedgerow::node
