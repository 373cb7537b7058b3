// SPDX-License-Identifier: Apache-2.0
#include "operate/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::operate {
namespace {

// A key and its line feed take 33 bytes; the rest is for white space.
constexpr size_t kKeyFileMax_bytes = 256;

absl::Status Refused(absl::string_view why) { return absl::InvalidArgumentError(why); }

}  // namespace

std::optional<std::string> KeyDigits(absl::string_view text) {
  const auto is_digit = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
  if (text.size() != kKeyDigits || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  if (text.find_first_not_of('0') == absl::string_view::npos) return std::nullopt;
  return absl::AsciiStrToLower(text);
}

absl::StatusOr<std::string> ReadKeyFile(const std::string& path, Reader reader) {
  // O_NONBLOCK so that a FIFO cannot hang the open.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Refused(absl::StrCat("cannot be opened: ", strerror(errno)));
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return Refused("is no regular file");
  if (const std::string why = WhyNotSecret(info, path); !why.empty()) return Refused(why);
  if (const std::string why = WhyNotFollowed(info, path, geteuid()); reader == Reader::kServes && !why.empty())
    return Refused(why);
  char buffer[kKeyFileMax_bytes + 1];
  size_t bytes = 0;
  while (bytes < sizeof(buffer)) {
    const ssize_t got = read(fd, buffer + bytes, sizeof(buffer) - bytes);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Refused(absl::StrCat("cannot be read: ", strerror(errno)));
    bytes += static_cast<size_t>(got);
  }
  if (bytes > kKeyFileMax_bytes) return Refused("is too long, expected 32 hexadecimal digits and a line feed");
  std::optional<std::string> key = KeyDigits(absl::StripAsciiWhitespace({buffer, bytes}));
  if (!key.has_value()) {
    return Refused("holds no key, expected 32 hexadecimal digits, not all 0, and a line feed");
  }
  return *std::move(key);
}

}  // namespace hedgerow::operate
