// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/identity/rejoin.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/identity.h"

namespace hedgerow::node {
namespace {

constexpr char kLostAs[] = "lost-as-";

std::string In(const std::string& data_dir, const std::string& name) { return absl::StrCat(data_dir, "/", name); }

std::string AsideOf(const std::string& data_dir, raft::NodeId was) {
  return In(data_dir, absl::StrCat(kLostAs, was.value()));
}

// Can be done again, from wherever it was cut short.
absl::Status MoveAside(const std::string& data_dir, raft::NodeId was) {
  const std::string aside = AsideOf(data_dir, was);
  if (absl::Status status = storage::MakeFolder(aside); !status.ok()) return status;
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(data_dir, error)) {
    const std::string name = entry.path().filename();
    if (storage::IsPartOfLog(name)) names.push_back(name);
  }
  if (error) return storage::FromErrno(data_dir, "read", error.value());
  for (const std::string& name : names) {
    const std::string from = In(data_dir, name);
    if (rename(from.c_str(), In(aside, name).c_str()) != 0) return storage::FromErrno(from, "move", errno);
  }
  if (absl::Status status = storage::SyncFolder(aside); !status.ok()) return status;
  return storage::SyncFolder(data_dir);
}

absl::Status FinishRejoin(const std::string& data_dir, storage::Identity& identity) {
  if (absl::Status status = MoveAside(data_dir, identity.moved_from); !status.ok()) return status;
  identity.phase = storage::Identity::Phase::kReady;
  return storage::WriteIdentity(data_dir, identity);
}

}  // namespace

absl::Status BeginRejoin(const NodeConfig& config, raft::NodeId called, const Rejoin& rejoin) {
  const absl::StatusOr<std::optional<storage::Identity>> lost = storage::ReadIdentity(config.data_dir);
  if (!lost.ok()) return lost.status();
  const std::string aside = AsideOf(config.data_dir, config.self);
  if (absl::Status status = storage::MakeFolder(aside); !status.ok()) return status;
  // Its own copy is kept with the log, before another one stands in its place.
  if (lost->has_value()) {
    if (absl::Status status = storage::WriteIdentity(aside, **lost); !status.ok()) return status;
  }
  storage::Identity next{.cluster_id = config.cluster_id,
                         .node = rejoin.as,
                         .configured = called,
                         .generation = rejoin.generation,
                         .phase = storage::Identity::Phase::kMoving,
                         .moved_from = config.self};
  if (absl::Status status = storage::WriteIdentity(config.data_dir, next); !status.ok()) return status;
  return FinishRejoin(config.data_dir, next);
}

absl::Status FollowRejoin(NodeConfig& config) {
  absl::StatusOr<std::optional<storage::Identity>> found = storage::ReadIdentity(config.data_dir);
  if (!found.ok()) return found.status();
  if (!found->has_value()) return absl::OkStatus();
  storage::Identity& identity = **found;
  if (absl::Status owner = storage::CheckOwner(config.data_dir, identity, config.cluster_id, config.self); !owner.ok())
    return owner;
  if (identity.phase == storage::Identity::Phase::kMoving) {
    if (absl::Status status = FinishRejoin(config.data_dir, identity); !status.ok()) return status;
  }
  if (identity.node == identity.configured) return absl::OkStatus();
  const raft::NodeId as = identity.node;
  const raft::NodeId called = config.self;
  // The file may still name a former member with this id that was removed long ago.
  std::erase_if(config.members, [&](const MemberConfig& member) { return member.id == as && member.id != called; });
  for (MemberConfig& member : config.members) {
    if (member.id == called) member.id = as;
  }
  std::sort(config.members.begin(), config.members.end(),
            [](const MemberConfig& a, const MemberConfig& b) { return a.id < b.id; });
  config.self = as;
  config.join = true;
  config.cluster_epoch = identity.generation.epoch;
  config.recovery_nonce = identity.generation.nonce;
  return absl::OkStatus();
}

}  // namespace hedgerow::node
