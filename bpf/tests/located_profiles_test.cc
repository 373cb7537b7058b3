// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Profiles whose correlation bytes have no fixed place, through the programs: SNMP by a path over BER, a field behind a
// length, SIP by headers. And that the programs compute what the same code computes here.
#include <cstring>
#include <random>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/locate_reference.h"
#include "proxy/profiles/profile_test.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

class LocatedTest : public PacketTest {
 protected:
  void Use(const hr_profile &profile) {
    std::memcpy(const_cast<hr_profile *>(&ServiceConfig(kRaw4Service).profile), &profile, sizeof(profile));
    profile_ = profile;
  }
  RunResult Ask(const std::string &payload) {
    return Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, Text(payload)).Build());
  }
  RunResult Answer(const std::string &payload, const char *from = kA4) {
    return Reply(PacketBuilder(from, kClient4).Udp(kRawPort, kClientPort, Text(payload)).Build());
  }
  std::string WhyOnce(const std::string &payload) {
    const RunResult run = Ask(payload);
    EXPECT_EQ(Read(run.packet).payload, Text(payload));
    if (!run.changes.contains("raw4.passed_through")) return "";
    for (const auto &[name, change] : run.changes)
      if (name.starts_with("raw4:")) return name.substr(5);
    return "?";
  }
  std::optional<Located> Native(const std::string &payload) {
    if (profile_.request_correlation.pairing == HR_PAIR_TOKENS)
      return NativeTokens(payload, profile_.tokens, profile_.token_count);
    return NativePath(payload, profile_.request_path, profile_.request_correlation, 0);
  }
  uint32_t Find(const std::string &payload) {
    const auto located = Native(payload);
    if (!located) return 0;
    Bytes correlation(HR_CORRELATION_BYTES);
    std::memcpy(correlation.data(), located->correlation.data(), correlation.size());
    return FindRequest(kRaw4Service, kClient4, kClientPort, correlation);
  }
  hr_profile profile_{};
};

std::string Ber(char tag, const std::string &content) {
  if (content.size() < 128) return std::string{tag, static_cast<char>(content.size())} + content;
  return std::string{tag, '\x82', static_cast<char>(content.size() >> 8), static_cast<char>(content.size())} + content;
}

std::string Integer(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8)
    if (!bytes.empty() || value >> shift != 0 || shift == 0) bytes += static_cast<char>(value >> shift);
  return Ber('\x02', bytes);
}

std::string Snmp(char pdu, uint32_t id, const std::string &community = "public", uint32_t error = 0) {
  return Ber('\x30', Integer(1) + Ber('\x04', community) +
                         Ber(pdu, Integer(id) + Integer(error) + Integer(0) + Ber('\x30', "")));
}

constexpr char kSnmp[] = R"(
path: [{ber: enter}, {ber: skip}, {ber: skip}, {ber: enter}, {ber: value}]
operations:
  - match: [{after: 3, offset: 0, bytes: a0}]
  - match: [{after: 3, offset: 0, bytes: a1}]
replies: [{after: 3, offset: 0, bytes: a2}]
one_datagram: true)";

TEST_F(LocatedTest, AnSnmpGetIsHedgedAndItsResponseWinsWhateverTheCommunitysLength) {
  Use(OwnProfile(kSnmp));
  uint32_t id = 1000;
  for (const std::string &community : {std::string("c"), std::string("public"), std::string(300, 'x')}) {
    const std::string request = Snmp('\xa0', ++id, community);
    EXPECT_EQ(WhyOnce(request), "");
    ASSERT_NE(Find(request), 0u);
    EXPECT_EQ(FireNow(Find(request)).at("raw4.hedges"), 1);
    Clones(HR_MARK_HEDGE, 1);
    const char *standby = SentTo(Find(request)) & 0b010 ? kB4 : kC4;
    EXPECT_EQ(Answer(Snmp('\xa2', id + 1, community), standby).changes.count("raw4.won_by_hedge"), 0u) << "another id";
    EXPECT_EQ(Answer(Snmp('\xa2', id, community), standby).verdict, kRedirected);
    EXPECT_EQ(StateOf(Find(request)), HR_STATE_ANSWERED);
    EXPECT_EQ(Answer(Snmp('\xa2', id, community)).verdict, kDropped);
  }
}

TEST_F(LocatedTest, AnSnmpSetIsForwardedOnce) {
  Use(OwnProfile(kSnmp));
  EXPECT_EQ(WhyOnce(Snmp('\xa3', 1)), "unknown_operation");
  EXPECT_EQ(WhyOnce(Snmp('\xa0', 2).substr(0, 14)), "unknown_operation");
  EXPECT_EQ(WhyOnce("no BER at all"), "unknown_operation");
  EXPECT_EQ(WhyOnce(""), "unknown_operation");
}

TEST_F(LocatedTest, WhatIsNoResponseDecidesNothing) {
  Use(OwnProfile(kSnmp));
  const std::string request = Snmp('\xa0', 7);
  Ask(request);
  EXPECT_THAT(Answer(Snmp('\xa0', 7)).changes, Contains(Pair("raw4:not_a_reply", 1)));
  EXPECT_THAT(Answer("garbage").changes, Contains(Pair("raw4:not_a_reply", 1)));
  EXPECT_EQ(StateOf(Find(request)), HR_STATE_PENDING);
}

TEST_F(LocatedTest, APortUnreachableIsANackOfTheRequestThatItQuotes) {
  Use(OwnProfile(kSnmp));
  const std::string request = Snmp('\xa0', 7, std::string(200, 'c'));
  Ask(request);
  const Bytes quote = Layer3(PacketBuilder(kClient4, kA4).Udp(kClientPort, kRawPort, Text(request)).Build());
  const RunResult nack = Reply(PacketBuilder(kA4, kClient4).IcmpError(3, 3, quote).Build());
  EXPECT_EQ(HR_MARK_KIND(nack.mark), HR_MARK_RELEASE);
}

TEST_F(LocatedTest, ARequestThatDiedOnItsWayBeginsNoSilence) {
  Use(OwnProfile(kSnmp));
  const std::string request = Snmp('\xa0', 7);
  Ask(request);
  ASSERT_NE(BackendState(kRaw4A).wait_since, 0u);
  const Bytes quote = Layer3(PacketBuilder(kClient4, kA4).Udp(kClientPort, kRawPort, Text(request)).Build());
  Reply(PacketBuilder("10.77.0.254", kClient4).IcmpError(11, 0, quote).Build());
  EXPECT_EQ(BackendState(kRaw4A).wait_since, 0u);
}

TEST_F(LocatedTest, AFieldBehindALength) {
  Use(OwnProfile(R"(
path: [{skip: 1}, {length: 2}]
request_length: 4
reply_length: 4
operations: [{match: [{offset: 0, text: r}]}]
negative_replies: [{match: [{after: 2, offset: 4, text: "NO"}]}])"));
  const std::string head("r\0\3abc", 6);
  EXPECT_EQ(WhyOnce(head + "1234"), "");
  EXPECT_EQ(HR_MARK_KIND(Answer(std::string("!\0\0", 3) + "1234NO").mark), HR_MARK_RELEASE);
  EXPECT_EQ(Answer(std::string("!\0\5hello", 8) + "1234").verdict, kRedirected);
  EXPECT_EQ(StateOf(Find(head + "1234")), HR_STATE_ANSWERED);
  EXPECT_EQ(WhyOnce(head + "123"), "unknown_operation") << "cut short";
  EXPECT_EQ(WhyOnce(std::string("r\xff\xff", 3) + "1234"), "unknown_operation");
  EXPECT_EQ(WhyOnce("w" + head.substr(1) + "1234"), "unknown_operation");
}

std::string Sip(const std::string &first, const std::string &call, const std::string &cseq,
                const std::string &more = "") {
  return first + "\r\nVia: SIP/2.0/UDP 10.77.0.1:5060;branch=z9hG4bK1\r\n" + more + "Call-ID: " + call +
         "\r\nCSeq: " + cseq + "\r\nContent-Length: 0\r\n\r\n";
}

constexpr char kSip[] = R"(
tokens: [{header: call-id, short: i}, {header: cseq}]
operations: [{match: [{offset: 0, text: "OPTIONS "}]}]
replies: [{offset: 0, text: "SIP/2.0 "}, {offset: 8, text: "1", not: true}]
negative_replies: [{match: [{offset: 8, text: "503"}]}])";

TEST_F(LocatedTest, ASipRequestIsPairedByItsCallIdAndItsSequenceNumber) {
  Use(OwnProfile(kSip));
  const std::string request = Sip("OPTIONS sip:x SIP/2.0", "a@b", "7 OPTIONS");
  EXPECT_EQ(WhyOnce(request), "");
  ASSERT_NE(Find(request), 0u);
  EXPECT_THAT(Answer(Sip("SIP/2.0 100 Trying", "a@b", "7 OPTIONS")).changes, Contains(Pair("raw4:not_a_reply", 1)));
  Answer(Sip("SIP/2.0 200 OK", "a@b", "8 OPTIONS"));
  Answer(Sip("SIP/2.0 200 OK", "c@b", "7 OPTIONS"));
  EXPECT_EQ(StateOf(Find(request)), HR_STATE_PENDING);
  EXPECT_EQ(HR_MARK_KIND(Answer(Sip("SIP/2.0 503 No", "a@b", "7 OPTIONS")).mark), HR_MARK_RELEASE);
  EXPECT_EQ(
      Answer("SIP/2.0 200 OK\r\nX-Long: " + std::string(600, 'y') + "\r\ni:a@b\r\nCSEQ:  7 OPTIONS\r\n\r\n").verdict,
      kRedirected);
  EXPECT_EQ(StateOf(Find(request)), HR_STATE_ANSWERED);
}

TEST_F(LocatedTest, OtherSipRequestsAndCutOnesAreForwardedOnce) {
  Use(OwnProfile(kSip));
  EXPECT_EQ(WhyOnce(Sip("INVITE sip:x SIP/2.0", "a@b", "1 INVITE")), "unknown_operation");
  EXPECT_EQ(WhyOnce("OPTIONS sip:x SIP/2.0\r\nCall-ID: a\r\n\r\n"), "unknown_operation");
  EXPECT_EQ(WhyOnce(Sip("OPTIONS sip:x SIP/2.0", "a@b", "2 OPTIONS", "X: " + std::string(1100, 'y') + "\r\n")),
            "unknown_operation")
      << "behind 1,024 bytes";
}

// The programs against the same code compiled for this side, on messages of which some are broken.
TEST_F(LocatedTest, TheProgramsFindWhatTheSameCodeFindsHere) {
  std::mt19937 random(7);
  int found = 0, not_found = 0;
  for (const bool sip : {false, true}) {
    Use(OwnProfile(sip ? "{tokens: [{header: via, short: v, parameter: branch}, {header: cseq}]}"
                       : "path: [{ber: enter}, {ber: skip}, {ber: skip}, {ber: enter}, {ber: value}]"));
    for (int round = 0; round < 400; ++round) {
      std::string payload =
          sip ? Sip("OPTIONS sip:x SIP/2.0", "a", std::to_string(random()) + " OPTIONS", random() % 4 ? "" : "X: y\r\n")
              : Snmp('\xa0', static_cast<uint32_t>(random()) >> random() % 32, std::string(random() % 300, 'c'));
      if (random() % 2) payload[random() % std::min<size_t>(payload.size(), 24)] = static_cast<char>(random());
      if (random() % 4 == 0) payload.resize(random() % (payload.size() + 1));
      const bool tracked = WhyOnce(payload).empty();
      ASSERT_EQ(tracked, Native(payload).has_value()) << round << (sip ? " SIP" : " SNMP");
      if (tracked) ASSERT_NE(Find(payload), 0u) << round;
      tracked ? ++found : ++not_found;
      if (!tracked) continue;
      const RunResult answered = Answer(payload);  // a reply has the same places here
      ASSERT_EQ(answered.changes.count("raw4.won_by_first"), 1u) << round;
      EndRetention(Find(payload));
      VisitAll();
    }
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(not_found, 100);
}

}  // namespace
}  // namespace hedgerow::packets
