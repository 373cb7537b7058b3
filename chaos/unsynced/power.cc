// SPDX-License-Identifier: Apache-2.0
//
// The part of Disk that is about power: what a sync covers, what a cut takes, and how the disk comes back.
#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "chaos/unsynced/disk.h"

namespace hedgerow::unsynced {
namespace {

std::string MadeFolder(const std::string& path) {
  std::filesystem::create_directories(path);
  return path;
}

std::vector<std::string> NamesIn(const Node& folder) {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd/" + std::to_string(folder.durable_folder.get()))) {
    names.push_back(entry.path().filename());
  }
  return names;
}

std::set<std::string> ChangedNames(const Node& folder) {
  std::set<std::string> changed;
  for (const auto& [name, child] : folder.live) {
    if (FindIn(folder.durable, name) != child) changed.insert(name);
  }
  for (const auto& [name, child] : folder.durable) {
    if (FindIn(folder.live, name) != child) changed.insert(name);
  }
  return changed;
}

}  // namespace

Disk::Disk(DiskOptions options)
    : options_(std::move(options)), objects_(std::make_shared<Objects>(MadeFolder(options_.backing + "/objects"))) {
  MadeFolder(options_.backing + "/tree");
  absl::MutexLock lock(&mutex_);
  Load();
}

// As a power cut: nothing is synced for having been in use.
Disk::~Disk() = default;

void Disk::Load() {
  ++life_;
  root_.reset();
  std::error_code ignored;
  for (const auto& left : std::filesystem::directory_iterator(objects_->path)) {
    std::filesystem::remove_all(left.path(), ignored);
  }
  const std::string tree = options_.backing + "/tree";
  net::UniqueFd folder(open(tree.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Must(folder.get(), "open", tree);
  root_ = std::make_shared<Node>(objects_, next_id_++, life_, /*folder=*/true, std::move(folder));
  std::map<ino_t, NodePtr> files;
  LoadFolder(*root_, files);
}

void Disk::LoadFolder(Node& folder, std::map<ino_t, NodePtr>& files) {
  const int at = folder.durable_folder.get();
  for (const std::string& name : NamesIn(folder)) {
    struct stat status {};
    Must(fstatat(at, name.c_str(), &status, AT_SYMLINK_NOFOLLOW), "look at", name);
    NodePtr child;
    if (S_ISDIR(status.st_mode)) {
      net::UniqueFd opened(openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      Must(opened.get(), "open", name);
      child = std::make_shared<Node>(objects_, next_id_++, life_, /*folder=*/true, std::move(opened));
      child->durable_parent = &folder;
      child->durable_name = name;
      LoadFolder(*child, files);
    } else if (!S_ISREG(status.st_mode)) {
      Must(-1, "there is more than files and folders:", name);
    } else if (const auto known = files.find(status.st_ino); known != files.end()) {
      child = known->second;
    } else {
      const uint64_t id = next_id_++;
      net::UniqueFd opened(openat(at, name.c_str(), O_RDWR | O_CLOEXEC));
      Must(opened.get(), "open", name);
      Must(linkat(at, name.c_str(), objects_->folder.get(), std::to_string(id).c_str(), 0), "link", name);
      child = std::make_shared<Node>(objects_, id, life_, /*folder=*/false, std::move(opened));
      files[status.st_ino] = child;
    }
    folder.durable[name] = child;
    folder.SetLive(name, child);
  }
}

bool Disk::Usable(const NodePtr& node) const { return node->life == life_; }

bool Disk::SyncIsIgnored(const Node& node) const {
  if (!options_.ignore_sync.has_value()) return false;
  const std::string name = node.live_names.empty() ? "" : node.live_names.begin()->second;
  return fnmatch(options_.ignore_sync->c_str(), name.c_str(), 0) == 0;
}

void Disk::Ail(Ailments ailments) {
  absl::MutexLock lock(&mutex_);
  ailments_ = ailments;
}

// As a frozen file system or a network volume that is away: no error, and no end.
void Disk::WaitWhileItHangs() {
  if (!ailments_.hangs) return;
  ++suffered_.hung;
  mutex_.Await(absl::Condition(
      +[](Ailments* ailments) { return !ailments->hangs; }, &ailments_));
}

Suffered Disk::suffered() const {
  absl::MutexLock lock(&mutex_);
  return suffered_;
}

int Disk::Sync(const NodePtr& node) {
  uint64_t delay_ms = 0;
  {
    absl::MutexLock lock(&mutex_);
    WaitWhileItHangs();
    delay_ms = ailments_.sync_delay_ms;
    if (delay_ms > 0) ++suffered_.slowed;
  }
  // Before anything is safe, and no other call is held up: a disk with a long queue, not one that stands still.
  if (delay_ms > 0) absl::SleepFor(absl::Milliseconds(delay_ms));
  {
    absl::MutexLock lock(&mutex_);
    if (!Usable(node)) return -EIO;
    if (SyncIsIgnored(*node)) return 0;
    if (node->is_folder()) {
      MakeNamesDurable(*node);
    } else if (const int error = node->file->Sync(); error != 0) {
      return error;
    }
    if (options_.names == Names::kJournal) MakeTreeDurable(*root_);
  }
  // So that it takes its time; and no other call waits for it.
  return (node->is_folder() ? fsync(node->descriptor()) : fdatasync(node->descriptor())) == 0 ? 0 : -errno;
}

void Disk::CountLoss(const Node& folder, const std::string& path, Loss& loss) {
  loss.names += ChangedNames(folder).size();
  for (const auto& [name, child] : folder.live) {
    const std::string below = path.empty() ? name : path + "/" + name;
    if (child->is_folder()) {
      CountLoss(*child, below, loss);
    } else if (const uint64_t bytes = child->file->UnsyncedBytes(); bytes > 0) {
      loss.bytes[below] = bytes;
    }
  }
}

void Disk::SyncSome(Node& folder, std::mt19937_64& random) {
  // All of a folder's changes or none: file systems keep them in order, and programs make several durable with
  // one sync of the folder.
  if (random() % 2 == 0) MakeNamesDurable(folder);
  for (const auto& [name, child] : folder.live) {
    if (child->is_folder()) {
      SyncSome(*child, random);
    } else {
      Must(child->file->SyncSome(random), "write", name);
    }
  }
}

Loss Disk::Cut(std::optional<uint64_t> seed) {
  absl::MutexLock lock(&mutex_);
  Loss loss;
  CountLoss(*root_, "", loss);
  if (seed.has_value()) {
    std::mt19937_64 random(*seed);
    SyncSome(*root_, random);
  }
  Load();
  return loss;
}

}  // namespace hedgerow::unsynced
