// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/testing/log_runs_disk.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cluster/storage/segment_file.h"
#include "cluster/storage/testing/log_runs_cut.h"

namespace hedgerow::storage {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kWritesUntilFull = 40;  // on the average

struct Disk {
  std::string folder;
  std::string segments;
  std::string watermark;
  // Of the log's folder. A file's bytes may be on the disk and its name not, and the other way round.
  std::map<std::string, std::string> synced_bytes;
  std::set<std::string> synced_names;

  std::optional<std::mt19937_64> fills;
  uint64_t full_for = 0;  // so many more writes
  uint64_t refused = 0;   // writes, or parts of them
};

// Never destroyed: streams are flushed after main has returned.
Disk& TheDisk() {
  static Disk& disk = *new Disk;
  return disk;
}

std::string PathOf(int file) {
  std::error_code error;
  return fs::read_symlink(absl::StrCat("/proc/self/fd/", file), error);
}

bool IsOfLog(const fs::path& path) {
  const std::string& segments = TheDisk().segments;
  return !segments.empty() && path.parent_path() == segments;
}

int Sync(int file) {
  Disk& disk = TheDisk();
  const fs::path path = PathOf(file);
  if (IsOfLog(path)) {
    disk.synced_bytes[path.filename()] = ReadFile(path);
  } else if (!path.empty() && path == disk.segments) {
    disk.synced_names.clear();
    for (const fs::directory_entry& entry : fs::directory_iterator(path))
      disk.synced_names.insert(entry.path().filename());
  }
  return 0;
}

// How much of the next write there is room for.
size_t Room(size_t bytes) {
  Disk& disk = TheDisk();
  if (!disk.fills.has_value()) return bytes;
  std::mt19937_64& random = *disk.fills;
  size_t room = 0;
  if (disk.full_for > 0) {
    --disk.full_for;
  } else if (random() % kWritesUntilFull == 0) {
    disk.full_for = random() % 3;
    room = random() % bytes;
  } else {
    return bytes;
  }
  ++disk.refused;
  return room;
}

// Until the folder is synced again a power cut undoes the removal.
int RemoveFromLog(const fs::path& path) {
  const Disk& disk = TheDisk();
  if (!disk.synced_names.contains(path.filename())) return static_cast<int>(syscall(SYS_unlink, path.c_str()));
  const fs::path kept = fs::path(RemovedFolderOf(TestFolder(disk.folder))) / path.filename();
  return rename(path.c_str(), kept.c_str());
}

}  // namespace

void UsePretendedDisk(const TestFolder& folder) {
  Disk& disk = TheDisk();
  disk.folder = folder.path();
  disk.segments = SegmentFolderOf(disk.folder + "/log");
  disk.watermark = disk.folder + "/log/watermark";
  for (const std::string& left : {SyncedFolderOf(folder), RemovedFolderOf(folder)}) {
    fs::remove_all(left);
    fs::create_directory(left);
  }
}

void FillDisk(uint64_t seed) { TheDisk().fills.emplace(seed); }

void FreeDisk() { TheDisk().fills.reset(); }

void LeaveDiskForCut() {
  Disk& disk = TheDisk();
  const TestFolder folder(disk.folder);
  for (const std::string& name : disk.synced_names)
    WriteFile(absl::StrCat(SyncedFolderOf(folder), "/", name), disk.synced_bytes[name]);
  WriteFile(RefusedWritesOf(folder), absl::StrCat(disk.refused));
}

}  // namespace hedgerow::storage

// In the C library's place, for this program.
extern "C" {

int fsync(int file) { return hedgerow::storage::Sync(file); }

int fdatasync(int file) { return hedgerow::storage::Sync(file); }

ssize_t pwrite(int file, const void* bytes, size_t size, off_t place) {
  const std::string path = hedgerow::storage::PathOf(file);
  const bool is_watermark = path == hedgerow::storage::TheDisk().watermark;
  size_t room = size;
  if (is_watermark || hedgerow::storage::IsOfLog(path)) room = hedgerow::storage::Room(size);
  if (is_watermark && room < size) room = 0;  // it lies in one sector
  if (room > 0) return syscall(SYS_pwrite64, file, bytes, room, place);
  errno = ENOSPC;
  return -1;
}

int unlink(const char* path) noexcept {
  if (hedgerow::storage::IsOfLog(path)) return hedgerow::storage::RemoveFromLog(path);
  return static_cast<int>(syscall(SYS_unlink, path));
}

}  // extern "C"
