// SPDX-License-Identifier: Apache-2.0
//
// From the words of a configuration to the bytes that the kernel programs compare. What the built-in profiles
// mean is tested on packets (bpf/tests/profiles_test.cc).
#include "proxy/profiles/profile_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "proxy/config/emit.h"

namespace hedgerow {
namespace {

using testing::Contains;

template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

hr_profile Of(absl::string_view rest) {
  return OwnProfile(absl::StrCat("request_offset: 2\nrequest_length: 2\nreply_offset: 4\nreply_length: 2\n", rest));
}

TEST(Profile, TheBuiltInOnesAreListedBeforeTheUsersOwn) {
  EXPECT_THAT(config::ProfileNames(), Contains("dns"));
  EXPECT_EQ(config::ProfileNames().back(), "raw");
}

TEST(Profile, ABuiltInOneThatIsShownAndCopiedIsTheSame) {
  for (const std::string& name : config::ProfileNames()) {
    if (name == config::kOwnProfile) continue;
    SCOPED_TRACE(name);
    v1::Service service;
    service.set_profile(name);
    for (const auto defaults : {config::Defaults::kWritten, config::Defaults::kLeftOut}) {
      const std::string shown =
          config::EmitYaml(*config::EffectiveProfile(service), config::Secrets::kHidden, defaults);
      EXPECT_EQ(BytesOf(OwnProfile(shown)), BytesOf(BuiltInProfile(name))) << shown;
    }
  }
}

TEST(Profile, AMatchComparesBytesInTheOrderOfThePayload) {
  const hr_match match = Of("requests: [{offset: 9, text: abc}]").request_matches[0];
  EXPECT_EQ(match.offset, 9);
  EXPECT_EQ(match.bytes, 3);
  EXPECT_EQ(BytesOf(match.value), std::string("abc\0\0\0\0\0", 8));
  EXPECT_EQ(BytesOf(match.mask), std::string("\xff\xff\xff\0\0\0\0\0", 8));
  EXPECT_EQ(match.flags, 0);
}

TEST(Profile, WhatTheMaskLeavesOutIsNoPartOfTheValue) {
  const hr_match match = Of("replies: [{offset: 0, bytes: abcd, mask: f00f, not: true}]").reply_matches[0];
  EXPECT_EQ(BytesOf(match.value), std::string("\xa0\x0d\0\0\0\0\0\0", 8)) << "it could never be equal";
  EXPECT_EQ(match.flags, HR_MATCH_NOT);
}

TEST(Profile, AFieldsMaskEndsWithTheField) {
  EXPECT_EQ(BytesOf(Of("").request_correlation.mask), std::string(2, '\xff') + std::string(14, '\0'));
  EXPECT_EQ(BytesOf(Of("mask: 0ff0").reply_correlation.mask), "\x0f\xf0" + std::string(14, '\0'));
}

TEST(Profile, NoDatagramIsShorterThanItsCorrelationBytes) {
  const hr_profile derived = Of("");
  EXPECT_EQ(derived.request_min_bytes, 4);
  EXPECT_EQ(derived.reply_min_bytes, 6);
  const hr_profile raised = Of("min_bytes: 5");
  EXPECT_EQ(raised.request_min_bytes, 5);
  EXPECT_EQ(raised.reply_min_bytes, 6);
}

TEST(Profile, MatchesOfOneAlternativeAreTiedTogether) {
  const hr_profile profile = Of(R"(
operations:
  - {match: [{offset: 0, text: a}, {offset: 1, text: b}], shape: line}
  - match: [{offset: 0, text: c}]
line: {offset: 0})");
  ASSERT_EQ(profile.operation_match_count, 3);
  EXPECT_EQ(profile.operation_matches[0].flags, HR_MATCH_AND_NEXT);
  EXPECT_EQ(profile.operation_matches[1].flags, 0);
  EXPECT_EQ(profile.operation_matches[1].shape, HR_SHAPE_LINE);
  EXPECT_EQ(profile.operation_matches[2].flags, 0);
  EXPECT_EQ(profile.operation_matches[2].shape, HR_SHAPE_ANY);
}

TEST(Profile, ANamedOperationIsThereWhereItIsListed) {
  EXPECT_EQ(BuiltInProfile("memcached").operation_match_count, 1);
  EXPECT_EQ(BuiltInProfile("memcached", {"cas"}).operation_matches[1].shape, HR_SHAPE_BLOCK_BEFORE_LAST);
  EXPECT_EQ(BuiltInProfile("memcached", {"gat"}).operation_match_count, 2);
  EXPECT_EQ(BuiltInProfile("memcached", {"set", "add", "replace", "cas", "delete", "touch", "gat", "gets", "gats"})
                .operation_match_count,
            10);
}

TEST(Profile, NoListedOperationIsNoneAtAll) {
  const hr_profile profile = Of("operations: [{name: read, match: [{offset: 6, text: r}]}]");
  ASSERT_EQ(profile.operation_match_count, 1) << "an empty list allows everything";
  const hr_match& never = profile.operation_matches[0];
  EXPECT_NE(never.value & never.mask, never.value);
  EXPECT_EQ(never.flags, 0);
}

TEST(Profile, AOneWayWordStandsAtTheEndOfEightBytes) {
  const hr_profile profile =
      Of("operations: [{match: [{offset: 8, text: set}]}]\nline: {offset: 8, one_way: \" quiet\"}");
  EXPECT_EQ(BytesOf(profile.one_way_value), std::string("\0\0 quiet", 8));
  EXPECT_EQ(BytesOf(profile.one_way_mask), std::string("\0\0\xff\xff\xff\xff\xff\xff", 8));
  EXPECT_EQ(profile.line_offset, 8);
  EXPECT_EQ(Of("").one_way_mask, 0u);
}

TEST(Profile, NoneIsNoNegativeReplyWithANameOrWithout) {
  const auto counted_by = [](const std::vector<std::string>& names) {
    v1::Service service;
    service.set_profile(std::string(config::kOwnProfile));
    service.mutable_raw()->set_request_length(2);
    service.mutable_raw()->set_reply_length(2);
    for (const char* name : {"busy", ""}) service.mutable_raw()->add_negative_replies()->set_name(name);
    for (v1::NegativeReply& reply : *service.mutable_raw()->mutable_negative_replies())
      reply.add_match()->set_bytes("\x06");
    for (const std::string& name : names) service.add_negative_replies(name);
    return int{ProfileOf(service).nack_match_count};
  };
  EXPECT_EQ(counted_by({}), 2);
  EXPECT_EQ(counted_by({"busy"}), 2);
  EXPECT_EQ(counted_by({config::kNoNegativeReply}), 0);
}

TEST(Profile, ANegativeReplyMayNameTheLeader) {
  const hr_profile profile = Of(R"(
negative_replies:
  - match: [{offset: 1, bytes: "06"}]
  - {match: [{offset: 3, bytes: "a7", mask: "0f"}], leader_offset: 9}
pushback_offset: 12)");
  EXPECT_EQ(profile.nack_match_count, 2);
  EXPECT_EQ(BytesOf(profile.hint_rule), BytesOf(hr_byte_rule{3, 0x0f, 7}));
  EXPECT_EQ(profile.hint_offset, 9);
  EXPECT_EQ(profile.hint_bytes, 4);
  EXPECT_EQ(profile.pushback_offset, 12);
  EXPECT_EQ(Of("").hint_bytes, 0);
}

TEST(Profile, TheOtherKeysAreCarried) {
  const hr_profile profile = Of(R"(
echo: {request_offset: 4, reply_offset: 6, length: 3}
numbers: {sequence_offset: 10, total_offset: 12})");
  EXPECT_EQ(profile.echo, HR_ECHO_BYTES);
  EXPECT_EQ(profile.echo_request.offset, 4);
  EXPECT_EQ(profile.echo_reply.offset, 6);
  EXPECT_EQ(profile.echo_reply.length, 3);
  EXPECT_EQ(profile.numbered, 1);
  EXPECT_EQ(profile.sequence_offset, 10);
  EXPECT_EQ(profile.total_offset, 12);
  EXPECT_EQ(profile.one_datagram, 0);
  const hr_profile dns = Of("echo_dns_question: true\none_datagram: true");
  EXPECT_EQ(dns.echo, HR_ECHO_DNS_QUESTION);
  EXPECT_EQ(dns.one_datagram, 1);
}

TEST(Profile, OneThatThisBuildLacksPairsNothing) {
  EXPECT_EQ(BytesOf(BuiltInProfile("tftp")), BytesOf(hr_profile{})) << "a correlation of no bytes is never read";
}

TEST(ProfileDeathTest, AProfileWithErrorsEndsTheProcess) {
  EXPECT_DEATH(Of("refusals: []"), "write \"negative_replies\"");
}

}  // namespace
}  // namespace hedgerow
