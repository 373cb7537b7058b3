// SPDX-License-Identifier: Apache-2.0
#include "steer/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hedgerow::steer {
namespace {

constexpr char kName[] = "steer-keeper";
constexpr int kTransports = 2;
constexpr int kAcceptAgain_ms = 100;
constexpr int kPeers = 4;  // supervisors at a time: one, and the next one

enum Operation : uint8_t { kPut = 1, kDrop, kTake, kEnd };

// A message each way; a put, and each answer to a take but the last, come with a socket.
struct Message {
  uint8_t operation = 0;
  uint8_t transport = 0;
  uint8_t slot = 0;
  uint8_t done = 0;  // of an answer: the last one
};

// Both safe in a signal handler.
bool Send(int fd, const Message& message, int socket) {
  iovec part{.iov_base = const_cast<Message*>(&message), .iov_len = sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (socket >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &socket, sizeof(int));
  }
  ssize_t sent;
  do sent = sendmsg(fd, &header, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == sizeof(message);
}

// False: the peer has closed, or sent no message of this protocol. `socket` is -1 without one.
bool Receive(int fd, Message& message, int& socket) {
  iovec part{.iov_base = &message, .iov_len = sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  socket = -1;
  ssize_t got;
  do got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); got >= 0 && each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_RIGHTS) memcpy(&socket, CMSG_DATA(each), sizeof(int));
  }
  if (got == sizeof(message) && (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) return true;
  if (socket >= 0) close(socket);
  socket = -1;
  return false;
}

bool IsOfThisUser(int fd) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

void DropCapabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  syscall(SYS_capset, &header, none);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

struct Kept {
  int sockets[kTransports][HR_STEER_SOCKETS];
};

// Returns whether the keeper goes on.
bool Answer(int peer, const Message& message, int socket, Kept& kept) {
  if (message.operation == kTake) {
    for (int transport = 0; transport < kTransports; ++transport) {
      for (int slot = 0; slot < HR_STEER_SOCKETS; ++slot) {
        const int held = kept.sockets[transport][slot];
        if (held >= 0) Send(peer, {kTake, static_cast<uint8_t>(transport), static_cast<uint8_t>(slot), 0}, held);
      }
    }
  } else if (message.operation == kEnd) {
    // Before the answer: the next start checks that the address is free.
    for (auto& sockets : kept.sockets) {
      for (const int held : sockets) {
        if (held >= 0) close(held);
      }
    }
  } else if (message.transport < kTransports && message.slot < HR_STEER_SOCKETS) {
    int& place = kept.sockets[message.transport][message.slot];
    if (place >= 0) close(place);
    place = message.operation == kPut ? std::exchange(socket, -1) : -1;
  }
  if (socket >= 0) close(socket);
  Send(peer, {message.operation, message.transport, message.slot, 1}, -1);
  return message.operation != kEnd;
}

// The process. Safe in a signal handler throughout: it is forked beside threads, and never becomes another program.
[[noreturn]] void Keep(int listening) {
  setsid();
  ResetSignals();
  DropCapabilities();
  prctl(PR_SET_NAME, kName, 0, 0, 0);
  if (const int null = open("/dev/null", O_RDWR); null >= 0) {
    for (int each = 0; each < 3; ++each) dup2(null, each);
  }
  constexpr int kListening = 3;
  dup2(listening, kListening);
  CloseFrom(kListening + 1);
  if (chdir("/") != 0) _exit(1);
  Kept kept;
  memset(&kept, -1, sizeof(kept));
  pollfd polled[1 + kPeers];
  for (pollfd& each : polled) each = {-1, POLLIN, 0};
  polled[0].fd = kListening;
  for (;;) {
    if (poll(polled, 1 + kPeers, -1) < 0) continue;
    for (int i = 1; i <= kPeers; ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      Message message;
      int socket = -1;
      if (!Receive(polled[i].fd, message, socket)) {
        close(polled[i].fd);
        polled[i].fd = -1;
      } else if (!Answer(polled[i].fd, message, socket, kept)) {
        _exit(0);
      }
    }
    if (polled[0].revents == 0) continue;
    const int peer = accept4(kListening, nullptr, nullptr, SOCK_CLOEXEC);
    int free = 1;
    while (free <= kPeers && polled[free].fd >= 0) ++free;
    if (peer >= 0 && free <= kPeers && IsOfThisUser(peer)) {
      polled[free] = {peer, POLLIN, 0};
    } else if (peer >= 0) {
      close(peer);
    } else {
      poll(nullptr, 0, kAcceptAgain_ms);  // no descriptor is left: the connection waits, and poll() names it again
    }
  }
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path ", path, " is too long for a socket; choose a shorter --run-dir or --name"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

bool IsKeeper(pid_t pid) {
  const auto stat = ReadProcessStat(pid);
  return stat.has_value() && stat->name == kName;
}

absl::StatusOr<KeeperClient> KeeperClient::Start(const std::string& path) {
  const auto address = AddressOf(path);
  if (!address.ok()) return address.status();
  const net::UniqueFd listening(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!listening.valid()) return absl::ErrnoToStatus(errno, "open the keeper's socket");
  unlink(path.c_str());
  if (bind(listening.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 || chmod(path.c_str(), 0600) != 0 ||
      listen(listening.get(), kPeers) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("listen on the keeper's socket ", path));
  }
  const auto forked = Fork();
  if (!forked.ok()) return forked.status();
  if (forked->pid == 0) Keep(listening.get());
  auto client = Connect(path);
  if (client.ok()) client->pid_ = forked->pid;
  return client;
}

absl::StatusOr<KeeperClient> KeeperClient::Connect(const std::string& path) {
  const auto address = AddressOf(path);
  if (!address.ok()) return address.status();
  KeeperClient client;
  client.fd_.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!client.fd_.valid()) return absl::ErrnoToStatus(errno, "open a socket to the keeper");
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  setsockopt(client.fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (connect(client.fd_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return absl::UnavailableError(absl::StrCat("no keeper of sockets answers at ", path, " (", strerror(errno), ")"));
  }
  return client;
}

absl::Status KeeperClient::Ask(uint8_t operation, Transport transport, int slot, int socket) {
  const Message message{operation, static_cast<uint8_t>(transport), static_cast<uint8_t>(slot), 0};
  Message answer;
  int none = -1;
  if (!Send(fd_.get(), message, socket) || !Receive(fd_.get(), answer, none)) {
    return absl::UnavailableError("the keeper of the sockets has gone");
  }
  return absl::OkStatus();
}

absl::Status KeeperClient::Put(Transport transport, int slot, int socket) { return Ask(kPut, transport, slot, socket); }
absl::Status KeeperClient::Drop(Transport transport, int slot) { return Ask(kDrop, transport, slot, -1); }
absl::Status KeeperClient::End() { return Ask(kEnd, Transport::kUdp, 0, -1); }

absl::StatusOr<std::vector<KeptSocket>> KeeperClient::Take() {
  std::vector<KeptSocket> all;
  bool going = Send(fd_.get(), {kTake, 0, 0, 0}, -1);
  for (Message answer; going;) {
    int socket = -1;
    going = Receive(fd_.get(), answer, socket);
    if (going && answer.done) return all;
    if (socket >= 0) all.push_back({answer.transport == 0 ? Transport::kUdp : Transport::kTcp, answer.slot, net::UniqueFd(socket)});
  }
  return absl::UnavailableError("the keeper of the sockets does not answer");
}

}  // namespace hedgerow::steer
