// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/identity/host_memory.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/storage/errors.h"

namespace hedgerow::node {
namespace {

namespace fs = std::filesystem;

bool IsWithin(const fs::path& inner, const fs::path& outer) {
  std::error_code error;
  const fs::path relative = fs::relative(inner, outer, error);
  return !error && !relative.empty() && *relative.begin() != "..";
}

}  // namespace

HostMemory::HostMemory(const std::string& admin_socket, const std::string& data_dir, uint64_t copy_id) {
  const fs::path folder = fs::path(admin_socket).parent_path();
  std::error_code error;
  if (folder.empty() || !fs::is_directory(folder, error) || IsWithin(folder, data_dir)) return;
  path_ = (folder / absl::StrFormat("started-%016x", copy_id)).string();
}

uint64_t HostMemory::starts() const {
  if (path_.empty()) return 0;
  uint64_t starts = 0;
  std::ifstream file(path_);
  return file >> starts ? starts : 0;
}

absl::Status HostMemory::Remember(uint64_t starts) const {
  if (path_.empty()) return absl::OkStatus();
  const std::string unfinished = absl::StrCat(path_, ".unfinished");
  {
    std::ofstream file(unfinished, std::ios::trunc);
    file << starts << "\n";
    file.close();
    if (!file) return storage::FromErrno(unfinished, "write", errno);
  }
  if (rename(unfinished.c_str(), path_.c_str()) != 0) return storage::FromErrno(path_, "write", errno);
  return absl::OkStatus();
}

}  // namespace hedgerow::node
