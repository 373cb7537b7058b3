// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/hkv.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace hedgerow::wire {
namespace {

using kv::Operation;
using kv::OperationKind;

Operation Put(std::string key, std::string value) {
  return {.kind = OperationKind::kPut, .key = std::move(key), .value = std::move(value), .expected = {}, .delta = 0};
}
Operation Delete(std::string key) {
  return {.kind = OperationKind::kDelete, .key = std::move(key), .value = {}, .expected = {}, .delta = 0};
}
Operation CompareAndSet(std::string key, std::string value, std::optional<std::string> expected) {
  return {.kind = OperationKind::kCompareAndSet,
          .key = std::move(key),
          .value = std::move(value),
          .expected = std::move(expected),
          .delta = 0};
}
Operation Increment(std::string key, int64_t delta) {
  return {.kind = OperationKind::kIncrement, .key = std::move(key), .value = {}, .expected = {}, .delta = delta};
}

HkvRequest Write(std::vector<Operation> operations) {
  HkvRequest request;
  request.kind = HkvKind::kWrite;
  request.timeout_us = 250'000;
  request.client_id = 0x1112131415161718;
  request.seq = 0x2122232425262728;
  request.lowest_unanswered = 0x3132333435363738;
  request.token = 0x4142434445464748;
  request.operations = std::move(operations);
  return request;
}

HkvRequest Get(std::string key) {
  HkvRequest request;
  request.kind = HkvKind::kGet;
  request.client_id = 5;
  request.seq = 6;
  request.key = std::move(key);
  return request;
}

HkvRequest Open() {
  HkvRequest request;
  request.kind = HkvKind::kOpen;
  request.seq = 77;
  return request;
}

HkvRequest WriteOnce() {
  HkvRequest request = Write({Put("k", "v")});
  request.client_id = kHkvNoSession;
  request.lowest_unanswered = 0;
  request.token = 0;
  return request;
}

HkvRequest Cancel(HkvRequest request) {
  request.kind = HkvKind::kCancel;
  request.operations.clear();
  return request;
}

std::vector<HkvRequest> Requests() {
  return {Open(),
          WriteOnce(),
          Get(""),
          Get("key"),
          Get(std::string(250, 'k')),
          Write({}),
          Cancel(Write({})),
          Cancel(WriteOnce()),
          Write({Put("k", "v"), Delete("d"), CompareAndSet("c", "n", "o"), CompareAndSet("c", "n", std::nullopt),
                 CompareAndSet("", "", ""), Increment("i", -3), Increment("i", INT64_MIN)}),
          Write(std::vector<Operation>(64, Increment("counter", 1)))};
}

HkvAnswer Answer(HkvKind kind, HkvStatus status) {
  HkvAnswer answer;
  answer.kind = kind;
  answer.status = status;
  answer.client_id = 0x1112131415161718;
  answer.seq = 0x2122232425262728;
  return answer;
}

std::vector<HkvAnswer> Answers() {
  std::vector<HkvAnswer> answers;
  for (const HkvKind kind : {HkvKind::kOpen, HkvKind::kWrite, HkvKind::kGet, HkvKind::kCancel}) {
    for (size_t status = 0; status < kHkvStatuses; ++status) {
      answers.push_back(Answer(kind, static_cast<HkvStatus>(status)));
    }
  }
  answers.push_back(Answer(HkvKind::kOpen, HkvStatus::kOk));
  answers.back().session = 99;
  answers.back().token = 0x5152535455565758;
  answers.push_back(Answer(HkvKind::kGet, HkvStatus::kOk));
  answers.back().value = std::string(1198, 'v');
  answers.push_back(Answer(HkvKind::kWrite, HkvStatus::kOk));
  answers.back().values = {"", "-9223372036854775808", ""};
  answers.push_back(Answer(HkvKind::kCancel, HkvStatus::kOk));
  answers.back().values = {"7"};
  answers.push_back(Answer(HkvKind::kWrite, HkvStatus::kUnknownVersion));
  answers.back().version = 1;
  answers.back().hint = 2;
  answers.push_back(Answer(HkvKind::kWrite, HkvStatus::kNotLeader));
  answers.back().hint = 3;
  answers.push_back(Answer(HkvKind::kGet, HkvStatus::kNotFound));
  answers.back().pushback = 250;
  answers.push_back(Answer(HkvKind::kWrite, HkvStatus::kOverloaded));
  answers.back().pushback = kHkvNeverHedge;
  return answers;
}

TEST(HkvRequest, OfEveryKindSurvivesTheJourney) {
  for (const HkvRequest& request : Requests()) {
    const HkvParse parse = ParseHkvRequest(Encode(request));
    ASSERT_TRUE(parse.request.has_value());
    EXPECT_EQ(*parse.request, request);
    EXPECT_FALSE(parse.answer.has_value());
    EXPECT_EQ(parse.drop, HkvDrop::kNone);
  }
}

TEST(HkvRequest, StandsAsThePageSays) {
  EXPECT_EQ(Encode(Get("key")), std::string("\x48\x02\x03\x00"
                                            "\x00\x00\x00\x00"
                                            "\x05\x00\x00\x00\x00\x00\x00\x00"
                                            "\x06\x00\x00\x00\x00\x00\x00\x00"
                                            "\x00\x00\x00\x00\x00\x00\x00\x00"
                                            "\x00\x00\x00\x00\x00\x00\x00\x00"
                                            "\x03key",
                                            44));
  EXPECT_EQ(Encode(Write({Put("k", "v"), Delete("d"), CompareAndSet("c", "n", "o"), Increment("i", -2)})),
            std::string("\x48\x02\x02\x00"
                        "\x90\xd0\x03\x00"
                        "\x18\x17\x16\x15\x14\x13\x12\x11"
                        "\x28\x27\x26\x25\x24\x23\x22\x21"
                        "\x38\x37\x36\x35\x34\x33\x32\x31"
                        "\x48\x47\x46\x45\x44\x43\x42\x41"
                        "\x04"
                        "\x01\x01k\x01\x00v"
                        "\x02\x01"
                        "d"
                        "\x03\x01"
                        "c\x01\x01\x00n\x01\x00o"
                        "\x04\x01i\xfe\xff\xff\xff\xff\xff\xff\xff",
                        71));
}

TEST(HkvRequest, EveryShorteningIsMalformedAndSaysWhatItCouldRead) {
  for (const HkvRequest& request : Requests()) {
    const std::string datagram = Encode(request);
    for (size_t size = 0; size < datagram.size(); ++size) {
      const HkvParse parse = ParseHkvRequest(std::string_view(datagram).substr(0, size));
      EXPECT_FALSE(parse.request.has_value()) << size;
      if (size < 2) {
        EXPECT_EQ(parse.drop, HkvDrop::kTooShort);
        EXPECT_FALSE(parse.answer.has_value());
        continue;
      }
      ASSERT_TRUE(parse.answer.has_value()) << size;
      EXPECT_EQ(parse.answer->status, HkvStatus::kMalformed);
      EXPECT_EQ(parse.answer->hint, 0u);
      EXPECT_EQ(parse.answer->client_id, size >= 16 ? request.client_id : 0) << size;
      EXPECT_EQ(parse.answer->seq, size >= 24 ? request.seq : 0) << size;
    }
    EXPECT_TRUE(ParseHkvRequest(datagram + "x").answer.has_value());
  }
}

// A parser that took two datagrams for the same request would have guessed at something.
TEST(HkvRequest, DamagedIsRefusedOrAnotherRequestWithTheSameBytes) {
  std::mt19937_64 random(1);
  for (const HkvRequest& request : Requests()) {
    const std::string datagram = Encode(request);
    for (int i = 0; i < 20'000; ++i) {
      std::string damaged = datagram;
      for (int j = 0; j < 2; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
      const HkvParse parse = ParseHkvRequest(damaged);
      EXPECT_EQ(parse.request.has_value() + parse.answer.has_value() + (parse.drop != HkvDrop::kNone), 1);
      if (parse.request.has_value()) {
        EXPECT_EQ(Encode(*parse.request), damaged);
      }
    }
  }
}

TEST(HkvRequest, OfAnotherMagicIsDropped) {
  std::string datagram = Encode(Get("key"));
  datagram[0] = 0x49;
  const HkvParse parse = ParseHkvRequest(datagram);
  EXPECT_EQ(parse.drop, HkvDrop::kMagic);
  EXPECT_FALSE(parse.answer.has_value());
}

// In the words of the version that was asked in: a client drops what is of another.
TEST(HkvRequest, OfAnotherVersionIsToldTheOneSpoken) {
  for (const int version : {0, 1, 3, 255}) {
    std::string datagram = Encode(Get("key"));
    datagram[1] = static_cast<char>(version);
    const HkvParse parse = ParseHkvRequest(datagram + std::string(5000, 'x'));
    ASSERT_TRUE(parse.answer.has_value());
    EXPECT_EQ(parse.answer->status, HkvStatus::kUnknownVersion);
    EXPECT_EQ(parse.answer->version, version);
    EXPECT_EQ(parse.answer->hint, 2u);
    EXPECT_EQ(parse.answer->client_id, 5u);
    EXPECT_EQ(parse.answer->seq, 6u);
    const auto answer = ParseHkvAnswer(Encode(*parse.answer));
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(*answer, *parse.answer);
  }
}

// Version 1 had a session at byte 24 of an answer, which is 0 in every error; the rest of this one stood as it does
// now.
TEST(HkvRequest, OfVersion1IsAnsweredSoThatItsClientUnderstands) {
  const std::string request(
      "\x48\x01\x03\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00"
      "\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03key",
      36);
  EXPECT_EQ(Encode(ParseHkvRequest(request).answer.value()),
            std::string("\x48\x01\x83\x09\x02\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00"
                        "\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
                        32));
}

// As a node of version 1 says it to a request of this one.
TEST(HkvAnswer, OfAnOldServerNamesItsVersion) {
  const auto answer =
      ParseHkvAnswer(std::string("\x48\x01\x83\x09\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00"
                                 "\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
                                 32));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, HkvStatus::kUnknownVersion);
  EXPECT_EQ(answer->hint, 1u);
  EXPECT_EQ(answer->client_id, 5u);
}

// Two nodes would otherwise send each other MALFORMED for ever after one forged datagram.
TEST(HkvRequest, AnAnswerIsNeverAnswered) {
  for (const HkvAnswer& answer : Answers()) {
    std::string datagram = Encode(answer);
    EXPECT_EQ(ParseHkvRequest(datagram).drop, HkvDrop::kAnAnswer);
    datagram[1] = 3;
    EXPECT_EQ(ParseHkvRequest(datagram).drop, HkvDrop::kAnAnswer);
  }
  for (int kind = 0; kind < 128; ++kind) {
    const std::string datagram = {0x48, kHkvVersion, static_cast<char>(kind)};
    const HkvParse parse = ParseHkvRequest(datagram);
    ASSERT_TRUE(parse.answer.has_value());
    EXPECT_EQ(ParseHkvRequest(Encode(*parse.answer)).drop, HkvDrop::kAnAnswer);
  }
  EXPECT_EQ(ParseHkvRequest(Encode(*ParseHkvRequest("\x48\x02").answer)).drop, HkvDrop::kAnAnswer);
}

TEST(HkvRequest, FieldsThatItsKindDoesNotHaveMustBeZero) {
  const auto is_malformed = [](const HkvRequest& request, size_t offset) {
    std::string datagram = Encode(request);
    datagram[offset] = 1;
    const HkvParse parse = ParseHkvRequest(datagram);
    return parse.answer.has_value() && parse.answer->status == HkvStatus::kMalformed;
  };
  for (const HkvRequest& request : Requests()) EXPECT_TRUE(is_malformed(request, 3)) << "flags";
  for (const HkvRequest& request : {Open(), Get("key"), WriteOnce(), Cancel(WriteOnce())}) {
    EXPECT_TRUE(is_malformed(request, 32)) << "token";
  }
  EXPECT_TRUE(is_malformed(Open(), 8)) << "client_id";
  EXPECT_TRUE(is_malformed(Open(), 24)) << "lowest_unanswered";
  EXPECT_TRUE(is_malformed(Get("key"), 24)) << "lowest_unanswered";
  EXPECT_TRUE(is_malformed(WriteOnce(), 24)) << "lowest_unanswered";
}

TEST(HkvRequest, OfAnUnknownKindIsMalformed) {
  std::string datagram = Encode(Open());
  for (const int kind : {0, 5, 127}) {
    datagram[2] = static_cast<char>(kind);
    const HkvParse parse = ParseHkvRequest(datagram);
    ASSERT_TRUE(parse.answer.has_value());
    EXPECT_EQ(parse.answer->status, HkvStatus::kMalformed);
    EXPECT_EQ(static_cast<uint8_t>(Encode(*parse.answer)[2]), kind + 0x80);
  }
}

TEST(HkvRequest, BeyondABoundIsNotEncoded) {
  EXPECT_EQ(Encode(Write({Put("k", std::string(1186, 'v'))})).size(), kHkvMax_bytes);
  EXPECT_TRUE(Encode(Write({Put("k", std::string(1187, 'v'))})).empty());
  EXPECT_TRUE(Encode(Write({Put("k", std::string(70'000, 'v'))})).empty());
  EXPECT_TRUE(Encode(Write({CompareAndSet("k", "v", std::string(1200, 'v'))})).empty());
  EXPECT_TRUE(Encode(Write(std::vector<Operation>(65, Delete("k")))).empty());
  EXPECT_TRUE(Encode(Write({Delete(std::string(251, 'k'))})).empty());
  EXPECT_TRUE(Encode(Get(std::string(251, 'k'))).empty());
}

TEST(HkvRequest, BeyondABoundIsMalformed) {
  std::string too_many = Encode(Write({}));
  too_many.back() = 65;
  for (int i = 0; i < 65; ++i) too_many += std::string("\x02\x01k", 3);
  std::string long_key = Encode(Get(""));
  long_key.back() = static_cast<char>(251);
  long_key += std::string(251, 'k');
  std::string too_long = Encode(Write({Put("k", std::string(1186, 'v'))}));
  too_long[too_long.size() - 1186 - 2] = static_cast<char>(1187 & 0xff);
  too_long += 'v';
  for (const std::string& datagram : {too_many, long_key, too_long}) {
    const HkvParse parse = ParseHkvRequest(datagram);
    ASSERT_TRUE(parse.answer.has_value());
    EXPECT_EQ(parse.answer->status, HkvStatus::kMalformed);
  }
}

TEST(HkvRequest, HasATimeoutOfASecondUnlessItSaysAndAMinuteAtMost) {
  HkvRequest request;
  EXPECT_EQ(Timeout_ns(request), 1'000'000'000u);
  request.timeout_us = 1;
  EXPECT_EQ(Timeout_ns(request), 1'000u);
  request.timeout_us = UINT32_MAX;
  EXPECT_EQ(Timeout_ns(request), 60'000'000'000u);
}

TEST(HkvAnswer, OfEveryKindAndStatusSurvivesTheJourney) {
  for (const HkvAnswer& answer : Answers()) {
    const auto parsed = ParseHkvAnswer(Encode(answer));
    ASSERT_TRUE(parsed.has_value()) << Name(answer.status);
    EXPECT_EQ(*parsed, answer);
  }
}

TEST(HkvAnswer, RepeatsTheBytesThatPairIt) {
  for (const HkvRequest& request : Requests()) {
    HkvAnswer answer;
    answer.kind = request.kind;
    answer.client_id = request.client_id;
    answer.seq = request.seq;
    EXPECT_EQ(Encode(answer).substr(8, 16), Encode(request).substr(8, 16));
  }
}

TEST(HkvAnswer, EveryShorteningIsRefused) {
  for (const HkvAnswer& answer : Answers()) {
    const std::string datagram = Encode(answer);
    for (size_t size = 0; size < datagram.size(); ++size) {
      EXPECT_FALSE(ParseHkvAnswer(std::string_view(datagram).substr(0, size)).has_value()) << size;
    }
    EXPECT_FALSE(ParseHkvAnswer(datagram + "x").has_value());
  }
}

TEST(HkvAnswer, DamagedIsRefusedOrAnotherAnswerWithTheSameBytes) {
  std::mt19937_64 random(1);
  for (const HkvAnswer& answer : Answers()) {
    const std::string datagram = Encode(answer);
    for (int i = 0; i < 2'000; ++i) {
      std::string damaged = datagram;
      for (int j = 0; j < 2; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
      if (const auto parsed = ParseHkvAnswer(damaged)) {
        EXPECT_EQ(Encode(*parsed), damaged);
      }
    }
  }
}

TEST(HkvAnswer, ThatWouldNotFitSaysSo) {
  HkvAnswer value = Answer(HkvKind::kGet, HkvStatus::kOk);
  value.value = std::string(1199, 'v');
  HkvAnswer huge = value;
  huge.value = std::string(64 * 1024 + 7, 'v');
  HkvAnswer numbers = Answer(HkvKind::kWrite, HkvStatus::kOk);
  numbers.values.assign(64, "-9223372036854775808");
  HkvAnswer many = Answer(HkvKind::kWrite, HkvStatus::kOk);
  many.values.assign(65, "");
  for (const HkvAnswer& answer : {value, huge, numbers, many}) {
    const std::string datagram = Encode(answer);
    EXPECT_EQ(datagram.size(), kHkvAnswerHeader_bytes);
    const auto parsed = ParseHkvAnswer(datagram);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(*parsed, Answer(answer.kind, HkvStatus::kTooLarge));
  }
}

TEST(HkvAnswer, SaysEitherWhoLeadsOrSomethingAboutHedging) {
  HkvAnswer answer = Answer(HkvKind::kGet, HkvStatus::kNotFound);
  answer.pushback = 0x01020304;
  EXPECT_EQ(Encode(answer).substr(4, 4), "\x04\x03\x02\x01");
  answer.status = HkvStatus::kNotLeader;
  answer.hint = 3;
  EXPECT_EQ(Encode(answer).substr(4, 4), std::string("\x03\0\0\0", 4));
  EXPECT_EQ(ParseHkvAnswer(Encode(answer))->pushback, 0u);
}

TEST(HkvAnswer, LeavesOutWhatItsKindAndStatusDoNotHave) {
  for (const HkvKind kind : {HkvKind::kOpen, HkvKind::kWrite, HkvKind::kGet, HkvKind::kCancel}) {
    HkvAnswer answer = Answer(kind, HkvStatus::kOverloaded);
    answer.hint = 1;
    answer.session = 2;
    answer.token = 3;
    answer.value = "v";
    answer.values = {"v"};
    const auto parsed = ParseHkvAnswer(Encode(answer));
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(*parsed, Answer(kind, HkvStatus::kOverloaded));
  }
}

// Copies of a request have one key, at whichever node they arrive.
TEST(HkvCommand, HasAKeyOfWhatItIsAbout) {
  const kv::RequestKey write = CommandOf(Write({Put("k", "v")})).key;
  EXPECT_EQ(write.kind, kv::CommandKind::kWrite);
  EXPECT_EQ(write.a, 0x1112131415161718u);
  EXPECT_EQ(write.b, 0x2122232425262728u);
  EXPECT_EQ(write.d, 0x4142434445464748u);
  HkvRequest later = Write({Put("k", "v")});
  later.lowest_unanswered = 7;
  later.timeout_us = 1;
  EXPECT_EQ(CommandOf(std::move(later)).key, write) << "a copy that was sent later";
  EXPECT_NE(CommandOf(Write({Put("k", "w")})).key, write) << "another value";
  EXPECT_NE(CommandOf(Write({})).key, write) << "nothing at all";
  EXPECT_NE(CommandOf(Write({})).key.c, kv::kCancels);
  EXPECT_EQ(CommandOf(Cancel(Write({}))).key, kv::CancelKey(write));
  EXPECT_EQ(CommandOf(WriteOnce()).key.kind, kv::CommandKind::kWindowed);
  EXPECT_EQ(CommandOf(Cancel(WriteOnce())).key, kv::CancelKey(CommandOf(WriteOnce()).key));
  HkvRequest forged = Write({Put("k", "v")});
  forged.token += 1;
  EXPECT_NE(CommandOf(std::move(forged)).key.c, write.c) << "the fingerprint depends on the token";
}

// Two requests that a careless hash would take for one.
TEST(HkvCommand, HasAFingerprintOfEveryByteAndOfWhereItStands) {
  std::set<uint64_t> fingerprints;
  const std::vector<std::vector<Operation>> different = {{},
                                                         {Put("", "")},
                                                         {Put("ab", "c")},
                                                         {Put("a", "bc")},
                                                         {Put("abc", "")},
                                                         {Put("a", std::string("bc\0", 3))},
                                                         {Put("a", std::string("b"))},
                                                         {Delete("a")},
                                                         {Delete("a"), Delete("a")},
                                                         {CompareAndSet("a", "b", std::nullopt)},
                                                         {CompareAndSet("a", "b", "")},
                                                         {CompareAndSet("a", "", "b")},
                                                         {Increment("a", 1)},
                                                         {Increment("a", -1)},
                                                         {Put("12345678", "")},
                                                         {Put("1234567", "8")},
                                                         {Put("k", "v"), Put("l", "w")},
                                                         {Put("l", "w"), Put("k", "v")}};
  for (const std::vector<Operation>& operations : different) fingerprints.insert(CommandOf(Write(operations)).key.c);
  EXPECT_EQ(fingerprints.size(), different.size());
}

TEST(HkvStatus, HasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (size_t status = 0; status < kHkvStatuses; ++status) names.insert(Name(static_cast<HkvStatus>(status)));
  EXPECT_EQ(names.size(), kHkvStatuses);
  EXPECT_EQ(Name(HkvStatus::kTooLarge), "too_large");
  EXPECT_EQ(Name(HkvStatus::kNotLeader), "not_leader");
  EXPECT_EQ(Name(static_cast<HkvStatus>(200)), "unknown");
  EXPECT_EQ(Name(HkvDrop::kAnAnswer), "an_answer");
}

TEST(HkvStatus, SaysWhatTheStoreSaid) {
  EXPECT_EQ(StatusOf(kv::ResultCode::kOk), HkvStatus::kOk);
  EXPECT_EQ(StatusOf(kv::ResultCode::kMismatch), HkvStatus::kMismatch);
  EXPECT_EQ(StatusOf(kv::ResultCode::kNotANumber), HkvStatus::kNotANumber);
  EXPECT_EQ(StatusOf(kv::ResultCode::kUnknownSession), HkvStatus::kUnknownSession);
  EXPECT_EQ(StatusOf(kv::ResultCode::kBelowLowest), HkvStatus::kBelowLowest);
  EXPECT_EQ(StatusOf(kv::ResultCode::kOverloaded), HkvStatus::kOverloaded);
}

}  // namespace
}  // namespace hedgerow::wire
