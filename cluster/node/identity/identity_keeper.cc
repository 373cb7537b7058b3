// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/identity/identity_keeper.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cluster/node/identity/host_memory.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/watermark.h"

namespace hedgerow::node {
namespace {

// Of a write in the background that failed: a disk that is full may have room by then.
constexpr absl::Duration kRetry = absl::Seconds(1);

absl::Status Lost(const std::string& folder, absl::string_view why) {
  return storage::AsLost(absl::FailedPreconditionError(absl::StrCat(
      "the log in ", folder, " is not the one that this member had: ", why,
      ", so what this node voted for and acknowledged is forgotten, and it must not go on under its id. ",
      "If the folder of before is there still, stop the node and put it back. Otherwise ", storage::kLetItComeBack)));
}

absl::Status CheckNoLog(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!storage::IsPartOfLog(name) && !name.starts_with("lost-as-")) continue;
    return absl::DataLossError(absl::StrCat(
        "the folder ", folder, " holds a log (", name, ") and no file `", storage::kIdentityFile,
        "`, which says whose it is: somebody has removed it, or an earlier version wrote the folder. Put the file "
        "back from a copy made after the node last ran. A node of an earlier version begins with a backup instead "
        "(`hedgerow-node backup` there, `hedgerow-node restore` in an empty folder). Otherwise move the folder away "
        "and let the node come back under an id that was never used (`hedgerow-node members add`)"));
  }
  if (error && error != std::errc::no_such_file_or_directory) return storage::FromErrno(folder, "read", error.value());
  return absl::OkStatus();
}

absl::StatusOr<storage::Identity> ReadOrCreate(const NodeConfig& config) {
  storage::Identity fresh{.cluster_id = config.cluster_id, .node = config.self, .configured = config.self};
  absl::StatusOr<std::optional<storage::Identity>> found = storage::ReadIdentity(config.data_dir);
  if (!found.ok()) return found.status();
  if (!found->has_value()) {
    if (absl::Status none = CheckNoLog(config.data_dir); !none.ok()) return none;
    const absl::Status created = storage::CreateIdentity(config.data_dir, fresh);
    if (created.ok()) return fresh;
    if (!absl::IsAlreadyExists(created)) return created;
    found = storage::ReadIdentity(config.data_dir);
    if (!found.ok()) return found.status();
    if (!found->has_value()) return absl::UnavailableError(absl::StrCat("two processes begin in ", config.data_dir));
  }
  return **found;
}

}  // namespace

absl::Status CheckKnown(const std::string& folder, const storage::Identity& identity) {
  if (!identity.unknown_to.has_value()) return absl::OkStatus();
  if (!identity.unknown_to->IsSet()) {
    return Lost(
        folder,
        "this host remembers a later start of the node on it. Somebody has put back an older copy of the folder "
        "(a snapshot of its volume, a backup)");
  }
  return Lost(folder, absl::StrCat("node ", identity.unknown_to->value(),
                                   " has recorded another, or a later state of it. Somebody has emptied the folder or "
                                   "put back an older copy of it (a snapshot of its volume, a backup), or it is "
                                   "another disk's"));
}

absl::StatusOr<std::unique_ptr<IdentityKeeper>> IdentityKeeper::Open(const NodeConfig& config, std::string boot_id) {
  absl::StatusOr<storage::Identity> identity = ReadOrCreate(config);
  if (!identity.ok()) return identity.status();
  if (absl::Status owner = storage::CheckOwner(config.data_dir, *identity, config.cluster_id, config.self); !owner.ok())
    return owner;
  if (absl::Status known = CheckKnown(config.data_dir, *identity); !known.ok()) return known;
  return std::unique_ptr<IdentityKeeper>(new IdentityKeeper(config.data_dir, std::move(boot_id), *std::move(identity)));
}

IdentityKeeper::IdentityKeeper(std::string folder, std::string boot_id, storage::Identity identity)
    : folder_(std::move(folder)),
      path_(absl::StrCat(folder_, "/", storage::kIdentityFile)),
      boot_id_(std::move(boot_id)),
      wanted_(std::move(identity)),
      durable_(wanted_.copies) {}

IdentityKeeper::~IdentityKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    superseded_.SignalAll();
  }
  if (writer_.joinable()) writer_.join();
}

absl::Status IdentityKeeper::CountStart(uint64_t copy_id, const std::string& admin_socket) {
  if (wanted_.copy_id != 0 && wanted_.copy_id != copy_id) {
    return Lost(folder_,
                absl::StrFormat("`%s` says that it is copy %016x, and it is copy %016x: somebody has removed it, "
                                "or put another one in its place",
                                storage::kIdentityFile, wanted_.copy_id, copy_id));
  }
  const HostMemory host(admin_socket, folder_, copy_id);
  if (wanted_.starts < host.starts()) return MarkUnknown(raft::NodeId());
  absl::Status counted = Change([copy_id](storage::Identity& identity) {
    identity.copy_id = copy_id;
    ++identity.starts;
  });
  return counted.ok() ? host.Remember(wanted_.starts) : counted;
}

absl::Status IdentityKeeper::MarkUnknown(raft::NodeId by) {
  absl::Status marked = Change([by](storage::Identity& identity) { identity.unknown_to = by; });
  return marked.ok() ? CheckKnown(folder_, wanted_) : marked;
}

uint64_t IdentityKeeper::CopyOf(raft::NodeId node) const {
  absl::MutexLock lock(&mutex_);
  const auto found = durable_.find(node);
  return found == durable_.end() ? 0 : found->second;
}

absl::Status IdentityKeeper::Record(raft::NodeId node, uint64_t copy_id) {
  const auto found = wanted_.copies.find(node);
  const bool asked = found != wanted_.copies.end() && found->second == copy_id;
  if (asked && CopyOf(node) == copy_id) return absl::OkStatus();
  absl::Status last;
  {
    absl::MutexLock lock(&mutex_);
    const bool underway = writing_ || queued_.has_value();
    if (asked && underway) return absl::UnavailableError(absl::StrCat(path_, " is being written"));
    last = written_;
  }
  // Once more, if the last time has failed.
  wanted_.copies[node] = copy_id;
  ChangeSoon();
  return last.ok() ? absl::UnavailableError(absl::StrCat(path_, " is being written")) : last;
}

void IdentityKeeper::KeepOnly(const std::vector<raft::NodeId>& members) {
  const auto is_none = [&members](const auto& copy) {
    return std::find(members.begin(), members.end(), copy.first) == members.end();
  };
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(durable_, is_none);  // it counts no more, whenever that is written
  }
  if (std::erase_if(wanted_.copies, is_none) > 0) ChangeSoon();
}

void IdentityKeeper::SetLogUuid(uint64_t log_uuid) {
  if (wanted_.log_uuid == log_uuid) return;
  wanted_.log_uuid = log_uuid;
  ChangeSoon();
}

absl::Status IdentityKeeper::Flush() {
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !writing_ && !queued_.has_value(); };
  absl::MutexLock lock(&mutex_, absl::Condition(&idle));
  return written_;
}

absl::Status IdentityKeeper::SetKernelHolds() {
  return Change([this](storage::Identity& identity) { identity.kernel_holds = boot_id_; });
}

absl::Status IdentityKeeper::SetKernelLost() {
  return Change([](storage::Identity& identity) { identity.kernel_lost = true; });
}

absl::Status IdentityKeeper::SetKernelFree() {
  return Change([](storage::Identity& identity) { identity.kernel_holds.clear(); });
}

absl::Status IdentityKeeper::SetStarted() {
  return Change([](storage::Identity& identity) { identity.phase = storage::Identity::Phase::kReady; });
}

// What is queued is in it, and is queued again if it fails: after an error wanted_ is as it was.
absl::Status IdentityKeeper::Change(absl::FunctionRef<void(storage::Identity&)> change) {
  storage::Identity changed = wanted_;
  change(changed);
  bool queued = false;
  {
    const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !writing_; };
    absl::MutexLock lock(&mutex_, absl::Condition(&idle));
    queued = queued_.has_value();
    queued_.reset();
    writing_ = true;
  }
  absl::Status status = storage::WriteIdentity(folder_, changed);
  if (status.ok()) wanted_ = changed;
  Written(changed, status);
  if (!status.ok() && queued) ChangeSoon();
  return status;
}

void IdentityKeeper::ChangeSoon() {
  if (!writer_.joinable()) writer_ = std::thread([this] { Run(); });
  absl::MutexLock lock(&mutex_);
  queued_ = wanted_;
  superseded_.SignalAll();
}

void IdentityKeeper::Run() {
  while (true) {
    storage::Identity identity;
    {
      const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return !writing_ && (stopping_ || queued_.has_value());
      };
      absl::MutexLock lock(&mutex_, absl::Condition(&ready));
      if (!queued_.has_value()) return;
      identity = *std::move(queued_);
      queued_.reset();
      writing_ = true;
    }
    const absl::Status status = storage::WriteIdentity(folder_, identity);
    Written(identity, status);
    if (!status.ok()) QueueAgain(std::move(identity));
  }
}

// After kRetry, unless something newer is queued or written by then.
void IdentityKeeper::QueueAgain(storage::Identity identity) {
  const auto superseded = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || queued_.has_value(); };
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !writing_; };
  absl::MutexLock lock(&mutex_);
  if (superseded_.Await(mutex_, kRetry, superseded)) return;
  mutex_.Await(absl::Condition(&idle));
  if (!written_.ok() && !superseded()) queued_ = std::move(identity);
}

void IdentityKeeper::Written(const storage::Identity& identity, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  written_ = status;
  if (status.ok()) durable_ = identity.copies;
}

}  // namespace hedgerow::node
