// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow-node backup`: a snapshot of what was applied by now, fetched from the running node, checked, and
// given its name only when it is whole and synced.

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/admin/admin_client.h"
#include "cluster/node/admin/commands.h"
#include "cluster/storage/backup_file.h"
#include "net/unique_fd.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/snapshot_choice.h"

namespace hedgerow::node {
namespace {

// What a node that is cut off, or follows, may not have.
std::string Doubt(const v1::NodeStatus& status) {
  if (!status.ready()) {
    return "WARNING: this node is not ready: it knows no leader, or has not applied all that it knows to be "
           "committed. The backup may lack any number of the latest writes; ask the leader if there is one";
  }
  if (status.leader() == status.node()) return "";
  return absl::StrFormat(
      "node %d leads, and this one follows: the backup may lack what was acknowledged in the last moments",
      status.leader());
}

// Empty, and this process's alone while the descriptor is open: another one would write into what has been checked.
// What a process left that was killed is used again. In a folder that others may write, what stands there may be
// theirs: a link to a file of this user's, or a file that they read.
absl::StatusOr<net::UniqueFd> OpenAlone(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  net::UniqueFd file(open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0600));
  // NFS may give what root makes to another user, and CIFS knows no modes.
  const bool made = file.valid();
  if (!made && errno == EEXIST) file = net::UniqueFd(open(path.c_str(), kFlags));
  if (!file.valid() && errno != ELOOP) return storage::FromErrno(path, "make", errno);
  struct stat opened {};
  struct stat named {};
  if (!file.valid() || fstat(file.get(), &opened) != 0 ||
      (!made && (!S_ISREG(opened.st_mode) || opened.st_nlink != 1 || opened.st_uid != geteuid() ||
                 (opened.st_mode & 077) != 0))) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is no file that this user alone can read: remove it, or write to another folder"));
  }
  const bool locked =
      flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;  // some file systems have no locks
  const bool still_there =
      lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  if (!locked || !still_there) return absl::AlreadyExistsError(absl::StrCat("another command is writing ", path));
  if (ftruncate(file.get(), 0) != 0) return storage::FromErrno(path, "write", errno);
  return file;
}

absl::Status Fetch(const AdminClient& client, int file, const std::string& path) {
  const absl::Status fetched =
      client.ReadBackup([&](const std::string& bytes) { return storage::WriteAll(file, path, bytes); });
  if (!fetched.ok()) return fetched;
  return fsync(file) == 0 ? absl::OkStatus() : storage::FromErrno(path, "sync", errno);
}

// What was fetched, read anew from the file.
absl::StatusOr<v1::BackupReport> Check(const std::string& path) {
  const absl::StatusOr<storage::Backup> backup = storage::OpenBackup(path);
  if (!backup.ok()) return backup.status();
  if (absl::Status whole = storage::ReadThrough(*backup->snapshot); !whole.ok()) return whole;
  v1::BackupReport report;
  report.set_index(backup->header.last.index.value());
  report.set_term(backup->header.last.term.value());
  report.set_begins_epoch(backup->header.begins.epoch);
  return report;
}

// Never over a file that is there.
absl::Status GiveName(const std::string& from, const std::string& to) {
  int error = renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
  if (error == EINVAL) {  // NFS and others know no flags: the name is taken first
    const bool named = net::UniqueFd(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)).valid();
    error = named && rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
    if (named && error != 0) (void)unlink(to.c_str());
  }
  if (error == 0) return storage::SyncParent(to);
  if (error == EEXIST) return absl::AlreadyExistsError(absl::StrCat(to, " is there already"));
  return storage::FromErrno(to, "make", error);
}

absl::StatusOr<v1::BackupReport> FetchAs(const AdminClient& client, const std::string& path) {
  const std::string partial = path + ".partial";
  const absl::StatusOr<net::UniqueFd> written = OpenAlone(partial);
  if (!written.ok()) return written.status();
  if (absl::Status fetched = Fetch(client, written->get(), partial); !fetched.ok()) {
    (void)unlink(partial.c_str());
    return fetched;
  }
  absl::StatusOr<v1::BackupReport> report = Check(partial);
  if (report.ok()) {
    if (absl::Status named = GiveName(partial, path); !named.ok()) report = named;
  }
  if (!report.ok()) {
    (void)unlink(partial.c_str());
    return report;
  }
  const net::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  report->set_file(path);
  report->set_size_bytes(static_cast<uint64_t>(lseek(file.get(), 0, SEEK_END)));
  return report;
}

}  // namespace

int RunBackup(const Call& call) {
  const std::string path = call.arguments.Get("out");
  if (call.arguments.words.size() > 1 || path.empty()) return call.UsageError("backup wants --out FILE");
  if (access(path.c_str(), F_OK) == 0) return call.Fail(kExitFailure, absl::StrCat(path, " is there already"));
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto before = client->GetStatusOfStarted();
  if (!before.ok()) return call.Fail(before.status());
  std::string doubt = Doubt(*before);
  const auto warn = [&] {
    if (!doubt.empty() && !call.arguments.json()) call.err << doubt << "\n";
  };
  warn();
  const auto taken = SnapshotNow(*client, kSnapshotTimeout);
  if (!taken.ok()) return call.Fail(taken.status());
  if (taken->snapshots().last_index() == 0) return call.Fail(kExitFailure, "nothing was ever applied here");
  absl::StatusOr<v1::BackupReport> report = FetchAs(*client, path);
  if (!report.ok()) return call.Fail(report.status());
  const auto after = client->GetStatus();
  const bool ready = before->ready() && after.ok() && after->ready();
  if (before->ready() && !ready) {  // cut off meanwhile
    doubt = Doubt(after.ok() ? *after : v1::NodeStatus());
    warn();
  }
  report->set_doubt(doubt);
  return call.Print(
      *report,
      absl::StrFormat("%s: everything up to entry %d of term %d, %d bytes, checked. A cluster that "
                      "begins with it is of epoch %d\n",
                      path, report->index(), report->term(), report->size_bytes(), report->begins_epoch()),
      // The file is there, and a script must not take it for all that was acknowledged.
      ready ? kExitOk : kExitFailure);
}

}  // namespace hedgerow::node
