// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/segments.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {
namespace {

size_t WholePages(size_t bytes) { return (bytes + kPage_bytes - 1) / kPage_bytes * kPage_bytes; }

std::shared_ptr<const net::UniqueFd> OpenFile(const std::string& path) {
  return std::make_shared<const net::UniqueFd>(open(path.c_str(), O_RDWR | O_CLOEXEC));
}

// A name is a number that no file in the folder had before it.
uint64_t NumberOf(const std::string& path) {
  return std::strtoull(std::filesystem::path(path).filename().c_str(), nullptr, 16);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Segments>> Segments::Open(Options options, const ReadLog& found,
                                                         uint64_t unsynced_from) {
  options.file_bytes = std::max(WholePages(options.file_bytes), 2 * kPage_bytes);
  std::unique_ptr<Segments> segments(new Segments(std::move(options)));
  const std::string folder = SegmentFolderOf(segments->options_.log_path);
  uint64_t last_name = 0;
  LoadProgress* const progress = segments->options_.progress;
  uint64_t total_bytes = 0;
  for (const FoundSegment& file : found.files) total_bytes += file.bytes;
  if (progress != nullptr) progress->Begin(LoadProgress::Stage::kSyncing, total_bytes);
  for (const FoundSegment& file : found.files) {
    if (absl::Status status = segments->TakeOver(file, unsynced_from); !status.ok()) return status;
    if (progress != nullptr) progress->Add(file.bytes);
    last_name = std::max(last_name, NumberOf(file.path));
  }
  if (absl::Status status = SyncFolder(folder); !status.ok()) return status;
  {
    const absl::MutexLock lock(&segments->mutex_);
    for (const std::string& path : found.others) {
      last_name = std::max(last_name, NumberOf(path));
      std::error_code error;
      const bool fits = std::filesystem::file_size(path, error) == segments->options_.file_bytes && !error;
      if (fits && segments->pool_.size() < kPoolMax_files) {
        segments->pool_.push_back(path);
      } else {
        (void)unlink(path.c_str());
      }
    }
    for (const std::shared_ptr<File>& file : segments->files_) {
      if (file != segments->files_.back()) file->open = nullptr;
    }
    if (!segments->files_.empty()) segments->synced_ = segments->files_.back();
  }
  const absl::MutexLock lock(&segments->preparing_);
  segments->next_name_ = last_name + 1;
  return segments;
}

absl::Status Segments::TakeOver(const FoundSegment& found, uint64_t unsynced_from) {
  auto file = std::make_shared<File>();
  file->path = found.path;
  file->open = OpenFile(found.path);
  if (!file->open->valid()) return FromErrno(found.path, "open", errno);
  file->salt = found.salt;
  file->bytes = found.bytes;
  file->end = file->synced_end = found.records.end;
  file->padded_end = WholePages(file->end);
  if (found.records.last_batch >= unsynced_from) {
    const absl::StatusOr<std::string> bytes = ReadSegment(found.path);
    if (!bytes.ok()) return bytes.status();
    absl::Status status = WriteAt(*file->open, found.path, std::string_view(*bytes).substr(0, file->end), 0);
    if (!status.ok()) return status;
  }
  if (fdatasync(file->open->get()) != 0) return FromErrno(found.path, "sync", errno);
  const absl::MutexLock lock(&mutex_);
  reached_ = std::max(reached_, found.records.reached);
  file->reached = reached_;
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status Segments::PrepareSpare() {
  const absl::MutexLock preparing(&preparing_);
  auto file = std::make_shared<File>();
  bool recycled = false;
  {
    const absl::MutexLock lock(&mutex_);
    if (spare_ != nullptr) return absl::OkStatus();
    recycled = !pool_.empty();
    if (recycled) {
      file->path = std::move(pool_.back());
      pool_.pop_back();
    }
  }
  if (!recycled) {
    file->path = absl::StrFormat("%s/%016x", SegmentFolderOf(options_.log_path), next_name_);
    ++next_name_;
  }
  absl::StatusOr<OpenSegment> made =
      recycled ? RecycleSegment(file->path, options_.copy_id)
               : MakeSegment(file->path, options_.copy_id, options_.file_bytes, options_.sync);
  if (!made.ok()) {
    if (recycled) (void)unlink(file->path.c_str());
    return made.status();
  }
  file->open = std::make_shared<const net::UniqueFd>(std::move(made->file));
  file->salt = made->salt;
  file->bytes = options_.file_bytes;
  const absl::MutexLock lock(&mutex_);
  spare_ = std::move(file);
  wants_spare_ = false;
  return absl::OkStatus();
}

size_t Segments::files() const {
  const absl::MutexLock lock(&mutex_);
  return files_.size();
}

bool Segments::HasRoom(size_t bytes) const {
  if (files_.empty()) return false;
  const File& file = *files_.back();
  return file.end == kPage_bytes || file.end + bytes <= options_.file_bytes;
}

void Segments::BeginFile() {
  if (!files_.empty()) files_.back()->open = nullptr;  // a long log has more files than a process has descriptors
  files_.push_back(std::move(spare_));
  wants_spare_ = true;
}

absl::Status Segments::Append(std::string& record, raft::LogIndex last, bool may_wait) {
  while (true) {
    {
      const absl::MutexLock lock(&mutex_);
      if (!sync_error_.ok()) return sync_error_;
      if (!HasRoom(record.size()) && spare_ != nullptr) BeginFile();
      if (HasRoom(record.size())) return WriteRecord(files_.back(), record, last);
    }
    if (!may_wait) return absl::UnavailableError("the log's next file is not there yet");
    if (absl::Status status = PrepareSpare(); !status.ok()) return status;
  }
}

// What a write that failed has left is behind the file's end as it is known here: the next one goes over it,
// and a reader takes it for a torn end. A page that is touched for the first time is written whole: else Linux
// would have to read it first.
absl::Status Segments::WriteRecord(const std::shared_ptr<File>& file, std::string& record, raft::LogIndex last) {
  const size_t size = record.size();
  const size_t end = file->end + size;
  SealRecord(record, file->salt);
  if (end > file->padded_end) record.resize(WholePages(end) - file->end);
  absl::Status status = WriteAt(*file->open, file->path, record, file->end);
  record.resize(size);
  if (status.ok() && options_.sync && fdatasync(file->open->get()) != 0) status = FromErrno(file->path, "sync", errno);
  if (!status.ok()) return status;
  file->padded_end = std::max(file->padded_end, WholePages(end));
  file->end = end;
  file->reached = reached_ = std::max(reached_, last);
  if (options_.sync) {
    file->synced_end = end;
    synced_ = file;
  }
  return absl::OkStatus();
}

// Without the lock where it takes long: the loop appends meanwhile.
bool Segments::Sync(raft::LogIndex start) {
  struct Due {
    std::shared_ptr<File> file;
    std::shared_ptr<const net::UniqueFd> open;
    size_t end;
  };
  std::vector<Due> due;
  {
    const absl::MutexLock lock(&mutex_);
    if (!sync_error_.ok()) return false;
    for (const std::shared_ptr<File>& file : files_) {
      const bool goes = file->reached <= start && file != files_.back();
      if (!goes && file->synced_end < file->end) due.push_back({.file = file, .open = file->open, .end = file->end});
    }
  }
  absl::Status status;
  for (Due& each : due) {
    if (each.open == nullptr) each.open = OpenFile(each.file->path);
    if (!each.open->valid()) return false;  // no descriptor is left: nothing is lost, and a later try may have one
    // Final also where the disk is full, which is otherwise waited for: what was written is not written once more.
    if (fdatasync(each.open->get()) != 0)
      status.Update(absl::InternalError(absl::StrCat("cannot sync ", each.file->path, ": ", std::strerror(errno))));
  }
  const absl::MutexLock lock(&mutex_);
  if (!status.ok()) {
    sync_error_ = status;
    return false;
  }
  for (const Due& each : due) {
    each.file->synced_end = each.end;
    synced_ = each.file;
  }
  return true;
}

// Without the lock where it takes long: freeing the blocks of a few files takes tens of milliseconds. If one
// stays, or comes back by a power cut, readers pass it over.
void Segments::DropUpTo(raft::LogIndex start) {
  std::vector<std::string> gone;
  {
    const absl::MutexLock lock(&mutex_);
    while (!files_.empty() && synced_ != nullptr && files_.front() != synced_ && files_.front()->reached <= start) {
      const std::shared_ptr<File> file = std::move(files_.front());
      files_.pop_front();
      if (file->bytes == options_.file_bytes && file->end <= file->bytes && pool_.size() < kPoolMax_files) {
        pool_.push_back(file->path);
      } else {
        gone.push_back(file->path);
      }
    }
  }
  for (const std::string& path : gone) (void)unlink(path.c_str());
}

}  // namespace hedgerow::storage
