// SPDX-License-Identifier: Apache-2.0
#include "steer/line_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hedgerow::steer {
namespace {

constexpr size_t kRead_bytes = 64 * 1024;

}  // namespace

absl::StatusOr<LineFile> LineFile::Open(const std::string& path, std::ostream& err, absl::Duration silence) {
  if (path == "-") return LineFile("standard input", net::UniqueFd(), STDIN_FILENO, err, silence);
  // A pipe is not waited for here: it may never get a writer.
  net::UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  const int fd = file.get();
  return LineFile(path, std::move(file), fd, err, silence);
}

absl::Status LineFile::Error(const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat("cannot read ", name_, ": ", what));
}

// True: something may be there, or it is at its end.
absl::StatusOr<bool> LineFile::Wait() {
  pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
  const int ready = poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(silence_)));
  if (ready != 0) return true;
  if (!std::exchange(told_, true)) {
    *err_ << "hedgerow-steer: waits for lines from " << name_ << std::endl;
  }
  return false;
}

absl::StatusOr<bool> LineFile::Fill() {
  bytes_.erase(0, std::exchange(at_, 0));
  const size_t had = bytes_.size();
  bool silent = false;
  while (true) {
    const absl::StatusOr<bool> ready = Wait();
    silent = !*ready;
    if (silent && !file_.valid()) continue;  // standard input: a blocking read says no more
    bytes_.resize(had + kRead_bytes);
    const ssize_t got = read(fd_, bytes_.data() + had, kRead_bytes);
    const int error = errno;
    bytes_.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got > 0) return true;
    if (got == 0) {
      if (silent) return Error("no process writes to it");
      return false;
    }
    if (error == EISDIR) return Error("it is no file of lines");
    if (error != EAGAIN && error != EINTR) return Error(strerror(error));
  }
}

absl::StatusOr<std::optional<std::string>> LineFile::Next() {
  size_t searched = at_;
  while (true) {
    const size_t end = bytes_.find('\n', searched);
    if (end != std::string::npos || bytes_.size() - at_ > kLineMax_bytes) {
      if (std::min(end, bytes_.size()) - at_ > kLineMax_bytes)
        return Error(absl::StrCat("line ", lines_ + 1, " has more than ", kLineMax_bytes, " bytes: it is no file of lines"));
      if (++lines_ > kLinesMax) return Error(absl::StrCat("it has more than ", kLinesMax, " lines: does it end?"));
      std::string line = bytes_.substr(at_, end - at_);
      at_ = end + 1;
      return line;
    }
    searched = bytes_.size() - at_;
    const absl::StatusOr<bool> more = Fill();
    if (!more.ok()) return more.status();
    if (*more) continue;
    if (bytes_.empty()) return std::nullopt;
    ++lines_;
    at_ = bytes_.size();
    return bytes_;
  }
}

}  // namespace hedgerow::steer
