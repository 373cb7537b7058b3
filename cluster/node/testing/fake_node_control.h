// SPDX-License-Identifier: Apache-2.0
//
// A node that tests can put into any state: what it says is what they
// set, and transfers are noted. Thread-safe.

#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cluster/node/config/setting_text.h"
#include "cluster/node/status/status.h"
#include "cluster/node/status/status_message.h"
#include "operate/durations.h"

namespace hedgerow::node {

inline v1::Member& AddMember(NodeStatus& status, uint64_t id, const char* role) {
  v1::Member& member = *status.members.Add();
  member.set_id(id);
  member.set_role(role);
  return member;
}

inline void AddOffload(NodeStatus& status, const char* name, bool on, const char* detail) {
  v1::Offload& offload = *status.offloads.Add();
  offload.set_name(name);
  offload.set_on(on);
  offload.set_detail(detail);
}

// Node 1 of three, leading since a while; node 3 has never been heard.
inline NodeStatus FakeStatus() {
  NodeStatus status;
  status.node = raft::NodeId(1);
  status.role = raft::Role::kLeader;
  status.term = raft::Term(4);
  status.leader = raft::NodeId(1);
  status.ready = true;
  status.commit = raft::LogIndex(1042);
  status.applied = raft::LogIndex(1042);
  status.last_index = raft::LogIndex(1043);
  status.durable_index = raft::LogIndex(1042);
  status.election_timeout_ns = 20'000'000;
  status.sessions = 12;
  status.waiting = 3;
  status.uptime_ns = 3'720'000'000'000;
  v1::Peer& second = AddPeer(status, raft::NodeId(2), *NetAddress::Parse("10.0.0.2:4802"));
  second.set_life("0123456789abcdef");
  second.set_heard_ago_ns(3'100'000);
  second.set_round_trip_ns(210'000);
  second.set_match_index(1040);
  second.set_build("0.2.0");
  second.set_sealing_key("00c0ffee");
  second.set_other_key("1f00ab2c");
  AddPeer(status, raft::NodeId(3), *NetAddress::Parse("10.0.0.3:4802"));
  for (const uint64_t id : {1, 2, 3}) AddMember(status, id, "voter").set_address(absl::StrCat("10.0.0.", id, ":4802"));
  status.keys.set_cluster_seals("1f00ab2c");
  status.keys.set_cluster_other("00c0ffee");
  status.keys.set_announce_seals("5eed5eed");
  status.settings_version = 1;
  for (const kv::SettingInfo& info : kv::AllSettings()) {
    v1::Setting& setting = *status.settings.Add();
    setting.set_name(info.name);
    setting.set_value(FormatSetting(info, kv::Get(kv::Settings(), info.setting)));
    setting.set_range(RangeOf(info));
    setting.set_meaning(info.meaning);
  }
  status.counters.emplace_back("hkv_requests", 1234);
  status.counters.emplace_back("peer_dropped", 5, "replayed");
  status.counters.emplace_back("peer_dropped", 0, "tag");
  status.counters.emplace_back("peer_sent", 77, "", raft::NodeId(2));
  status.metrics = "127.0.0.1:9465";
  operate::Durations syncs;
  for (const uint64_t took_ns : {1'000'000, 1'000'000, 2'000'000}) syncs.Record(took_ns);
  syncs.Record(20'000'000'000);
  syncs.AddTo(status.histograms, "storage_sync");
  return status;
}

inline NodeFacts FakeFacts() {
  return {.cluster_id = 7, .durability = Durability::kDisk, .serve = *NetAddress::Parse("10.0.0.1:4801")};
}

class FakeNodeControl final : public NodeControl {
 public:
  absl::Status Refusal() override { return absl::UnimplementedError("this node gives no backups"); }
  absl::StatusOr<NodeStatus> Status() override {
    absl::MutexLock lock(&mutex_);
    if (absl::Status late = TakeLate(); !late.ok()) return late;
    return status_;
  }
  // Hands over at once, unless told to fail or to stay.
  absl::Status Transfer(raft::NodeId target) override {
    absl::MutexLock lock(&mutex_);
    targets_.push_back(target);
    if (!transfer_.ok() || stays_ || !status_.ok()) return transfer_;
    status_->leader = target.IsSet() ? target : raft::NodeId(2);
    status_->role = raft::Role::kFollower;
    status_->term = status_->term.Next();
    return transfer_;
  }

  // At once, unless told to stay.
  absl::StatusOr<raft::LogIndex> TakeSnapshot() override {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_.status();
    if (fails_snapshots_) {
      status_->counters.emplace_back("snapshots", 1, "failed");
    } else if (!stays_) {
      status_->snapshots.set_last_index(status_->applied.value());
      status_->snapshots.set_size_bytes(4096);
    }
    return status_->applied;
  }

  // Done at once, unless told to fail; or lost with its leader, whose successor has made another change.
  absl::StatusOr<uint32_t> ChangeMembers(std::vector<raft::MemberChange> changes) override {
    absl::MutexLock lock(&mutex_);
    changes_.push_back(std::move(changes));
    if (!change_.ok()) return change_;
    if (!status_.ok()) return status_.status();
    for (const raft::MemberChange& change : changes_.back()) {
      if (!loses_) Apply(change, *status_);
    }
    status_->config_epoch += 2;
    status_->committed_epoch = status_->config_epoch;
    return status_->config_epoch;
  }

  // Done at once, unless told to stay, or that it is applied without effect.
  absl::StatusOr<v1::ChangeSettingsReply> ChangeSettings(kv::SettingValues values) override {
    absl::MutexLock lock(&mutex_);
    if (!change_.ok()) return change_;
    if (!status_.ok()) return status_.status();
    v1::ChangeSettingsReply change;
    change.set_version(status_->settings_version);
    change.set_index(status_->applied.value() + 1);
    change.set_term(status_->term.value());
    if (stays_) return change;
    status_->applied = raft::LogIndex(change.index());
    if (settings_fate_) {
      settings_fate_(*status_);
      return change;
    }
    for (const kv::SettingValue& value : values) {
      const kv::SettingInfo& info = kv::InfoOf(value.setting);
      for (v1::Setting& setting : status_->settings) {
        if (setting.name() == info.name) setting.set_value(FormatSetting(info, value.value));
      }
    }
    ++status_->settings_version;
    return change;
  }
  // What becomes of the changes of settings from now on, instead of being done.
  void ChangesOfSettingsEndAs(std::function<void(NodeStatus&)> fate) {
    absl::MutexLock lock(&mutex_);
    settings_fate_ = std::move(fate);
  }

  // As it stands in the status.
  absl::StatusOr<v1::Keys> ReloadKeys(bool force) override {
    absl::MutexLock lock(&mutex_);
    if (!change_.ok() && !force) return change_;
    if (!status_.ok()) return status_.status();
    return status_->keys;
  }

  // One key at a time of those that there are, each at once; a key is lost with a leader if told so.
  absl::StatusOr<v1::PurgeSomeReply> PurgeSome(const v1::PurgeSomeRequest& request) override {
    absl::MutexLock lock(&mutex_);
    if (absl::Status late = TakeLate(); !late.ok()) return late;
    if (!change_.ok()) return change_;
    if (!status_.ok()) return status_.status();
    const auto found = std::find_if(keys_.begin(), keys_.end(),
                                    [&request](const std::string& key) { return key.starts_with(request.prefix()); });
    v1::PurgeSomeReply purged;
    purged.set_index(status_->applied.value());
    purged.mutable_position()->set_shard(request.position().shard() + 1);
    purged.set_keys(found == keys_.end() ? 0 : 1);
    purged.set_done(found == keys_.end() || loses_key_);
    if (!purged.done()) keys_.erase(found);
    if (purged.keys() == 1) loses_key_ = false;
    return purged;
  }
  void SetKeys(std::vector<std::string> keys, bool loses_one) {
    absl::MutexLock lock(&mutex_);
    keys_ = std::move(keys);
    loses_key_ = loses_one;
  }
  std::vector<std::string> keys() {
    absl::MutexLock lock(&mutex_);
    return keys_;
  }

  // The next calls of Status and PurgeSome are answered so, one each.
  void FailNext(std::vector<absl::Status> statuses) {
    absl::MutexLock lock(&mutex_);
    late_ = std::move(statuses);
  }
  void FailSnapshots() {
    absl::MutexLock lock(&mutex_);
    fails_snapshots_ = true;
  }
  void LoseChanges() {
    absl::MutexLock lock(&mutex_);
    loses_ = true;
  }
  void FailChanges(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    change_ = std::move(status);
  }
  std::vector<std::vector<raft::MemberChange>> changes() const {
    absl::MutexLock lock(&mutex_);
    return changes_;
  }

  void Set(absl::StatusOr<NodeStatus> status) {
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
  }
  void FailTransfers(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    transfer_ = std::move(status);
  }
  void Stay() {
    absl::MutexLock lock(&mutex_);
    stays_ = true;
  }
  std::vector<raft::NodeId> targets() const {
    absl::MutexLock lock(&mutex_);
    return targets_;
  }

 private:
  absl::Status TakeLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (late_.empty()) return absl::OkStatus();
    absl::Status first = late_.front();
    late_.erase(late_.begin());
    return first;
  }
  static void Apply(const raft::MemberChange& change, NodeStatus& status) {
    using Kind = raft::MemberChange::Kind;
    if (change.kind == Kind::kAddLearner) AddMember(status, change.node.value(), "learner").set_caught_up(true);
    for (v1::Member& member : status.members) {
      if (member.id() != change.node.value()) continue;
      if (change.kind == Kind::kPromote) member.set_role("voter");
      if (change.kind == Kind::kRemove) member.set_role("left");
      if (change.kind == Kind::kMove || change.kind == Kind::kAddLearner) member.set_address(change.address);
    }
  }

  mutable absl::Mutex mutex_;
  absl::StatusOr<NodeStatus> status_ ABSL_GUARDED_BY(mutex_) = FakeStatus();
  absl::Status transfer_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> keys_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> late_ ABSL_GUARDED_BY(mutex_);
  bool loses_key_ ABSL_GUARDED_BY(mutex_) = false;
  bool stays_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(NodeStatus&)> settings_fate_ ABSL_GUARDED_BY(mutex_);
  bool fails_snapshots_ ABSL_GUARDED_BY(mutex_) = false;
  bool loses_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status change_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<raft::MemberChange>> changes_ ABSL_GUARDED_BY(mutex_);
  std::vector<raft::NodeId> targets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hedgerow::node
