// SPDX-License-Identifier: Apache-2.0
//
// The steps from a file to a checked configuration; see the header. The keys are in cluster/api/node_config.proto, the
// rules that span several values are in config_check.cc.

#include "cluster/node/config/config.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cluster/api/node_config.pb.h"
#include "cluster/node/config/config_check.h"
#include "cluster/node/config/node_keys.h"
#include "cluster/raft/check.h"
#include "cluster/wire/peer_name.h"
#include "config/address.h"
#include "config/decode.h"
#include "config/locations.h"
#include "config/source.h"
#include "operate/key_file.h"

namespace hedgerow::node {
namespace {

// Reads the keys that `path` names, if it names any.
void ReadKeys(const std::string& path, absl::string_view name, operate::Reader reader,
              const config::Locations& locations, config::Diagnostics& errors,
              const std::function<void(const wire::KeyRing&)>& take) {
  if (path.empty()) return;
  const absl::StatusOr<wire::KeyRing> keys = LoadKeyRing(path, reader);
  if (keys.ok()) {
    take(*keys);
  } else {
    errors.Add(locations.Find(name), name, keys.status().message(), {path});
  }
}

// What is wrong with them is said now, and not when the first snapshot is to cross. One that has ended is no error: a
// node serves without it.
void ReadCertificates(operate::Reader reader, const config::Locations& locations, config::Diagnostics& errors,
                      NodeConfig& config) {
  if (!config.peer_tls.has_value()) return;
  const operate::TlsPaths& files = config.peer_tls->files;
  for (const std::string* const path : {&files.certificate, &files.key, &files.authority}) {
    if (path->empty()) return;  // has an error of its own
    config.read_from.push_back(*path);
  }
  const absl::Status read =
      operate::ReadTlsMaterial(files, wire::PeerName(config.peer_tls->name, config.self), reader).status();
  if (!read.ok())
    errors.Add(locations.Find("peer_tls"), "peer_tls", read.message(), {files.certificate, files.key, files.authority});
}

// Of the metrics page: a node serves without it until they can be read, and `validate` says what is wrong.
void ReadMetricsAccess(operate::Reader reader, const config::Locations& locations, config::Diagnostics& errors,
                       NodeConfig& config) {
  const operate::HttpAccess& access = config.metrics_access;
  for (const std::string* const path : {&access.certificate, &access.key, &access.token}) {
    if (!path->empty()) config.read_from.push_back(*path);
  }
  if (reader == operate::Reader::kServes) return;
  if (access.encrypted() && !access.key.empty()) {
    const absl::Status read =
        operate::ReadTlsMaterial({.certificate = access.certificate, .key = access.key}, "", reader).status();
    if (!read.ok()) errors.Add(locations.Find("metrics_tls"), "metrics_tls", read.message());
  }
  if (access.token.empty()) return;
  const absl::Status read = operate::ReadKeyRing(access.token, reader).status();
  if (!read.ok())
    errors.Add(locations.Find("metrics_token_file"), "metrics_token_file",
               absl::StrCat("the file ", access.token, " ", read.message()));
}

// Of a text that the decoder has accepted, or the unset address where it was refused or is not there.
NetAddress AddressOf(const std::string& text) { return NetAddress::Parse(text).value_or(NetAddress()); }

net::Networks NetworksOf(const google::protobuf::RepeatedPtrField<std::string>& texts) {
  return config::NetworksOf({texts.begin(), texts.end()});
}

XdpMode XdpModeOf(v1::XdpAttach attach) {
  if (attach == v1::XDP_ATTACH_NATIVE) return XdpMode::kNative;
  return attach == v1::XDP_ATTACH_GENERIC ? XdpMode::kGeneric : XdpMode::kAuto;
}

// Those of the cluster's settings that the file has.
void TakeSettings(const v1::NodeConfigFile& file, const config::Locations& locations, NodeConfig& config) {
  const v1::MemcachedBlock& memcached = file.memcached();
  const auto take = [&](kv::Setting setting, int64_t value) {
    if (!locations.Has(kv::InfoOf(setting).name)) return;
    kv::Set(config.settings, setting, static_cast<uint64_t>(value));
    config.settings_in_file.push_back(setting);
  };
  take(kv::Setting::kSessionTimeout, file.sessions().timeout_ns());
  take(kv::Setting::kSessionsMax, file.sessions().max());
  take(kv::Setting::kMemory, int64_t{file.memory().limit_mib()} << 20);
  take(kv::Setting::kMemcachedMemory, int64_t{memcached.memory_mib()} << 20);
  take(kv::Setting::kMemcachedWindow, memcached.window_ns());
  take(kv::Setting::kMemcachedWindowMax, memcached.window_max());
}

void TakeEpoch(const std::string& text, NodeConfig& config) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (parts.size() != 2) return;
  HEDGEROW_CHECK(absl::SimpleAtoi(parts[0], &config.cluster_epoch));
  HEDGEROW_CHECK(absl::SimpleHexAtoi(parts[1], &config.recovery_nonce));
}

NodeConfig FromFile(const v1::NodeConfigFile& file, const config::Locations& locations) {
  NodeConfig config;
  config.cluster_id = static_cast<uint64_t>(file.cluster_id());
  if (!file.cluster_key().empty()) config.cluster_keys = wire::ParseKey(file.cluster_key()).value();
  if (!file.announce_key().empty()) config.announce_keys = wire::ParseKey(file.announce_key()).value();
  config.cluster_key_file = file.cluster_key_file();
  config.announce_key_file = file.announce_key_file();
  config.self = raft::NodeId(file.node());
  config.join = file.join();
  TakeEpoch(file.beginning(), config);
  config.durability = file.durability() == v1::DURABILITY_MODE_MEMORY ? Durability::kMemory : Durability::kDisk;
  config.data_dir = file.data_dir();
  config.serve = AddressOf(file.serve());
  config.anonymous = file.anonymous();
  for (const v1::NamedClientEntry& client : file.named_clients()) {
    config.named_clients.push_back({.name = client.name(),
                                    .key_file = client.key_file(),
                                    .read = {client.read().begin(), client.read().end()},
                                    .write = {client.write().begin(), client.write().end()}});
  }
  if (locations.Has("clients")) config.clients = NetworksOf(file.clients());
  if (locations.Has("peer_clients")) config.peer_clients = NetworksOf(file.peer_clients());
  config.admin_socket = file.admin_socket();
  config.monitor_socket = file.monitor_socket();
  config.monitor_group = file.monitor_group();
  config.metrics_listen = file.metrics_listen();
  config.metrics_access = {.group = file.monitor_group(),
                           .certificate = file.metrics_tls().certificate_file(),
                           .key = file.metrics_tls().key_file(),
                           .token = file.metrics_token_file()};
  for (const v1::MemberEntry& member : file.members()) {
    config.members.push_back(
        {.id = raft::NodeId(member.id()), .peer = AddressOf(member.peer()), .serve = AddressOf(member.serve())});
  }
  for (const v1::ProxyEntry& proxy : file.proxies())
    config.proxies.push_back({.name = proxy.name(), .address = AddressOf(proxy.address())});
  config.election_floor_ns = static_cast<uint64_t>(file.election().floor_ns());
  config.election_cap_ns = static_cast<uint64_t>(file.election().cap_ns());
  const v1::OffloadsBlock& offloads = file.offloads();
  config.offloads = {.heartbeat = offloads.heartbeat(),
                     .vote = offloads.vote(),
                     .append = offloads.append(),
                     .quorum = offloads.quorum(),
                     .broadcast = offloads.broadcast(),
                     .watchdog = offloads.watchdog(),
                     .xdp = XdpModeOf(offloads.xdp())};
  config.spin_ns = static_cast<uint64_t>(file.spin_ns());
  config.waiting_max = file.waiting_max();
  const v1::SnapshotsBlock& snapshots = file.snapshots();
  config.snapshots = {.every_entries = snapshots.every_entries(),
                      .every_bytes = static_cast<uint64_t>(snapshots.every_bytes()),
                      .tail_entries = snapshots.tail_entries(),
                      .tail_bytes = static_cast<uint64_t>(snapshots.tail_bytes()),
                      .rate_bytes_per_s = static_cast<uint64_t>(snapshots.rate_bytes_per_s())};
  if (file.has_memcached()) {
    config.memcached = {.listen = AddressOf(file.memcached().listen()),
                        .value_max_bytes = file.memcached().value_max(),
                        .rate_per_s = file.memcached().rate(),
                        .once_in_window = file.memcached().once_in_window(),
                        .anonymous = file.memcached().anonymous()};
    if (locations.Has("memcached.clients")) config.memcached.clients = NetworksOf(file.memcached().clients());
  }
  if (file.has_peer_tls()) {
    const v1::PeerTlsBlock& tls = file.peer_tls();
    config.peer_tls = {
        .files = {.certificate = tls.certificate_file(), .key = tls.key_file(), .authority = tls.authority_file()},
        .name = tls.name()};
  }
  config.sources = {.trusted = NetworksOf(file.sources().trusted()),
                    .answer_bytes_per_s = static_cast<uint64_t>(file.sources().answer_rate_bytes()),
                    .opens_per_s = file.sources().open_rate()};
  TakeSettings(file, locations, config);
  return config;
}

NodeConfig Parse(absl::string_view text, operate::Reader reader, config::Locations& locations,
                 config::Diagnostics& errors) {
  v1::NodeConfigFile file;
  if (!config::Decode(text, file, locations, errors)) return {};
  NodeConfig config = FromFile(file, locations);
  for (const std::string& key_file : {file.cluster_key_file(), file.announce_key_file()}) {
    if (!key_file.empty()) config.read_from.push_back(key_file);
  }
  ReadKeys(file.cluster_key_file(), "cluster_key_file", reader, locations, errors,
           [&config](const wire::KeyRing& keys) { config.cluster_keys = keys; });
  ReadKeys(file.announce_key_file(), "announce_key_file", reader, locations, errors,
           [&config](const wire::KeyRing& keys) { config.announce_keys = keys; });
  for (size_t i = 0; i < config.named_clients.size(); ++i) {
    NamedClientConfig& client = config.named_clients[i];
    if (!client.key_file.empty()) config.read_from.push_back(client.key_file);
    ReadKeys(client.key_file, absl::StrCat("named_clients[", i, "].key_file"), reader, locations, errors,
             [&client](const wire::KeyRing& keys) { client.keys = keys; });
  }
  ReadCertificates(reader, locations, errors, config);
  ReadMetricsAccess(reader, locations, errors, config);
  CheckNodeConfig(config, locations, errors);
  CompleteNodeConfig(config, locations);
  return config;
}

// In order. Of MemberConfig or raft::Member.
template <typename Members>
std::vector<uint64_t> IdsOf(const Members& members) {
  std::vector<uint64_t> ids;
  for (const auto& member : members) ids.push_back(member.id.value());
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

absl::string_view Name(Durability durability) { return durability == Durability::kDisk ? "disk" : "memory"; }

uint64_t MemcachedRateMax(size_t members, uint64_t window_ns) {
  constexpr uint64_t kFrameIds = 65'536;
  // What committed time may fall behind around an election, and then some.
  constexpr uint64_t kMargin_ns = 2'000'000'000;
  const uint64_t span_ms = (window_ns + kMargin_ns) / 1'000'000;
  return kFrameIds * 1000 / (std::max<uint64_t>(members, 1) * span_ms);
}

const MemberConfig& NodeConfig::own() const {
  const MemberConfig* const found = Find(self);
  HEDGEROW_CHECK(found != nullptr);  // CheckNodeConfig refuses such a configuration
  return *found;
}

std::vector<std::string> NodeConfig::ProxyNames() const {
  std::vector<std::string> names;
  for (const ProxyConfig& proxy : proxies) names.push_back(proxy.name);
  return names;
}

const MemberConfig* NodeConfig::Find(raft::NodeId id) const {
  const auto found = std::find_if(members.begin(), members.end(), [id](const MemberConfig& m) { return m.id == id; });
  return found == members.end() ? nullptr : &*found;
}

raft::Configuration NodeConfig::Initial() const {
  if (join) return {};
  std::vector<raft::NodeId> ids;
  for (const MemberConfig& member : members) ids.push_back(member.id);
  raft::Configuration initial = raft::Configuration::OfVoters(ids);
  Readdress(initial);
  return initial;
}

void NodeConfig::Readdress(raft::Configuration& configuration) const {
  if (configuration.epoch != 0) return;
  for (raft::Member& member : configuration.members) {
    if (const MemberConfig* const known = Find(member.id); known != nullptr) member.address = known->peer.ToString();
  }
}

absl::Status NodeConfig::CheckMembers(const raft::Configuration& began_with, const raft::Configuration& latest) const {
  if (join) return absl::OkStatus();
  if (began_with.members.empty()) {
    if (!latest.members.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "join: this node has joined a cluster that has not added it yet (its log in ", data_dir,
        " was begun with `join: on`), and the configuration file wants it to begin one: put `join: on` back"));
  }
  const std::vector<uint64_t> listed = IdsOf(members), began = IdsOf(began_with.members);
  // A member that has left stays in the log's configuration until the next one, but in no list of members.
  std::vector<raft::Member> staying = latest.members;
  std::erase_if(staying, [&latest](const raft::Member& member) { return ((latest.leaving >> member.slot) & 1) != 0; });
  const std::vector<uint64_t> now = IdsOf(staying);
  if (listed == began || listed == now) return absl::OkStatus();
  const bool changed = now != began;
  return absl::FailedPreconditionError(absl::StrCat(
      "members: the log in ", data_dir, " began with the members ", absl::StrJoin(began, ", "),
      changed ? absl::StrCat(" and has ", absl::StrJoin(now, ", "), " by now") : std::string(),
      ", and the configuration file has ", absl::StrJoin(listed, ", "),
      ". A cluster that has begun changes its members with `hedgerow-node members`, never in a file: put ",
      absl::StrJoin(began, ", "), changed ? absl::StrCat(" or ", absl::StrJoin(now, ", ")) : std::string(), " back"));
}

NodeConfig ParseNodeConfig(absl::string_view text, config::Diagnostics& errors) {
  config::Locations locations;
  return Parse(text, operate::Reader::kShows, locations, errors);
}

NodeConfig LoadNodeConfig(const std::string& path, config::Diagnostics& errors, operate::Reader reader) {
  const std::optional<config::Source> source = config::ReadSource(path, errors);
  if (!source.has_value()) return NodeConfig();
  config::Locations locations;
  NodeConfig config = Parse(source->text, reader, locations, errors);
  config::CheckRights(*source, locations, reader, errors);
  config.read_from.push_back(path);
  return config;
}

absl::StatusOr<NodeConfig> LoadNodeConfig(const std::string& path, operate::Reader reader) {
  config::Diagnostics errors(path);
  NodeConfig config = LoadNodeConfig(path, errors, reader);
  if (!errors.empty()) return errors.ToStatus();
  return config;
}

}  // namespace hedgerow::node
