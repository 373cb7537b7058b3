// SPDX-License-Identifier: Apache-2.0
//
// What a client may send and what it is told when it sends something else; memcached's doc/protocol.txt.
#include "cluster/memcached/request.h"

#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::memcached {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Limits kConsent{.value_max_bytes = 100, .once_in_window = true};

std::string Framed(std::string_view body, uint16_t id = 0x1234, uint16_t datagrams = 1) {
  std::string datagram = {static_cast<char>(id >> 8),        static_cast<char>(id),        0, 0,
                          static_cast<char>(datagrams >> 8), static_cast<char>(datagrams), 0, 0};
  datagram.append(body);
  return datagram;
}

Request Taken(std::string_view body, const Limits& limits = kConsent) {
  Parse parse = ParseRequest(Framed(body), limits);
  EXPECT_TRUE(parse.request.has_value()) << body << " -> " << parse.answer;
  return parse.request.value_or(Request());
}

// The line that answers it, without the frame.
std::string Told(std::string_view body, const Limits& limits = kConsent) {
  const Parse parse = ParseRequest(Framed(body), limits);
  EXPECT_FALSE(parse.request.has_value()) << body;
  EXPECT_EQ(parse.answer.substr(0, kFrame_bytes), Framed("")) << body;
  EXPECT_EQ(parse.answer.substr(parse.answer.size() - 2), "\r\n");
  return parse.answer.substr(kFrame_bytes, parse.answer.size() - kFrame_bytes - 2);
}

TEST(MemcachedRequest, GetsNameKeys) {
  EXPECT_EQ(Taken("get a\r\n").verb, Verb::kGet);
  EXPECT_EQ(Taken("gets a\r\n").verb, Verb::kGets);
  EXPECT_EQ(Taken("get a\r\n").id, 0x1234);
  EXPECT_THAT(Taken("get a  b c \r\n").keys, ElementsAre("a", "b", "c"));
  EXPECT_THAT(Taken("get a\n").keys, ElementsAre("a")) << "memcached takes a line feed alone";
}

TEST(MemcachedRequest, StorageCommandsHaveFlagsALifeAndABlock) {
  const Request set = Taken("set k 4294967295 -1 5\r\na\r\nb \r\n");
  EXPECT_EQ(set.verb, Verb::kSet);
  EXPECT_FALSE(set.no_reply);
  EXPECT_EQ(set.operation,
            (kv::ItemOperation{.verb = kv::ItemVerb::kSet, .key = "k", .value = "a\r\nb ", .flags = 4294967295}));
  EXPECT_EQ(set.exptime, -1);
  EXPECT_EQ(Taken("add k 0 0 0\r\n\r\n").operation.verb, kv::ItemVerb::kAdd);
  EXPECT_EQ(Taken("replace k 0 0 0\r\n\r\n").operation.verb, kv::ItemVerb::kReplace);
  EXPECT_EQ(Taken("append k 0 0 1\r\nx\r\n").operation.verb, kv::ItemVerb::kAppend);
  EXPECT_EQ(Taken("prepend k 0 0 1\r\nx\r\n").operation.verb, kv::ItemVerb::kPrepend);
  const Request cas = Taken("cas k 0 7 1 18446744073709551615 noreply\r\nx\r\n");
  EXPECT_EQ(cas.operation.unique, UINT64_MAX);
  EXPECT_EQ(cas.exptime, 7);
  EXPECT_TRUE(cas.no_reply);
}

TEST(MemcachedRequest, TheOthersHaveALine) {
  EXPECT_EQ(Taken("delete k\r\n").operation.verb, kv::ItemVerb::kDelete);
  EXPECT_FALSE(Taken("delete k 0\r\n").no_reply);
  EXPECT_TRUE(Taken("delete k 0 noreply\r\n").no_reply);
  EXPECT_EQ(Taken("touch k 30\r\n").exptime, 30);
  EXPECT_TRUE(Taken("touch k 30 noreply\r\n").no_reply);
  EXPECT_EQ(Taken("incr k 18446744073709551615\r\n").operation.delta, UINT64_MAX);
  EXPECT_EQ(Taken("decr k 1 noreply\r\n").operation.verb, kv::ItemVerb::kDecrement);
  EXPECT_EQ(Taken("version\r\n").verb, Verb::kVersion);
  EXPECT_EQ(Taken("stats\r\n").verb, Verb::kStats);
  EXPECT_EQ(Taken("flush_all\r\n").operation.verb, kv::ItemVerb::kFlush);
  EXPECT_EQ(Taken("flush_all 10\r\n").exptime, 10);
  EXPECT_TRUE(Taken("flush_all noreply\r\n").no_reply);
  EXPECT_TRUE(Taken("flush_all 0 noreply\r\n").no_reply);
  EXPECT_FALSE(Taken("delete noreply\r\n").no_reply) << "a key may be called so";
  EXPECT_THAT(Taken("get noreply\r\n").keys, ElementsAre("noreply"));
}

TEST(MemcachedRequest, WhatIsMalformedIsToldInMemcachedsWords) {
  for (const char* body : {"", "\r\n", " \r\n", "x", "get a", "GET a\r\n", "get\r\n", "set k 0 0\r\n", "touch k\r\n",
                           "incr k\r\n", "delete\r\n", "cas k 0 0 1\r\nx\r\n", "set k 0 0 1 2\r\nx\r\n", "quit\r\n",
                           "flush_all 1 2\r\n", "verbosity 1\r\n", "stats items\r\n", "shutdown\r\n"})
    EXPECT_EQ(Told(body), "ERROR") << body;
  const std::string long_key(251, 'k');
  for (const std::string& body :
       {"get " + long_key + "\r\n", "set " + long_key + " 0 0 1\r\nx\r\n", std::string("set k x 0 1\r\nx\r\n"),
        std::string("set k -1 0 1\r\nx\r\n"), std::string("set k 4294967296 0 1\r\nx\r\n"),
        std::string("set k 0 0 -1\r\nx\r\n"), std::string("set k 0 1.5 1\r\nx\r\n"), std::string("delete k 1\r\n"),
        std::string("cas k 0 0 1 -1\r\nx\r\n")})
    EXPECT_EQ(Told(body), "CLIENT_ERROR bad command line format") << body;
  EXPECT_EQ(Told("touch k soon\r\n"), "CLIENT_ERROR invalid exptime argument");
  EXPECT_EQ(Told("incr k -1\r\n"), "CLIENT_ERROR invalid numeric delta argument");
  EXPECT_EQ(Told("incr k 18446744073709551616\r\n"), "CLIENT_ERROR invalid numeric delta argument");
  for (const char* body : {"set k 0 0 1\r\n", "set k 0 0 1\r\nx", "set k 0 0 1\r\nx\r", "set k 0 0 1\r\nxy\r\n",
                           "set k 0 0 2\r\nx\r\n", "set k 0 0 99\r\n"})
    EXPECT_EQ(Told(body), "CLIENT_ERROR bad data chunk") << body;
}

TEST(MemcachedRequest, BoundsAreTold) {
  for (const char* verb : {"add", "replace", "append", "prepend"}) {
    EXPECT_EQ(Told(std::string(verb) + " k 0 0 101\r\n" + std::string(101, 'x') + "\r\n"),
              "SERVER_ERROR object too large for cache");
  }
  EXPECT_EQ(Taken("set k 0 0 100\r\n" + std::string(100, 'x') + "\r\n").operation.value.size(), 100u);
  std::string keys;
  for (size_t i = 0; i < kKeysMax; ++i) keys += " k";
  EXPECT_EQ(Taken("get" + keys + "\r\n").keys.size(), kKeysMax);
  EXPECT_EQ(Told("get" + keys + " k\r\n"), "CLIENT_ERROR at most 100 keys in one request");
}

// Else the client would find the value that it has replaced. The block may have been cut to fit a datagram.
TEST(MemcachedRequest, ASetOfWhatIsTooLargeIsARequestToRemoveWhatIsThere) {
  for (const std::string& block : {std::string(101, 'x') + "\r\n", std::string(40, 'x'), std::string()}) {
    const Request request = Taken("set k 0 0 101\r\n" + block);
    EXPECT_EQ(request.verb, Verb::kSet);
    EXPECT_EQ(request.operation.verb, kv::ItemVerb::kDiscard);
    EXPECT_EQ(request.operation.key, "k");
    EXPECT_TRUE(request.operation.value.empty());
  }
}

TEST(MemcachedRequest, OneCommandInOneDatagram) {
  EXPECT_THAT(Told("get a\r\nincr b 1\r\n"), HasSubstr("CLIENT_ERROR one command"));
  EXPECT_THAT(Told("set k 0 0 1\r\nx\r\nget a\r\n"), HasSubstr("CLIENT_ERROR one command"));
  for (const uint16_t datagrams : {0, 2, 256}) {
    const Parse parse = ParseRequest(Framed("get a\r\n", 7, datagrams), kConsent);
    EXPECT_EQ(parse.refusal, Refusal::kSeveralDatagrams);
    EXPECT_EQ(parse.answer, Framed("SERVER_ERROR multi-packet request not supported\r\n", 7));
  }
}

TEST(MemcachedRequest, WhatCountsTwiceNeedsTheOperatorsWord) {
  constexpr Limits kNone{.value_max_bytes = 100, .once_in_window = false};
  EXPECT_EQ(Told("incr k 1\r\n", kNone), "CLIENT_ERROR incr is refused here: memcached.once_in_window is off");
  EXPECT_THAT(Told("decr k 1\r\n", kNone), HasSubstr("decr is refused"));
  EXPECT_THAT(Told("append k 0 0 1\r\nx\r\n", kNone), HasSubstr("append is refused"));
  EXPECT_THAT(Told("prepend k 0 0 1 noreply\r\nx\r\n", kNone), HasSubstr("prepend is refused"));
  EXPECT_EQ(Taken("set k 0 0 1\r\nx\r\n", kNone).verb, Verb::kSet);
}

TEST(MemcachedRequest, OtherProtocolsAreToldSo) {
  EXPECT_THAT(Told("gat 0 k\r\n"), HasSubstr("CLIENT_ERROR gat is not served"));
  EXPECT_THAT(Told("gats 0 k\r\n"), HasSubstr("CLIENT_ERROR gat is not served"));
  for (const char* body : {"mn\r\n", "mg k v\r\n", "ms k 1\r\nx\r\n", "md k\r\n", "ma k\r\n"})
    EXPECT_THAT(Told(body), HasSubstr("CLIENT_ERROR meta commands")) << body;
  std::string get(24, '\0');
  get[0] = '\x80';
  get[1] = '\x0b';
  get.replace(12, 4, "opaq");
  const Parse parse = ParseRequest(Framed(get), kConsent);
  EXPECT_EQ(parse.refusal, Refusal::kBinary);
  const std::string answer = parse.answer.substr(kFrame_bytes);
  ASSERT_GT(answer.size(), 24u);
  EXPECT_EQ(answer.substr(0, 2), "\x81\x0b");
  EXPECT_EQ(answer.substr(6, 2), std::string("\0\x83", 2));
  EXPECT_EQ(static_cast<size_t>(answer[11]), answer.size() - 24);
  EXPECT_EQ(answer.substr(12, 4), "opaq");
  EXPECT_EQ(ParseRequest(Framed("\x80"), kConsent).refusal, Refusal::kBinary) << "also a torn one";
}

TEST(MemcachedRequest, AnAnswerIsNeverAnswered) {
  for (const char* body : {"ERROR\r\n", "CLIENT_ERROR bad\r\n", "SERVER_ERROR x\r\n", "STORED\r\n", "END\r\n",
                           "VALUE k 0 1\r\nx\r\nEND\r\n", "VERSION 1\r\n", "STAT a b\r\nEND\r\n", "ERROR", "\x81"})
    EXPECT_EQ(ParseRequest(Framed(body), kConsent).drop, Drop::kAnAnswer) << body;
  EXPECT_EQ(ParseRequest(Framed("SERVER_ERROR x\r\n", 1, 3), kConsent).drop, Drop::kAnAnswer);
  EXPECT_EQ(Told("17\r\n"), "ERROR") << "what an incr is answered; and that one is an answer";
  for (size_t bytes = 0; bytes < kFrame_bytes; ++bytes)
    EXPECT_EQ(ParseRequest(Framed("").substr(0, bytes), kConsent).drop, Drop::kTooShort);
}

TEST(MemcachedRequest, WhateverComesIsTakenAnsweredOrDropped) {
  std::mt19937_64 random(1);
  const std::string seeds[] = {"get a b\r\n", "set k 1 2 3\r\nabc\r\n", "cas k 1 2 3 4 noreply\r\nabc\r\n",
                               "incr k 1\r\n"};
  for (int i = 0; i < 50'000; ++i) {
    std::string datagram = Framed(seeds[random() % 4]);
    for (uint64_t j = 0; j <= random() % 3; ++j) datagram[random() % datagram.size()] = static_cast<char>(random());
    const Parse parse = ParseRequest(datagram, kConsent);
    EXPECT_EQ(parse.request.has_value() + (parse.refusal != Refusal::kNone) + (parse.drop != Drop::kNone), 1);
    if (parse.refusal != Refusal::kNone) {
      EXPECT_EQ(ParseRequest(parse.answer, kConsent).drop, Drop::kAnAnswer) << parse.answer;
    }
  }
}

TEST(MemcachedRequest, TheKeyTellsClientIdAndBytes) {
  const std::array<uint8_t, 16> address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  std::array<uint8_t, 16> other_low = address, other_high = address;
  other_low[15] = 2;
  other_high[0] = 0xfd;
  std::set<kv::RequestKey> keys;
  keys.insert(KeyOf(address, 1000, Framed("get a\r\n", 1)));
  keys.insert(KeyOf(address, 1000, Framed("get a\r\n", 1)));
  EXPECT_EQ(keys.size(), 1u);
  keys.insert(KeyOf(other_low, 1000, Framed("get a\r\n", 1)));
  keys.insert(KeyOf(other_high, 1000, Framed("get a\r\n", 1)));
  keys.insert(KeyOf(address, 1001, Framed("get a\r\n", 1)));
  keys.insert(KeyOf(address, 1000, Framed("get a\r\n", 2)));
  keys.insert(KeyOf(address, 1000, Framed("get b\r\n", 1)));
  EXPECT_EQ(keys.size(), 6u);
  EXPECT_EQ(KeyOf(address, 1000, Framed("get a\r\n", 1)).c, 373153203738325497u)
      << "nodes of every version must find the same";
}

TEST(MemcachedRequest, ALifeIsRelativeUpToThirtyDaysAndAUnixTimeBeyond) {
  constexpr int64_t kNow_s = 1'800'000'000;
  EXPECT_EQ(LifeOf_s(0, kNow_s), 0);
  EXPECT_EQ(LifeOf_s(-5, kNow_s), -1);
  EXPECT_EQ(LifeOf_s(1, kNow_s), 1);
  EXPECT_EQ(LifeOf_s(2'592'000, kNow_s), 2'592'000);
  EXPECT_EQ(LifeOf_s(2'592'001, kNow_s), -1) << "a day in 1970";
  EXPECT_EQ(LifeOf_s(kNow_s + 60, kNow_s), 60);
  EXPECT_EQ(LifeOf_s(kNow_s, kNow_s), -1);
  EXPECT_EQ(LifeOf_s(INT64_MAX, kNow_s), INT64_MAX - kNow_s);
}

TEST(MemcachedRequest, EverythingHasAName) {
  std::set<std::string_view> verbs, refusals, drops;
  for (size_t i = 0; i < kVerbs; ++i) verbs.insert(Name(static_cast<Verb>(i)));
  for (size_t i = 0; i < kRefusals; ++i) refusals.insert(Name(static_cast<Refusal>(i)));
  for (size_t i = 0; i < kDrops; ++i) drops.insert(Name(static_cast<Drop>(i)));
  EXPECT_EQ(verbs.size(), kVerbs);
  EXPECT_EQ(refusals.size(), kRefusals);
  EXPECT_EQ(drops.size(), kDrops);
  EXPECT_EQ(Name(static_cast<Verb>(99)), "unknown");
}

}  // namespace
}  // namespace hedgerow::memcached
