// SPDX-License-Identifier: Apache-2.0
#include "bench/steer/collector.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/steer/source.h"
#include "net/unique_fd.h"
#include "operate/service_manager.h"

namespace hedgerow::bench {
namespace {

constexpr size_t kBatch = 64;
constexpr size_t kReadBytes = 64 << 10;
constexpr int kAcceptsInATurn = 64;
constexpr int kEvents = 256;

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

absl::StatusOr<SourceCounts> SourceCounts::Map(const std::string& path, size_t sources) {
  SourceCounts counts;
  if (path.empty()) return counts;
  absl::StatusOr<MappedWords> words = MapWords(path, 2 * sources);
  if (!words.ok()) return words.status();
  counts.counts_ = *std::move(words);
  counts.sources_ = sources;
  return counts;
}

bool SourceCounts::Count(uint32_t source, bool tcp) {
  if (source >= sources_) return false;
  ++counts_[2 * size_t{source} + (tcp ? 1 : 0)];
  return true;
}

struct Collector::Datagrams {
  std::array<std::array<uint8_t, kSteerMessageMost>, kBatch> bytes;
  std::array<sockaddr_storage, kBatch> peers;
  std::array<iovec, kBatch> vectors;
  std::array<mmsghdr, kBatch> headers;
};

uint64_t Work(uint64_t steps, uint64_t seed) {
  for (uint64_t i = 0; i < steps; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    seed ^= seed >> 29;  // without it a compiler computes several steps at once
  }
  return seed;
}

Collector::Collector(std::vector<Listening> sockets, SourceCounts counts, const CollectorOptions& options)
    : sockets_(std::move(sockets)),
      counts_(std::move(counts)),
      options_(options),
      pid_(static_cast<uint32_t>(getpid())),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      buffer_(kReadBytes),
      datagrams_(std::make_unique<Datagrams>()) {
  for (const Listening& socket : sockets_) {
    const uint32_t exclusive = options_.shared ? EPOLLEXCLUSIVE : 0;
    Watch(epoll_, EPOLL_CTL_ADD, socket.fd, EPOLLIN | exclusive, static_cast<uint64_t>(socket.fd));
  }
}

Collector::~Collector() {
  for (const auto& [fd, rest] : connections_) close(fd);
  close(epoll_);
}

void Collector::Turn(int timeout_ms) {
  std::array<epoll_event, kEvents> events;
  const int count = epoll_wait(epoll_, events.data(), kEvents, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const auto fd = static_cast<int>(events[static_cast<size_t>(i)].data.u64);
    const auto listening =
        std::find_if(sockets_.begin(), sockets_.end(), [fd](const Listening& each) { return each.fd == fd; });
    if (listening == sockets_.end()) {
      const auto connection = connections_.find(fd);
      if (connection != connections_.end() && !ReadConnection(fd, connection->second)) {
        connections_.erase(connection);
        close(fd);
      }
    } else if (listening->tcp) {
      Accept(fd);
    } else if (options_.peek) {
      ReadOneByPeeking(fd);
    } else {
      ReadDatagrams(fd);
    }
  }
  if (options_.heartbeat_ns > 0 && MonotonicNs() >= next_heartbeat_ns_) {
    operate::NotifyServiceManager("WATCHDOG=1");
    next_heartbeat_ns_ = MonotonicNs() + options_.heartbeat_ns;
  }
}

bool Collector::Handle(const SteerMessage& message, bool tcp, SteerMessage& answer) {
  ++(tcp ? totals_.tcp : totals_.udp);
  if (!counts_.Count(message.source, tcp)) ++totals_.beyond;
  if (options_.work_steps > 0) result_ = Work(options_.work_steps, result_ ^ message.id);
  if ((message.flags & SteerMessage::kAnswerWanted) == 0) return false;
  answer = AnswerTo(message, options_.slot, pid_);
  answer.pad = static_cast<uint32_t>(result_ & 1);  // the result is used
  return true;
}

void Collector::ReadDatagrams(int fd) {
  Datagrams& all = *datagrams_;
  for (size_t i = 0; i < kBatch; ++i) {
    all.vectors[i] = {all.bytes[i].data(), kSteerMessageMost};
    all.headers[i] = {};
    all.headers[i].msg_hdr.msg_iov = &all.vectors[i];
    all.headers[i].msg_hdr.msg_iovlen = 1;
    all.headers[i].msg_hdr.msg_name = &all.peers[i];
    all.headers[i].msg_hdr.msg_namelen = sizeof all.peers[i];
  }
  const int count = recvmmsg(fd, all.headers.data(), kBatch, MSG_DONTWAIT, nullptr);
  for (size_t i = 0; count > 0 && i < static_cast<size_t>(count); ++i) {
    const auto message = ParseSteerMessage({all.bytes[i].data(), all.headers[i].msg_len});
    if (!message.has_value()) {
      ++totals_.not_messages;
      continue;
    }
    SteerMessage answer;
    if (!Handle(*message, false, answer)) continue;
    const auto& header = all.headers[i].msg_hdr;
    if (sendto(fd, &answer, sizeof answer, MSG_DONTWAIT, static_cast<sockaddr*>(header.msg_name), header.msg_namelen) <
        0) {
      ++totals_.unanswered;
    }
  }
}

void Collector::ReadOneByPeeking(int fd) {
  sockaddr_storage peer;
  socklen_t peer_bytes = sizeof peer;
  const ssize_t bytes = recvfrom(fd, buffer_.data(), buffer_.size(), MSG_PEEK | MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&peer), &peer_bytes);
  if (bytes < 0) return;
  const auto message = ParseSteerMessage({buffer_.data(), static_cast<size_t>(bytes)});
  SteerMessage answer;
  if (!message.has_value()) {
    ++totals_.not_messages;
  } else if (Handle(*message, false, answer) &&
             sendto(fd, &answer, sizeof answer, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&peer), peer_bytes) < 0) {
    ++totals_.unanswered;
  }
  (void)recv(fd, buffer_.data(), 1, MSG_DONTWAIT | MSG_TRUNC);
}

void Collector::Accept(int fd) {
  for (int i = 0; i < kAcceptsInATurn; ++i) {
    const int connection = accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection < 0) return;
    const int one = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!Watch(epoll_, EPOLL_CTL_ADD, connection, EPOLLIN, static_cast<uint64_t>(connection))) {
      close(connection);
      return;
    }
    connections_[connection];
    ++totals_.accepted;
  }
}

bool Collector::ReadConnection(int fd, std::vector<uint8_t>& rest) {
  std::copy(rest.begin(), rest.end(), buffer_.begin());
  const ssize_t bytes = recv(fd, buffer_.data() + rest.size(), buffer_.size() - rest.size(),
                             MSG_DONTWAIT | (options_.peek ? MSG_PEEK : 0));
  if (bytes == 0) return false;
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  const std::span<const uint8_t> all(buffer_.data(), rest.size() + static_cast<size_t>(bytes));
  std::vector<SteerMessage> answers;
  size_t at = 0;
  while (all.size() - at >= sizeof(SteerMessage)) {
    const auto message = ParseSteerMessage(all.subspan(at));
    if (!message.has_value()) {
      ++totals_.not_messages;
      return false;
    }
    if (all.size() - at < message->bytes) break;
    SteerMessage answer;
    if (Handle(*message, true, answer)) answers.push_back(answer);
    at += message->bytes;
  }
  if (!answers.empty()) {
    const size_t wanted = answers.size() * sizeof(SteerMessage);
    // A peer that reads none of its answers is cut off, rather than a part of one being sent.
    if (send(fd, answers.data(), wanted, MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(wanted)) {
      totals_.unanswered += answers.size();
      return false;
    }
  }
  if (options_.peek) {
    if (at == 0)
      usleep(100);  // half a message: the rest of it is not waited for by looking at its beginning again and again
    std::vector<uint8_t> consumed(at);
    return at == 0 || recv(fd, consumed.data(), at, MSG_DONTWAIT) == static_cast<ssize_t>(at);
  }
  rest.assign(all.begin() + static_cast<ptrdiff_t>(at), all.end());
  return true;
}

}  // namespace hedgerow::bench
