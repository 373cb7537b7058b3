// SPDX-License-Identifier: Apache-2.0
//
// Processes that hold sockets as the daemons do that are adopted: each on its own, or made by a parent for its workers.
#pragma once

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/ip_address.h"
#include "net/socket_address.h"

namespace hedgerow::steer {

struct SocketOptions {
  const char* address = "127.0.0.1";
  uint16_t port = 2055;
  bool reuse_port = true;
  const char* device = nullptr;
};

// Bound, and listening where it is TCP; -1 and errno where that fails. For the children, which report it by not
// becoming ready.
inline int MakeSocket(int type, const SocketOptions& options = {}) {
  const auto ip = net::IpAddress::Parse(options.address).value();
  const net::SocketAddress address(ip, options.port);
  const int fd = socket(ip.family(), type, 0);
  const int on = 1;
  if (options.reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) return -1;
  if (options.device != nullptr && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, options.device,
                                              static_cast<socklen_t>(std::strlen(options.device))) != 0)
    return -1;
  if (ip.family() == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(fd, address.get(), address.bytes) != 0) return -1;
  if (type == SOCK_STREAM && listen(fd, 16) != 0) return -1;
  return fd;
}

inline int MakeUdp(const SocketOptions& options = {}) { return MakeSocket(SOCK_DGRAM, options); }
inline int MakeTcp(const SocketOptions& options = {}) { return MakeSocket(SOCK_STREAM, options); }

// Moves a descriptor to a number that the test knows.
inline int MoveTo(int number, int fd) {
  if (fd < 0 || dup2(fd, number) != number) return -1;
  close(fd);
  return number;
}

inline bool AddToEpoll(std::initializer_list<int> sockets) {
  const int set = epoll_create1(0);
  for (const int fd : sockets) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) return false;
  }
  return true;
}

// A child that runs `body` and then waits to be killed. It ends with the test.
class Child {
 public:
  // `body` returns whether it could do all.
  explicit Child(const std::function<bool()>& body) {
    int ready[2];
    if (pipe(ready) != 0) return;
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      close(ready[0]);
      if (!body()) _exit(1);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      close(ready[1]);
      for (;;) pause();
    }
    close(ready[1]);
    char byte = 0;
    ready_ = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), ready_(other.ready_) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { Kill(); }

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }
  bool ready() const { return ready_; }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

// In a child: workers that inherit what it made. Each ends with its parent.
inline bool ForkWorkers(size_t count, const std::function<bool(size_t worker)>& body) {
  for (size_t i = 0; i < count; ++i) {
    int ready[2];
    if (pipe(ready) != 0) return false;
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!body(i) || write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char byte = 0;
    const bool is_ready = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (pid < 0 || !is_ready) return false;
  }
  return true;
}

}  // namespace hedgerow::steer
