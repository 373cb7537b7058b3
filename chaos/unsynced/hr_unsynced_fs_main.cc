// SPDX-License-Identifier: Apache-2.0
//
// hr-unsynced-fs: a file system that forgets, on command, what was not synced. Started by the chaos runner and
// by tests, one for each node; README.md says what it promises. A Disk, by libfuse's calls with paths.

#define FUSE_USE_VERSION 312
#include <fuse.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "chaos/unsynced/control.h"
#include "chaos/unsynced/disk.h"

ABSL_FLAG(std::string, names, "strict",
          "strict: only a folder's own sync covers its names; journal: every sync covers every name");
ABSL_FLAG(std::string, ignore_sync, "",
          "a planted fault: syncs of files and folders whose name matches this pattern succeed and do nothing");

namespace hedgerow::unsynced {
namespace {

Disk& TheDisk() { return *static_cast<Disk*>(fuse_get_context()->private_data); }

// What an open file's handle points to.
NodePtr* HandleOf(const fuse_file_info* info) {
  return info == nullptr || info->fh == 0 ? nullptr : reinterpret_cast<NodePtr*>(info->fh);
}

void SetHandle(fuse_file_info* info, NodePtr node) {
  info->fh = reinterpret_cast<uint64_t>(new NodePtr(std::move(node)));
}

// By the handle where there is one: the name may be another file's by now, or no file's, and libfuse gives none.
template <typename Action>
int WithNode(const char* path, const fuse_file_info* info, Action action) {
  if (const NodePtr* handle = HandleOf(info); handle != nullptr) return static_cast<int>(action(*handle));
  NodePtr node;
  if (const int error = TheDisk().Find(path, node); error != 0) return error;
  return static_cast<int>(action(node));
}

void* Init(fuse_conn_info*, fuse_config* config) {
  config->use_ino = 1;
  config->hard_remove = 1;  // no `.fuse_hidden` names: an open file needs none here
  config->nullpath_ok = 1;
  // What the kernel remembers would outlive a power cut.
  config->entry_timeout = 0;
  config->negative_timeout = 0;
  config->attr_timeout = 0;
  return fuse_get_context()->private_data;
}

int GetAttr(const char* path, struct stat* status, fuse_file_info* info) {
  return WithNode(path, info, [&](const NodePtr& node) { return TheDisk().Stat(node, *status); });
}

int ReadDir(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info* info, fuse_readdir_flags) {
  for (const char* name : {".", ".."}) fill(buffer, name, nullptr, 0, fuse_fill_dir_flags{});
  return WithNode(path, info, [&](const NodePtr& node) {
    return TheDisk().List(node, [&](const std::string& name, const struct stat& status) {
      fill(buffer, name.c_str(), &status, 0, fuse_fill_dir_flags{});
    });
  });
}

int Open(const char* path, fuse_file_info* info) {
  NodePtr node;
  if (const int error = TheDisk().Find(path, node); error != 0) return error;
  if ((info->flags & O_TRUNC) != 0) {
    if (const int error = TheDisk().Truncate(node, 0); error != 0) return error;
  }
  SetHandle(info, std::move(node));
  return 0;
}

int Create(const char* path, mode_t mode, fuse_file_info* info) {
  NodePtr node;
  if (const int error = TheDisk().MakeFile(path, mode, node); error != 0) return error;
  SetHandle(info, std::move(node));
  return 0;
}

int MakeNode(const char* path, mode_t mode, dev_t) {
  NodePtr node;
  return TheDisk().MakeFile(path, mode, node);
}

int Release(const char*, fuse_file_info* info) {
  delete HandleOf(info);
  return 0;
}

int Read(const char* path, char* to, size_t count, off_t offset, fuse_file_info* info) {
  return WithNode(path, info,
                  [&](const NodePtr& node) { return TheDisk().Read(node, to, count, static_cast<uint64_t>(offset)); });
}

int Write(const char* path, const char* from, size_t count, off_t offset, fuse_file_info* info) {
  return WithNode(path, info, [&](const NodePtr& node) {
    const ssize_t written = TheDisk().Write(node, from, count, static_cast<uint64_t>(offset));
    if (written < 0 || (info->flags & O_DSYNC) == 0) return written;
    const int error = TheDisk().Sync(node);
    return error == 0 ? written : error;
  });
}

int Truncate(const char* path, off_t size, fuse_file_info* info) {
  return WithNode(path, info,
                  [&](const NodePtr& node) { return TheDisk().Truncate(node, static_cast<uint64_t>(size)); });
}

int Allocate(const char* path, int mode, off_t offset, off_t count, fuse_file_info* info) {
  return WithNode(path, info, [&](const NodePtr& node) {
    return TheDisk().Allocate(node, mode, static_cast<uint64_t>(offset), static_cast<uint64_t>(count));
  });
}

// fdatasync differs from fsync in times only, and those are not lost here.
int Sync(const char* path, int, fuse_file_info* info) {
  return WithNode(path, info, [](const NodePtr& node) { return TheDisk().Sync(node); });
}

int OpenFolder(const char* path, fuse_file_info* info) {
  NodePtr node;
  if (const int error = TheDisk().Find(path, node); error != 0) return error;
  SetHandle(info, std::move(node));
  return 0;
}

int SetMode(const char* path, mode_t mode, fuse_file_info* info) {
  return WithNode(path, info, [&](const NodePtr& node) { return TheDisk().SetMode(node, mode); });
}

int SetOwner(const char* path, uid_t user, gid_t group, fuse_file_info* info) {
  return WithNode(path, info, [&](const NodePtr& node) { return TheDisk().SetOwner(node, user, group); });
}

int SetTimes(const char* path, const timespec times[2], fuse_file_info* info) {
  return WithNode(path, info, [&](const NodePtr& node) { return TheDisk().SetTimes(node, times); });
}

int Rename(const char* from, const char* to, unsigned int flags) {
  return flags != 0 ? -EINVAL : TheDisk().Rename(from, to);
}

fuse_operations Operations() {
  fuse_operations operations{};
  operations.init = Init;
  operations.getattr = GetAttr;
  operations.readdir = ReadDir;
  operations.open = Open;
  operations.create = Create;
  operations.mknod = MakeNode;
  operations.release = Release;
  operations.read = Read;
  operations.write = Write;
  operations.truncate = Truncate;
  operations.fallocate = Allocate;
  operations.fsync = Sync;
  operations.opendir = OpenFolder;
  operations.releasedir = Release;
  operations.fsyncdir = Sync;
  operations.chmod = SetMode;
  operations.chown = SetOwner;
  operations.utimens = SetTimes;
  operations.rename = Rename;
  operations.mkdir = [](const char* path, mode_t mode) { return TheDisk().MakeFolder(path, mode); };
  operations.unlink = [](const char* path) { return TheDisk().Remove(path); };
  operations.rmdir = [](const char* path) { return TheDisk().RemoveFolder(path); };
  operations.link = [](const char* from, const char* to) { return TheDisk().Link(from, to); };
  operations.statfs = [](const char*, struct statvfs* space) { return TheDisk().Space(*space); };
  return operations;
}

struct FuseDeleter {
  void operator()(fuse* served) const { fuse_destroy(served); }
  void operator()(fuse_loop_config* config) const { fuse_loop_cfg_destroy(config); }
};

// Serves until it is unmounted. `ready` is called once the mount is there. False: it could not be mounted;
// libfuse has said why.
bool Serve(Disk& disk, const std::string& mount_point, const std::function<void()>& ready) {
  std::string name = "hr-unsynced-fs";
  std::string option = "-osubtype=hr-unsynced-fs,fsname=hr-unsynced-fs";
  char* arguments[] = {name.data(), option.data(), nullptr};
  fuse_args parsed = FUSE_ARGS_INIT(2, arguments);
  const fuse_operations operations = Operations();
  const std::unique_ptr<fuse, FuseDeleter> served(fuse_new(&parsed, &operations, sizeof(operations), &disk));
  fuse_opt_free_args(&parsed);
  if (served == nullptr || fuse_mount(served.get(), mount_point.c_str()) != 0) return false;
  ready();
  const std::unique_ptr<fuse_loop_config, FuseDeleter> config(fuse_loop_cfg_create());
  const int result = fuse_loop_mt(served.get(), config.get());
  fuse_unmount(served.get());
  return result == 0;
}

// Every file of the tree is open.
void AllowManyFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &files);
}

// In every thread, so that one of them can wait for them.
void BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  (void)pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  (void)signal(SIGPIPE, SIG_IGN);
}

}  // namespace
}  // namespace hedgerow::unsynced

int main(int argc, char** argv) {
  using namespace hedgerow::unsynced;  // NOLINT(google-build-using-namespace)
  absl::SetProgramUsageMessage(
      "hr-unsynced-fs [flags] BACKING MOUNT\n\nIt says 'ready' once it is mounted; then write 'cut', 'cut "
      "SEED', 'slow MS', 'full' or 'well' to it. It unmounts when its input ends.");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const std::string names = absl::GetFlag(FLAGS_names);
  if (arguments.size() != 3 || (names != "strict" && names != "journal")) {
    std::fprintf(stderr, "usage: hr-unsynced-fs [--names=strict|journal] [--ignore_sync=PATTERN] BACKING MOUNT\n");
    return 2;
  }
  const std::string mount_point = arguments[2];
  DiskOptions options = {.backing = arguments[1],
                         .names = names == "strict" ? Names::kStrict : Names::kJournal,
                         .ignore_sync = std::nullopt};
  if (const std::string pattern = absl::GetFlag(FLAGS_ignore_sync); !pattern.empty()) {
    options.ignore_sync = pattern;
  }
  AllowManyFiles();
  BlockSignals();
  Disk disk(options);
  const bool served = Serve(disk, mount_point, [&] {
    std::printf("ready\n");
    std::fflush(stdout);
    std::thread([&disk, mount_point] {
      ObeyUntilTheEnd(disk, STDIN_FILENO, STDOUT_FILENO);
      // A program that still has a file open there gets errors from now on, as from a disk that was pulled out.
      (void)umount2(mount_point.c_str(), MNT_DETACH);
      _exit(0);
    }).detach();
  });
  // Another program has unmounted it, or it never was mounted: the other thread must not outlive the disk.
  _exit(served ? 0 : 1);
}
