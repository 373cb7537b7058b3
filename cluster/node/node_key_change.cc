// SPDX-License-Identifier: Apache-2.0
//
// The cluster key, the announce key and the keys of named clients change while the node runs (docs/adr/0042): an
// administrator has the node read its key files again. Here is the check that no member is cut off, and the order in
// which the node's parts take the new keys. Part of Node, on the loop's thread but for ReloadKeys.
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/node/config/node_keys.h"
#include "cluster/node/node.h"
#include "cluster/node/status/status_message.h"
#include "cluster/wire/announce.h"

namespace hedgerow::node {
namespace {

// While a key is changed, members are asked this often which ones they have.
constexpr uint64_t kAskForKeys_ns = 500'000'000;

}  // namespace

std::vector<NamedClient> Node::NamedClientsOf(const NodeConfig& config) {
  std::vector<NamedClient> clients;
  for (const NamedClientConfig& client : config.named_clients) {
    clients.push_back(
        {.name = client.name, .keys = {client.keys.seals().key}, .read = client.read, .write = client.write});
    if (client.keys.other() != nullptr) clients.back().keys.push_back(client.keys.other()->key);
  }
  return clients;
}

// The files are read on the caller's thread: a disk may be slow.
absl::StatusOr<v1::Keys> Node::ReloadKeys(bool force) {
  const absl::MutexLock one_at_a_time(&reloading_keys_);
  std::optional<ConfiguredKeys> keys = Ask<ConfiguredKeys>([this] {
    return ConfiguredKeys{.nodes = {.cluster = configured_cluster_keys_, .announce = config_.announce_keys},
                          .clients = config_.named_clients};
  });
  if (!keys.has_value()) return Late();
  if (config_.cluster_key_file.empty() && config_.announce_key_file.empty() && keys->clients.empty()) {
    return absl::FailedPreconditionError(
        "the keys stand in this node's configuration: to change them while it runs, move them to files (cluster_key_file, "
        "announce_key_file) and start it once more");
  }
  std::vector<std::pair<std::string, std::function<void(const wire::KeyRing&)>>> files = {
      {config_.cluster_key_file, [&keys](const wire::KeyRing& ring) { keys->nodes.cluster = ring; }},
      {config_.announce_key_file, [&keys](const wire::KeyRing& ring) { keys->nodes.announce = ring; }}};
  for (NamedClientConfig& client : keys->clients)
    files.emplace_back(client.key_file, [&client](const wire::KeyRing& ring) { client.keys = ring; });
  for (const auto& [path, take] : files) {
    if (path.empty()) continue;
    const absl::StatusOr<wire::KeyRing> read = LoadKeyRing(path, operate::Reader::kServes);
    if (!read.ok()) return read.status();
    take(*read);
  }
  if (const std::string why = WhyNotApart(keys->nodes); !why.empty()) return absl::InvalidArgumentError(why);
  std::vector<wire::KeyRing> others;
  for (const NamedClientConfig& client : keys->clients) {
    const absl::string_view with = SharesKeyWith(client.keys, keys->nodes, config_.ProxyNames(), others);
    if (!with.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("the file ", client.key_file, " has the same key as ", with,
                                                     ", expected one that the client ", client.name, " alone has"));
    }
    others.push_back(client.keys);
  }
  return Ask<absl::StatusOr<v1::Keys>>([this, keys = *keys, force] { return ChangeKeys(keys, force); })
      .value_or(Late());
}

// The kernel programs first: what they refuse changes nothing. Within this turn the process follows, so that what one
// of the two seals meanwhile is under a key that both had, or that all members have.
absl::StatusOr<v1::Keys> Node::ChangeKeys(const ConfiguredKeys& keys, bool force) {
  const wire::KeyRing next = wire::DeriveClusterKeys(keys.nodes.cluster, config_.cluster_epoch, config_.recovery_nonce);
  if (!force) {
    if (absl::Status may = MayChangeClusterKeys(config_.cluster_keys, next, KeysOfMembers()); !may.ok()) return may;
  }
  std::vector<wire::Key> proxies;
  for (const ProxyConfig& proxy : config_.proxies)
    proxies.push_back(wire::DeriveProxyKey(keys.nodes.announce->seals().key, proxy.name));
  if (absl::Status set = offloads_->SetKeys(next, proxies); !set.ok()) return set;
  configured_cluster_keys_ = keys.nodes.cluster;
  config_.cluster_keys = next;
  config_.announce_keys = keys.nodes.announce;
  config_.named_clients = keys.clients;
  front_end_.SetNamedClients(config_.anonymous, NamedClientsOf(config_));
  peers_.SetKeys(next);
  announcer_.SetKeys(proxies);
  snapshots_->SetKeys(next);
  ++key_changes_;
  return KeysNow();
}

// A member that is not heard may have any keys; so may one whose incarnation is not known.
std::vector<MemberKeys> Node::KeysOfMembers() const {
  std::vector<MemberKeys> members;
  for (const PeerState& peer : peers_.states()) {
    const bool fresh =
        peer.told_keys_ns != 0 && now_ns_ < peer.told_keys_ns + kKeysFresh_ns && peers_.IncarnationOf(peer.id) != 0;
    members.push_back({.id = peer.id, .sealing = peer.sealing_key, .other = peer.other_key, .fresh = fresh});
  }
  return members;
}

v1::Keys Node::KeysNow() const {
  const auto other = [](const wire::KeyRing& ring) {
    return KeyIdText(ring.other() != nullptr ? ring.other()->id : 0);
  };
  v1::Keys keys;
  keys.set_cluster_seals(KeyIdText(config_.cluster_keys.seals().id));
  keys.set_cluster_other(other(config_.cluster_keys));
  if (config_.announce_keys.has_value()) {
    keys.set_announce_seals(KeyIdText(config_.announce_keys->seals().id));
    keys.set_announce_other(other(*config_.announce_keys));
  }
  return keys;
}

// Every turn.
void Node::FollowKeys() {
  const bool changing = config_.cluster_keys.other() != nullptr;
  if ((!changing && !keys_are_wanted_) || now_ns_ < asked_for_keys_ns_ + kAskForKeys_ns) return;
  asked_for_keys_ns_ = now_ns_;
  keys_are_wanted_ = false;
  peers_.AskAgain();
}

// A node that had no term when it started believes the first that it hears, and those that can follow from it.
void Node::FollowTermLimit() {
  if (term_limit_.exists() || replica_.raft().term() == raft::Term()) return;
  term_limit_ = raft::TermLimit(replica_.raft().term(), now_ns_);
  peers_.SetTermLimit(term_limit_);
  if (offload::KernelBridge* const bridge = offloads_->bridge(); bridge != nullptr) bridge->SetTermLimit(term_limit_);
}

}  // namespace hedgerow::node
