// SPDX-License-Identifier: Apache-2.0
//
// The heartbeat workload: the leader of a cluster of two asks its follower. Requests are sealed as a leader's are.
#include <algorithm>
#include <random>
#include <variant>

#include "bench/load/workload.h"
#include "cluster/wire/peer.h"

namespace hedgerow::bench {
namespace {

constexpr raft::NodeId kFollower(1), kLeader(2);
// No election of the follower's own reaches it.
constexpr raft::Term kTerm(1'000'000);
constexpr uint64_t kElectionTimeout_ns = 20'000'000;

class HeartbeatWorkload final : public Workload {
 public:
  explicit HeartbeatWorkload(const wire::PeerIdentity& identity) : codec_(identity) {}

  size_t Encode(uint64_t seq, std::span<uint8_t, kMaxRequestBytes> out) override {
    const std::string heartbeat =
        codec_.Seal(kFollower, kTerm, raft::Heartbeat{.round = seq + 1, .election_timeout_ns = kElectionTimeout_ns});
    std::copy(heartbeat.begin(), heartbeat.end(), out.begin());
    return heartbeat.size();
  }

  Decoded Decode(std::span<const uint8_t> datagram, uint64_t /*flow*/, uint64_t next_seq) override {
    const wire::Opened opened = codec_.Open({reinterpret_cast<const char*>(datagram.data()), datagram.size()});
    if (!opened.ok() || opened.header.from != kFollower) return {};
    // A node believes nothing of a process whose incarnation it does not know.
    if (const auto* const hello = std::get_if<wire::Hello>(&opened.body))
      return {.reply = codec_.Seal(kFollower, kTerm, wire::HelloAck{.nonce = hello->nonce})};
    const auto* const answer = std::get_if<raft::HeartbeatReply>(&opened.body);
    if (answer == nullptr || opened.header.term != kTerm || answer->round < 1 || answer->round > next_seq) return {};
    return {.result = DecodeResult::kAnswer, .seq = answer->round - 1};
  }

  uint64_t IdsPerFlow() const override { return uint64_t{1} << 32; }

 private:
  wire::PeerCodec codec_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> MakeHeartbeatWorkload(uint64_t cluster_id, const std::string& cluster_key) {
  const absl::StatusOr<wire::Key> key = wire::ParseKey(cluster_key);
  if (!key.ok()) return key.status();
  std::random_device random;
  const uint64_t incarnation = (static_cast<uint64_t>(random()) << 32 | random()) | 1;
  return std::make_unique<HeartbeatWorkload>(
      wire::PeerIdentity{.cluster_id = cluster_id, .keys = *key, .self = kLeader, .incarnation = incarnation});
}

}  // namespace hedgerow::bench
