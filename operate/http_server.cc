// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server; see the header. A connection is read until its head is whole, answered, written, and closed: a
// connection of its own for each question costs nothing on loopback, and there is no state to get wrong.

#include "operate/http_server.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "net/unique_fd.h"

namespace hedgerow::operate {
namespace {

constexpr int64_t kReadingMs = 10'000;   // a browser opens connections ahead of need and uses them seconds later
constexpr int64_t kWritingMs = 10'000;
constexpr int64_t kDrainingMs = 1'000;
constexpr int64_t kNoDescriptorMs = 200;  // before the next try to accept when the process has none left

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000 + now.tv_nsec / 1'000'000;
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;  // 0: the text is no address with a port
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress ParseAddress(absl::string_view text) {
  SocketAddress result;
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return result;
  absl::string_view host = text.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (bracketed != (host.find(':') != absl::string_view::npos)) return result;
  const std::string port(text.substr(colon + 1));
  // No host would be taken for this one.
  if (host.empty() || port.empty()) return result;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(std::string(host).c_str(), port.c_str(), &hints, &found) != 0) return result;
  memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.bytes = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

// Listening, or invalid with errno.
net::UniqueFd Listen(const SocketAddress& address) {
  net::UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Connections that we closed linger in the kernel for a minute; a program that starts again needs its port.
  const int on = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), address.get(), address.bytes) != 0 || listen(fd.get(), 64) != 0) {
    const int error = errno;
    fd.Reset();
    errno = error;
  }
  return fd;
}

std::string BoundAddress(const net::UniqueFd& fd, const std::string& listen) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof(bound);
  char port[NI_MAXSERV] = "";
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), bytes, nullptr, 0, port, sizeof(port), NI_NUMERICSERV) != 0) {
    return listen;
  }
  return absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
}

struct Connection {
  enum class Phase { kReading, kAnswering, kWriting, kDraining };
  net::UniqueFd fd;
  Phase phase = Phase::kReading;
  int64_t deadline_ms = 0;
  bool head_only = false;
  std::string in;
  std::string out;
  size_t sent = 0;
};

class RunningServer final : public HttpServer {
 public:
  RunningServer(net::UniqueFd listener, net::UniqueFd wake, std::string address, std::vector<HttpRoute> routes)
      : listener_(std::move(listener)),
        wake_(std::move(wake)),
        address_(std::move(address)),
        routes_(std::move(routes)),
        talker_([this] { Talk(); }),
        waiter_([this] { Wait(); }) {}
  ~RunningServer() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    Wake();
    talker_.join();
    waiter_.join();
  }
  std::string address() const override { return address_; }

 private:
  struct Job {
    uint64_t connection;
    HttpRequest request;
    const HttpRoute* route;
  };

  void Wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  // The second thread.
  void Wait() {
    for (;;) {
      std::optional<Job> job;
      {
        absl::MutexLock lock(&mutex_);
        const auto something = [this]()
                                   ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !jobs_.empty(); };
        mutex_.Await(absl::Condition(&something));
        if (stopping_) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      HttpResponse response = job->route->answer(job->request);
      {
        absl::MutexLock lock(&mutex_);
        answers_.emplace_back(job->connection, std::move(response));
      }
      Wake();
    }
  }

  // The first thread, to the end of Wait.
  void Talk() {
    std::vector<pollfd> polled;
    std::vector<uint64_t> ids;
    for (;;) {
      const bool accepting = NowMs() >= accept_after_ms_;
      polled = {{wake_.get(), POLLIN, 0}, {accepting ? listener_.get() : -1, POLLIN, 0}};
      ids.clear();
      for (const auto& [id, connection] : connections_) {
        polled.push_back({connection.fd.get(), EventsOf(connection), 0});
        ids.push_back(id);
      }
      const int ready = poll(polled.data(), polled.size(), TimeoutMs());
      if (!TakeAnswers(polled[0].revents != 0)) return;
      if (ready > 0 && polled[1].revents != 0) Accept();
      for (size_t i = 0; ready > 0 && i < ids.size(); ++i) {
        if (polled[i + 2].revents != 0) Serve(ids[i], polled[i + 2].revents);
      }
      const int64_t now_ms = NowMs();
      std::erase_if(connections_, [now_ms](const auto& entry) { return entry.second.deadline_ms <= now_ms; });
    }
  }

  static short EventsOf(const Connection& connection) {
    if (connection.phase == Connection::Phase::kAnswering) return 0;
    return connection.phase == Connection::Phase::kWriting ? POLLOUT : POLLIN;
  }

  int TimeoutMs() const {
    int64_t next_ms = INT64_MAX;
    for (const auto& [id, connection] : connections_) next_ms = std::min(next_ms, connection.deadline_ms);
    const int64_t now_ms = NowMs();
    if (accept_after_ms_ > now_ms) next_ms = std::min(next_ms, accept_after_ms_);
    if (next_ms == INT64_MAX) return -1;
    return static_cast<int>(std::clamp<int64_t>(next_ms - now_ms, 0, 60'000));
  }

  // False: the server ends.
  bool TakeAnswers(bool woken) {
    if (woken) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
    }
    std::vector<std::pair<uint64_t, HttpResponse>> answers;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return false;
      answers.swap(answers_);
    }
    for (const auto& [id, response] : answers) {
      const auto found = connections_.find(id);
      if (found != connections_.end()) Respond(id, found->second, response);
    }
    return true;
  }

  void Accept() {
    for (;;) {
      net::UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid()) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        // Without descriptors the listener stays readable: give others time to close some.
        if (errno != EAGAIN) accept_after_ms_ = NowMs() + kNoDescriptorMs;
        return;
      }
      if (connections_.size() >= kMaxConnections && !CloseAnIdleOne()) continue;
      Connection& connection = connections_[++last_id_];
      connection.fd = std::move(fd);
      connection.deadline_ms = NowMs() + kReadingMs;
    }
  }

  bool CloseAnIdleOne() {
    const auto idle = std::find_if(connections_.begin(), connections_.end(), [](const auto& entry) {
      return entry.second.phase == Connection::Phase::kReading || entry.second.phase == Connection::Phase::kDraining;
    });
    if (idle == connections_.end()) return false;
    connections_.erase(idle);
    return true;
  }

  void Serve(uint64_t id, short events) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;  // closed a moment ago, for a newer one
    Connection& connection = found->second;
    switch (connection.phase) {
      case Connection::Phase::kReading:
        Read(id, connection);
        return;
      case Connection::Phase::kAnswering:  // who asked is gone
        if ((events & (POLLERR | POLLHUP | POLLNVAL)) != 0) connections_.erase(id);
        return;
      case Connection::Phase::kWriting:
        Write(id, connection);
        return;
      case Connection::Phase::kDraining:
        if (!Discard(connection)) connections_.erase(id);
        return;
    }
  }

  void Read(uint64_t id, Connection& connection) {
    char buffer[4096];
    const ssize_t got = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      connections_.erase(id);
      return;
    }
    connection.in.append(buffer, static_cast<size_t>(got));
    ParsedHead parsed = ParseHead(connection.in);
    if (parsed.state == ParsedHead::State::kIncomplete) return;
    if (parsed.state == ParsedHead::State::kRefused) {
      Respond(id, connection, parsed.refusal);
      return;
    }
    connection.head_only = parsed.request.method == "HEAD";
    Answer(id, connection, std::move(parsed.request));
  }

  void Answer(uint64_t id, Connection& connection, HttpRequest request) {
    const auto route = std::find_if(routes_.begin(), routes_.end(),
                                    [&](const HttpRoute& candidate) { return candidate.path == request.path; });
    if (route == routes_.end()) {
      Respond(id, connection, {.status = 404, .body = "there is nothing under this path\n"});
    } else if (!route->may_wait) {
      Respond(id, connection, route->answer(request));
    } else {
      connection.phase = Connection::Phase::kAnswering;
      connection.deadline_ms = INT64_MAX;  // handlers have bounds of their own
      // Bounded by the number of connections: each waits for one answer.
      absl::MutexLock lock(&mutex_);
      jobs_.push_back({id, std::move(request), &*route});
    }
  }

  void Respond(uint64_t id, Connection& connection, const HttpResponse& response) {
    connection.out = FormatResponse(response, connection.head_only);
    connection.phase = Connection::Phase::kWriting;
    connection.deadline_ms = NowMs() + kWritingMs;
    Write(id, connection);
  }

  void Write(uint64_t id, Connection& connection) {
    while (connection.sent < connection.out.size()) {
      const ssize_t sent = send(connection.fd.get(), connection.out.data() + connection.sent,
                                connection.out.size() - connection.sent, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return;
      if (sent < 0) {
        connections_.erase(id);
        return;
      }
      connection.sent += static_cast<size_t>(sent);
    }
    // Closed at once, a connection with unread bytes is reset, and the answer may be lost on the way.
    shutdown(connection.fd.get(), SHUT_WR);
    connection.out = std::string();
    connection.phase = Connection::Phase::kDraining;
    connection.deadline_ms = NowMs() + kDrainingMs;
  }

  // False: the other side has closed.
  static bool Discard(const Connection& connection) {
    char buffer[4096];
    const ssize_t got = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }

  const net::UniqueFd listener_;
  const net::UniqueFd wake_;
  const std::string address_;
  const std::vector<HttpRoute> routes_;

  // Of the first thread only.
  std::map<uint64_t, Connection> connections_;  // by the order in which they came
  uint64_t last_id_ = 0;
  int64_t accept_after_ms_ = 0;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<uint64_t, HttpResponse>> answers_ ABSL_GUARDED_BY(mutex_);

  std::thread talker_;  // last members: they use all others
  std::thread waiter_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen, const std::string& setting,
                                                              std::vector<HttpRoute> routes) {
  const SocketAddress address = ParseAddress(listen);
  if (address.bytes == 0) return absl::InvalidArgumentError(absl::StrCat(setting, ": ", listen));
  net::UniqueFd listener = Listen(address);
  net::UniqueFd wake(listener.valid() ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1);
  if (!wake.valid()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", listen, ": ", strerror(errno),
                                               " (is the port taken? ", setting, " in the configuration)"));
  }
  std::string bound = BoundAddress(listener, listen);
  return std::make_unique<RunningServer>(std::move(listener), std::move(wake), std::move(bound), std::move(routes));
}

}  // namespace hedgerow::operate
