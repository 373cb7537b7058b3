// SPDX-License-Identifier: Apache-2.0
//
// A disk that can lose power: names and files as programs see them, and beside them what would be left if the
// power failed now. The latter is the backing folder: `tree` is at any instant what a power cut leaves, and
// `objects` keeps the synced bytes of what has no synced name. README.md says what a sync covers. The calls are
// those that FUSE wants, thread-safe, and return -errno; fuse_operations hands them through.

#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chaos/unsynced/node.h"

namespace hedgerow::unsynced {

// Whose names a sync covers.
enum class Names {
  kStrict,   // a folder's sync covers the folder's own; a file's sync covers none: what POSIX promises
  kJournal,  // every sync covers every name so far: what ext4, with its one journal, does
};

struct DiskOptions {
  std::string backing;  // a folder, made if need be; what is in its `tree` is there, synced, at the start
  Names names = Names::kStrict;
  // A planted fault: syncs of files and folders whose name matches this (fnmatch) succeed and cover nothing.
  std::optional<std::string> ignore_sync;
};

// What is wrong with the disk besides what a power cut takes.
struct Ailments {
  uint64_t sync_delay_ms = 0;  // that each sync takes longer
  bool full = false;           // nothing can be written or made, for want of space
  bool hangs = false;  // what changes anything, and each sync, waits until it is well; what is there can be read
};

// What came of them so far.
struct Suffered {
  uint64_t slowed = 0;   // syncs
  uint64_t refused = 0;  // calls
  uint64_t hung = 0;     // calls
};

// What a power cut took.
struct Loss {
  std::map<std::string, uint64_t> bytes;  // by path, of files that had any
  uint64_t names = 0;                     // made, removed or given to another file
};

class Disk {
 public:
  explicit Disk(DiskOptions options);
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // Names. Paths begin with a slash.
  int Find(std::string_view path, NodePtr& found);
  int MakeFile(std::string_view path, mode_t mode, NodePtr& made);
  int MakeFolder(std::string_view path, mode_t mode);
  int Link(std::string_view from, std::string_view to);
  int Rename(std::string_view from, std::string_view to);
  int Remove(std::string_view path);
  int RemoveFolder(std::string_view path);

  // Files and folders. A program that holds one over a power cut gets EIO.
  int Stat(const NodePtr& node, struct stat& status);
  int List(const NodePtr& node, const std::function<void(const std::string&, const struct stat&)>& each);
  int SetMode(const NodePtr& node, mode_t mode);
  int SetOwner(const NodePtr& node, uid_t user, gid_t group);
  int SetTimes(const NodePtr& node, const timespec times[2]);
  ssize_t Read(const NodePtr& node, char* to, size_t count, uint64_t offset);
  ssize_t Write(const NodePtr& node, const char* from, size_t count, uint64_t offset);
  int Truncate(const NodePtr& node, uint64_t size);
  int Allocate(const NodePtr& node, int mode, uint64_t offset, uint64_t count);

  int Space(struct statvfs& space) const;

  // fsync and fdatasync: what they cover survives. They take as long as the backing folder's disk does.
  int Sync(const NodePtr& node);

  // From now on. Syncs that have begun take as long as they would have.
  void Ail(Ailments ailments);
  Suffered suffered() const;

  // The power fails and comes back. With a seed, some of what was not synced has reached the disk nevertheless.
  Loss Cut(std::optional<uint64_t> seed);

 private:
  struct Place {
    NodePtr folder;
    std::string name;
  };
  int FindLocked(std::string_view path, NodePtr& found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int FindPlace(std::string_view path, Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Usable(const NodePtr& node) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool SyncIsIgnored(const Node& node) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int MakeAny(std::string_view path, bool folder, mode_t mode, NodePtr& made);
  int RemoveAny(std::string_view path, bool folder) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Refuses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitWhileItHangs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Make(bool folder, mode_t mode, NodePtr& made) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The tree as the backing folder has it.
  void Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoadFolder(Node& folder, std::map<ino_t, NodePtr>& files) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLoss(const Node& folder, const std::string& path, Loss& loss) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SyncSome(Node& folder, std::mt19937_64& random) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DiskOptions options_;
  const std::shared_ptr<const Objects> objects_;
  mutable absl::Mutex mutex_;
  Ailments ailments_ ABSL_GUARDED_BY(mutex_);
  Suffered suffered_ ABSL_GUARDED_BY(mutex_);
  NodePtr root_ ABSL_GUARDED_BY(mutex_);
  uint64_t life_ ABSL_GUARDED_BY(mutex_) = 0;  // how often the power has come back
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace hedgerow::unsynced
