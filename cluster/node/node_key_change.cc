// SPDX-License-Identifier: Apache-2.0
//
// The cluster key and the announce key change while the node runs (docs/adr/0042): an administrator has the node read its key files
// again. Here is the check that no member is cut off, and the order in which the node's parts take the new keys. Part of Node, on the
// loop's thread but for ReloadKeys.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/node/node.h"
#include "cluster/node/config/node_keys.h"
#include "cluster/wire/announce.h"

namespace hedgerow::node {
namespace {

// While a key is changed, members are asked this often which ones they have.
constexpr uint64_t kAskForKeys_ns = 500'000'000;

}  // namespace

// The files are read on the caller's thread: a disk may be slow.
absl::StatusOr<KeysStatus> Node::ReloadKeys(bool force) {
  if (config_.cluster_key_file.empty() && config_.announce_key_file.empty()) {
    return absl::FailedPreconditionError(
        "the keys stand in this node's configuration: to change them while it runs, move them to files (cluster_key_file, "
        "announce_key_file) and start it once more");
  }
  std::optional<wire::KeyRing> cluster, announce;
  for (const auto& [path, ring] : {std::pair(&config_.cluster_key_file, &cluster), std::pair(&config_.announce_key_file, &announce)}) {
    if (path->empty()) continue;
    absl::StatusOr<wire::KeyRing> read = LoadKeyRing(*path, operate::Reader::kServes);
    if (!read.ok()) return read.status();
    *ring = *std::move(read);
  }
  if (cluster.has_value()) {
    if (const std::string why = WhyNotApart({.cluster = *cluster, .announce = announce}); !why.empty())
      return absl::InvalidArgumentError(why);
  }
  const auto done = Ask<absl::StatusOr<KeysStatus>>([this, cluster, announce, force] { return ChangeKeys(cluster, announce, force); });
  return done.value_or(absl::DeadlineExceededError("the node's loop did not answer within 2 s"));
}

// The kernel programs first: what they refuse changes nothing. Within this turn the process follows, so that what one of the two seals
// meanwhile is under a key that both had, or that all members have.
absl::StatusOr<KeysStatus> Node::ChangeKeys(const std::optional<wire::KeyRing>& cluster, const std::optional<wire::KeyRing>& announce,
                                            bool force) {
  const wire::KeyRing next =
      cluster.has_value() ? wire::DeriveClusterKeys(*cluster, config_.cluster_epoch, config_.recovery_nonce) : config_.cluster_keys;
  if (!force) {
    if (absl::Status may = MayChangeClusterKeys(config_.cluster_keys, next, KeysOfMembers()); !may.ok()) return may;
  }
  std::vector<wire::Key> proxies;
  const std::optional<wire::KeyRing>& announces = announce.has_value() ? announce : config_.announce_keys;
  for (const ProxyConfig& proxy : config_.proxies)
    proxies.push_back(wire::DeriveProxyKey(announces->seals().key, proxy.name));
  if (absl::Status set = offloads_->SetKeys(next, proxies); !set.ok()) return set;
  config_.cluster_keys = next;
  config_.announce_keys = announces;
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
    const bool fresh = peer.told_keys_ns != 0 && now_ns_ < peer.told_keys_ns + kKeysFresh_ns && peers_.IncarnationOf(peer.id) != 0;
    members.push_back({.id = peer.id, .sealing = peer.sealing_key, .other = peer.other_key, .fresh = fresh});
  }
  return members;
}

KeysStatus Node::KeysNow() const {
  const auto other = [](const wire::KeyRing& ring) { return ring.other() != nullptr ? ring.other()->id : 0; };
  KeysStatus keys{.cluster_seals = config_.cluster_keys.seals().id, .cluster_other = other(config_.cluster_keys)};
  if (config_.announce_keys.has_value()) {
    keys.announce_seals = config_.announce_keys->seals().id;
    keys.announce_other = other(*config_.announce_keys);
  }
  return keys;
}

// Every turn.
void Node::FollowKeys() {
  const bool changing = config_.cluster_keys.other() != nullptr;
  if (!changing || now_ns_ < asked_for_keys_ns_ + kAskForKeys_ns) return;
  asked_for_keys_ns_ = now_ns_;
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
