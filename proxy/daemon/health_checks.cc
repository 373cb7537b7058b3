// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/health_checks.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>

#include "net/socket_address.h"
#include "operate/event_loop.h"
#include "proxy/config/built_in_profiles.h"
#include "proxy/profiles/query.h"

namespace hedgerow {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLastsNs = 3 * kSecondNs;  // without a daemon

// What cannot be sent is not answered.
net::UniqueFd Ask(const v1::Backend& backend, const std::string& source, const std::string& question) {
  const auto address = net::IpAddress::Parse(backend.address()), own = net::IpAddress::Parse(source);
  if (!address.ok()) return {};
  net::UniqueFd asked(socket(address->family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const net::SocketAddress there(*address, static_cast<uint16_t>(backend.port())), here(own.value_or(*address), 0);
  if (own.ok()) bind(asked.get(), here.get(), here.bytes);
  if (connect(asked.get(), there.get(), there.bytes) == 0) send(asked.get(), question.data(), question.size(), 0);
  return asked;
}

bool IsAnswered(int socket, const v1::Profile& profile, const std::string& question) {
  std::string reply(2048, '\0');
  for (ssize_t bytes = 0; (bytes = recv(socket, reply.data(), reply.size(), 0)) >= 0;) {
    const ReplyKind kind = JudgeReply(profile, question, {reply.data(), static_cast<size_t>(bytes)}).kind;
    if (kind == ReplyKind::kAnswer || kind == ReplyKind::kNegativeOk) return true;
  }
  return false;
}

}  // namespace

absl::Status HealthChecks::Look(DaemonFacts& facts, LivePolicy& policy) {
  absl::Status first;
  for (size_t i = 0; i < backends_.size(); ++i) {
    const v1::Service& service = config_.services(static_cast<int>(i));
    const v1::Profile profile = service.has_check() ? config::CheckedProfile(service) : v1::Profile();
    const bool due = seconds_ % std::max<int64_t>(1, service.check().every_ns() / kSecondNs) == 0;
    backends_[i].resize(service.has_check() ? static_cast<size_t>(service.backends_size()) : 0);
    std::vector<size_t> failing;
    for (size_t j = 0; j < backends_[i].size(); ++j) {
      Backend& backend = backends_[i][j];
      const v1::Backend& known = service.backends(static_cast<int>(j));
      if (backend.socket.valid()) {
        const bool answered = IsAnswered(backend.socket.get(), profile, backend.question);
        backend.socket.Reset();
        ++facts.checks[{service.name(), known.name()}].at(answered ? 0 : 1);
        backend.streak = answered == backend.failing ? backend.streak + 1 : 0;
        if (backend.streak >= (backend.failing ? service.check().rise() : service.check().fall())) {
          backend.failing = !backend.failing;
          backend.streak = 0;
        }
      }
      if (due) {
        std::string random(kQueryRandomBytes, '\0');
        [[maybe_unused]] const ssize_t got = getrandom(random.data(), random.size(), 0);  // so few are never cut short
        backend.question = QueryOf(profile, random).value_or("");
        backend.socket = Ask(known, i < facts.paths.size() ? facts.paths[i].source : "", backend.question);
      }
      if (backend.failing) failing.push_back(j);
    }
    if (failing.size() == backends_[i].size()) failing.clear();  // that says nothing of one
    first.Update(policy.SetFailing(service.name(), failing, static_cast<uint64_t>(MonotonicNs() + kLastsNs)));
  }
  ++seconds_;
  return first;
}

}  // namespace hedgerow
