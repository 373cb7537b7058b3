// SPDX-License-Identifier: Apache-2.0
#include "cluster/client/testing/fake_server.h"

#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::client {

wire::HkvAnswer FakeStore::Serve(const wire::HkvRequest& request) {
  const std::lock_guard lock(mutex_);
  wire::HkvAnswer answer{.kind = request.kind, .client_id = request.client_id, .seq = request.seq};
  if (request.kind == wire::HkvKind::kGet) {
    const std::optional<std::string> value = state_.Get(request.key);
    answer.status = value.has_value() ? wire::HkvStatus::kOk : wire::HkvStatus::kNotFound;
    answer.value = value.value_or("");
    return answer;
  }
  kv::Command command = wire::CommandOf(wire::HkvRequest(request));
  if (request.kind == wire::HkvKind::kOpen) command.session = {.id = random_(), .token = random_()};
  const kv::Result result = state_.Apply(++index_, command);
  answer.status = wire::StatusOf(result.code);
  answer.session = result.session;
  answer.token = result.token;
  answer.values = result.values;
  return answer;
}

size_t FakeStore::sessions() {
  const std::lock_guard lock(mutex_);
  return state_.sessions();
}

absl::StatusOr<std::unique_ptr<FakeServer>> FakeServer::Start(std::shared_ptr<FakeStore> store, Faults faults) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    close(fd);
    return absl::ErrnoToStatus(errno, "bind");
  }
  return std::unique_ptr<FakeServer>(
      new FakeServer(fd, absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), std::move(store), std::move(faults)));
}

FakeServer::FakeServer(int fd, std::string address, std::shared_ptr<FakeStore> store, Faults faults)
    : fd_(fd), address_(std::move(address)), store_(std::move(store)), faults_(std::move(faults)) {
  thread_ = std::thread([this] { Run(); });
}

FakeServer::~FakeServer() {
  stopped_ = true;
  thread_.join();
  close(fd_);
}

void FakeServer::Run() {
  using Clock = std::chrono::steady_clock;
  struct Answer {
    sockaddr_in to{};
    std::string datagram{};
    int copies = 0;
  };
  std::multimap<Clock::time_point, Answer> answers;
  std::array<char, 2048> bytes;
  while (!stopped_) {
    for (; !answers.empty() && answers.begin()->first <= Clock::now(); answers.erase(answers.begin())) {
      const Answer& answer = answers.begin()->second;
      for (int i = 0; i < answer.copies; ++i) {
        sendto(fd_, answer.datagram.data(), answer.datagram.size(), 0, reinterpret_cast<const sockaddr*>(&answer.to),
               sizeof(answer.to));
      }
    }
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, answers.empty() ? 20 : 1) <= 0) continue;
    sockaddr_in peer{};
    socklen_t length = sizeof(peer);
    const ssize_t received = recvfrom(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&peer), &length);
    if (received < 0) continue;
    ++requests_;
    client_port_ = peer.sin_port;
    const wire::HkvParse parsed = wire::ParseHkvRequest(std::string_view(bytes.data(), static_cast<size_t>(received)));
    if (!parsed.request.has_value() && !parsed.answer.has_value()) continue;
    Treatment treatment;
    std::optional<wire::HkvAnswer> answer = parsed.answer;
    if (parsed.request.has_value()) {
      if (faults_) treatment = faults_(*parsed.request);
      if (treatment.lost) continue;
      answer = treatment.instead.has_value() ? treatment.instead : store_->Serve(*parsed.request);
    }
    answers.emplace(Clock::now() + treatment.delay, Answer{peer, wire::Encode(*answer), treatment.answers});
  }
}

}  // namespace hedgerow::client
