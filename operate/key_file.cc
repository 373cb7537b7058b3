// SPDX-License-Identifier: Apache-2.0
#include "operate/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "operate/file_opener.h"

namespace hedgerow::operate {
namespace {

// A key and its line feed take 33 bytes; the rest is for white space.
constexpr size_t kKeyFileMax_bytes = 256;

// The one that seals and the one that is being added or removed.
constexpr size_t kKeysMax = 2;

absl::Status Refused(absl::string_view why) { return absl::InvalidArgumentError(why); }

}  // namespace

std::optional<std::string> KeyDigits(absl::string_view text) {
  const auto is_digit = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
  if (text.size() != kKeyDigits || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  if (text.find_first_not_of('0') == absl::string_view::npos) return std::nullopt;
  return absl::AsciiStrToLower(text);
}

namespace {

absl::StatusOr<std::string> ReadKeyText(const std::string& path, Reader reader) {
  absl::StatusOr<FileText> read = ReadText(path, kKeyFileMax_bytes);
  if (!read.ok()) return read.status();
  if (const std::string why = WhyNotSecret(read->info, path); !why.empty()) return Refused(why);
  if (const std::string why = WhyNotFollowed(read->info, path, geteuid()); reader == Reader::kServes && !why.empty())
    return Refused(why);
  if (read->text.size() > kKeyFileMax_bytes)
    return Refused("is too long, expected 32 hexadecimal digits and a line feed");
  return std::move(read->text);
}

}  // namespace

absl::StatusOr<std::string> ReadKeyFile(const std::string& path, Reader reader) {
  const absl::StatusOr<std::string> text = ReadKeyText(path, reader);
  if (!text.ok()) return text.status();
  std::optional<std::string> key = KeyDigits(absl::StripAsciiWhitespace(*text));
  if (!key.has_value()) {
    return Refused("holds no key, expected 32 hexadecimal digits, not all 0, and a line feed");
  }
  return *std::move(key);
}

absl::StatusOr<std::vector<std::string>> ReadKeyRing(const std::string& path, Reader reader) {
  const absl::StatusOr<std::string> text = ReadKeyText(path, reader);
  if (!text.ok()) return text.status();
  std::vector<std::string> keys;
  for (absl::string_view line : absl::StrSplit(*text, absl::ByAnyChar("\r\n"), absl::SkipWhitespace())) {
    std::optional<std::string> key = KeyDigits(absl::StripAsciiWhitespace(line));
    if (!key.has_value() || keys.size() == kKeysMax) {
      return Refused("expected one key or two, each 32 hexadecimal digits, not all 0, on a line of its own");
    }
    keys.push_back(*std::move(key));
  }
  if (keys.empty()) return Refused("holds no key, expected 32 hexadecimal digits, not all 0, and a line feed");
  if (keys.size() == kKeysMax && keys[0] == keys[1])
    return Refused("holds the same key twice, expected one key or two different ones");
  return keys;
}

absl::Status WriteKeyRing(const std::string& file, const std::vector<std::string>& keys) {
  std::error_code error;
  const std::string real = std::filesystem::canonical(file, error);  // where it is a link, that stays one
  const std::string& path = error ? file : real;
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, path);
  return ReplaceFile(path, absl::StrCat(absl::StrJoin(keys, "\n"), "\n"), info);
}

absl::Status ReplaceFile(const std::string& path, const std::string& text, const struct stat& rights) {
  const auto failed = [&path](absl::string_view what) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " beside ", path));
  };
  const std::string next = absl::StrCat(path, ".next");
  unlink(next.c_str());  // of one that was interrupted
  const int fd = open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return failed("make a file");
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  auto remover = absl::MakeCleanup([&next] { unlink(next.c_str()); });
  if (fchown(fd, rights.st_uid, rights.st_gid) != 0 || fchmod(fd, rights.st_mode & 07777) != 0)
    return failed("give a file its owner");
  if (write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()) || fsync(fd) != 0)
    return failed("write a file");
  if (rename(next.c_str(), path.c_str()) != 0) return failed("rename a file");
  std::move(remover).Cancel();
  const int folder =
      open(path.substr(0, path.find_last_of('/') + 1).append(".").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return failed("open the folder");
  const auto folder_closer = absl::MakeCleanup([folder] { close(folder); });
  return fsync(folder) == 0 ? absl::OkStatus() : failed("sync the folder");
}

}  // namespace hedgerow::operate
