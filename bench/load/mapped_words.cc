// SPDX-License-Identifier: Apache-2.0
#include "bench/load/mapped_words.h"

#include <fcntl.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "net/unique_fd.h"

namespace hedgerow::bench {

absl::StatusOr<MappedWords> MapWords(const std::string& path, size_t words) {
  const size_t bytes = words * sizeof(uint64_t);
  net::UniqueFd file;
  if (!path.empty()) {
    file.Reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open '", path, "'"));
    if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot size '", path, "'"));
    }
  }
  const int flags = MAP_SHARED | (path.empty() ? MAP_ANONYMOUS : 0);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file.get(), 0);
  if (mapped == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map '", path, "'"));
  return MappedWords(static_cast<uint64_t*>(mapped), Unmap{bytes});
}

}  // namespace hedgerow::bench
