// SPDX-License-Identifier: Apache-2.0
//
// Profiles in a configuration: what a raw profile's parts become, every way they can be wrong, what may never
// be duplicated, and that time is not hedged unless somebody insists.

#include <string>

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "proxy/config/emit.h"
#include "proxy/config/load.h"

namespace hedgerow::config {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kSound[] = R"(services:
  - name: cache
    vip: 10.99.0.1
    port: 11211
    profile: memcached
    duplicate: [set, delete]
    backends:
      - {name: a, address: 10.77.0.11, port: 11211}
  - name: own
    vip: 10.99.0.2
    port: 5683
    profile: raw
    duplicate: [read]
    raw:
      request_offset: 2
      request_length: 2
      reply_offset: 2
      reply_length: 2
      mask: FFfe
      requests: [{offset: 0, bytes: "40", mask: "f0"}]
      operations:
        - {name: read, match: [{offset: 1, bytes: "01"}]}
        - {match: [{offset: 4, text: "get "}, {offset: 8, text: x, not: true}], shape: block}
      replies: [{offset: 0, bytes: "60", mask: "f0"}]
      negative_replies: [{match: [{offset: 1, bytes: a3}]}]
      not_idempotent: [count]
      echo: {request_offset: 4, reply_offset: 5, length: 8}
      numbers: {sequence_offset: 6, total_offset: 7}
      line: {offset: 4, one_way: " quiet"}
    backends:
      - {name: a, address: 10.77.0.11, port: 5683}
)";

std::string With(const char* line, const char* replaced) {
  std::string text = kSound;
  const size_t at = text.find(line);
  EXPECT_NE(at, std::string::npos) << line;
  if (at != std::string::npos) text.replace(at, std::string(line).size(), replaced);
  return text;
}

std::vector<std::string> ErrorsOf(const std::string& text) {
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  return errors.Lines();
}

struct Row {
  const char* name;
  const char* line;  // of kSound, the first that matches
  const char* replaced;
  const char* error;  // a part of it
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

constexpr Row kRows[] = {
    {"UnknownCommand", "[set, delete]", "[set, mg]",
     R"(c.yaml:6:22: services[0].duplicate[1]: got "mg", expected one of gets, set, add, replace, cas, delete, touch, gat, gats)"},
    {"IncrIsNeverDuplicated", "[set, delete]", "[incr]",
     R"(services[0].duplicate[0]: got "incr", expected an operation that does the same when it is done twice)"},
    {"DecrIsNeverDuplicated", "[set, delete]", "[decr]", R"(services[0].duplicate[0]: got "decr", expected)"},
    {"AppendIsNeverDuplicated", "[set, delete]", "[append]", R"(services[0].duplicate[0]: got "append", expected)"},
    {"PrependIsNeverDuplicated", "[set, delete]", "[prepend]", R"(services[0].duplicate[0]: got "prepend", expected)"},
    {"CommandTwice", "[set, delete]", "[set, set]",
     R"(services[0].duplicate[1]: got "set" again, expected each operation once)"},
    {"CommandsAreAList", "[set, delete]", "set",
     R"(services[0].duplicate: got a single value, expected a list of 0 to 16 entries)"},
    {"CommandIsAMap", "[set, delete]", "[{a: b}]",
     R"(services[0].duplicate[0]: got a map, expected a name of 1 to 31 of the characters a-z, 0-9 and -)"},
    {"DuplicateWithAnotherProfile", "profile: memcached", "profile: dns",
     R"(services[0].duplicate: got a list, expected none, since no operation of the profile "dns" has a name)"},
    {"NtpProfile", "profile: memcached\n    duplicate: [set, delete]", "profile: ntp",
     R"(services[0].profile: this is NTP, expected a service that may be hedged: a hedged answer was on its way)"},
    {"NtpPort", "port: 5683\n    profile", "port: 123\n    profile", R"(services[1].port: this is NTP)"},
    {"NtpBackend", "10.77.0.11, port: 11211", "10.77.0.11, port: 123", R"(services[0].backends[0].port: this is NTP)"},
    {"ForceIsTrueOrFalse", "profile: memcached", "profile: memcached\n    force: yes",
     R"(services[0].force: got "yes", expected true or false)"},
    {"ForceIsNoText", "profile: memcached", "profile: memcached\n    force: \"true\"",
     R"(services[0].force: got "true", expected true or false)"},
    {"NothingPairs",
     "request_offset: 2\n      request_length: 2\n      reply_offset: 2\n      reply_length: 2\n      mask: FFfe\n",
     "one_datagram: true\n",
     R"(services[1].raw.request_length: got nothing that pairs a reply with its request, expected request_length and )"
     R"(reply_length, a path to ber: value, or one of tokens, by_socket, one_way and flow)"},
    {"TwoWaysToPair", "mask: FFfe", "by_socket: true",
     R"(services[1].raw.by_socket: got it beside another way to pair, expected one of )"},
    {"TokensBesideBytes", "mask: FFfe", "tokens: [{header: cseq}]",
     R"(services[1].raw.tokens: got it beside another way to pair, expected one of )"},
    {"AStepOfTwoKinds", "mask: FFfe", "path: [{skip: 1, ber: enter}]",
     R"(services[1].raw.path[0]: got another number, expected one of skip, length and ber)"},
    {"ALengthOfThreeBytes", "mask: FFfe", "path: [{length: 3}]",
     R"(services[1].raw.path[0].length: got 3, expected a length of 1, 2 or 4 bytes)"},
    {"AValueBeforeTheEnd", "mask: FFfe", "path: [{ber: value}, {skip: 1}]",
     R"(services[1].raw.path[0].ber: got "value", expected it at the path's end)"},
    {"AValueAndBytes", "mask: FFfe", "path: [{ber: value}]",
     R"(services[1].raw.request_length: got 2, expected none with ber: value at the end of the path)"},
    {"AddWithoutALength", "mask: FFfe", "path: [{skip: 1, add: 2}]",
     R"(services[1].raw.path[0]: got little_endian or add, expected them beside a length only)"},
    {"AReplyPathAlone", "mask: FFfe", "reply_path: [{skip: 1}]",
     R"(services[1].raw.reply_path: got steps, expected none without a path)"},
    {"AfterWithoutAPath", "{offset: 0, bytes: \"40\"", "{after: 2, offset: 0, bytes: \"40\"",
     R"(services[1].raw.requests[0].after: got 2, expected at most the path's steps, which are 0)"},
    {"UnknownNegativeReply", "    duplicate: [set, delete]\n",
     "    duplicate: [set, delete]\n    negative_replies: [servfail]\n",
     R"(services[0].negative_replies[0]: got "servfail", expected one of none)"},
    {"OneWayWithReplies",
     "request_offset: 2\n      request_length: 2\n      reply_offset: 2\n      reply_length: 2\n      mask: FFfe\n",
     "one_way: true\n",
     R"(services[1].raw.one_way: got "true", expected no requests, operations, replies and negative_replies beside it)"},
    {"FlowWithReplies",
     "request_offset: 2\n      request_length: 2\n      reply_offset: 2\n      reply_length: 2\n      mask: FFfe\n",
     "flow: true\n", R"(services[1].raw.flow: got "true", expected no requests)"},
    {"MaskOfAnotherLength", "mask: FFfe", "mask: ff",
     R"(services[1].raw.mask: got 1 bytes, expected as many as request_length, which is 2)"},
    {"MaskOfZeros", "mask: FFfe", "mask: \"0000\"", R"(services[1].raw.mask: got only zeros)"},
    {"MaskOfOtherLetters", "mask: FFfe", "mask: fffg",
     R"(services[1].raw.mask: got "fffg", expected 1 to 16 bytes, as two hexadecimal digits each)"},
    {"HalfAByte", "bytes: \"40\"", "bytes: \"4\"",
     R"(services[1].raw.requests[0].bytes: got "4", expected 1 to 16 bytes)"},
    {"NineBytes", "bytes: \"40\", mask: \"f0\"", "bytes: \"000102030405060708\"",
     R"(services[1].raw.requests[0].bytes: got 9 bytes, expected at most 8)"},
    {"MatchMaskOfAnotherLength", "mask: \"f0\"", "mask: \"f0f0\"",
     R"(services[1].raw.requests[0].mask: got 2 bytes, expected as many as the match has, which is 1)"},
    {"NeitherBytesNorText", "text: \"get \"", "mask: \"ff\"",
     R"(services[1].raw.operations[1].match[0]: got neither, expected bytes or text)"},
    {"BytesAndText", "text: \"get \"", "text: g, bytes: \"00\"",
     R"(services[1].raw.operations[1].match[0]: got both, expected bytes or text)"},
    {"TextTooLong", "text: \"get \"", "text: \"123456789\"",
     R"(services[1].raw.operations[1].match[0].text: got "123456789", expected 1 to 8 printable characters)"},
    {"NoMatch", "match: [{offset: 1, bytes: a3}]", "match: []",
     R"(services[1].raw.negative_replies[0].match: got 0 entries, expected a list of 1 to 4 entries)"},
    {"UnknownProfile", "profile: memcached", "profile: memcache",
     R"(services[0].profile: got "memcache", expected one of )"},
    {"UnknownOperationOfAnOwnProfile", "[read]", "[write]",
     R"(services[1].duplicate[0]: got "write", expected one of read)"},
    {"NotIdempotentInAnOwnProfile", "[read]", "[count]",
     R"(services[1].duplicate[0]: got "count", expected an operation that does the same when it is done twice)"},
    {"NamedAndNotIdempotent", "[count]", "[count, read]",
     R"(services[1].raw.operations[0].name: got "read", expected a name that not_idempotent does not list)"},
    {"FormerKey", "negative_replies: [{", "refusals: [{",
     R"(services[1].raw: the key "refusals" has another name now, write "negative_replies")"},
    {"LeaderOfTwoBytes", "[{match: [{offset: 1, bytes: a3}]}]",
     "[{match: [{offset: 1, bytes: a3a4}], leader_offset: 4}]",
     R"(services[1].raw.negative_replies[0].match: got other matches, expected one of one byte, without not and after)"},
    {"LeaderBehindAPath", "[{match: [{offset: 1, bytes: a3}]}]",
     "[{match: [{offset: 1, bytes: a3, after: 1}], leader_offset: 4}]",
     R"(services[1].raw.negative_replies[0].match: got other matches, expected one of one byte, without not and after)"},
    {"TwoLeaders", "[{match: [{offset: 1, bytes: a3}]}]",
     "[{match: [{offset: 1, text: a}], leader_offset: 4}, {match: [{offset: 1, text: b}], leader_offset: 4}]",
     R"(services[1].raw.negative_replies[1].leader_offset: got a second one, expected one in all)"},
    {"TwoEchoes", "numbers: {", "echo_dns_question: true\n      numbers: {",
     R"(services[1].raw.echo_dns_question: got "true", expected false with an echo of other bytes)"},
    {"UnknownShape", "shape: block", "shape: square",
     R"(services[1].raw.operations[1].shape: got "square", expected one of any, line, block, block_before_last)"},
    {"ShapeWithoutALine", "line: {offset: 4, one_way: \" quiet\"}", "one_datagram: false",
     R"(services[1].raw.operations[1].shape: got a shape, expected a line block)"},
    {"NumbersOfOneDatagram", "line: {", "one_datagram: true\n      line: {",
     R"(services[1].raw.one_datagram: got "true", expected false with numbers)"},
    {"TooManyRequests", "requests: [", "requests: [{offset: 0, text: a}, {offset: 0, text: a}, {offset: 0, text: a}, ",
     R"(services[1].raw.requests: got 4 entries, expected a list of 0 to 3 entries)"},
    {"TooManyMatchesInAll", "negative_replies: [",
     "negative_replies: [{match: [{offset: 0, text: a}, {offset: 0, text: a}, {offset: 0, text: a}, {offset: 0, text: "
     "a}]},"
     "{match: [{offset: 0, text: a}, {offset: 0, text: a}, {offset: 0, text: a}, {offset: 0, text: a}]}, ",
     R"(services[1].raw.negative_replies: got 9 matches in all, expected at most 8)"},
};

class ProfileError : public testing::TestWithParam<Row> {};

TEST_P(ProfileError, IsReportedAtItsPlaceWithValueAndExpectation) {
  const std::vector<std::string> errors = ErrorsOf(With(GetParam().line, GetParam().replaced));
  EXPECT_THAT(errors, Contains(HasSubstr(GetParam().error)));
  EXPECT_LE(errors.size(), 2u) << "one mistake is one error";
}

INSTANTIATE_TEST_SUITE_P(EachRow, ProfileError, testing::ValuesIn(kRows),
                         [](const auto& test) { return std::string(test.param.name); });

v1::Config Load(const std::string& text) {
  absl::StatusOr<v1::Config> config = LoadText(text, "c.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : v1::Config();
}

TEST(Profile, IsReadWithAllItsParts) {
  const v1::Config config = Load(kSound);
  ASSERT_EQ(config.services_size(), 2);
  EXPECT_EQ(config.services(0).duplicate_size(), 2);
  EXPECT_EQ(config.services(0).duplicate(1), "delete");
  EXPECT_FALSE(config.services(0).force());
  const v1::Profile& raw = config.services(1).raw();
  EXPECT_EQ(raw.mask(), "fffe") << "in lower case";
  ASSERT_EQ(raw.operations_size(), 2);
  EXPECT_EQ(raw.operations(0).shape(), v1::SHAPE_ANY);
  EXPECT_EQ(raw.operations(1).shape(), v1::SHAPE_BLOCK);
  EXPECT_TRUE(raw.operations(1).match(1).negated());
  EXPECT_FALSE(raw.one_datagram());
  EXPECT_EQ(raw.echo().reply_offset(), 5u);
  EXPECT_EQ(raw.numbers().total_offset(), 7u);
  EXPECT_EQ(raw.line().one_way(), " quiet");
}

TEST(Profile, TheEmittedConfigurationLoadsAsTheSame) {
  const v1::Config config = Load(kSound);
  const std::string emitted = EmitYaml(config);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(config, Load(emitted))) << emitted;
  EXPECT_THAT(emitted, HasSubstr("duplicate: [\"set\", \"delete\"]"));
}

TEST(Profile, WhatIsNotGivenIsNotThere) {
  const v1::Config config = Load(R"(services: [{name: a, vip: 10.99.0.1, port: 1, profile: raw,
      raw: {request_offset: 0, request_length: 1, reply_offset: 0, reply_length: 1},
      backends: [{name: a, address: 10.77.0.1, port: 1}]}])");
  const v1::Profile& raw = config.services(0).raw();
  EXPECT_FALSE(raw.has_echo() || raw.has_numbers() || raw.has_line());
  EXPECT_EQ(raw.requests_size() + raw.operations_size() + raw.replies_size() + raw.negative_replies_size(), 0);
}

TEST(Profile, NtpIsHedgedForThoseWhoInsist) {
  EXPECT_THAT(ErrorsOf(With("profile: memcached\n    duplicate: [set, delete]", "profile: ntp\n    force: true")),
              IsEmpty());
  EXPECT_THAT(ErrorsOf(With("port: 5683\n    profile", "port: 123\n    force: true\n    profile")), IsEmpty());
}

}  // namespace
}  // namespace hedgerow::config
