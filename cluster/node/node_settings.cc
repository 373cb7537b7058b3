// SPDX-License-Identifier: Apache-2.0
//
// The cluster's settings as a node has applied them (cluster/kv/settings.h): what follows them here, changes that an
// administrator asks for, of settings and of the store, and what the status tells of them. Part of Node, on the loop's
// thread but for ChangeSettings and PurgeSome.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/node/node.h"
#include "cluster/node/config/setting_text.h"

namespace hedgerow::node {

// After each turn: both stand in the log.
void Node::FollowSettings() {
  const kv::Settings& settings = replica_.state().settings();
  const std::pair now(replica_.raft().configuration().members.size(), settings.version);
  if (memcached_ == nullptr || followed_settings_ == now) return;
  followed_settings_ = now;
  memcached_->Follow(now.first, settings.memcached);
}

absl::StatusOr<v1::ChangeSettingsReply> Node::ChangeSettings(kv::SettingValues values) {
  using Reply = absl::StatusOr<v1::ChangeSettingsReply>;
  return Ask<Reply>([this, values = std::move(values)] { return ChangeSettingsNow(values); }).value_or(Late());
}

absl::Status Node::CheckLeads() const {
  const raft::Raft& raft = replica_.raft();
  if (raft.role() == raft::Role::kLeader) return absl::OkStatus();
  return NotLeading(raft.leader());
}

absl::StatusOr<v1::PurgeSomeReply> Node::PurgeSome(const v1::PurgeSomeRequest& request) {
  using Reply = absl::StatusOr<v1::PurgeSomeReply>;
  return Ask<Reply>([this, request] { return PurgeSomeNow(request); }).value_or(Late());
}

absl::StatusOr<v1::PurgeSomeReply> Node::PurgeSomeNow(const v1::PurgeSomeRequest& request) {
  if (absl::Status leads = CheckLeads(); !leads.ok()) return leads;
  v1::PurgePosition position = request.position();
  kv::MapWalk walk{.shard = position.shard(), .bucket = position.bucket(), .buckets = position.buckets()};
  const std::optional<kv::Replica::Purged> purged = replica_.PurgeSome(request.prefix(), walk);
  if (!purged.has_value()) return absl::AbortedError("earlier deletes wait to be proposed; ask again");
  replica_.Settle();
  position.set_shard(walk.shard);
  position.set_bucket(walk.bucket);
  position.set_buckets(walk.buckets);
  v1::PurgeSomeReply reply;
  reply.set_keys(purged->keys);
  reply.set_done(purged->done);
  *reply.mutable_position() = std::move(position);
  reply.set_index(replica_.raft().log().last_index().value());
  return reply;
}

absl::StatusOr<v1::ChangeSettingsReply> Node::ChangeSettingsNow(const kv::SettingValues& values) {
  if (absl::Status leads = CheckLeads(); !leads.ok()) return leads;
  if (!replica_.ChangeSettings(values)) {
    return absl::AbortedError("earlier changes of the settings wait to be proposed; ask again");
  }
  v1::ChangeSettingsReply reply;
  reply.set_version(replica_.state().settings().version);
  reply.set_term(replica_.raft().term().value());
  replica_.Settle();
  // It stepped down: what was to be proposed is gone, and the entry would be another's.
  if (absl::Status leads = CheckLeads(); !leads.ok()) return leads;
  if (replica_.HasProposedOwn()) reply.set_index(replica_.raft().log().last_index().value());
  return reply;
}

void Node::AddSettingsTo(NodeStatus& status) const {
  const kv::Settings& settings = replica_.state().settings();
  status.settings_version = settings.version;
  for (const kv::SettingInfo& info : kv::AllSettings()) {
    const uint64_t value = kv::Get(settings, info.setting);
    v1::Setting& reported = *status.settings.Add();
    reported.set_name(info.name);
    reported.set_value(FormatSetting(info, value));
    reported.set_range(RangeOf(info));
    reported.set_meaning(info.meaning);
    const uint64_t in_file = kv::Get(config_.settings, info.setting);
    const auto& named = config_.settings_in_file;
    if (std::find(named.begin(), named.end(), info.setting) == named.end() || in_file == value) continue;
    reported.set_in_file(FormatSetting(info, in_file));
    if (!settings.set()) continue;
    status.notes.push_back(absl::StrCat(info.name, " is ", reported.value(), ", and the file of this node says ",
                                        reported.in_file(),
                                        ", which only seeds a new cluster: change it with "
                                        "`hedgerow-node settings set` at the leader, or mend the file"));
  }
  if (memcached_ == nullptr) return;
  if (std::string note = memcached_->Note(); !note.empty()) status.notes.push_back(std::move(note));
}

}  // namespace hedgerow::node
