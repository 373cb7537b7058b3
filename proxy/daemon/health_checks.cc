// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/health_checks.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/netlink/in_place.h"
#include "net/socket_address.h"
#include "operate/event_loop.h"
#include "proxy/config/built_in_profiles.h"
#include "proxy/profiles/query.h"

namespace hedgerow {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLastsNs = 3 * kSecondNs;  // without a daemon
constexpr int64_t kAnswerWithinNs = kSecondNs * 9 / 10;
constexpr int kDatagrams = 8;  // that are read of a backend in a look

// What cannot be sent is not answered. Without a question a TCP connection is opened.
net::UniqueFd Ask(const v1::Backend& backend, const std::string& source, const std::string& question) {
  const auto address = net::IpAddress::Parse(backend.address()), own = net::IpAddress::Parse(source);
  if (!address.ok()) return {};
  const int kind = question.empty() ? SOCK_STREAM : SOCK_DGRAM;
  net::UniqueFd asked(socket(address->family(), kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const net::SocketAddress there(*address, static_cast<uint16_t>(backend.port())), here(own.value_or(*address), 0);
  setsockopt(asked.get(), SOL_SOCKET, SO_MARK, &net::kOwnQuestionMark, sizeof(net::kOwnQuestionMark));
  if (own.ok()) bind(asked.get(), here.get(), here.bytes);
  if (connect(asked.get(), there.get(), there.bytes) == 0 && !question.empty())
    send(asked.get(), question.data(), question.size(), 0);
  return asked;
}

bool IsAnswered(int socket, const v1::Profile& profile, const std::string& question) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (question.empty()) return getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
  std::string reply(2048, '\0');
  for (int i = 0; i < kDatagrams; ++i) {
    const ssize_t bytes = recv(socket, reply.data(), reply.size(), 0);
    if (bytes < 0 && errno == EAGAIN) return false;
    if (bytes < 0) continue;  // an ICMP error, which may be forged: an answer may wait behind it
    const ReplyKind kind = JudgeReply(profile, question, {reply.data(), static_cast<size_t>(bytes)}).kind;
    if (kind == ReplyKind::kAnswer || kind == ReplyKind::kNegativeOk) return true;
  }
  return false;
}

}  // namespace

void HealthChecks::Begin(DaemonFacts& facts, const Snapshot* snapshot) {
  std::set<std::pair<std::string, std::string>> checked;
  for (size_t i = 0; i < backends_.size(); ++i) {
    const v1::Service& service = config_.services(static_cast<int>(i));
    backends_[i].resize(service.has_check() ? static_cast<size_t>(service.backends_size()) : 0);
    const ServiceSnapshot* seen = snapshot == nullptr ? nullptr : FindByName(snapshot->services, service.name());
    for (size_t j = 0; j < backends_[i].size(); ++j) {
      const std::string& name = service.backends(static_cast<int>(j)).name();
      checked.emplace(service.name(), name);
      const BackendSnapshot* before = seen == nullptr ? nullptr : FindByName(seen->backends, name);
      backends_[i][j].failing = before != nullptr && before->failing;
    }
  }
  std::erase_if(facts.checks, [&](const auto& each) { return !checked.contains(each.first); });
}

absl::Status HealthChecks::Look(DaemonFacts& facts, LivePolicy& policy, const Snapshot* snapshot, int64_t now_ns) {
  if (seconds_ == 0) Begin(facts, snapshot);
  absl::Status first;
  for (size_t i = 0; i < backends_.size(); ++i) {
    const v1::Service& service = config_.services(static_cast<int>(i));
    if (!service.has_check()) continue;  // the verdict of a check that was taken away ends by itself
    const v1::Profile profile = config::CheckedProfile(service);
    const bool due = seconds_ % std::max<int64_t>(1, service.check().every_ns() / kSecondNs) == 0;
    const ServiceSnapshot* seen = snapshot == nullptr ? nullptr : FindByName(snapshot->services, service.name());
    std::vector<size_t> failing;
    size_t asked = 0, well = 0;  // of those that requests go to
    for (size_t j = 0; j < backends_[i].size(); ++j) {
      Backend& backend = backends_[i][j];
      const v1::Backend& known = service.backends(static_cast<int>(j));
      const bool answered = backend.socket.valid() && IsAnswered(backend.socket.get(), profile, backend.question);
      // After a late look the next one finds a question that is too young to have failed.
      if (answered || (backend.socket.valid() && now_ns - backend.asked_ns >= kAnswerWithinNs)) {
        backend.socket.Reset();
        ++facts.checks[{service.name(), known.name()}].at(answered ? 0 : 1);
        backend.streak = answered == backend.failing ? backend.streak + 1 : 0;
        if (backend.streak >= (backend.failing ? service.check().rise() : service.check().fall())) {
          backend.failing = !backend.failing;
          backend.streak = 0;
        }
      }
      if (due && !backend.socket.valid()) {
        backend.question = service.check().tcp() == v1::SWITCH_ON ? "" : NewQueryOf(profile).value_or("");
        backend.asked_ns = now_ns;
        backend.socket = Ask(known, i < facts.paths.size() ? facts.paths[i].source : "", backend.question);
        if (!backend.socket.valid())
          first.Update(
              absl::ErrnoToStatus(errno, absl::StrCat("service ", service.name(), ": its check has no socket")));
      }
      if (backend.failing) failing.push_back(j);
      const BackendSnapshot* now = seen == nullptr ? nullptr : FindByName(seen->backends, known.name());
      if (now != nullptr && (now->drained || now->unrouted)) continue;
      ++asked;
      well += backend.failing ? 0 : 1;
    }
    // Where all fail that are asked, that says nothing of one; one that is drained is not to get their requests.
    if (asked > 0 ? well == 0 : failing.size() == backends_[i].size()) failing.clear();
    first.Update(policy.SetFailing(service.name(), failing, static_cast<uint64_t>(now_ns + kLastsNs)));
  }
  ++seconds_;
  return first;
}

}  // namespace hedgerow
