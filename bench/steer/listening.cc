// SPDX-License-Identifier: Apache-2.0
#include "bench/steer/listening.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "net/unique_fd.h"

namespace hedgerow::bench {
namespace {

constexpr int kFirstInherited = 3;  // SD_LISTEN_FDS_START
constexpr int kBacklog = 16'384;    // capped by net.core.somaxconn

absl::StatusOr<int> OpenOne(const OwnSockets& wanted, bool tcp) {
  const int type = (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC;
  net::UniqueFd owner(socket(wanted.address.storage.ss_family, type, 0));
  const int fd = owner.get();
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const int one = 1;
  const auto failed = [](const char* what) { return absl::ErrnoToStatus(errno, what); };
  if (tcp && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0) return failed("SO_REUSEADDR");
  if (wanted.reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) != 0)
    return failed("SO_REUSEPORT");
  if (!tcp && setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &wanted.receive_buffer, sizeof wanted.receive_buffer) != 0 &&
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &wanted.receive_buffer, sizeof wanted.receive_buffer) != 0) {
    return failed("SO_RCVBUF");
  }
  if (bind(fd, wanted.address.get(), wanted.address.bytes) != 0) return failed("bind");
  if (tcp && listen(fd, kBacklog) != 0) return failed("listen");
  return owner.Release();
}

}  // namespace

absl::StatusOr<std::vector<Listening>> InheritedSockets() {
  std::vector<Listening> found;
  const char* count_text = std::getenv("LISTEN_FDS");
  const char* pid_text = std::getenv("LISTEN_PID");
  int count = 0;
  int pid = 0;
  if (count_text == nullptr) return found;
  if (pid_text != nullptr && (!absl::SimpleAtoi(pid_text, &pid) || pid != getpid())) return found;
  if (!absl::SimpleAtoi(count_text, &count) || count < 1 || count > 16) {
    return absl::InvalidArgumentError(absl::StrCat("LISTEN_FDS is '", count_text, "', expected 1 to 16"));
  }
  for (int fd = kFirstInherited; fd < kFirstInherited + count; ++fd) {
    int type = 0;
    socklen_t bytes = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("inherited descriptor ", fd));
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);  // accept(2) has no flag for one call
    found.push_back({fd, type == SOCK_STREAM});
  }
  return found;
}

absl::StatusOr<std::vector<Listening>> OpenSockets(const OwnSockets& wanted) {
  std::vector<Listening> opened;
  for (const bool tcp : {false, true}) {
    if (tcp ? !wanted.tcp : !wanted.udp) continue;
    absl::StatusOr<int> fd = OpenOne(wanted, tcp);
    if (!fd.ok()) return fd.status();
    opened.push_back({*fd, tcp});
  }
  return opened;
}

}  // namespace hedgerow::bench
