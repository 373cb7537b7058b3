// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/hkv_trailer.h"

#include <gtest/gtest.h>

#include "cluster/wire/hkv.h"

namespace hedgerow::wire {
namespace {

constexpr Key kKey = {.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
constexpr Key kOther = {.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17}};
constexpr uint64_t kSent_ms = 1'700'000'000'123;

HkvRequest Put(size_t value_bytes) {
  return {.kind = HkvKind::kWrite,
          .timeout_us = 250'000,
          .seq = 7,
          .operations = {{.kind = kv::OperationKind::kPut, .key = "k", .value = std::string(value_bytes, 'v')}}};
}

TEST(HkvTrailer, ARequestIsTheSameWithItAndWithout) {
  const HkvRequest requests[] = {Put(100),
                                 {.kind = HkvKind::kOpen, .seq = 5},
                                 {.kind = HkvKind::kGet, .client_id = 1, .seq = 2, .key = "key"},
                                 {.kind = HkvKind::kCancel, .seq = 9}};
  for (const HkvRequest& request : requests) {
    for (const std::string& client : {std::string("w"), std::string(kHkvClientNameMax_bytes, 'w')}) {
      const std::string sealed = SealHkvRequest(Encode(request), client, kSent_ms, kKey);
      EXPECT_EQ(sealed.size(), Encode(request).size() + client.size() + 17);
      ASSERT_TRUE(HasHkvTrailer(sealed));
      const std::optional<HkvTrailer> trailer = FindHkvTrailer(sealed);
      ASSERT_TRUE(trailer.has_value());
      EXPECT_EQ(trailer->client, client);
      EXPECT_EQ(trailer->sent_ms, kSent_ms);
      const HkvParse parse = ParseHkvRequest(sealed);
      ASSERT_TRUE(parse.request.has_value());
      EXPECT_EQ(*parse.request, request);
      EXPECT_FALSE(HasHkvTrailer(Encode(request)));
    }
  }
}

// docs/WIRE_FORMAT.md; the tag was computed by the client in Python.
TEST(HkvTrailer, ItsBytesAreThoseOfThePage) {
  const std::string sealed =
      SealHkvRequest(Encode(HkvRequest{.kind = HkvKind::kOpen, .seq = 5}), "web", kSent_ms, kKey);
  ASSERT_EQ(sealed.size(), 60u);
  EXPECT_EQ(sealed[3], 1);
  EXPECT_EQ(sealed.substr(40, 4), "web\x03");
  EXPECT_EQ(sealed.substr(44, 8), std::string("\x7b\x68\xe5\xcf\x8b\x01\0\0", 8));
  EXPECT_EQ(sealed.substr(52), "\x2f\xd1\x68\x0c\xa7\x8c\x02\x4a");
}

TEST(HkvTrailer, NoBitOfARequestCanBeChanged) {
  const std::string sealed = SealHkvRequest(Encode(Put(20)), "web", kSent_ms, kKey);
  EXPECT_TRUE(IsHkvTagRight(sealed, kKey));
  EXPECT_FALSE(IsHkvTagRight(sealed, kOther));
  for (size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(IsHkvTagRight(changed, kKey)) << "bit " << bit;
  }
  for (size_t size = 0; size < sealed.size(); ++size) EXPECT_FALSE(IsHkvTagRight(sealed.substr(0, size), kKey)) << size;
}

TEST(HkvTrailer, OneThatIsNotWholeIsMalformed) {
  const std::string sealed = SealHkvRequest(Encode(Put(20)), "web", kSent_ms, kKey);
  for (size_t size = kHkvRequestHeader_bytes; size < sealed.size(); ++size) {
    const HkvParse parse = ParseHkvRequest(sealed.substr(0, size));
    ASSERT_TRUE(parse.answer.has_value()) << size;
    EXPECT_EQ(parse.answer->status, HkvStatus::kMalformed);
  }
  std::string unnamed = sealed;
  unnamed[sealed.size() - kHkvRequestTrailerFixed_bytes] = 0;
  EXPECT_FALSE(FindHkvTrailer(unnamed).has_value());
  unnamed[sealed.size() - kHkvRequestTrailerFixed_bytes] = 32;
  EXPECT_FALSE(FindHkvTrailer(unnamed).has_value());
  std::string other_flag = sealed;
  other_flag[3] = 3;
  EXPECT_FALSE(ParseHkvRequest(other_flag).request.has_value());
}

TEST(HkvTrailer, WhatDoesNotFitIsNotSealed) {
  const size_t room = kHkvMax_bytes - kHkvRequestHeader_bytes - 6 - 3 - kHkvRequestTrailerFixed_bytes;
  EXPECT_EQ(SealHkvRequest(Encode(Put(room)), "web", kSent_ms, kKey).size(), kHkvMax_bytes);
  EXPECT_EQ(SealHkvRequest(Encode(Put(room + 1)), "web", kSent_ms, kKey), "");
  EXPECT_EQ(SealHkvRequest(Encode(Put(1)), "", kSent_ms, kKey), "");
  EXPECT_EQ(SealHkvRequest(Encode(Put(1)), std::string(32, 'w'), kSent_ms, kKey), "");
  EXPECT_EQ(SealHkvRequest("", "web", kSent_ms, kKey), "");
}

TEST(HkvTrailer, AnAnswerIsTheSameWithItAndWithout) {
  HkvAnswer value{.kind = HkvKind::kGet, .client_id = 1, .seq = 2, .value = std::string(40, 'v')};
  HkvAnswer denied{.kind = HkvKind::kWrite,
                   .status = HkvStatus::kDenied,
                   .seq = 2,
                   .denial = HkvDenial::kWrite,
                   .denied_key = "ops/x"};
  for (const HkvAnswer& answer : {value, denied}) {
    const std::string sealed = SealHkvAnswer(Encode(answer, kHkvTag_bytes), kKey);
    EXPECT_EQ(sealed.size(), Encode(answer).size() + kHkvTag_bytes);
    EXPECT_TRUE(HasHkvTrailer(sealed));
    EXPECT_TRUE(IsHkvTagRight(sealed, kKey));
    EXPECT_FALSE(IsHkvTagRight(sealed, kOther));
    EXPECT_FALSE(IsHkvTagRight(Encode(answer), kKey)) << "it has none";
    EXPECT_EQ(ParseHkvAnswer(sealed), answer);
    EXPECT_EQ(ParseHkvAnswer(Encode(answer)), answer);
    EXPECT_EQ(ParseHkvRequest(sealed).drop, HkvDrop::kAnAnswer);
  }
  value.value = std::string(kHkvMax_bytes - kHkvAnswerHeader_bytes - 2 - kHkvTag_bytes, 'v');
  EXPECT_EQ(SealHkvAnswer(Encode(value, kHkvTag_bytes), kKey).size(), kHkvMax_bytes);
  value.value += 'v';
  EXPECT_EQ(ParseHkvAnswer(SealHkvAnswer(Encode(value, kHkvTag_bytes), kKey))->status, HkvStatus::kTooLarge);
}

}  // namespace
}  // namespace hedgerow::wire
