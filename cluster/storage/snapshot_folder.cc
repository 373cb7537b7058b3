// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/snapshot_folder.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"

namespace hedgerow::storage {
namespace {

constexpr absl::string_view kEnding = ".snapshot";

std::string NameOf(const raft::EntryId& last) {
  return absl::StrFormat("%016x-%016x", last.index.value(), last.term.value());
}

std::optional<raft::EntryId> ParseName(const std::string& name) {
  unsigned long long index = 0;
  unsigned long long term = 0;
  int end = 0;
  if (!absl::EndsWith(name, kEnding)) return std::nullopt;
  if (sscanf(name.c_str(), "%16llx-%16llx%n", &index, &term, &end) != 2) return std::nullopt;
  const raft::EntryId last{.index = raft::LogIndex(index), .term = raft::Term(term)};
  if (name != absl::StrCat(NameOf(last), kEnding)) return std::nullopt;
  return last;
}

}  // namespace

absl::StatusOr<SnapshotFolder> SnapshotFolder::Open(const std::string& log_path) {
  const SnapshotFolder folder(log_path + "/snapshots");
  if (absl::Status status = MakeFolder(folder.path_); !status.ok()) return status;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(folder.path_, error)) {
    if (!ParseName(file.path().filename().native()).has_value()) (void)unlink(file.path().c_str());
  }
  if (error) return FromErrno(folder.path_, "read", error.value());
  // An earlier life may have given a snapshot its name and been killed before it could sync that. From here on
  // it may be built upon.
  if (absl::Status status = SyncFolder(folder.path_); !status.ok()) return status;
  return folder;
}

std::vector<raft::EntryId> SnapshotFolder::List() const {
  std::vector<raft::EntryId> snapshots;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(path_, error)) {
    const auto last = ParseName(file.path().filename().native());
    if (last.has_value()) snapshots.push_back(*last);
  }
  std::sort(snapshots.begin(), snapshots.end(), [](const raft::EntryId& a, const raft::EntryId& b) {
    return std::pair(a.index, a.term) > std::pair(b.index, b.term);
  });
  return snapshots;
}

std::string SnapshotFolder::PathOf(const raft::EntryId& last) const {
  return absl::StrCat(path_, "/", NameOf(last), kEnding);
}

absl::StatusOr<SnapshotFileWriter> SnapshotFolder::Begin(const SnapshotHeader& header, std::string_view what) const {
  return SnapshotFileWriter::Create(UnfinishedPathOf(header.snapshot.last, what), header);
}

std::string SnapshotFolder::UnfinishedPathOf(const raft::EntryId& last, std::string_view what) const {
  return absl::StrCat(path_, "/", NameOf(last), ".", std::string(what));
}

absl::Status SnapshotFolder::Publish(const std::string& unfinished_path, const raft::EntryId& last) const {
  const std::string path = PathOf(last);
  if (rename(unfinished_path.c_str(), path.c_str()) != 0) return FromErrno(path, "make", errno);
  return SyncFolder(path_);
}

void SnapshotFolder::Discard(const SnapshotFileWriter& writer) const { (void)unlink(writer.path().c_str()); }

void SnapshotFolder::Remove(const raft::EntryId& last) const { (void)unlink(PathOf(last).c_str()); }

void SnapshotFolder::RemoveBefore(raft::LogIndex index) const {
  for (const raft::EntryId& last : List()) {
    if (last.index < index) (void)unlink(PathOf(last).c_str());
  }
}

void SnapshotFolder::RemoveAllBut(const raft::EntryId& kept) const {
  for (const raft::EntryId& last : List()) {
    if (last != kept) (void)unlink(PathOf(last).c_str());
  }
}

uint64_t SnapshotFolder::size_bytes() const {
  uint64_t size = 0;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(path_, error)) {
    std::error_code gone;  // meanwhile
    const uintmax_t file_bytes = file.file_size(gone);
    if (!gone) size += file_bytes;
  }
  return size;
}

}  // namespace hedgerow::storage
