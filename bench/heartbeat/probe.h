// SPDX-License-Identifier: Apache-2.0
//
// Asks a server by the clock, whatever it answers, and measures how long each answer takes from the time at
// which its question was due: an echo, or a node that takes the probe for its leader and answers heartbeats,
// sealed as a leader's are. A server that pauses is late for every question of that time. Used by
// hr-heartbeat-probe; one thread, which may have a real-time priority, so that what is measured is the server's
// waiting for a processor and not its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "bench/load/histogram.h"
#include "bench/load/udp_socket.h"
#include "cluster/raft/types.h"
#include "cluster/wire/peer.h"

namespace hedgerow::bench {

// What is said, and what of an answer is understood.
class ProbeTalk {
 public:
  virtual ~ProbeTalk() = default;
  virtual std::string Ask(uint64_t number) = 0;
  // Which question it answers; nothing: none.
  virtual std::optional<uint64_t> Answered(std::string_view datagram) = 0;
  // What the other side wants to know before it answers; empty: nothing.
  virtual std::string Reply(std::string_view) { return ""; }
};

class EchoTalk final : public ProbeTalk {
 public:
  explicit EchoTalk(size_t bytes) : bytes_(bytes) {}
  std::string Ask(uint64_t number) override;
  std::optional<uint64_t> Answered(std::string_view datagram) override;

 private:
  size_t bytes_;
};

// The leader of a term that no election of the node's own has reached. Its incarnation must be new.
class LeaderTalk final : public ProbeTalk {
 public:
  LeaderTalk(const wire::PeerIdentity& identity, raft::NodeId node, raft::Term term, uint64_t election_timeout_ns)
      : codec_(identity), self_(identity.self), node_(node), term_(term), election_timeout_ns_(election_timeout_ns) {}
  std::string Ask(uint64_t number) override;
  std::optional<uint64_t> Answered(std::string_view datagram) override;
  std::string Reply(std::string_view datagram) override;

 private:
  wire::PeerCodec codec_;
  raft::NodeId self_;
  raft::NodeId node_;
  raft::Term term_;
  uint64_t election_timeout_ns_;
};

struct ProbeOptions {
  Address to{};
  uint64_t warm_up = 200;  // questions that are not measured
  uint64_t questions = 10'000;
  absl::Duration interval = absl::Milliseconds(1);  // from question to question
  absl::Duration patience = absl::Seconds(1);       // from the time at which a question was due
};

struct ProbeReport {
  Histogram latency_ns;   // of the answered ones
  Histogram send_lag_ns;  // from when a question was due until it was sent: the probe's own part of the latencies
  uint64_t answered = 0;
  uint64_t lost = 0;    // not answered within the patience
  uint64_t others = 0;  // datagrams that answered no question, or one that had its answer
};

ProbeReport RunProbe(UdpSocket& socket, ProbeTalk& talk, const ProbeOptions& options);

}  // namespace hedgerow::bench
