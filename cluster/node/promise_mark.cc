// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/promise_mark.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "cluster/storage/folder.h"

namespace hedgerow::node {
namespace {

constexpr char kLost[] = "lost";

std::string FirstLine(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

}  // namespace

PromiseMark::PromiseMark(const std::string& data_dir, std::string boot_id)
    : path_(absl::StrCat(data_dir, "/kernel-promises")), boot_id_(std::move(boot_id)) {
  if (boot_id_.empty()) boot_id_ = FirstLine("/proc/sys/kernel/random/boot_id");
}

// One that cannot be read counts as standing: whoever made it knew why.
bool PromiseMark::Stands() const {
  if (access(path_.c_str(), F_OK) != 0) return false;
  const std::string line = FirstLine(path_);
  return line.empty() || line == boot_id_ || line == kLost;
}

bool PromiseMark::Lost() const { return FirstLine(path_) == kLost; }

absl::Status PromiseMark::SetLost() const { return storage::WriteSynced(path_, absl::StrCat(kLost, "\n")); }

absl::Status PromiseMark::Set() const {
  std::ofstream file(path_, std::ios::trunc);
  file << boot_id_ << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path_));
  return absl::OkStatus();
}

void PromiseMark::Remove() const { unlink(path_.c_str()); }

}  // namespace hedgerow::node
