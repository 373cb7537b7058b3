// SPDX-License-Identifier: Apache-2.0
#include "bench/heartbeat/probe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <variant>

namespace hedgerow::bench {
namespace {

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Takes what comes until this question is answered or the time is over.
bool WaitForAnswer(UdpSocket& socket, ProbeTalk& talk, const ProbeOptions& options, Batch& batch,
                   uint64_t number, int64_t until_ns, uint64_t& others) {
  const std::array<int, 1> fds{socket.fd()};
  std::array<bool, 1> readable;
  bool answered = false;
  while (!answered && MonotonicNs() < until_ns) {
    WaitReadable(fds, until_ns, readable);
    if (!readable[0]) continue;
    socket.Receive(batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      const std::span<const uint8_t> bytes = batch.Bytes(i);
      const std::string_view datagram(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      if (talk.Answered(datagram) == number) {
        answered = true;
      } else if (const std::string reply = talk.Reply(datagram); !reply.empty()) {
        socket.SendOne(Bytes(reply), options.to);
      } else {
        ++others;
      }
    }
  }
  return answered;
}

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
  return codec_.Seal(node_, term_,
                     raft::Heartbeat{.round = number, .election_timeout_ns = election_timeout_ns_});
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
  const std::array<int, 0> nothing{};
  const int64_t interval_ns = absl::ToInt64Nanoseconds(options.interval);
  int64_t due_ns = MonotonicNs();
  for (uint64_t number = 1; number <= options.warm_up + options.questions; ++number) {
    const std::string question = talk.Ask(number);
    while (MonotonicNs() < due_ns) WaitReadable(nothing, due_ns, {});
    const int64_t sent_ns = MonotonicNs();
    socket.SendOne(Bytes(question), options.to);
    const bool measured = number > options.warm_up;
    // Before it is believed, the probe must not wait long for each.
    const int64_t until_ns = sent_ns + (measured ? absl::ToInt64Nanoseconds(options.patience)
                                                 : std::max<int64_t>(interval_ns, 5'000'000));
    uint64_t others = 0;
    const bool answered = WaitForAnswer(socket, talk, options, batch, number, until_ns, others);
    const int64_t now_ns = MonotonicNs();
    if (measured) {
      report.others += others;
      if (answered) {
        ++report.answered;
        report.latency_ns.Record(static_cast<uint64_t>(now_ns - sent_ns));
      } else {
        ++report.lost;
      }
    }
    due_ns = std::max(due_ns + interval_ns, now_ns);
  }
  return report;
}

}  // namespace hedgerow::bench
