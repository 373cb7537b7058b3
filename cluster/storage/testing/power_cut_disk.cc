// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/testing/power_cut_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/raft/check.h"
#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::storage {
namespace {

namespace fs = std::filesystem;
using Kind = DiskOperation::Kind;

constexpr size_t kSector_bytes = 512;
constexpr uint64_t kWritesUntilFull = 40;  // on the average

struct Recorder {
  std::string folder{};  // empty: nothing is recorded
  Lies lies = Lies::kNone;
  bool kills = false;
  std::vector<DiskOperation> operations{};
  std::optional<std::mt19937_64> fills{};
  uint64_t full_for = 0;  // so many more writes
  uint64_t refused = 0;
};
Recorder& TheRecorder() {
  static Recorder& recorder = *new Recorder;
  return recorder;
}

// Below the folder, which is "." itself; empty: it is elsewhere, or nothing is recorded.
std::string Below(const std::string& path) {
  const std::string& folder = TheRecorder().folder;
  if (folder.empty() || !path.starts_with(folder)) return "";
  if (path.size() == folder.size()) return ".";
  return path[folder.size()] == '/' ? path.substr(folder.size() + 1) : "";
}

std::string BelowOf(int file) {
  if (TheRecorder().folder.empty()) return "";
  std::error_code error;
  return Below(fs::read_symlink(absl::StrCat("/proc/self/fd/", file), error).native());
}

// How much of the next write there is room for.
size_t Room(int file, size_t bytes) {
  Recorder& recorder = TheRecorder();
  const std::string path = BelowOf(file);
  if (!recorder.fills.has_value() || path.empty()) return bytes;
  std::mt19937_64& random = *recorder.fills;
  size_t room = 0;
  if (recorder.full_for > 0) {
    --recorder.full_for;
  } else if (random() % kWritesUntilFull == 0) {
    recorder.full_for = random() % 3;
    room = random() % bytes;
  } else {
    return bytes;
  }
  ++recorder.refused;
  return path == "watermark" ? 0 : room;  // it lies in one sector
}

void RecordWrite(int file, const void* bytes, ssize_t size, off_t place) {
  std::string path = BelowOf(file);
  if (path.empty() || size <= 0) return;
  TheRecorder().operations.push_back({.kind = Kind::kWrite,
                                      .path = std::move(path),
                                      .place = static_cast<size_t>(place),
                                      .bytes = std::string(static_cast<const char*>(bytes), size)});
}

int RecordSync(int file, long call) {
  Recorder& recorder = TheRecorder();
  std::string path = BelowOf(file);
  if (path.empty()) return static_cast<int>(syscall(call, file));
  if (std::exchange(recorder.kills, false)) throw Killed();
  const bool folder = fs::is_directory(absl::StrCat(recorder.folder, "/", path));
  if (recorder.lies != (folder ? Lies::kFolders : Lies::kFiles))
    recorder.operations.push_back({.kind = folder ? Kind::kSyncFolder : Kind::kSync, .path = std::move(path)});
  return 0;  // the file system below need not do it
}

std::string FolderOf(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

}  // namespace

void RecordDisk(const std::string& folder, Lies lies) {
  TheRecorder() = {.folder = fs::canonical(folder), .lies = lies};
}

void NoteOnDisk(uint64_t note) { TheRecorder().operations.push_back({.kind = Kind::kNote, .note = note}); }

void KillAtNextSync() { TheRecorder().kills = true; }
void KillNoMore() { TheRecorder().kills = false; }

std::vector<DiskOperation> StopRecording() {
  TheRecorder().folder.clear();
  return std::exchange(TheRecorder().operations, {});
}

void FillDisk(uint64_t seed) { TheRecorder().fills.emplace(seed); }

uint64_t FreeDisk() {
  TheRecorder().fills.reset();
  return std::exchange(TheRecorder().refused, 0);
}

RecordedDisk::RecordedDisk(const std::string& folder, const std::string& unsynced) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().native().substr(folder.size() + 1);
    if (entry.is_directory()) {
      folders_.insert(name);
      continue;
    }
    File& file = *(live_[name] = std::make_shared<File>());
    if (FolderOf(name) == unsynced) {
      file.unsynced.push_back({.place = 0, .bytes = ReadFile(entry.path())});
    } else {
      file.synced = ReadFile(entry.path());
    }
  }
  durable_ = live_;
}

void RecordedDisk::Apply(const Change& change, Names& names) {
  if (change.file == nullptr) {
    names.erase(change.name);
  } else {
    names[change.name] = change.file;
  }
}

void RecordedDisk::ChangeName(Change change) {
  Apply(change, live_);
  changes_[FolderOf(change.name)].push_back({std::move(change)});
}

void RecordedDisk::Do(const DiskOperation& operation) {
  const auto found = live_.find(operation.path);
  const std::shared_ptr<File> file = found == live_.end() ? nullptr : found->second;
  switch (operation.kind) {
    case Kind::kMake: ChangeName({.name = operation.path, .file = std::make_shared<File>()}); break;
    case Kind::kMakeFolder: folders_.insert(operation.path); break;
    case Kind::kWrite:
      HEDGEROW_CHECK(file != nullptr);
      file->unsynced.push_back({.place = operation.place, .bytes = operation.bytes});
      break;
    case Kind::kRename: {
      HEDGEROW_CHECK(file != nullptr);
      const Change gone = {.name = operation.path, .file = nullptr};
      const Change there = {.name = operation.to, .file = file};
      Apply(gone, live_);
      Apply(there, live_);
      changes_[FolderOf(operation.path)].push_back({gone, there});
      break;
    }
    case Kind::kRemove: ChangeName({.name = operation.path, .file = nullptr}); break;
    case Kind::kSync:
      if (file == nullptr) break;
      for (const Write& write : std::exchange(file->unsynced, {})) {
        file->synced.resize(std::max(file->synced.size(), write.place + write.bytes.size()));
        file->synced.replace(write.place, write.bytes.size(), write.bytes);
      }
      break;
    case Kind::kSyncFolder:
      for (const std::vector<Change>& changes : std::exchange(changes_[operation.path], {})) {
        for (const Change& change : changes) Apply(change, durable_);
      }
      break;
    case Kind::kNote: break;
  }
}

// Of each sector any of its contents since the last sync, or one of them torn; all or nothing now and then.
std::string RecordedDisk::ContentsAfterCut(const File& file, std::mt19937_64& random) {
  std::map<size_t, std::vector<const Write*>> sectors;
  for (const Write& write : file.unsynced) {
    for (size_t sector = write.place / kSector_bytes; sector <= (write.place + write.bytes.size() - 1) / kSector_bytes;
         ++sector) {
      sectors[sector].push_back(&write);
    }
  }
  std::string bytes = file.synced;
  const bool larger = bytes.size() > kSector_bytes;  // the watermark counts on its sector
  const uint64_t way = random() % 4;                 // 0: nothing, 1: all, else each by itself
  for (const auto& [sector, writes] : sectors) {
    const size_t kept = way == 0 ? 0 : way == 1 ? writes.size() : random() % (writes.size() + 1);
    const bool torn = way > 1 && larger && kept < writes.size() && random() % 4 == 0;
    for (size_t i = 0; i < kept + torn; ++i) {
      const Write& write = *writes[i];
      const size_t begin = std::max(write.place, sector * kSector_bytes);
      size_t end = std::min(write.place + write.bytes.size(), (sector + 1) * kSector_bytes);
      if (i == kept) end = begin + random() % (end - begin);
      if (end == begin) continue;
      bytes.resize(std::max(bytes.size(), end));
      bytes.replace(begin, end - begin, write.bytes, begin - write.place, end - begin);
    }
  }
  return bytes;
}

void RecordedDisk::Leave(const std::string& folder, std::mt19937_64& random) const {
  Names names = durable_;
  for (const auto& [in, changes] : changes_) {
    const uint64_t way = random() % 3;
    const size_t kept = way == 0 ? 0 : way == 1 ? changes.size() : random() % (changes.size() + 1);
    for (size_t i = 0; i < kept; ++i) {
      for (const Change& change : changes[i]) Apply(change, names);
    }
  }
  for (const std::string& made : folders_) fs::create_directories(absl::StrCat(folder, "/", made));
  for (const auto& [name, file] : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    WriteFile(path, ContentsAfterCut(*file, random));
  }
}

}  // namespace hedgerow::storage

// In the C library's place, for this program.
extern "C" {

int open(const char* path, int flags, ...) {
  using hedgerow::storage::Below;
  using hedgerow::storage::TheRecorder;
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  std::string name = Below(path);
  const bool makes = !name.empty() && (flags & O_CREAT) != 0 &&
                     ((flags & O_TRUNC) != 0 || syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0);
  const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  if (file >= 0 && makes) {
    TheRecorder().operations.push_back(
        {.kind = hedgerow::storage::DiskOperation::Kind::kMake, .path = std::move(name)});
  }
  return file;
}

int mkdir(const char* path, mode_t mode) noexcept {
  std::string name = hedgerow::storage::Below(path);
  const int result = static_cast<int>(syscall(SYS_mkdir, path, mode));
  if (result == 0 && !name.empty()) {
    hedgerow::storage::TheRecorder().operations.push_back(
        {.kind = hedgerow::storage::DiskOperation::Kind::kMakeFolder, .path = std::move(name)});
  }
  return result;
}

int fsync(int file) { return hedgerow::storage::RecordSync(file, SYS_fsync); }

int fdatasync(int file) { return hedgerow::storage::RecordSync(file, SYS_fdatasync); }

int fallocate(int file, int mode, off_t place, off_t size) {
  const int result = static_cast<int>(syscall(SYS_fallocate, file, mode, place, size));
  if (result == 0) {
    const std::string zeros(static_cast<size_t>(size), '\0');
    hedgerow::storage::RecordWrite(file, zeros.data(), static_cast<ssize_t>(zeros.size()), place);
  }
  return result;
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t place) {
  const size_t room = hedgerow::storage::Room(file, size);
  if (room == 0 && size != 0) {
    errno = ENOSPC;
    return -1;
  }
  const ssize_t written = syscall(SYS_pwrite64, file, bytes, room, place);
  hedgerow::storage::RecordWrite(file, bytes, written, place);
  return written;
}

ssize_t write(int file, const void* bytes, size_t size) {
  const off_t place = lseek(file, 0, SEEK_CUR);
  const ssize_t written = syscall(SYS_write, file, bytes, size);
  hedgerow::storage::RecordWrite(file, bytes, written, place);
  return written;
}

int unlink(const char* path) noexcept {
  std::string name = hedgerow::storage::Below(path);
  const int result = static_cast<int>(syscall(SYS_unlink, path));
  if (result == 0 && !name.empty()) {
    hedgerow::storage::TheRecorder().operations.push_back(
        {.kind = hedgerow::storage::DiskOperation::Kind::kRemove, .path = std::move(name)});
  }
  return result;
}

int rename(const char* from, const char* to) noexcept {
  std::string name = hedgerow::storage::Below(from);
  const int result = static_cast<int>(syscall(SYS_rename, from, to));
  if (result == 0 && !name.empty()) {
    hedgerow::storage::TheRecorder().operations.push_back({.kind = hedgerow::storage::DiskOperation::Kind::kRename,
                                                           .path = std::move(name),
                                                           .to = hedgerow::storage::Below(to)});
  }
  return result;
}

}  // extern "C"
