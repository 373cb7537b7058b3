// SPDX-License-Identifier: Apache-2.0
//
// Reading key files; see the header.

#include "proxy/config/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proxy/config/format.h"

namespace hedgerow::config {
namespace {

// The digits and an editor's white space; whatever is longer is something else.
constexpr size_t kMaxKeyFileBytes = 256;

}  // namespace

absl::StatusOr<std::string> ReadKeyFile(const std::string& path) {
  // O_NONBLOCK so that a FIFO cannot hang the open.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::InvalidArgumentError(absl::StrCat("it cannot be opened: ", strerror(errno)));
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return absl::InvalidArgumentError("it is not a regular file");
  if ((info.st_mode & S_IRWXO) != 0) {
    return absl::InvalidArgumentError("every user may open it; take that away with chmod o=");
  }
  char buffer[kMaxKeyFileBytes + 1];
  const ssize_t got = read(fd, buffer, sizeof(buffer));
  if (got < 0) return absl::InvalidArgumentError(absl::StrCat("it cannot be read: ", strerror(errno)));
  const absl::string_view text(buffer, static_cast<size_t>(got));
  std::optional<std::string> key = Canonical(v1::FORMAT_KEY, absl::StripAsciiWhitespace(text));
  if (!key.has_value()) return absl::InvalidArgumentError("it holds something else");
  return *std::move(key);
}

void ReadKeyFiles(v1::Config& config, const Locations& locations, Diagnostics& errors) {
  for (int i = 0; i < config.services_size(); ++i) {
    v1::Service& service = *config.mutable_services(i);
    if (!service.has_cluster() || service.cluster().key_file().empty()) continue;
    absl::StatusOr<std::string> key = ReadKeyFile(service.cluster().key_file());
    if (key.ok()) {
      service.mutable_cluster()->set_key(*std::move(key));
      continue;
    }
    const std::string path = absl::StrCat("services[", i, "].cluster.key_file");
    errors.Add(locations.Find(path), path,
               absl::StrCat("got ", Quote(service.cluster().key_file()),
                            ", expected a file of 32 hexadecimal digits (", key.status().message(), ")"));
  }
}

}  // namespace hedgerow::config
