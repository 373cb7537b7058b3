// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/journal.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/raft/check.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/record_bytes.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {
namespace {

// All of `head`, then all of `body`, from `place` on.
absl::Status WriteAt(int file, const std::string& path, std::string_view head, std::string_view body,
                     size_t place) {
  size_t done = 0;
  while (done < head.size() + body.size()) {
    const std::string_view rest = done < head.size() ? head.substr(done) : std::string_view();
    const std::string_view more = body.substr(done - std::min(done, head.size()));
    std::array<iovec, 2> parts = {iovec{.iov_base = const_cast<char*>(rest.data()), .iov_len = rest.size()},
                                  iovec{.iov_base = const_cast<char*>(more.data()), .iov_len = more.size()}};
    const ssize_t written = pwritev(file, parts.data(), parts.size(), static_cast<off_t>(place + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FromErrno(path, "write", written < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

std::shared_ptr<const Descriptor> Open(const std::string& path, int flags) {
  return std::make_shared<const Descriptor>(open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
}

}  // namespace

std::string JournalFolderOf(const std::string& log_path) { return log_path + "/journal"; }

uint32_t JournalChecksum(uint64_t log_id, uint64_t number, std::string_view bytes) {
  std::string key;
  AppendNumber(key, log_id, 8);
  AppendNumber(key, number, 8);
  return Checksum(key, bytes);
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Create(const std::string& log_path, uint64_t log_id,
                                                         raft::LogIndex reached, size_t file_bytes) {
  const std::string folder = JournalFolderOf(log_path);
  for (const absl::Status& status : {Remove(log_path), MakeFolder(folder)}) {
    if (!status.ok()) return status;
  }
  return std::unique_ptr<Journal>(new Journal(folder, log_id, reached, file_bytes));
}

absl::Status Journal::Remove(const std::string& log_path) {
  const std::string folder = JournalFolderOf(log_path);
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  return error ? FromErrno(folder, "remove", error.value()) : absl::OkStatus();
}

absl::Status Journal::Begin(uint64_t batch) {
  auto file = std::make_shared<File>();
  file->path = absl::StrFormat("%s/%016x", folder_, batch);
  file->open = Open(file->path, O_CREAT | O_TRUNC);
  if (!file->open->ok()) return FromErrno(file->path, "make", errno);
  std::string header(kJournalMagic);
  AppendNumber(header, log_id_, 8);
  AppendNumber(header, batch, 8);
  AppendNumber(header, reached_.value(), 8);
  AppendNumber(header, JournalChecksum(log_id_, batch, header), 4);
  HEDGEROW_CHECK(header.size() == kJournalHeader_bytes);
  if (absl::Status status = WriteAt(file->open->get(), file->path, header, "", 0); !status.ok()) {
    (void)unlink(file->path.c_str());  // or the next try does it
    return status;
  }
  file->first_batch = batch;
  file->bytes = header.size();
  file->reached = reached_;
  if (!files_.empty())
    files_.back()->open = nullptr;  // a long log has more files than a process has descriptors
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

// The bytes of a write that failed are behind the file's end as it is known here: the next one goes over them,
// and a reader takes them for a torn end.
absl::Status Journal::Append(uint64_t batch, raft::LogIndex last, std::string_view bytes) {
  HEDGEROW_CHECK(bytes.size() <= std::numeric_limits<uint32_t>::max());
  HEDGEROW_CHECK(last_batch_ == 0 || batch == last_batch_ + 1);  // else readers would stop before it
  const absl::MutexLock lock(&mutex_);
  if (!sync_error_.ok()) return sync_error_;
  if (files_.empty() || files_.back()->bytes >= file_bytes_) {
    if (absl::Status status = Begin(batch); !status.ok()) return status;
  }
  reached_ = std::max(reached_, last);  // not before: a file says what was reached before it
  File& file = *files_.back();
  std::string head;
  AppendNumber(head, bytes.size(), 4);
  AppendNumber(head, JournalChecksum(log_id_, batch, bytes), 4);
  AppendNumber(head, batch, 8);
  if (absl::Status status = WriteAt(file.open->get(), file.path, head, bytes, file.bytes); !status.ok())
    return status;
  file.bytes += head.size() + bytes.size();
  file.reached = reached_;
  last_batch_ = batch;
  return absl::OkStatus();
}

// Without the lock where it takes long: the loop appends meanwhile.
bool Journal::Sync(raft::LogIndex start) {
  struct Due {
    std::shared_ptr<File> file;
    std::shared_ptr<const Descriptor> open;
    size_t bytes;
  };
  std::vector<Due> due;
  bool names = false;
  {
    const absl::MutexLock lock(&mutex_);
    if (!sync_error_.ok()) return false;
    for (const std::shared_ptr<File>& file : files_) {
      const bool goes = file->reached <= start && file != files_.back();
      if (goes || file->synced_bytes == file->bytes) continue;
      due.push_back({.file = file, .open = file->open, .bytes = file->bytes});
      names = names || file->synced_bytes == 0;
    }
  }
  absl::Status status;
  for (Due& each : due) {
    if (each.open == nullptr) each.open = Open(each.file->path, 0);
    if (!each.open->ok()) return false;  // no descriptor is left: nothing is lost, and a later try may have one
    if (fdatasync(each.open->get()) != 0) status.Update(FromErrno(each.file->path, "sync", errno));
  }
  if (names) status.Update(SyncFolder(folder_));
  const absl::MutexLock lock(&mutex_);
  if (!status.ok()) {
    sync_error_ = status;
    return false;
  }
  for (const Due& each : due) {
    each.file->synced_bytes = each.bytes;
    if (each.bytes > kJournalHeader_bytes) synced_file_ = std::max(synced_file_, each.file->first_batch);
  }
  return true;
}

// Without the lock where it takes long: freeing the blocks of a few files takes tens of milliseconds. If one
// stays, or comes back by a power cut, readers pass it over.
void Journal::DropUpTo(raft::LogIndex start) {
  std::vector<std::shared_ptr<File>> gone;
  {
    const absl::MutexLock lock(&mutex_);
    while (!files_.empty() && files_.front()->first_batch < synced_file_ && files_.front()->reached <= start) {
      gone.push_back(std::move(files_.front()));
      files_.pop_front();
    }
  }
  for (const std::shared_ptr<File>& file : gone) (void)unlink(file->path.c_str());
}

}  // namespace hedgerow::storage
