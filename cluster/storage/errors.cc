// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/errors.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::storage {
namespace {

std::string FreeSpace(const std::string& path) {
  struct statvfs space {};
  if (statvfs(path.c_str(), &space) != 0) return "";
  return absl::StrCat(" (", uint64_t{space.f_bavail} * space.f_frsize / 1024, " KiB free)");
}

constexpr char kLostMark[] = "hedgerow/lost";

}  // namespace

absl::Status AsLost(absl::Status status) {
  status.SetPayload(kLostMark, absl::Cord("1"));
  return status;
}

bool IsLost(const absl::Status& status) { return status.GetPayload(kLostMark).has_value(); }

absl::Status DamagedError(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(
      "the log in ", path, " is damaged: ", what,
      ". Leave this node stopped; the others go on while they are a majority. Do not empty the folder to get "
      "the node "
      "started: it would forget votes and entries that it has acknowledged, and the cluster could lose writes. "
      "Look for "
      "the cause (dmesg, smartctl), and put the folder back only from a copy made after the node last ran. If "
      "a "
      "majority is lost like this, `hedgerow-node recover` makes a cluster of the member that has the most, "
      "or "
      "`hedgerow-node restore` with a backup (docs/cluster.md, \"After a bad day\")"));
}

absl::Status FullDiskError(const std::string& path, const std::string& what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no space left for the log in ", path, FreeSpace(path), ": ", what,
                   ". Nothing is lost, but nothing new is acknowledged: free some space, or raise the quota. "
                   "It is tried again by itself"));
}

absl::Status FromErrno(const std::string& path, const std::string& doing, int error_number) {
  const std::string text = absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error_number));
  if (error_number == ENOSPC || error_number == EDQUOT) return FullDiskError(path, text);
  return absl::InternalError(text);
}

}  // namespace hedgerow::storage
