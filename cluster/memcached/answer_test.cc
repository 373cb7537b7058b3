// SPDX-License-Identifier: Apache-2.0
#include "cluster/memcached/answer.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::memcached {
namespace {

using testing::StartsWith;

kv::Result Result(kv::ResultCode code, std::vector<std::string> values = {}) {
  return {.code = code, .session = 0, .values = std::move(values)};
}

TEST(MemcachedAnswer, ResultsHaveMemcachedsWords) {
  const auto ok = Result(kv::ResultCode::kOk);
  EXPECT_EQ(ResultReply(Verb::kSet, ok).text, "STORED\r\n");
  EXPECT_EQ(ResultReply(Verb::kCas, ok).text, "STORED\r\n");
  EXPECT_EQ(ResultReply(Verb::kDelete, ok).text, "DELETED\r\n");
  EXPECT_EQ(ResultReply(Verb::kTouch, ok).text, "TOUCHED\r\n");
  EXPECT_EQ(ResultReply(Verb::kIncrement, Result(kv::ResultCode::kOk, {"17"})).text, "17\r\n");
  EXPECT_EQ(ResultReply(Verb::kCas, Result(kv::ResultCode::kMismatch)).text, "EXISTS\r\n");
  EXPECT_EQ(ResultReply(Verb::kAdd, Result(kv::ResultCode::kNotStored)).text, "NOT_STORED\r\n");
  EXPECT_EQ(ResultReply(Verb::kDelete, Result(kv::ResultCode::kNotFound)).text, "NOT_FOUND\r\n");
  EXPECT_THAT(ResultReply(Verb::kIncrement, Result(kv::ResultCode::kNotANumber)).text, StartsWith("CLIENT_ERROR "));
  // What the profile `memcached` takes for a refusal.
  EXPECT_THAT(ResultReply(Verb::kSet, Result(kv::ResultCode::kNoRoom)).text, StartsWith("SERVER_ERROR "));
  EXPECT_THAT(ResultReply(Verb::kSet, Result(kv::ResultCode::kOverloaded)).text, StartsWith("SERVER_ERROR "));
  EXPECT_THAT(NoLeaderReply().text, StartsWith("SERVER_ERROR "));
}

TEST(MemcachedAnswer, EveryAnswerIsKnownForOneByAnotherServer) {
  const Limits limits;
  for (size_t code = 0; code <= static_cast<size_t>(kv::kResultCodeLast); ++code) {
    const Reply reply = ResultReply(Verb::kSet, Result(static_cast<kv::ResultCode>(code)));
    EXPECT_EQ(ParseRequest(Datagrams(1, reply.text)[0], limits).drop, Drop::kAnAnswer) << reply.text;
    EXPECT_NE(reply.outcome, Outcome::kNone);
  }
}

TEST(MemcachedAnswer, ItemsShowFlagsSizeAndUniqueNumber) {
  const std::vector<std::pair<std::string, kv::Item>> items = {{"a", {.value = "x\r\n", .flags = 7, .unique = 12}},
                                                               {"b", {.value = ""}}};
  EXPECT_EQ(ItemsReply(Verb::kGet, 2, items).text, "VALUE a 7 3\r\nx\r\n\r\nVALUE b 0 0\r\n\r\nEND\r\n");
  EXPECT_EQ(ItemsReply(Verb::kGets, 2, items).text, "VALUE a 7 3 12\r\nx\r\n\r\nVALUE b 0 0 0\r\n\r\nEND\r\n");
  EXPECT_EQ(ItemsReply(Verb::kGet, 2, items).outcome, Outcome::kValues);
  EXPECT_EQ(ItemsReply(Verb::kGet, 3, items).outcome, Outcome::kMiss);
  EXPECT_EQ(ItemsReply(Verb::kGet, 1, {}).text, "END\r\n");
}

TEST(MemcachedAnswer, ItIsCutIntoNumberedDatagrams) {
  std::string text;
  for (int i = 0; text.size() < 3 * (kAnswerDatagram_bytes - kFrame_bytes); ++i) text += std::to_string(i);
  text.resize(3 * (kAnswerDatagram_bytes - kFrame_bytes));
  for (const size_t bytes :
       {size_t{0}, size_t{1}, text.size() / 3, text.size() / 3 + 1, text.size() - 1, text.size()}) {
    const std::vector<std::string> datagrams = Datagrams(0xabcd, text.substr(0, bytes));
    EXPECT_EQ(datagrams.size(), std::max<size_t>(1, (bytes + 1391) / 1392));
    std::string whole;
    for (size_t i = 0; i < datagrams.size(); ++i) {
      EXPECT_LE(datagrams[i].size(), kAnswerDatagram_bytes);
      const char frame[8] = {'\xab', '\xcd', 0, static_cast<char>(i), 0, static_cast<char>(datagrams.size()), 0, 0};
      EXPECT_EQ(datagrams[i].substr(0, 8), std::string(frame, 8));
      whole += datagrams[i].substr(8);
    }
    EXPECT_EQ(whole, text.substr(0, bytes));
  }
}

TEST(MemcachedAnswer, WhatDoesNotFitIsSaidToBeTooLarge) {
  std::vector<std::pair<std::string, kv::Item>> items;
  for (int i = 0; i < 20; ++i) items.emplace_back("k", kv::Item{.value = std::string(kv::kItemMax_bytes, 'x')});
  const Reply reply = ItemsReply(Verb::kGet, 20, items);
  EXPECT_EQ(reply.outcome, Outcome::kTooLarge);
  EXPECT_THAT(reply.text, StartsWith("SERVER_ERROR "));
  items.resize(kAnswerMax_bytes / (kv::kItemMax_bytes + 20));
  EXPECT_EQ(ItemsReply(Verb::kGet, items.size(), items).outcome, Outcome::kValues);
}

TEST(MemcachedAnswer, EveryOutcomeHasAName) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kOutcomes; ++i) names.insert(Name(static_cast<Outcome>(i)));
  EXPECT_EQ(names.size(), kOutcomes);
}

}  // namespace
}  // namespace hedgerow::memcached
