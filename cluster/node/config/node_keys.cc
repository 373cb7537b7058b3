// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/config/node_keys.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/wire/announce.h"
#include "config/diagnostics.h"
#include "operate/key_file.h"

namespace hedgerow::node {
namespace {

absl::Status NotYet(const MemberKeys& member, absl::string_view what, absl::string_view remedy) {
  return absl::FailedPreconditionError(absl::StrCat("member ", member.id.value(), " ", what, ": ", remedy));
}

// A member that this node does not hear may have any keys.
absl::Status CheckIsFresh(const MemberKeys& member) {
  if (member.fresh) return absl::OkStatus();
  return NotYet(
      member, "has not told which keys it has in the last seconds",
      "start it or mend the network, or remove it from the members; with --force it is cut off until it has the new key");
}

}  // namespace

absl::StatusOr<wire::KeyRing> LoadKeyRing(const std::string& path, operate::Reader reader) {
  const absl::StatusOr<std::vector<std::string>> keys = operate::ReadKeyRing(path, reader);
  if (!keys.ok())
    return absl::InvalidArgumentError(absl::StrCat("the file ", config::Quote(path), " ", keys.status().message()));
  const wire::Key seals = wire::ParseKey(keys->front()).value();
  if (keys->size() == 1) return wire::KeyRing(seals);
  const wire::KeyRing ring(seals, wire::ParseKey(keys->back()).value());
  if (ring.seals().id == ring.other()->id)
    return absl::InvalidArgumentError(
        absl::StrCat("the file ", config::Quote(path), " holds two keys of one id, expected another new key"));
  return ring;
}

std::string WhyNotApart(const NodeKeys& keys) {
  if (!keys.announce.has_value() || !keys.announce->Shares(keys.cluster)) return "";
  return "got the same key as cluster_key, expected another: what proxies know must not help against nodes";
}

absl::string_view SharesKeyWith(const wire::KeyRing& client, const NodeKeys& nodes,
                                const std::vector<std::string>& proxies,
                                const std::vector<wire::KeyRing>& other_clients) {
  const auto shares = [&client](const wire::KeyRing& other) { return client.Shares(other); };
  if (shares(nodes.cluster)) return "the cluster";
  if (nodes.announce.has_value()) {
    if (shares(*nodes.announce)) return "the announce key";
    const auto shares_of_proxy = [&](const std::string& name) {
      return shares(nodes.announce->Derived([&name](const wire::Key& key) { return wire::DeriveProxyKey(key, name); }));
    };
    if (std::any_of(proxies.begin(), proxies.end(), shares_of_proxy)) return "a proxy";
  }
  return std::any_of(other_clients.begin(), other_clients.end(), shares) ? "another client" : "";
}

absl::Status MayChangeClusterKeys(const wire::KeyRing& now, const wire::KeyRing& next,
                                  const std::vector<MemberKeys>& members) {
  for (const MemberKeys& member : members) {
    const auto opens = [&member](uint32_t id) { return member.sealing == id || member.other == id; };
    if (const uint32_t seals = next.seals().id; seals != now.seals().id) {
      if (absl::Status fresh = CheckIsFresh(member); !fresh.ok()) return fresh;
      if (!opens(seals))
        return NotYet(member, absl::StrCat("does not have the key ", wire::FormatKeyId(seals)),
                      "add it there first (`hedgerow-node keys add`)");
    }
    for (const wire::KeyRing::Entry* const gone : {&now.seals(), now.other()}) {
      if (gone == nullptr || next.Find(gone->id) != nullptr) continue;
      if (absl::Status fresh = CheckIsFresh(member); !fresh.ok()) return fresh;
      if (member.sealing == gone->id)
        return NotYet(member, absl::StrCat("still seals with the key ", wire::FormatKeyId(gone->id)),
                      "let it seal with the new one first (`hedgerow-node keys switch`)");
    }
  }
  return absl::OkStatus();
}

}  // namespace hedgerow::node
