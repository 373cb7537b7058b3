// SPDX-License-Identifier: Apache-2.0
#include "bench/steer/source_counts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace hedgerow::bench {

absl::StatusOr<SourceCounts> SourceCounts::Map(const std::string& path, size_t sources) {
  if (path.empty()) return SourceCounts(nullptr, 0);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open '", path, "'"));
  const size_t bytes = sources * 2 * sizeof(uint64_t);
  void* mapped = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  close(fd);
  if (mapped == MAP_FAILED) return absl::ErrnoToStatus(error, absl::StrCat("cannot map '", path, "'"));
  return SourceCounts(static_cast<uint64_t*>(mapped), sources);
}

SourceCounts::SourceCounts(SourceCounts&& other) noexcept : counts_(other.counts_), sources_(other.sources_) {
  other.counts_ = nullptr;
  other.sources_ = 0;
}

SourceCounts::~SourceCounts() {
  if (counts_ != nullptr) munmap(counts_, sources_ * 2 * sizeof(uint64_t));
}

bool SourceCounts::Count(uint32_t source, bool tcp) {
  if (source >= sources_) return false;
  ++counts_[2 * size_t{source} + (tcp ? 1 : 0)];
  return true;
}

}  // namespace hedgerow::bench
