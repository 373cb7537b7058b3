// SPDX-License-Identifier: Apache-2.0
#include "operate/file_opener.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace hedgerow::operate {
namespace {

int opener = -1;  // set before there are threads

// An answer: errno, or 0 with a descriptor.
struct Answer {
  int error = 0;
  int fd = -1;
};

int OpenFile(const std::string& path) { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }

std::string Normal(const std::string& path) {
  std::error_code error;
  return std::filesystem::absolute(path, error).lexically_normal().string();
}

msghdr MessageOf(iovec& part, char* control, size_t control_bytes) {
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = control_bytes;
  return message;
}

void SendAnswer(int socket, Answer answer) {
  iovec part{.iov_base = &answer.error, .iov_len = sizeof(answer.error)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = MessageOf(part, control, answer.fd >= 0 ? sizeof(control) : 0);
  if (answer.fd >= 0) {
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &answer.fd, sizeof(int));
  }
  sendmsg(socket, &message, MSG_NOSIGNAL);
  if (answer.fd >= 0) close(answer.fd);
}

Answer ReceiveAnswer(int socket) {
  Answer answer;
  iovec part{.iov_base = &answer.error, .iov_len = sizeof(answer.error)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = MessageOf(part, control, sizeof(control));
  ssize_t got = 0;
  do got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got != sizeof(answer.error)) return {.error = EACCES};  // it is gone
  if (const cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr && rights->cmsg_type == SCM_RIGHTS)
    memcpy(&answer.fd, CMSG_DATA(rights), sizeof(int));
  return answer;
}

// Until the daemon has ended.
void ServeOpens(int socket, const std::vector<std::string>& folders) {
  char path[PATH_MAX];
  for (ssize_t bytes = 0; (bytes = recv(socket, path, sizeof(path), 0)) > 0;) {
    const std::string wanted = Normal(std::string(path, static_cast<size_t>(bytes)));
    const bool allowed = std::any_of(folders.begin(), folders.end(), [&wanted](const std::string& folder) {
      return absl::StartsWith(wanted, absl::StrCat(folder, "/"));
    });
    const int fd = allowed ? OpenFile(wanted) : -1;
    SendAnswer(socket, {.error = fd >= 0 ? 0 : allowed ? errno : EACCES, .fd = fd});
  }
}

}  // namespace

int OpenToRead(const std::string& path) {
  const int fd = OpenFile(path);
  if (fd >= 0 || errno != EACCES || opener < 0) return fd;
  static absl::Mutex one_at_a_time(absl::kConstInit);
  const absl::MutexLock lock(&one_at_a_time);
  const std::string wanted = Normal(path);
  const bool asked = send(opener, wanted.data(), wanted.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(wanted.size());
  const Answer answer = asked ? ReceiveAnswer(opener) : Answer{.error = EACCES};
  errno = answer.error;
  return answer.fd;
}

void StartFileOpener(const std::vector<std::string>& folders, const std::function<bool()>& confine) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    // What ends the daemon ends this process, by its end of the pair alone.
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    dup2(ends[1], STDIN_FILENO);
    close_range(STDIN_FILENO + 1, ~0U, 0);
    if (confine()) ServeOpens(STDIN_FILENO, folders);
    _exit(0);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return;
  }
  opener = ends[0];
}

}  // namespace hedgerow::operate
