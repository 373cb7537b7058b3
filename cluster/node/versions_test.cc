// SPDX-License-Identifier: Apache-2.0
//
// A cluster of this version's nodes and one of a version before with the same datagrams (number 3), whose place
// a double takes: it says what that one says, byte for byte (cluster/wire/peer_test.cc keeps that true), and
// knows of no copy ids. It votes, acknowledges and counts like any other. One of number 2 is heard by nobody;
// whole nodes of two programs: tests/e2e/test_recovery.py with HEDGEROW_PREVIOUS.

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "cluster/node/testing/node_testing.h"
#include "cluster/wire/peer.h"

namespace hedgerow::node {
namespace {

// A follower that keeps its log in memory, and believes what its codec opens.
class NodeOfTheVersionBefore {
 public:
  explicit NodeOfTheVersionBefore(const NodeConfig& config)
      : config_(config),
        socket_(UdpSocket::Bind(config.own().peer, 1 << 20, UdpSocket::kDatagramMax_bytes).value()),
        codec_({.cluster_id = config.cluster_id, .keys = config.cluster_keys, .self = config.self, .incarnation = 77}),
        thread_([this] { Run(); }) {}
  ~NodeOfTheVersionBefore() {
    stop_ = true;
    thread_.join();
  }

  // Of what came for it.
  uint64_t malformed() const { return malformed_; }
  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t votes() const { return votes_; }

 private:
  void Run() {
    while (!stop_) {
      pollfd ready{.fd = socket_->fd(), .events = POLLIN, .revents = 0};
      (void)poll(&ready, 1, 20);
      for (const Datagram& datagram : socket_->Receive(Now_ns())) Take(datagram);
      socket_->Flush();
    }
  }

  void Take(const Datagram& datagram) {
    wire::Opened opened = codec_.Open(datagram.bytes);
    if (!opened.ok()) {
      ++malformed_;
      return;
    }
    const raft::NodeId from = opened.header.from;
    if (const auto* hello = std::get_if<wire::Hello>(&opened.body)) {
      Say(from, wire::HelloAck{.nonce = hello->nonce});  // whatever term it says
    } else if (const auto* append = std::get_if<raft::AppendRequest>(&opened.body)) {
      if (Follows(opened.header.term)) Say(from, Append(*append));
    } else if (const auto* heartbeat = std::get_if<raft::Heartbeat>(&opened.body)) {
      if (!Follows(opened.header.term)) return;
      Say(from, raft::HeartbeatReply{.round = heartbeat->round, .matched = matched_, .loop_seq = ++loop_seq_});
    } else if (const auto* asked = std::get_if<raft::VoteRequest>(&opened.body)) {
      Say(from, Vote(*asked));
    }
  }

  // As itself, in its own term: of HELLO_ACK, too.
  void Say(raft::NodeId to, const wire::PeerBody& body) {
    const MemberConfig* const member = config_.Find(to);
    socket_->Send(member->peer, codec_.Seal(to, term_, body));
  }

  bool Follows(raft::Term term) {
    if (term > term_) matched_ = raft::LogIndex();
    term_ = std::max(term_, term);
    if (term == term_) heard_ns_ = Now_ns();
    return term == term_;
  }

  raft::AppendReply Append(const raft::AppendRequest& append) {
    const uint64_t prev = append.prev_index.value();
    const bool fits = prev <= terms_.size() && (prev == 0 || terms_[prev - 1] == append.prev_term);
    if (!fits) {
      const uint64_t next = std::min<uint64_t>(prev, terms_.size() + 1);
      return {.accepted = false,
              .index = append.prev_index,
              .conflict_index = raft::LogIndex(std::max<uint64_t>(next, 1)),
              .loop_seq = ++loop_seq_};
    }
    for (const raft::Entry& entry : append.entries) {
      const uint64_t index = entry.index.value();
      if (index <= terms_.size() && terms_[index - 1] == entry.term) continue;
      terms_.resize(index - 1);
      terms_.push_back(entry.term);
    }
    const raft::LogIndex last(prev + append.entries.size());
    matched_ = std::max(matched_, last);
    acknowledged_ += append.entries.size();
    return {.accepted = true, .index = last, .loop_seq = ++loop_seq_};
  }

  raft::VoteReply Vote(const raft::VoteRequest& asked) {
    const raft::Term last_term = terms_.empty() ? raft::Term() : terms_.back();
    const bool longer =
        std::pair(asked.last_term, asked.last_index) >= std::pair(last_term, raft::LogIndex(terms_.size()));
    // As long as there is a leader nobody else is wanted, unless that one does.
    const bool sticks = Now_ns() < heard_ns_ + kSticks_ns && asked.transfer_term != term_;
    const raft::Term above = std::max(voted_, asked.pre_vote ? term_ : raft::Term());
    const bool granted = longer && !sticks && asked.asked_term > above;
    if (granted && !asked.pre_vote) {
      if (asked.asked_term > term_) matched_ = raft::LogIndex();
      term_ = std::max(term_, asked.asked_term);
      voted_ = asked.asked_term;
      ++votes_;
    }
    return {.asked_term = asked.asked_term, .pre_vote = asked.pre_vote, .granted = granted};
  }

  static constexpr uint64_t kSticks_ns = 15'000'000;  // less than the least election timeout

  const NodeConfig config_;
  const std::unique_ptr<UdpSocket> socket_;
  wire::PeerCodec codec_;
  raft::Term term_{1};
  raft::Term voted_;
  std::vector<raft::Term> terms_;  // of its entries
  raft::LogIndex matched_;
  uint64_t loop_seq_ = 0;
  uint64_t heard_ns_ = 0;  // of a leader
  std::atomic<uint64_t> malformed_ = 0, acknowledged_ = 0, votes_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last
};

class VersionsTest : public NodeTest {};
INSTANTIATE_TEST_SUITE_P(Durability, VersionsTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(VersionsTest, ANodeOfTheVersionBeforeVotesAndAcknowledges) {
  const uint64_t session = Open(WaitForLeader());
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  NodeOfTheVersionBefore before(ConfigOf(3));
  for (const uint64_t id : {1, 2}) Start(id);  // anew: nobody expects that it holds anything
  uint64_t leader = WaitForLeader();
  ASSERT_NE(leader, 0u);
  uint64_t seq = 0;
  const auto next_is_done = [&] {
    ++seq;
    return Increment(leader, session, seq) == std::to_string(seq);
  };
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    EXPECT_TRUE(next_is_done());
    const uint64_t other = 3 - leader;

    // Nobody else acknowledges.
    ASSERT_TRUE(Eventually([&] { return StatusOf(other).applied == StatusOf(leader).applied; }));
    Stop(other);
    const uint64_t acknowledged = before.acknowledged();
    EXPECT_TRUE(next_is_done());
    EXPECT_GT(before.acknowledged(), acknowledged);
    Start(other);
    ASSERT_TRUE(Eventually([&] { return StatusOf(other).applied == StatusOf(leader).applied; }));

    // Nobody else votes.
    const uint64_t votes = before.votes();
    Stop(leader);
    leader = other;
    ASSERT_TRUE(Eventually([&] { return StatusOf(leader).ready && StatusOf(leader).leader.value() == leader; }));
    EXPECT_TRUE(next_is_done());
    EXPECT_GT(before.votes(), votes);
    Start(3 - leader);
    leader = WaitForLeader();
    ASSERT_NE(leader, 0u);
  }
  EXPECT_EQ(before.malformed(), 0u) << "it understands all that it is told";
}

}  // namespace
}  // namespace hedgerow::node
