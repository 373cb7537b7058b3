// SPDX-License-Identifier: Apache-2.0
#include "chaos/unsynced/disk.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hedgerow::unsynced {
namespace {

bool Permissions(mode_t mode, mode_t& wanted) {
  wanted = mode & 07777;
  return (mode & S_IFMT) == 0 || S_ISREG(mode) || S_ISDIR(mode);
}

// Times, owner and mode are the durable object's: a power cut does not change them here.
int StatOf(const Node& node, struct stat& status) {
  if (fstat(node.descriptor(), &status) != 0) return -errno;
  status.st_ino = node.id;
  status.st_nlink = node.is_folder() ? 2 : static_cast<nlink_t>(node.live_names.size());
  if (node.is_folder()) return 0;
  status.st_size = static_cast<off_t>(node.file->size());
  status.st_blocks = static_cast<blkcnt_t>((node.file->size() + 511) / 512);
  return 0;
}

bool Contains(const Node& folder, const Node* other) {
  for (; other != nullptr; other = other->live_names.empty() ? nullptr : other->live_names.begin()->first) {
    if (other == &folder) return true;
  }
  return false;
}

}  // namespace

int Disk::FindLocked(std::string_view path, NodePtr& found) {
  found = root_;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    if (end > 0) {
      if (!found->is_folder()) return -ENOTDIR;
      found = FindIn(found->live, std::string(path.substr(0, end)));
      if (found == nullptr) return -ENOENT;
    }
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return 0;
}

int Disk::FindPlace(std::string_view path, Place& place) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash + 1 == path.size()) return -EINVAL;
  place.name = std::string(path.substr(slash + 1));
  if (place.name.size() > NAME_MAX) return -ENAMETOOLONG;
  if (const int error = FindLocked(path.substr(0, slash), place.folder); error != 0) return error;
  return place.folder->is_folder() ? 0 : -ENOTDIR;
}

int Disk::Find(std::string_view path, NodePtr& found) {
  absl::MutexLock lock(&mutex_);
  return FindLocked(path, found);
}

int Disk::Make(bool folder, mode_t mode, NodePtr& made) {
  mode_t wanted = 0;
  if (!Permissions(mode, wanted)) return -EPERM;  // no devices, pipes or sockets
  const uint64_t id = next_id_++;
  const std::string name = std::to_string(id);
  const int at = objects_->folder.get();
  if (folder && mkdirat(at, name.c_str(), 0700) != 0) return -errno;
  const int flags = folder ? O_RDONLY | O_DIRECTORY : O_RDWR | O_CREAT | O_EXCL;
  net::UniqueFd opened(openat(at, name.c_str(), flags | O_CLOEXEC, 0600));
  if (!opened.valid()) return -errno;
  if (fchmod(opened.get(), wanted) != 0) return -errno;
  made = std::make_shared<Node>(objects_, id, life_, folder, std::move(opened));
  return 0;
}

int Disk::MakeAny(std::string_view path, bool folder, mode_t mode, NodePtr& made) {
  absl::MutexLock lock(&mutex_);
  WaitWhileItHangs();
  Place place;
  if (const int error = FindPlace(path, place); error != 0) return error;
  if (FindIn(place.folder->live, place.name) != nullptr) return -EEXIST;
  if (Refuses()) return -ENOSPC;
  if (const int error = Make(folder, mode, made); error != 0) return error;
  place.folder->SetLive(place.name, made);
  return 0;
}

int Disk::MakeFile(std::string_view path, mode_t mode, NodePtr& made) { return MakeAny(path, false, mode, made); }

int Disk::MakeFolder(std::string_view path, mode_t mode) {
  NodePtr made;
  return MakeAny(path, true, mode, made);
}

int Disk::Link(std::string_view from, std::string_view to) {
  absl::MutexLock lock(&mutex_);
  WaitWhileItHangs();
  NodePtr node;
  Place place;
  if (const int error = FindLocked(from, node); error != 0) return error;
  if (const int error = FindPlace(to, place); error != 0) return error;
  if (node->is_folder()) return -EPERM;
  if (FindIn(place.folder->live, place.name) != nullptr) return -EEXIST;
  place.folder->SetLive(place.name, node);
  return 0;
}

int Disk::Rename(std::string_view from, std::string_view to) {
  absl::MutexLock lock(&mutex_);
  WaitWhileItHangs();
  Place old_place;
  Place new_place;
  if (const int error = FindPlace(from, old_place); error != 0) return error;
  if (const int error = FindPlace(to, new_place); error != 0) return error;
  const NodePtr moved = FindIn(old_place.folder->live, old_place.name);
  const NodePtr before = FindIn(new_place.folder->live, new_place.name);
  if (moved == nullptr) return -ENOENT;
  if (moved == before) return 0;
  if (moved->is_folder() && Contains(*moved, new_place.folder.get())) return -EINVAL;
  if (before != nullptr) {
    if (before->is_folder() != moved->is_folder()) return before->is_folder() ? -EISDIR : -ENOTDIR;
    if (before->is_folder() && !before->live.empty()) return -ENOTEMPTY;
  }
  new_place.folder->SetLive(new_place.name, moved);
  old_place.folder->SetLive(old_place.name, nullptr);
  return 0;
}

int Disk::RemoveAny(std::string_view path, bool folder) {
  absl::MutexLock lock(&mutex_);
  WaitWhileItHangs();
  Place place;
  if (const int error = FindPlace(path, place); error != 0) return error;
  const NodePtr child = FindIn(place.folder->live, place.name);
  if (child == nullptr) return -ENOENT;
  if (child->is_folder() != folder) return folder ? -ENOTDIR : -EISDIR;
  if (!child->live.empty()) return -ENOTEMPTY;
  place.folder->SetLive(place.name, nullptr);
  return 0;
}

int Disk::Remove(std::string_view path) { return RemoveAny(path, /*folder=*/false); }
int Disk::RemoveFolder(std::string_view path) { return RemoveAny(path, /*folder=*/true); }

int Disk::Stat(const NodePtr& node, struct stat& status) {
  absl::MutexLock lock(&mutex_);
  return Usable(node) ? StatOf(*node, status) : -EIO;
}

int Disk::List(const NodePtr& node, const std::function<void(const std::string&, const struct stat&)>& each) {
  absl::MutexLock lock(&mutex_);
  if (!Usable(node)) return -EIO;
  if (!node->is_folder()) return -ENOTDIR;
  for (const auto& [name, child] : node->live) {
    struct stat status {};
    if (const int error = StatOf(*child, status); error != 0) return error;
    each(name, status);
  }
  return 0;
}

int Disk::SetMode(const NodePtr& node, mode_t mode) {
  absl::MutexLock lock(&mutex_);
  if (!Usable(node)) return -EIO;
  return fchmod(node->descriptor(), mode & 07777) == 0 ? 0 : -errno;
}

int Disk::SetOwner(const NodePtr& node, uid_t user, gid_t group) {
  absl::MutexLock lock(&mutex_);
  if (!Usable(node)) return -EIO;
  return fchown(node->descriptor(), user, group) == 0 ? 0 : -errno;
}

int Disk::SetTimes(const NodePtr& node, const timespec times[2]) {
  absl::MutexLock lock(&mutex_);
  if (!Usable(node)) return -EIO;
  return futimens(node->descriptor(), times) == 0 ? 0 : -errno;
}

ssize_t Disk::Read(const NodePtr& node, char* to, size_t count, uint64_t offset) {
  absl::MutexLock lock(&mutex_);
  if (!Usable(node)) return -EIO;
  return node->is_folder() ? -EISDIR : node->file->Read(to, count, offset);
}

ssize_t Disk::Write(const NodePtr& node, const char* from, size_t count, uint64_t offset) {
  absl::MutexLock lock(&mutex_);
  WaitWhileItHangs();
  if (!Usable(node)) return -EIO;
  if (node->is_folder()) return -EISDIR;
  return Refuses() ? -ENOSPC : node->file->Write(from, count, offset);
}

int Disk::Truncate(const NodePtr& node, uint64_t size) {
  absl::MutexLock lock(&mutex_);
  WaitWhileItHangs();
  if (!Usable(node)) return -EIO;
  return node->is_folder() ? -EISDIR : node->file->Truncate(size);
}

// Also for bytes that are there already: a file system that copies on writing needs space for those, too. What
// makes room must work.
bool Disk::Refuses() {
  if (ailments_.full) ++suffered_.refused;
  return ailments_.full;
}

// Space that is only set aside is not looked after: this disk is as full as the one below it.
int Disk::Allocate(const NodePtr& node, int mode, uint64_t offset, uint64_t count) {
  absl::MutexLock lock(&mutex_);
  WaitWhileItHangs();
  if (!Usable(node)) return -EIO;
  if (node->is_folder()) return -EISDIR;
  if ((mode & FALLOC_FL_PUNCH_HOLE) == 0 && Refuses()) return -ENOSPC;
  switch (mode) {
    case 0: return offset + count > node->file->size() ? node->file->Truncate(offset + count) : 0;
    case FALLOC_FL_KEEP_SIZE: return 0;
    case FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE: return node->file->Punch(offset, count);
    default: return -EOPNOTSUPP;
  }
}

int Disk::Space(struct statvfs& space) const {
  if (fstatvfs(objects_->folder.get(), &space) != 0) return -errno;
  absl::MutexLock lock(&mutex_);
  if (ailments_.full) space.f_bfree = space.f_bavail = 0;
  return 0;
}

}  // namespace hedgerow::unsynced
