// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Differential fuzz: random states and frames through the kernel's program and through the native model must
// give the same action, answer, ring record, event, state, window and number. Frames are mostly believable,
// with one or two things wrong. A failing case prints its seed. HR_FUZZ_CASES and HR_FUZZ_SEED choose; planted
// differences must be found.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "bpf/tests/node/node_fixture.h"
#include "bpf/tests/node/node_model.h"

namespace hedgerow::packets {
namespace {

constexpr uint64_t kCases = 500'000;
constexpr uint64_t kFar_ns = 3'600'000'000'000;

uint64_t FromEnvironment(const char *name, uint64_t otherwise) {
  const char *const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Small, fast, and the same everywhere.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  uint64_t operator()() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t Below(uint64_t bound) { return (*this)() % bound; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  // Near `value`, now and then something else altogether.
  uint64_t Near(uint64_t value) {
    if (OneIn(32)) return (*this)();
    if (OneIn(8)) return value + Below(5) - 2;
    return value;
  }

 private:
  uint64_t state_;
};

hr_node_shared RandomShared(Draw &draw, uint64_t now_ns) {
  hr_node_shared shared{};
  // Long ago is 1, not `now_ns` less something: a machine may have just begun.
  const auto time = [&] { return draw.OneIn(3) ? 1 : (draw.OneIn(2) ? now_ns - 1000 : now_ns + kFar_ns); };
  shared.incarnation = draw.OneIn(20) ? 0 : kOwnIncarnation;
  shared.raft.term = draw.Near(kTerm);
  shared.raft.voted_for = draw.Below(4);
  shared.raft.leader = draw.OneIn(4) ? draw.Below(6) : kLeader;
  shared.raft.last_index = draw.Near(kLastIndex);
  shared.raft.last_term = draw.Near(kTerm);
  shared.matched = draw.Near(kLastIndex);
  shared.leader_commit = draw.Near(4);
  shared.heard_ns = time();
  shared.election_timeout_ns = draw.OneIn(2) ? kFar_ns / 4 : 0;
  shared.leader_timeout_ns = draw.Below(100);
  shared.lease_until_ns = draw.OneIn(8) ? 1 : now_ns + kFar_ns;
  shared.loop_seq = draw();
  shared.quorum_index = draw.Near(20);
  shared.quorum_round = draw.Near(7);
  shared.config_epoch = static_cast<uint32_t>(draw.OneIn(30) ? draw() : kEpoch);
  shared.voters = static_cast<uint32_t>(draw.OneIn(3) ? draw.Below(256) : 0x1f);
  shared.next_voters = static_cast<uint32_t>(draw.OneIn(3) ? draw.Below(256) : 0);
  shared.self = static_cast<uint32_t>(draw.OneIn(20) ? draw.Below(HR_NODE_MEMBERS + 1) : 0);
  shared.role = draw.OneIn(2) ? static_cast<uint32_t>(draw.Below(4)) : uint32_t{HR_NODE_FOLLOWER};
  shared.capabilities = static_cast<uint32_t>(draw.OneIn(4) ? draw.Below(32) : 31);
  if (draw.OneIn(3)) shared.capabilities &= ~uint32_t{HR_NODE_CAN_GRANT};
  shared.tell_suspicion = draw.OneIn(3) ? 1 : 0;
  shared.votes = static_cast<uint32_t>(draw.Below(32));
  shared.every_ack = static_cast<uint32_t>(draw.OneIn(4) ? draw.Below(256) : 0);
  uint32_t slot = 0;
  for (hr_node_member &member : shared.members) {
    ++slot;  // as id, since slots are ids less one here
    member = {.match = draw.Near(20),
              .round = draw.Near(7),
              .replied_ns = draw.Below(9),
              .loop_seq = draw.Below(3),
              .contact_ns = draw.Below(9),
              .node = static_cast<uint32_t>(draw.OneIn(12) ? draw.Below(9) : slot),
              .reserved = 0};
  }
  return shared;
}

hr_node_window RandomWindow(Draw &draw, uint32_t node, uint64_t number) {
  hr_node_window window{};
  window.incarnation = draw.OneIn(20) ? draw.Below(3) : IncarnationOf(node);
  window.floor = draw.OneIn(8) ? number + draw.Below(3) - 1 : 0;
  window.highest =
      std::max<uint64_t>(window.floor, draw.OneIn(3) ? number + draw.Below(6000) - 3000 : draw.Near(number - 1));
  for (auto &word : window.seen) word = draw.OneIn(8) ? draw() : 0;
  return window;
}

Bytes RandomBody(Draw &draw, uint32_t kind) {
  switch (kind) {
    case HR_PEER_VOTE_REQUEST:
      return BodyBytes(hr_peer_vote_request{.asked_term = draw.Near(kTerm + 1),
                                            .last_index = draw.Near(kLastIndex),
                                            .last_term = draw.Near(kTerm),
                                            .transfer_term = draw.OneIn(3) ? draw.Near(kTerm) : 0,
                                            .pre_vote = static_cast<uint32_t>(draw.OneIn(30) ? 2 : draw.Below(2)),
                                            .reserved = draw.OneIn(40) ? 1u : 0u});
    case HR_PEER_VOTE_REPLY:
      return BodyBytes(hr_peer_vote_reply{.asked_term = draw.Near(kTerm + draw.Below(2)),
                                          .pre_vote = static_cast<uint32_t>(draw.OneIn(30) ? 2 : draw.Below(2)),
                                          .granted = draw.OneIn(8) ? static_cast<uint32_t>(draw.Below(3)) : 1u});
    case HR_PEER_APPEND: {
      std::vector<size_t> payloads(draw.OneIn(10) ? draw.Below(70) : draw.Below(4));
      for (size_t &bytes : payloads) bytes = draw.OneIn(6) ? draw.Below(1500) : draw.Below(40);
      Bytes body = AppendBody(draw.Near(kLastIndex), draw.Near(kTerm), draw.Near(kTerm), payloads, draw.Below(20));
      if (draw.OneIn(3)) body[offsetof(hr_peer_append, flags)] = draw.OneIn(8) ? 2 : HR_PEER_APPEND_MORE;
      return body;
    }
    case HR_PEER_APPEND_REPLY:
      return BodyBytes(hr_peer_append_reply{.index = draw.Near(20),
                                            .conflict_term = draw.Below(3),
                                            .conflict_index = draw.Below(3),
                                            .loop_seq = draw.Below(3),
                                            .accepted = draw.OneIn(8) ? static_cast<uint32_t>(draw.Below(3)) : 1u,
                                            .reserved = draw.OneIn(40) ? 1u : 0u});
    case HR_PEER_HEARTBEAT:
      return BodyBytes(hr_peer_heartbeat{.round = draw(), .commit = draw.Near(4), .election_timeout_ns = draw()});
    case HR_PEER_HEARTBEAT_REPLY:
      return BodyBytes(
          hr_peer_heartbeat_reply{.round = draw.Near(7), .matched = draw.Near(20), .loop_seq = draw.Below(3)});
    default: return Bytes(draw.Below(80), static_cast<uint8_t>(draw()));
  }
}

struct Case {
  NodeState state{};
  Bytes frame{};
  uint32_t from = 0;
};

Bytes RandomFrame(Draw &draw, hr_peer_header header, bool ipv6) {
  Bytes body = RandomBody(draw, header.kind);
  if (draw.OneIn(25)) body.resize(draw.Below(body.size() + 20));
  if (body.size() > 1800) body.resize(1800);
  if (draw.OneIn(4)) header.term = draw.Near(kTerm);
  if (draw.OneIn(10)) header.to = static_cast<uint32_t>(draw.Below(3));
  if (draw.OneIn(40)) header.config_epoch = static_cast<uint32_t>(draw());
  if (draw.OneIn(40)) header.from_incarnation = draw();
  if (draw.OneIn(80)) header.cluster_id = draw();
  if (draw.OneIn(80)) header.key_id = draw.OneIn(2) ? 0 : header.key_id ^ 1;
  Bytes datagram = SealPeer(header, body);
  if (draw.OneIn(25)) {
    datagram[draw.Below(datagram.size())] ^= static_cast<uint8_t>(1u << draw.Below(8));
    if (draw.OneIn(3)) Reseal(datagram);
  }
  if (draw.OneIn(60)) datagram.resize(draw.Below(datagram.size() + 1));
  Bytes frame = PeerFrame(draw.OneIn(60) ? kPeer : header.from, datagram, ipv6);
  if (draw.OneIn(30))
    frame[draw.Below(std::min<size_t>(frame.size(), 62))] ^= static_cast<uint8_t>(1u << draw.Below(8));
  if (draw.OneIn(60)) frame.resize(14 + draw.Below(frame.size() - 13));
  if (draw.OneIn(30)) frame.resize(frame.size() + draw.Below(30));
  return frame;
}

class NodeFuzzTest : public ::testing::TestWithParam<bool> {
 protected:
  using Distort = std::function<void(const NodeState &before, NodeState &state, ModelResult &result)>;

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root (CAP_BPF, CAP_NET_ADMIN)";
    node_ = LoadedNode::Load(GetParam());
    ASSERT_NE(node_, nullptr);
    counters_ = node_->kernel().Counters();
  }

  Case Make(uint64_t seed, uint64_t now_ns) {
    Draw draw(seed);
    Case made;
    made.state.config = NodeConfig(GetParam());
    for (uint32_t node = 1; node <= kNodes; ++node) made.state.members[SlotOf(node)] = MemberOf(node, GetParam());
    made.state.shared = RandomShared(draw, now_ns);
    made.state.packet_number = draw.OneIn(2) ? draw() : draw.Below(100);
    made.from = static_cast<uint32_t>(draw.OneIn(3) ? 2 + draw.Below(4) : kLeader);
    const uint64_t number = 1 + draw.Below(draw.OneIn(2) ? 10 : 20000);
    const auto kind = static_cast<uint8_t>(draw.OneIn(12) ? draw.Below(17) : HR_PEER_VOTE_REQUEST + draw.Below(6));
    hr_peer_header header = PeerHead(kind, made.from, number);
    made.state.windows[SlotOf(made.from)] = RandomWindow(draw, made.from, number);
    made.frame = RandomFrame(draw, header, GetParam());
    made.state.sent_index = draw.Near(21);
    made.state.sent_round = draw.Near(8);
    return made;
  }

  // "" or what differs.
  std::string RunCase(uint64_t seed, const Distort &distort);
  std::string Compare(const Case &before, const ModelResult &expected, const LoadedNode::Result &result,
                      uint64_t begin_ns, uint64_t end_ns);
  std::string CompareRecord(const ModelResult &expected, uint64_t begin_ns, uint64_t end_ns);
  std::string CompareEvent(const ModelResult &expected);
  uint64_t FirstDifference(uint64_t cases, const Distort &distort);

  std::unique_ptr<LoadedNode> node_;
  hr_node_stats counters_{};
  std::array<uint64_t, HR_NODE_EVENT_COUNT> met_{};
  uint64_t answers_ = 0;
  uint32_t last_from_ = 0;
};

// Times that the model took from its clock, the kernel took from its own, somewhat later.
std::string CompareShared(const hr_node_shared &expected, hr_node_shared shared, uint64_t begin_ns, uint64_t end_ns) {
  const auto align = [&](__u64 wanted, __u64 &seen) {
    if (wanted == begin_ns && seen >= begin_ns && seen <= end_ns) seen = wanted;
  };
  align(expected.heard_ns, shared.heard_ns);
  for (int i = 0; i < HR_NODE_MEMBERS; ++i) {
    align(expected.members[i].replied_ns, shared.members[i].replied_ns);
    align(expected.members[i].contact_ns, shared.members[i].contact_ns);
  }
  return std::memcmp(&expected, &shared, sizeof(shared)) == 0 ? "" : "the state";
}

std::string NodeFuzzTest::CompareRecord(const ModelResult &expected, uint64_t begin_ns, uint64_t end_ns) {
  const std::vector<offload::RingRecord> records = node_->TakeAll();
  node_->kernel().Release(node_->kernel().ProducerPosition());
  if (records.size() != (expected.record.has_value() ? 1u : 0u)) return "the number of ring records";
  if (records.empty()) return "";
  hr_node_record head = records[0].head;
  if (head.arrived_ns >= begin_ns && head.arrived_ns <= end_ns) head.arrived_ns = begin_ns;
  if (std::memcmp(&head, &expected.record->head, sizeof(head)) != 0) return "the ring record's head";
  const Bytes &datagram = expected.record->datagram;
  if (records[0].datagram != std::string_view(reinterpret_cast<const char *>(datagram.data()), datagram.size()))
    return "the ring record's datagram";
  return "";
}

std::string NodeFuzzTest::CompareEvent(const ModelResult &expected) {
  const hr_node_stats now = node_->kernel().Counters();
  std::string wrong;
  for (uint32_t i = 0; i < HR_NODE_EVENT_COUNT; ++i) {
    const uint64_t counted = now.events[i] - counters_.events[i];
    uint64_t wanted = expected.event == i ? 1 : 0;
    if (counted != wanted) wrong = absl::StrCat("event ", i, " counted ", counted, " times, wanted ", wanted);
  }
  counters_ = now;
  return wrong;
}

std::string NodeFuzzTest::Compare(const Case &before, const ModelResult &expected, const LoadedNode::Result &result,
                                  uint64_t begin_ns, uint64_t end_ns) {
  const uint32_t slot = SlotOf(before.from);
  std::string wrong = CompareEvent(expected);
  if (const std::string record = CompareRecord(expected, begin_ns, end_ns); wrong.empty()) wrong = record;
  if (wrong.empty() && result.action != expected.action)
    wrong = absl::StrCat("action ", result.action, ", wanted ", expected.action);
  if (wrong.empty() && result.frame != expected.frame) wrong = "the frame";
  if (wrong.empty()) wrong = CompareShared(before.state.shared, node_->Shared(), begin_ns, end_ns);
  const hr_node_window window = node_->Window(slot);
  if (wrong.empty() && std::memcmp(&window, &before.state.windows[slot], sizeof(window)) != 0) wrong = "the window";
  if (wrong.empty() && node_->PacketNumber() != before.state.packet_number) wrong = "the packet number";
  return wrong;
}

std::string NodeFuzzTest::RunCase(uint64_t seed, const Distort &distort) {
  const uint64_t begin_ns = MonotonicNs();
  Case made = Make(seed, begin_ns);
  for (uint32_t node = 2; node <= kNodes; ++node) {
    const uint32_t slot = SlotOf(node);
    if (node != made.from) made.state.windows[slot].incarnation = 0;
    if (node == made.from || last_from_ == node) node_->SetWindow(slot, made.state.windows[slot]);
  }
  last_from_ = made.from;
  node_->SetShared(made.state.shared);
  node_->SetNumbers(made.state.packet_number);
  node_->kernel().SetSent(made.state.sent_index, made.state.sent_round);
  const LoadedNode::Result result = node_->Xdp(made.frame);
  const uint64_t end_ns = MonotonicNs();
  const NodeState before = distort ? made.state : NodeState{};
  ModelResult expected = RunModel(made.state, made.frame, begin_ns);
  if (distort) distort(before, made.state, expected);
  if (expected.event.has_value()) ++met_[*expected.event];
  answers_ += expected.action == XDP_TX ? 1 : 0;
  return Compare(made, expected, result, begin_ns, end_ns);
}

// The number of the case; `cases`: there is none.
uint64_t NodeFuzzTest::FirstDifference(uint64_t cases, const Distort &distort) {
  for (uint64_t i = 0; i < cases; ++i)
    if (!RunCase(i, distort).empty()) return i;
  return cases;
}

TEST_P(NodeFuzzTest, BothCompilersDecideTheSame) {
  const uint64_t cases = FromEnvironment("HR_FUZZ_CASES", kCases) / 2;  // half of them for each family
  const uint64_t first = FromEnvironment("HR_FUZZ_SEED", std::random_device{}());
  const uint64_t begin_ns = MonotonicNs();
  // Every outcome is to be met, or the fuzz has tested little. A full ring is not among them, nor what cannot
  // fail here. The rarest come about once in ten thousand cases: a short run goes on until it has met them.
  const auto unmet = [this] {
    std::vector<uint32_t> events;
    for (uint32_t event = 0; event < HR_NODE_EVENT_COUNT; ++event) {
      const bool expected = (event <= HR_NODE_EVENT_DROPPED_TOO_OLD && event != HR_NODE_EVENT_PASSED_RING_FULL) ||
                            event == HR_NODE_EVENT_PASSED_EPOCH || event == HR_NODE_EVENT_PASSED_SOURCE ||
                            event == HR_NODE_EVENT_PASSED_SUSPICION || event == HR_NODE_EVENT_APPEND_STORED_UNSAID;
      if (expected && met_[event] == 0) events.push_back(event);
    }
    return events;
  };
  uint64_t done = 0;
  for (; done < cases || (cases >= 10'000 && done < 20 * cases && !unmet().empty()); ++done) {
    const std::string wrong = RunCase(first + done, nullptr);
    ASSERT_EQ(wrong, "") << "HR_FUZZ_SEED=" << first + done << " HR_FUZZ_CASES=2";
  }
  const double took_s = static_cast<double>(MonotonicNs() - begin_ns) / 1e9;
  std::printf("%llu cases in %.1f s, %llu answers\n", static_cast<unsigned long long>(done), took_s,
              static_cast<unsigned long long>(answers_));
  if (cases < 10'000) return;
  EXPECT_THAT(unmet(), testing::IsEmpty());
  EXPECT_GT(answers_, done / 50);
}

// The model with a mistake must be found out, or agreement means nothing.
TEST_P(NodeFuzzTest, PlantedDifferencesAreFound) {
  constexpr uint64_t kEnough = 50'000;
  const auto found = [&](const Distort &distort) { return FirstDifference(kEnough, distort) < kEnough; };
  EXPECT_FALSE(found([](const NodeState &, NodeState &, ModelResult &) {})) << "without a mistake there is none";
  EXPECT_TRUE(found([](const NodeState &, NodeState &state, ModelResult &result) {  // voted_for forgotten
    if (result.event == HR_NODE_EVENT_VOTE_GRANTED) state.shared.raft.voted_for = 0;
  }));
  EXPECT_TRUE(found([](const NodeState &before, NodeState &state, ModelResult &result) {  // an echo counts as contact
    if (result.event != HR_NODE_EVENT_ACK_COUNTED) return;
    const uint32_t slot = *result.taken_from;
    if (before.shared.members[slot].contact_ns == state.shared.members[slot].contact_ns)
      state.shared.members[slot].contact_ns += 1;
  }));
  EXPECT_TRUE(found([](const NodeState &, NodeState &state, ModelResult &result) {  // a replay takes its number again
    if (result.event == HR_NODE_EVENT_DROPPED_REPLAYED) state.windows[*result.taken_from].highest += 1;
  }));
  EXPECT_TRUE(found([](const NodeState &, NodeState &, ModelResult &result) {  // one bit of an answer's checksum
    if (result.action == XDP_TX) result.frame[40] ^= 1;
  }));
  EXPECT_TRUE(found([](const NodeState &, NodeState &, ModelResult &result) {  // not stored, yet acknowledged
    if (result.event == HR_NODE_EVENT_APPEND_STORED) result.record.reset();
  }));
}

INSTANTIATE_TEST_SUITE_P(Ip, NodeFuzzTest, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "v6" : "v4"; });

}  // namespace
}  // namespace hedgerow::packets
