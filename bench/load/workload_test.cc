// SPDX-License-Identifier: Apache-2.0
//
// An answer finds its request, and only a right answer counts.
#include "bench/load/workload.h"

#include <gtest/gtest.h>

#include <array>
#include <variant>

#include "cluster/wire/peer.h"

namespace hedgerow::bench {
namespace {

using Buffer = std::array<uint8_t, kMaxRequestBytes>;

std::vector<uint8_t> Encoded(Workload& workload, uint64_t seq) {
  Buffer buffer;
  const size_t bytes = workload.Encode(seq, buffer);
  return {buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(bytes)};
}

std::vector<uint8_t> DnsAnswer(Workload& workload, uint64_t seq) {
  std::vector<uint8_t> answer = Encoded(workload, seq);
  answer[2] |= 0x80;
  answer[7] = 1;
  return answer;
}

TEST(RawWorkload, IdIsFourBytesLittleEndian) {
  auto workload = MakeRawWorkload(0x01020304, 4).value();
  EXPECT_EQ(Encoded(*workload, 1), (std::vector<uint8_t>{0x05, 0x03, 0x02, 0x01}));
}

TEST(RawWorkload, EchoIsTheAnswer) {
  auto workload = MakeRawWorkload(4'000'000, 64).value();
  const Decoded decoded = workload->Decode(Encoded(*workload, 17), 0, 20);
  EXPECT_EQ(decoded.result, DecodeResult::kAnswer);
  EXPECT_EQ(decoded.seq, 17u);
}

TEST(RawWorkload, IdsMayWrap) {
  auto workload = MakeRawWorkload(UINT32_MAX - 1, 4).value();
  const Decoded decoded = workload->Decode(Encoded(*workload, 5), 0, 6);
  EXPECT_EQ(decoded.result, DecodeResult::kAnswer);
  EXPECT_EQ(decoded.seq, 5u);
}

TEST(RawWorkload, ChangedOrShortenedEchoIsWrong) {
  auto workload = MakeRawWorkload(0, 64).value();
  std::vector<uint8_t> answer = Encoded(*workload, 3);
  answer[40] ^= 1;
  EXPECT_EQ(workload->Decode(answer, 0, 4).result, DecodeResult::kWrong);
  EXPECT_EQ(workload->Decode(std::span(answer).first(10), 0, 4).result, DecodeResult::kWrong);
}

TEST(RawWorkload, NeverAskedIsStray) {
  auto workload = MakeRawWorkload(100, 4).value();
  EXPECT_EQ(workload->Decode(Encoded(*workload, 5), 0, 5).result, DecodeResult::kStray);
  EXPECT_EQ(workload->Decode(Encoded(*workload, 0), 0, 0).result, DecodeResult::kStray);
  EXPECT_EQ(workload->Decode(std::vector<uint8_t>{1, 2, 3}, 0, 5).result, DecodeResult::kStray);
}

TEST(RawWorkload, TheLoadIsReadAndNoOtherByteMayDiffer) {
  auto workload = MakeRawWorkload(0, 6, 4).value();
  std::vector<uint8_t> answer = Encoded(*workload, 3);
  answer[4] = 200;
  const Decoded decoded = workload->Decode(answer, 0, 4);
  EXPECT_EQ(decoded.result, DecodeResult::kAnswer);
  EXPECT_EQ(decoded.load, 200);
  answer[5] = 200;
  EXPECT_EQ(workload->Decode(answer, 0, 4).result, DecodeResult::kWrong);
  EXPECT_EQ(MakeRawWorkload(0, 6).value()->Decode(Encoded(*workload, 3), 0, 4).load, std::nullopt);
  EXPECT_FALSE(MakeRawWorkload(0, 6, 3).ok()) << "part of the id";
  EXPECT_FALSE(MakeRawWorkload(0, 6, 6).ok());
}

TEST(RawWorkload, LengthIsChecked) {
  EXPECT_FALSE(MakeRawWorkload(0, 3).ok());
  EXPECT_FALSE(MakeRawWorkload(0, 1473).ok());
}

TEST(DnsWorkload, QueryIsWellFormed) {
  auto workload = MakeDnsWorkload({"a.bc."}, 1).value();
  EXPECT_EQ(Encoded(*workload, 0x1234),
            (std::vector<uint8_t>{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 2, 'b', 'c', 0, 0, 1, 0, 1}));
}

TEST(DnsWorkload, AnswersFindTheirRequestsOverSeveralSocketsAndIdWraps) {
  constexpr uint64_t kFlows = 3;
  auto workload = MakeDnsWorkload({"one.test", "two.test"}, kFlows).value();
  for (uint64_t seq : {0ull, 1ull, 2ull, 65'536ull, 200'000ull, 1'000'003ull}) {
    const Decoded decoded = workload->Decode(DnsAnswer(*workload, seq), seq % kFlows, seq + 100);
    EXPECT_EQ(decoded.result, DecodeResult::kAnswer);
    EXPECT_EQ(decoded.seq, seq);
  }
}

TEST(DnsWorkload, QueryItselfIsNoAnswer) {
  auto workload = MakeDnsWorkload({"one.test"}, 1).value();
  EXPECT_EQ(workload->Decode(Encoded(*workload, 0), 0, 1).result, DecodeResult::kStray);
}

TEST(DnsWorkload, ServfailOtherQuestionAndEmptyAnswerAreWrong) {
  auto workload = MakeDnsWorkload({"one.test"}, 1).value();
  auto other = MakeDnsWorkload({"two.test"}, 1).value();
  std::vector<uint8_t> servfail = DnsAnswer(*workload, 0);
  servfail[3] |= 2;
  std::vector<uint8_t> empty = DnsAnswer(*workload, 0);
  empty[7] = 0;
  std::vector<uint8_t> cut = DnsAnswer(*workload, 0);
  cut.resize(14);
  for (const auto& answer : {servfail, empty, cut, DnsAnswer(*other, 0)}) {
    EXPECT_EQ(workload->Decode(answer, 0, 1).result, DecodeResult::kWrong);
  }
}

TEST(DnsWorkload, TruncatedAnswerIsAnAnswer) {
  auto workload = MakeDnsWorkload({"one.test"}, 1).value();
  std::vector<uint8_t> answer = DnsAnswer(*workload, 0);
  answer[7] = 0;
  answer[2] |= 0x02;
  EXPECT_EQ(workload->Decode(answer, 0, 1).result, DecodeResult::kAnswer);
}

TEST(DnsWorkload, BadNamesAreRefused) {
  EXPECT_FALSE(MakeDnsWorkload({}, 1).ok());
  EXPECT_FALSE(MakeDnsWorkload({"a..b"}, 1).ok());
  EXPECT_FALSE(MakeDnsWorkload({std::string(64, 'x') + ".test"}, 1).ok());
}

// ---- Heartbeats: a node believes what the leader says, and the leader believes answers to what it has asked

constexpr char kKey[] = "000102030405060708090a0b0c0d0e0f";
constexpr raft::NodeId kFollower(1), kLeader(2);

wire::PeerCodec Node(raft::NodeId self = kFollower) {
  return wire::PeerCodec({.cluster_id = 7, .keys = *wire::ParseKey(kKey), .self = self, .incarnation = 11});
}

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

wire::Opened Said(Workload& leader, uint64_t seq) {
  const std::vector<uint8_t> asked = Encoded(leader, seq);
  return Node().Open({reinterpret_cast<const char*>(asked.data()), asked.size()});
}

TEST(HeartbeatWorkload, AsksAsALeaderDoes) {
  auto leader = MakeHeartbeatWorkload(7, kKey).value();
  const wire::Opened first = Said(*leader, 0);
  const wire::Opened second = Said(*leader, 1);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.header.from, kLeader);
  EXPECT_EQ(first.header.to, kFollower);
  EXPECT_GT(second.header.packet_number, first.header.packet_number);
  EXPECT_EQ(std::get<raft::Heartbeat>(second.body).round, 2u);
  EXPECT_EQ(std::get<raft::Heartbeat>(second.body).election_timeout_ns, 20'000'000u);
}

TEST(HeartbeatWorkload, ReportsItsIncarnationToTheNodeThatAsks) {
  auto leader = MakeHeartbeatWorkload(7, kKey).value();
  wire::PeerCodec node = Node();
  const std::string hello = node.Seal(kLeader, raft::Term(1), wire::Hello{.nonce = 77});
  const Decoded decoded = leader->Decode(Bytes(hello), 0, 5);
  EXPECT_EQ(decoded.result, DecodeResult::kStray);
  const wire::Opened said = node.Open(decoded.reply);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(std::get<wire::HelloAck>(said.body).nonce, 77u);
  EXPECT_EQ(leader->Decode(Bytes("garbage"), 0, 5).reply, "");
}

TEST(HeartbeatWorkload, UnderstandsAnswersOfItsNodeAndTermToWhatItHasAsked) {
  auto leader = MakeHeartbeatWorkload(7, kKey).value();
  wire::PeerCodec node = Node(), unknown = Node(raft::NodeId(3));
  const raft::Term term = Said(*leader, 0).header.term;
  const raft::HeartbeatReply reply{.round = 5};
  std::string answer = node.Seal(kLeader, term, reply);
  const Decoded decoded = leader->Decode(Bytes(answer), 0, 5);
  EXPECT_EQ(decoded.result, DecodeResult::kAnswer);
  EXPECT_EQ(decoded.seq, 4u);
  EXPECT_EQ(leader->Decode(Bytes(answer), 0, 4).result, DecodeResult::kStray) << "not asked yet";
  EXPECT_EQ(leader->Decode(Bytes(node.Seal(kLeader, raft::Term(10), reply)), 0, 5).result, DecodeResult::kStray);
  EXPECT_EQ(leader->Decode(Bytes(unknown.Seal(kLeader, term, reply)), 0, 5).result, DecodeResult::kStray);
  answer.back() = static_cast<char>(answer.back() ^ 1);
  EXPECT_EQ(leader->Decode(Bytes(answer), 0, 5).result, DecodeResult::kStray);
}

TEST(HeartbeatWorkload, WantsAKeyInHexadecimal) { EXPECT_FALSE(MakeHeartbeatWorkload(7, "secret").ok()); }

}  // namespace
}  // namespace hedgerow::bench
