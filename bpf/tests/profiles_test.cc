// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The profiles that have no test file of their own, and the parts a user's profile is made of: what is a
// request, which operations are duplicated, what is a nack, and what is left of an older answer. Real clients
// and servers speak in tests/e2e/test_profiles.py; here is what they do not say.
#include <cstring>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "proxy/profiles/profile_test.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

class ProfilesTest : public PacketTest {
 protected:
  // Service raw4 with another profile. The fixture puts it back.
  void Use(const hr_profile &profile) {
    std::memcpy(const_cast<hr_profile *>(&ServiceConfig(kRaw4Service).profile), &profile, sizeof(profile));
  }
  RunResult Ask(const Bytes &payload) {
    return Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, payload).Build());
  }
  RunResult Answer(const Bytes &payload, const char *from = kA4) {
    return Reply(PacketBuilder(from, kClient4).Udp(kRawPort, kClientPort, payload).Build());
  }
  static const char *AddressOf(uint32_t mask) { return mask & 1 ? kA4 : mask & 2 ? kB4 : kC4; }
  // The request is hedged, and another backend than the leader answers it.
  void AnswerElsewhere(uint32_t request, const Bytes &answer) {
    FireNow(request);
    ASSERT_EQ(Answer(answer, AddressOf(SentTo(request) & ~1u)).verdict, kRedirected);
  }
  // Why a request is forwarded once; empty when it is tracked, and then it is answered and done with.
  std::string WhyOnce(const Bytes &payload) {
    const RunResult run = Ask(payload);
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_EQ(Read(run.packet).payload, payload);
    EXPECT_EQ(ChecksumFault(run.packet), "");
    if (!run.changes.contains("raw4.passed_through")) return "";
    for (const auto &[name, change] : run.changes)
      if (name.starts_with("raw4:")) return name.substr(5);
    return "?";
  }
};

Bytes Joined(const std::string &head, const std::string &body) { return Text(head + body); }

Bytes Frame(uint16_t id, const std::string &body, uint16_t sequence = 0, uint16_t total = 1) {
  std::string head;
  for (const uint16_t field : {id, sequence, total, uint16_t{0}}) {
    head += static_cast<char>(field >> 8);
    head += static_cast<char>(field & 0xff);
  }
  return Joined(head, body);
}

class MemcachedTest : public ProfilesTest {
 protected:
  void SetUp() override {
    ProfilesTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) Use(BuiltInProfile("memcached"));
  }
  uint32_t Find(uint16_t id) {
    return FindRequest(kRaw4Service, kClient4, kClientPort, {static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id)});
  }
  std::string Once(const std::string &command) { return WhyOnce(Frame(next_id_++, command)); }

  uint16_t next_id_ = 1;
};

TEST_F(MemcachedTest, AGetIsHedgedAndItsFirstAnswerWins) {
  EXPECT_THAT(Ask(Frame(0x1234, "get key\r\n")).changes, UnorderedElementsAre(Pair("raw4.requests", 1)));
  const uint32_t request = Find(0x1234);
  ASSERT_NE(request, 0u);
  EXPECT_EQ(FireNow(request).at("raw4.hedges"), 1);
  Clones(HR_MARK_HEDGE, 1);
  const Bytes answer = Frame(0x1234, "VALUE key 0 1\r\nx\r\nEND\r\n");
  EXPECT_EQ(Answer(answer, kB4).verdict, kRedirected);
  EXPECT_EQ(Answer(answer, kA4).verdict, kDropped);
}

TEST_F(MemcachedTest, OnlyReadsAreHedgedUnlessTheOperatorSaysMore) {
  EXPECT_EQ(Once("get a\r\n"), "");
  EXPECT_EQ(Once("get a b c\r\n"), "");
  EXPECT_EQ(Once("gets a\r\n"), "unknown_operation") << "its cas number is one server's own";
  EXPECT_EQ(Once("get a\n"), "") << "memcached takes a bare line feed";
  for (const char *command :
       {"set a 0 0 1\r\nx\r\n", "add a 0 0 1\r\nx\r\n", "replace a 0 0 1\r\nx\r\n", "append a 0 0 1\r\nx\r\n",
        "prepend a 0 0 1\r\nx\r\n", "cas a 0 0 1 7\r\nx\r\n", "delete a\r\n", "incr a 1\r\n", "decr a 1\r\n",
        "touch a 1\r\n", "gat 1 a\r\n", "gats 1 a\r\n", "flush_all\r\n", "version\r\n", "mg a v\r\n", "getx a\r\n",
        "GET a\r\n", "\x80", ""}) {
    SCOPED_TRACE(command);
    EXPECT_EQ(Once(command), "unknown_operation");
  }
}

TEST_F(MemcachedTest, WhatTheOperatorAllowsIsHedgedAndNothingElse) {
  Use(BuiltInProfile("memcached", {"gets", "set", "add", "replace", "cas", "delete", "touch", "gat", "gats"}));
  for (const char *command :
       {"gets a b c\r\n", "set a 0 0 1\r\nx\r\n", "add a 0 0 1\r\nx\r\n", "replace a 0 0 10\r\n0123456789\r\n",
        "cas a 0 0 1 18446744073709551615\r\nx\r\n", "delete a\r\n", "touch a 1\r\n", "gat 1 a\r\n", "gats 1 a\r\n",
        "set a 0 0 0\r\n\r\n", "set a 0 0 2\r\n\r\n\r\n"}) {
    SCOPED_TRACE(command);
    EXPECT_EQ(Once(command), "");
  }
  for (const char *command : {"append a 0 0 1\r\nx\r\n", "prepend a 0 0 1\r\nx\r\n", "incr a 1\r\n", "decr a 1\r\n"}) {
    SCOPED_TRACE(command);
    EXPECT_EQ(Once(command), "unknown_operation");
  }
}

TEST_F(MemcachedTest, ASecondCommandInTheDatagramIsNotDuplicated) {
  Use(BuiltInProfile("memcached", {"set", "cas", "delete"}));
  for (const char *command : {"get a\r\nincr b 1\r\n", "get a\r\n\r\n", "delete a\r\nincr b 1\r\n",
                              "set a 0 0 1\r\nx\r\nincr b 1\r\n", "set a 0 0 1\r\nincr b 1\r\n", "set a 0 0 5\r\nx\r\n",
                              "cas a 0 0 1 7\r\nx\r\nincr b 1\r\n", "cas a 0 0 9 1\r\nx\r\n", "set a 0 0 x\r\nx\r\n",
                              "set a 0 0 -1\r\nx\r\n", "set a 0 0 18446744073709551617\r\nx\r\n",
                              "set a 0 0 00000001\r\nx\r\n", "set 1\r\nx", "get a", "get ", "set a 0 0 1\r\nx"}) {
    SCOPED_TRACE(command);
    EXPECT_EQ(Once(command), "unknown_operation");
  }
}

// One line of every length up to a whole datagram, and its end at every place in a word of 8 bytes.
TEST_F(MemcachedTest, TheEndOfALineIsFoundWhereverItIs) {
  for (size_t length = 1; length < 1400; length += length < 40 ? 1 : 37) {
    SCOPED_TRACE(length);
    EXPECT_EQ(Once("get " + std::string(length, 'k') + "\r\n"), "");
    EXPECT_EQ(Once("get " + std::string(length, 'k') + "\r\nincr b 1\r\n"), "unknown_operation");
    VisitAll();
    for (uint16_t id = 1; id < next_id_; ++id)
      if (const uint32_t request = Find(id); request != 0) {
        Answer(Frame(id, "END\r\n"));
        EndRetention(request);
      }
    VisitAll();
    next_id_ = 1;
  }
}

TEST_F(MemcachedTest, ARequestThatNobodyAnswersIsForwardedOnce) {
  Use(BuiltInProfile("memcached", {"set", "cas", "delete"}));
  EXPECT_EQ(Once("set a 0 0 1 noreply\r\nx\r\n"), "one_way");
  EXPECT_EQ(Once("cas a 0 0 1 7 noreply\r\nx\r\n"), "one_way");
  EXPECT_EQ(Once("delete a noreply\r\n"), "one_way");
  EXPECT_EQ(Once("delete a noreply\n"), "one_way");
  EXPECT_EQ(Once("delete a noreply \r\n"), "one_way") << "memcached takes spaces for nothing";
  EXPECT_EQ(Once("delete noreply\r\n"), "one_way") << "a key of that name: not hedged, which is harmless";
  EXPECT_EQ(Once("delete a_noreply\r\n"), "");
}

TEST_F(MemcachedTest, ARequestOfSeveralDatagramsIsForwardedOnce) {
  EXPECT_EQ(WhyOnce(Frame(1, "get a\r\n", 0, 2)), "unknown_operation");
  EXPECT_EQ(WhyOnce(Frame(1, "get a\r\n", 1, 1)), "unknown_operation");
}

TEST_F(MemcachedTest, AllDatagramsOfTheWinnerPassInAnyOrder) {
  Ask(Frame(7, "get a\r\n"));
  FireNow(Find(7));
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(Answer(Frame(7, "part", 1, 3), kA4).verdict, kRedirected);
  EXPECT_EQ(Answer(Frame(7, "VALUE", 0, 3), kB4).verdict, kDropped);
  EXPECT_EQ(Answer(Frame(7, "VALUE", 0, 3), kA4).verdict, kRedirected);
  EXPECT_EQ(Answer(Frame(7, "END", 2, 3), kA4).verdict, kRedirected);
  EXPECT_EQ(Answer(Frame(7, "END", 2, 3), kB4).verdict, kDropped);
}

TEST_F(MemcachedTest, AServersErrorIsANackAndAPartOfAValueIsNot) {
  Ask(Frame(7, "get a\r\n"));
  const RunResult nack = Answer(Frame(7, "SERVER_ERROR out of memory\r\n"));
  EXPECT_EQ(HR_MARK_KIND(nack.mark), HR_MARK_RELEASE);
  EXPECT_EQ(nack.changes.at("raw4.nacks_swallowed"), 1);
  Ask(Frame(8, "get a\r\n"));
  EXPECT_EQ(Answer(Frame(8, "SERVER_ERROR is what this value says", 1, 3)).verdict, kRedirected);
  EXPECT_EQ(StateOf(Find(8)), HR_STATE_ANSWERED);
  for (const char *answer : {"END\r\n", "CLIENT_ERROR bad\r\n", "ERROR\r\n"}) {
    Ask(Frame(9, "get a\r\n"));
    EXPECT_EQ(StateOf(Find(9)), HR_STATE_PENDING);
    EXPECT_EQ(Answer(Frame(9, answer)).verdict, kRedirected) << answer;
    EXPECT_EQ(StateOf(Find(9)), HR_STATE_ANSWERED) << answer;
  }
}

// The client uses the id again while a stalled server has an answer of three datagrams outstanding.
TEST_F(MemcachedTest, AnAnswerIsOutstandingUntilItsLastDatagram) {
  Ask(Frame(7, "get old\r\n"));
  AnswerElsewhere(Find(7), Frame(7, "old"));
  Ask(Frame(7, "get new\r\n"));
  const char *asked = AddressOf(SentTo(Find(7)));
  for (const uint16_t sequence : {0, 1, 2}) {
    const RunResult stale = Answer(Frame(7, "old", sequence, 3));
    EXPECT_EQ(stale.verdict, kDropped) << sequence;
    EXPECT_THAT(stale.changes, Contains(Pair("raw4:stale", 1)));
  }
  EXPECT_EQ(Answer(Frame(7, "new", 0, 2), asked).verdict, kRedirected);
  EXPECT_EQ(Answer(Frame(7, "new", 1, 2), asked).verdict, kRedirected);
}

TEST_F(MemcachedTest, TheRestOfAnAnswerThatHasBegunIsNotTheNextOne) {
  Ask(Frame(7, "get old\r\n"));
  Answer(Frame(7, "old", 0, 2));
  Ask(Frame(7, "get new\r\n"));
  EXPECT_EQ(Answer(Frame(7, "old", 1, 2)).verdict, kDropped) << "the old answer's second datagram";
  EXPECT_EQ(StateOf(Find(7)), HR_STATE_PENDING);
  EXPECT_EQ(Answer(Frame(7, "new", 0, 1)).verdict, kRedirected);
}

// Message type, transaction id; RFC 5389 section 6.
Bytes Stun(uint16_t type, uint8_t transaction, const Bytes &attributes = {}, uint32_t cookie = 0x2112a442) {
  std::string head = {static_cast<char>(type >> 8), static_cast<char>(type), 0, static_cast<char>(attributes.size())};
  for (const int shift : {24, 16, 8, 0}) head += static_cast<char>(cookie >> shift);
  head += std::string(11, 0x55) + static_cast<char>(transaction);
  return Joined(head, std::string(attributes.begin(), attributes.end()));
}

class StunTest : public ProfilesTest {
 protected:
  void SetUp() override {
    ProfilesTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) Use(BuiltInProfile("stun"));
  }
  uint32_t Find(uint8_t transaction) {
    Bytes id(11, 0x55);
    id.push_back(transaction);
    return FindRequest(kRaw4Service, kClient4, kClientPort, id);
  }
};

TEST_F(StunTest, ABindingRequestIsHedgedAndSuccessOrErrorAnswersIt) {
  for (const uint16_t type : {0x0101, 0x0111}) {
    const auto id = static_cast<uint8_t>(type);
    EXPECT_EQ(WhyOnce(Stun(0x0001, id)), "");
    EXPECT_EQ(FireNow(Find(id)).at("raw4.hedges"), 1);
    Clones(HR_MARK_HEDGE, 1);
    const char *standby = SentTo(Find(id)) & 0b010 ? kB4 : kC4;  // who answered fast before is asked later again
    EXPECT_EQ(Answer(Stun(type, id, {0, 9, 0, 4, 0, 0, 4, 20}), standby).verdict, kRedirected) << "420 is an answer";
    EXPECT_EQ(Answer(Stun(type, id), kA4).verdict, kDropped);
  }
}

TEST_F(StunTest, EverythingElseIsForwardedOnce) {
  EXPECT_EQ(WhyOnce(Stun(0x0003, 1)), "unknown_operation") << "Allocate";
  EXPECT_EQ(WhyOnce(Stun(0x0011, 1)), "unknown_operation") << "an indication is not answered";
  EXPECT_EQ(WhyOnce(Stun(0x0101, 1)), "unknown_operation") << "a response";
  EXPECT_EQ(WhyOnce(Stun(0x0001, 1, {}, 0x11223344)), "unknown_operation") << "RFC 3489 had no cookie";
  EXPECT_EQ(WhyOnce(CutTo(Stun(0x0001, 1), 19)), "unknown_operation");
  EXPECT_EQ(WhyOnce(Stun(0x0001, 1, {0, 3, 0, 4, 0, 0, 0, 6})), "unknown_operation") << "CHANGE-REQUEST";
  EXPECT_EQ(WhyOnce(Stun(0x0001, 1, {0, 0x27, 0, 4, 0x10, 0, 0, 0})), "unknown_operation") << "RESPONSE-PORT";
  EXPECT_EQ(WhyOnce(Stun(0x0001, 2, {0x80, 0x22, 0, 4, 'n', 'a', 'm', 'e'})), "") << "another attribute";
}

TEST_F(StunTest, AServersOwnErrorIsANack) {
  Ask(Stun(0x0001, 1));
  EXPECT_EQ(HR_MARK_KIND(Answer(Stun(0x0111, 1, {0, 9, 0, 4, 0, 0, 5, 0})).mark), HR_MARK_RELEASE);
  EXPECT_EQ(StateOf(Find(1)), HR_STATE_PENDING);
}

TEST_F(StunTest, WhatIsNoBindingResponseDecidesNothing) {
  Ask(Stun(0x0001, 1));
  for (const Bytes &payload : {Stun(0x0103, 1), Stun(0x0001, 1), Stun(0x0101, 1, {}, 1), Stun(0x0101, 2)})
    Answer(payload);
  EXPECT_EQ(StateOf(Find(1)), HR_STATE_PENDING);
}

TEST_F(ProfilesTest, NtpIsPairedByTheClientsTransmitTimestamp) {
  Use(BuiltInProfile("ntp"));
  Bytes request(48, 0), answer(48, 0);
  request[0] = 0x23;  // version 4, client
  answer[0] = 0x24;
  answer[1] = 2;
  for (size_t i = 0; i < 8; ++i) request[40 + i] = answer[24 + i] = static_cast<uint8_t>(0xe0 + i);
  EXPECT_EQ(WhyOnce(request), "");
  Bytes kiss = answer;
  kiss[1] = 0;
  EXPECT_EQ(HR_MARK_KIND(Answer(kiss).mark), HR_MARK_RELEASE) << "stratum 0";
  Bytes other = answer;
  other[31] = 0;
  EXPECT_THAT(Answer(other).changes, UnorderedElementsAre(Pair("raw4:direct", 1))) << "it answers another request";
  EXPECT_THAT(Answer(answer).changes, Contains(Pair("raw4.won_by_first", 1)));
}

TEST_F(ProfilesTest, WhatTheMaskLeavesOutIsNoPartOfTheKey) {
  Use(OwnProfile("{request_offset: 0, request_length: 3, reply_offset: 0, reply_length: 3, mask: 0fff00}"));
  Ask({0xa1, 2, 3, 4});
  EXPECT_NE(FindRequest(kRaw4Service, kClient4, kClientPort, {0x01, 2, 0}), 0u);
  EXPECT_EQ(Answer({0xb1, 2, 9, 9}).changes.at("raw4.won_by_first"), 1) << "the other bits are the reply's own";
}

TEST_F(ProfilesTest, MatchesOfAnAlternativeMustAllHoldAndAnyAlternativeWillDo) {
  Use(PairedBy(1, R"(
operations:
  - match: [{offset: 1, text: a}, {offset: 2, text: b, not: true}]
  - match: [{offset: 1, text: cde}])"));
  EXPECT_EQ(WhyOnce({1, 'a', 'x'}), "");
  EXPECT_EQ(WhyOnce({2, 'a'}), "") << "what is not there is other than b";
  EXPECT_EQ(WhyOnce({3, 'c', 'd', 'e'}), "");
  EXPECT_EQ(WhyOnce({4, 'a', 'b'}), "unknown_operation");
  EXPECT_EQ(WhyOnce({5, 'c', 'd'}), "unknown_operation") << "the payload ends before the match does";
  EXPECT_EQ(WhyOnce({6, 'b', 'x'}), "unknown_operation");
}

TEST_F(ProfilesTest, NamedOperationsThatAreNotListedAreForwardedOnce) {
  Use(PairedBy(1, "operations: [{name: read, match: [{offset: 1, text: r}]}]"));
  EXPECT_EQ(WhyOnce({1, 'r'}), "unknown_operation");
  EXPECT_EQ(WhyOnce({2, 'w'}), "unknown_operation");
  EXPECT_EQ(WhyOnce({3}), "unknown_operation");
}

TEST_F(ProfilesTest, AReplyWithAnotherEchoAnswersAnOlderRequest) {
  Use(PairedBy(1, "echo: {request_offset: 1, reply_offset: 2, length: 3}"));
  Ask({7, 'o', 'l', 'd'});
  AnswerElsewhere(FindRequest(kRaw4Service, kClient4, kClientPort, {7}), {7, 0, 'o', 'l', 'd'});
  Ask({7, 'n', 'e', 'w'});
  const char *asked = AddressOf(SentTo(FindRequest(kRaw4Service, kClient4, kClientPort, {7})));
  EXPECT_EQ(Answer({7, 0, 'o', 'l', 'd'}, asked).verdict, kDropped);
  EXPECT_EQ(Answer({7, 0, 'n', 'e'}, asked).verdict, kDropped) << "cut short";
  EXPECT_EQ(Answer({7, 0, 'n', 'e', 'w'}, asked).verdict, kRedirected);
}

}  // namespace
}  // namespace hedgerow::packets
