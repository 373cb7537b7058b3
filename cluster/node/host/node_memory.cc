// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/host/node_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::node {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr uint64_t kLimitMin_bytes = 16 * kMebibyte;

// Nothing: there is no such file, or it has no number ("max").
std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &number)) return std::nullopt;
  return number;
}

uint64_t HostMemory_bytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string name;
  uint64_t kibibytes = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    if (words >> name >> kibibytes && name == "MemTotal:") return kibibytes * 1024;
  }
  return UINT64_MAX;
}

// Of the group at `path` and of all above it, which hold for it as well.
uint64_t LeastOnTheWayUp(const std::string& mount, std::string path, const std::string& file) {
  uint64_t least = UINT64_MAX;
  while (true) {
    least = std::min(least, NumberIn(absl::StrCat(mount, path, "/", file)).value_or(UINT64_MAX));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

// Lines of /proc/self/cgroup: "5:memory:/a/b" of version 1, "0::/a/b" of version 2. In a container the path may be the
// host's, and then the mount itself is the container's group; its file is read last on the way up.
uint64_t CgroupMemory_bytes(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  uint64_t least = UINT64_MAX;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = absl::StrCat(",", line.substr(first + 1, second - first - 1), ",");
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers == ",,") {
      least = std::min(least, LeastOnTheWayUp(root + "/sys/fs/cgroup", path, "memory.max"));
      least = std::min(least, LeastOnTheWayUp(root + "/sys/fs/cgroup/unified", path, "memory.max"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, LeastOnTheWayUp(root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace

uint64_t AvailableMemory_bytes(const std::string& root) {
  return std::min(HostMemory_bytes(root), CgroupMemory_bytes(root));
}

uint64_t ResidentMemory_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t SnapshotCopiesMax_bytes(uint64_t limit_bytes) { return std::max(limit_bytes / 8, 16 * kMebibyte); }

uint64_t LimitFor_bytes(uint64_t available_bytes, uint64_t most_bytes) {
  const uint64_t left = available_bytes - std::min(available_bytes, kMemoryBeside_bytes);
  return std::clamp(left / kMemoryPerLimit / kMebibyte * kMebibyte, kLimitMin_bytes,
                    std::max(most_bytes, kLimitMin_bytes));
}

uint64_t LogMax_bytes(uint64_t available_bytes) { return std::max(available_bytes / 16, 8 * kMebibyte); }

uint64_t WaitingMax_bytes(uint64_t available_bytes) {
  return std::clamp(available_bytes / 16, 8 * kMebibyte, 256 * kMebibyte);
}

}  // namespace hedgerow::node
