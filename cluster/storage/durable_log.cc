// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/durable_log.h"

#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "cluster/raft/check.h"
#include "cluster/raft/configuration.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/log_reader.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {
namespace {

// The highest two bits stay free for other values in its place (wire/peer.h).
uint64_t DrawCopyId() {
  std::random_device device;
  uint64_t drawn = 0;
  while (drawn == 0) drawn = (static_cast<uint64_t>(device()) << 32 | device()) >> 2;
  return drawn;
}

absl::Status NothingLeftError(const std::string& path, uint64_t batches) {
  return DamagedError(path, absl::StrCat("nothing is in it, though ", batches, " batches were durable"));
}

// How long what is written to a folder that is gone may count as durable.
constexpr std::chrono::seconds kLook(1);

absl::Status FolderGoneError(const std::string& path) {
  return absl::DataLossError(absl::StrCat(
      "the folder ", path,
      " was removed, moved or mounted over while the node ran: the next start would not find what is written. The node ends, and "
      "acknowledges nothing more. Put the folder back if it was moved, before the node starts again. If it was removed, start the node: it "
      "is LOST then, and its status says what to do"));
}

absl::Status LaterMembersError(const std::string& path, raft::LogIndex index) {
  return absl::FailedPreconditionError(
      absl::StrCat("the log in ", path, " has a change of members at entry ", index.value(),
                   " in a form that this program does not know: a later version has written it. Start that version"));
}

absl::Status MemoryLostError(const std::string& path) {
  return AsLost(absl::FailedPreconditionError(absl::StrCat(
      "the log in ", path,
      " was written in memory mode and this host has restarted since, or its boot id cannot be read: votes and "
      "entries that were "
      "acknowledged "
      "may be gone. This node must not go on under its identity. Do not empty the folder; ",
      kLetItComeBack,
      ", and once they are not, `hedgerow-node recover` makes a cluster of the member that has the most")));
}

absl::Status NoBootIdError() {
  return absl::PermissionDeniedError(
      "/proc/sys/kernel/random/boot_id cannot be read (ProcSubset=pid in the unit, a masked /proc/sys, a rule "
      "of AppArmor?). "
      "`durability: memory` needs it: without it a log that a power cut has shortened looks like one that is "
      "whole. Make the "
      "file readable for the node, or use `durability: disk` on all nodes");
}

}  // namespace

DurableLog::DurableLog(StorageOptions options, Watermark watermark, LogHeader header)
    : options_(std::move(options)), watermark_(std::move(watermark)), header_(std::move(header)) {}

absl::StatusOr<std::unique_ptr<DurableLog>> DurableLog::Open(const StorageOptions& options,
                                                             const StoredIdentity& identity) {
  if (!options.sync && options.boot_id.empty()) return NoBootIdError();
  // Before anything is made or locked: another's folder, or one of another format, is left as it is.
  absl::StatusOr<std::optional<LogHeader>> header = ReadLogHeader(options.path, identity);
  if (!header.ok()) return header.status();
  const bool exists = header->has_value();
  if (absl::Status status = MakeFolder(options.path); !status.ok()) return status;
  absl::StatusOr<Watermark> watermark = Watermark::Open(options.path, /*must_exist=*/exists);
  if (!watermark.ok()) return watermark.status();
  const Watermark::Value mark = watermark->value();
  if (!exists && mark.batch > 0) {
    return DamagedError(options.path,
                        absl::StrCat("the file `log-header` is missing, though ", mark.batch, " batches were durable"));
  }
  if (mark.unsynced && !IsSameBoot(mark.boot_id, options.boot_id)) return MemoryLostError(options.path);
  if (!exists) {
    header->emplace(LogHeader{.identity = identity,
                              .copy_id = DrawCopyId(),
                              .generation = options.generation,
                              .began_with = options.begins_with});
  }
  std::unique_ptr<DurableLog> log(new DurableLog(options, *std::move(watermark), **std::move(header)));
  if (!exists) {
    if (absl::Status status = log->Begin(); !status.ok()) return status;
  }
  if (absl::Status status = log->Restore(mark); !status.ok()) return status;
  return log;
}

DurableLog::~DurableLog() {
  if (segments_ == nullptr || !final_error_.ok()) return;
  // An error here costs the log's validity after a restart of the host in memory mode, which is not promised.
  if (!options_.sync && committed_batch_ > 0 && segments_->Sync()) {
    (void)watermark_.Write({.batch = committed_batch_, .unsynced = false, .boot_id = options_.boot_id});
  }
  (void)watermark_.Sync();
}

// The header comes last, under its name and as a whole.
absl::Status DurableLog::Begin() {
  if (absl::Status status = MakeFolder(SegmentFolderOf(options_.path)); !status.ok()) return status;
  return ReplaceSynced(LogHeaderOf(options_.path), EncodeLogHeader(header_));
}

absl::Status DurableLog::Restore(const Watermark::Value& mark) {
  absl::StatusOr<ReadLog> found = ReadSegments(options_.path, header_.copy_id, options_.progress);
  if (!found.ok()) return found.status();
  if (!found->damage.empty()) return DamagedError(options_.path, found->damage);
  if (found->state.batch == 0 && mark.batch > 0) return NothingLeftError(options_.path, mark.batch);
  if (found->state.batch < mark.batch) {
    return DamagedError(options_.path, absl::StrCat("it ends with batch ", found->state.batch, ", though batch ",
                                                    mark.batch, " was durable"));
  }
  for (const raft::Entry& entry : found->raft.entries) {
    if (entry.kind == raft::EntryKind::kConfiguration && !raft::DecodeConfiguration(entry.payload.view()).has_value())
      return LaterMembersError(options_.path, entry.index);
  }
  absl::StatusOr<std::unique_ptr<Segments>> segments = Segments::Open({.log_path = options_.path,
                                                                       .copy_id = header_.copy_id,
                                                                       .file_bytes = options_.segment_bytes,
                                                                       .sync = options_.sync,
                                                                       .progress = options_.progress},
                                                                      *found, mark.unsynced ? 0 : mark.batch + 1);
  if (!segments.ok()) return segments.status();
  segments_ = *std::move(segments);
  tail_.Restore(found->state, found->raft.entries);
  restored_ = std::move(found->raft);
  committed_batch_ = found->state.batch;
  for (const absl::Status& status : {WriteWatermark(), watermark_.Sync()}) {
    if (!status.ok()) return status;
  }
  if (committed_batch_ > 0) return absl::OkStatus();
  // A new log has a batch, so that one that has lost everything is not taken for a new one. It is synced in
  // either mode: what a power cut leaves of a log of memory mode is a log.
  absl::Status status = Commit();
  if (status.ok() && !segments_->Sync()) return FromErrno(options_.path, "sync", EIO);
  return status;
}

void DurableLog::Gather(const raft::Persist& persist) {
  HEDGEROW_CHECK(record_ == nullptr);
  tail_.Apply(persist);
}

absl::Status DurableLog::Commit(bool may_wait) {
  if (!final_error_.ok()) return final_error_;
  absl::Status status = TryCommit(may_wait);
  if (!status.ok() && !absl::IsResourceExhausted(status) && !absl::IsUnavailable(status)) final_error_ = status;
  return status;
}

absl::Status DurableLog::CheckThere(bool may_wait) {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_at_ < kLook) return absl::OkStatus();
  looked_at_ = now;
  return watermark_.IsThere(may_wait) ? absl::OkStatus() : FolderGoneError(options_.path);
}

absl::Status DurableLog::TryCommit(bool may_wait) {
  // With sync the caller waits for the disk anyway, on whichever thread.
  if (absl::Status there = CheckThere(may_wait || options_.sync); !there.ok()) return there;
  if (record_ == nullptr) record_ = &tail_.Finish();
  const StateRecord& state = tail_.state();
  if (committed_batch_ < state.batch) {
    const absl::Status written = segments_->Append(*record_, state.last_index, may_wait);
    if (!written.ok()) return written;
    committed_batch_ = state.batch;
  }
  // Full here and not there: the next try does only this.
  if (absl::Status status = WriteWatermark(); !status.ok()) return status;
  record_ = nullptr;
  return absl::OkStatus();
}

absl::Status DurableLog::WriteWatermark() {
  return watermark_.Write({.batch = committed_batch_, .unsynced = !options_.sync, .boot_id = options_.boot_id});
}

}  // namespace hedgerow::storage
