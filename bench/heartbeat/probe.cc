// SPDX-License-Identifier: Apache-2.0
#include "bench/heartbeat/probe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <variant>
#include <vector>

#include "bench/load/pacing.h"

namespace hedgerow::bench {
namespace {

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Warm-up questions are further apart: a node under stress has to hear of the probe, and to open its kernel
// part.
constexpr double kWarmUpPerSecond = 200;
// The probe polls this long before a question is due. A timer alone wakes it up too late on an idle processor,
// and that would be counted as the server's time.
constexpr int64_t kPollAhead_ns = 50'000;

}  // namespace

std::string EchoTalk::Ask(uint64_t number) {
  std::string out(std::max(bytes_, sizeof(number)), '\0');
  std::memcpy(out.data(), &number, sizeof(number));
  return out;
}

std::optional<uint64_t> EchoTalk::Answered(std::string_view datagram) {
  uint64_t number = 0;
  if (datagram.size() < sizeof(number)) return std::nullopt;
  std::memcpy(&number, datagram.data(), sizeof(number));
  return number;
}

std::string LeaderTalk::Ask(uint64_t number) {
  return codec_.Seal(node_, term_, raft::Heartbeat{.round = number, .election_timeout_ns = election_timeout_ns_});
}

std::optional<uint64_t> LeaderTalk::Answered(std::string_view datagram) {
  const wire::Opened opened = codec_.Open(datagram);
  if (!opened.ok() || opened.header.from != node_ || opened.header.term != term_) return std::nullopt;
  const auto* const reply = std::get_if<raft::HeartbeatReply>(&opened.body);
  if (reply == nullptr) return std::nullopt;
  return reply->round;
}

// A node that does not know the incarnation of the probe believes nothing it says.
std::string LeaderTalk::Reply(std::string_view datagram) {
  const wire::Opened opened = codec_.Open(datagram);
  if (!opened.ok()) return "";
  const auto* const hello = std::get_if<wire::Hello>(&opened.body);
  return hello == nullptr ? "" : codec_.Seal(opened.header.from, term_, wire::HelloAck{.nonce = hello->nonce});
}

ProbeReport RunProbe(UdpSocket& socket, ProbeTalk& talk, const ProbeOptions& options) {
  ProbeReport report;
  Batch batch;
  const std::array<int, 1> fds{socket.fd()};
  std::array<bool, 1> readable;
  const int64_t patience_ns = absl::ToInt64Nanoseconds(options.patience);
  const Pacing warm_up(MonotonicNs(), kWarmUpPerSecond);
  const Pacing measured(warm_up.DueNs(options.warm_up), 1.0 / absl::ToDoubleSeconds(options.interval));
  const auto due_ns = [&](uint64_t i) {
    return i < options.warm_up ? warm_up.DueNs(i) : measured.DueNs(i - options.warm_up);
  };
  const uint64_t questions = options.warm_up + options.questions;
  std::vector<bool> answered(questions);
  const int64_t end_ns = due_ns(questions - 1) + patience_ns;
  uint64_t asked = 0;
  std::string next = talk.Ask(1);  // sealed ahead of its time
  for (int64_t now_ns = MonotonicNs(); now_ns < end_ns && report.answered < options.questions; now_ns = MonotonicNs()) {
    if (asked < questions && now_ns >= due_ns(asked)) {
      socket.SendOne(Bytes(next), options.to);
      if (asked >= options.warm_up) report.send_lag_ns.Record(static_cast<uint64_t>(now_ns - due_ns(asked)));
      if (++asked < questions) next = talk.Ask(asked + 1);
    }
    WaitReadable(fds, asked < questions ? due_ns(asked) - kPollAhead_ns : end_ns, readable);
    if (!readable[0]) continue;
    socket.Receive(batch);
    now_ns = MonotonicNs();
    for (size_t i = 0; i < batch.size(); ++i) {
      const std::span<const uint8_t> bytes = batch.Bytes(i);
      const std::string_view datagram(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const uint64_t number = talk.Answered(datagram).value_or(0);
      if (number >= 1 && number <= asked && !answered[number - 1]) {
        answered[number - 1] = true;
        const int64_t waited_ns = now_ns - due_ns(number - 1);
        if (number <= options.warm_up || waited_ns > patience_ns) continue;
        ++report.answered;
        report.latency_ns.Record(static_cast<uint64_t>(waited_ns));
      } else if (const std::string reply = talk.Reply(datagram); !reply.empty()) {
        socket.SendOne(Bytes(reply), options.to);
      } else {
        ++report.others;
      }
    }
  }
  report.lost = options.questions - report.answered;
  return report;
}

}  // namespace hedgerow::bench
