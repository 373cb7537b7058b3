// SPDX-License-Identifier: Apache-2.0
//
// A node's keys as its key files hold them, and the rules by which they change while the cluster runs (docs/adr/0042):
// a key is added on all members, then each of them seals with it, then the former one is removed. Used by the reader of
// configurations, by the node when an administrator has it read its key files again, and by `hedgerow-node keys`. Pure
// but for reading files.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/raft/types.h"
#include "cluster/wire/key.h"
#include "operate/file_rights.h"

namespace hedgerow::node {

struct NodeKeys {
  wire::KeyRing cluster{};
  std::optional<wire::KeyRing> announce{};  // there if the node announces to proxies

  bool operator==(const NodeKeys&) const = default;
};

// InvalidArgument repeats nothing of the content: "the file "/etc/..." holds no key, ...".
absl::StatusOr<wire::KeyRing> LoadKeyRing(const std::string& path, operate::Reader reader);

// What nodes know and what proxies know must not help against each other; nor may two keys have one id. Empty: they do
// not; otherwise what is wrong with the announce key, as an error of the configuration.
std::string WhyNotApart(const NodeKeys& keys);

// What one client knows must help it neither as another one nor against nodes and proxies: which of them has one of
// these keys, too ("the cluster", "the announce key", "a proxy", "another client"); empty: none. `proxies`: by their
// names.
absl::string_view SharesKeyWith(const wire::KeyRing& client, const NodeKeys& nodes,
                                const std::vector<std::string>& proxies,
                                const std::vector<wire::KeyRing>& other_clients);

// What a member has told of its keys.
struct MemberKeys {
  raft::NodeId id{};
  uint32_t sealing = 0;  // by KeyId; 0: it has told nothing yet
  uint32_t other = 0;
  bool fresh = false;  // it has told it within the last seconds
};

// Whether a node may go from `now` to `next` while it hears these members. FailedPrecondition says which member stands
// in the way, and what to do: one that would not open what this node seals, or whose datagrams this node would not open
// any more.
absl::Status MayChangeClusterKeys(const wire::KeyRing& now, const wire::KeyRing& next,
                                  const std::vector<MemberKeys>& members);

}  // namespace hedgerow::node
