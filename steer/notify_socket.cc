// SPDX-License-Identifier: Apache-2.0
#include "steer/notify_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hedgerow::steer {
namespace {

constexpr int kMessagesAtATime = 256;

void CloseRights(msghdr& header) {
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(each) + i * sizeof(int), sizeof(int));
      close(fd);
    }
  }
}

pid_t WriterOf(msghdr& header) {
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_CREDENTIALS) continue;
    ucred writer;
    memcpy(&writer, CMSG_DATA(each), sizeof(writer));
    return writer.pid;
  }
  return 0;
}

}  // namespace

absl::StatusOr<NotifySocket> NotifySocket::Open(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path ", path, " is too long for a socket; choose a shorter --run-dir or --name"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  net::UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  unlink(path.c_str());
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0666) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("make the workers' socket ", path));
  }
  return NotifySocket(std::move(fd));
}

bool NotifySocket::Read(const std::function<void(const Notice&)>& visit) const {
  for (int i = 0; i < kMessagesAtATime; ++i) {
    char text[4096];
    iovec part{.iov_base = text, .iov_len = sizeof(text)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(253 * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return i > 0;
    CloseRights(header);
    Notice notice{.pid = WriterOf(header)};
    for (const absl::string_view line : absl::StrSplit(absl::string_view(text, static_cast<size_t>(got)), '\n')) {
      notice.ready |= line == "READY=1";
      notice.watchdog |= line == "WATCHDOG=1";
      notice.stopping |= line == "STOPPING=1";
    }
    if (notice.pid > 0) visit(notice);
  }
  return true;
}

}  // namespace hedgerow::steer
