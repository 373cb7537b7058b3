// SPDX-License-Identifier: Apache-2.0
//
// The harmless requests of the built-in profiles, byte for byte, and what is made of answers to them.
#include "proxy/profiles/query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "operate/hex.h"
#include "proxy/config/built_in_profiles.h"

namespace hedgerow {
namespace {

const std::string kRandom = operate::BytesOfHex("a1a2a3a4a5a6a7a8b1b2b3b4b5b6b7b8");

const v1::Profile& Named(const std::string& name) {
  v1::Service service;
  service.set_profile(name);
  return *config::EffectiveProfile(service);
}

v1::Profile Own(absl::string_view block) {
  config::Diagnostics errors("profile");
  v1::Profile profile = config::LoadProfile(block, errors);
  for (const std::string& line : errors.Lines()) ADD_FAILURE() << line;
  return profile;
}

std::string Query(const std::string& name) {
  return absl::BytesToHexString(QueryOf(Named(name), kRandom).value_or(""));
}

ReplyKind Judge(const std::string& name, absl::string_view reply) {
  const v1::Profile& profile = Named(name);
  return JudgeReply(profile, *QueryOf(profile, kRandom), operate::BytesOfHex(reply)).kind;
}

TEST(Query, HasThisFormInEachBuiltInProfile) {
  EXPECT_EQ(Query("dns"),
            "a1a2"
            "00000000000000000000");
  EXPECT_EQ(Query("ntp"), absl::StrCat("23", std::string(78, '0'), "a1a2a3a4a5a6a7a8"));
  EXPECT_EQ(Query("stun"),
            "000100002112a442"
            "a1a2a3a4a5a6a7a8b1b2b3b4");
  EXPECT_EQ(Query("memcached"), absl::StrCat("a1a2000000010000", absl::BytesToHexString("get hedgerow-check\r\n")));
  EXPECT_EQ(Query("hkv"), absl::StrCat("4802030000000000", "a1a2a3a4a5a6a7a8b1b2b3b4b5b6b7b8", std::string(32, '0'),
                                       "0e", absl::BytesToHexString("hedgerow-check")));
}

TEST(Query, IsOneThatTheProxyHedges) {
  for (const char* name : {"dns", "ntp", "stun", "memcached", "hkv"})
    EXPECT_TRUE(IsHedged(Named(name), *QueryOf(Named(name), kRandom))) << name;
  EXPECT_FALSE(IsHedged(Named("dns"), std::string("\0\1\x28\0\0\0\0\0\0\0\0\0", 12)));  // opcode UPDATE
}

TEST(Query, IsAbsentWhereThereIsNothingToAsk) {
  for (const char* name : {"flow", "one-way"}) EXPECT_FALSE(QueryOf(Named(name), kRandom).has_value()) << name;
}

TEST(Query, KeepsTheBitsThatTheMaskLeavesOut) {
  const v1::Profile profile = Own(
      "request_offset: 1\nrequest_length: 2\nreply_offset: 1\nreply_length: 2\nmask: 0fff\ncheck: {bytes: \"77e0\"}\n");
  EXPECT_EQ(absl::BytesToHexString(*QueryOf(profile, kRandom)), "77e1a2");
}

TEST(JudgedReply, OfADnsServer) {
  EXPECT_EQ(Judge("dns", "a1a281800001000d00000000"), ReplyKind::kAnswer);
  EXPECT_EQ(Judge("dns", "a1a281050001000000000000"), ReplyKind::kNegativeOk);  // REFUSED
  EXPECT_EQ(Judge("dns", "a1a281020001000000000000"), ReplyKind::kNegative);    // SERVFAIL
  EXPECT_EQ(Judge("dns", "a1a381800001000d00000000"), ReplyKind::kNoReply);     // another id
  EXPECT_EQ(Judge("dns", "a1a201800001000d00000000"), ReplyKind::kNoReply);     // a query
  EXPECT_EQ(Judge("dns", "a1a28180"), ReplyKind::kNoReply);                     // cut off
  const v1::Profile& dns = Named("dns");
  EXPECT_EQ(JudgeReply(dns, *QueryOf(dns, kRandom), operate::BytesOfHex("a1a281020001000000000000")).name, "servfail");
}

TEST(JudgedReply, OfAStandbyOfACluster) {
  const std::string pair = "a1a2a3a4a5a6a7a8b1b2b3b4b5b6b7b8";
  const auto status = [&](absl::string_view digits) {
    return Judge("hkv", absl::StrCat("480283", digits, "00000000", pair, std::string(16, '0')));
  };
  EXPECT_EQ(status("01"), ReplyKind::kAnswer);          // NOT_FOUND
  EXPECT_EQ(status("07"), ReplyKind::kNamesTheLeader);  // NOT_LEADER
  EXPECT_EQ(status("06"), ReplyKind::kNegative);        // OVERLOADED
}

TEST(JudgedReply, WithoutFixedPlacesIsTakenAsItComes) {
  const v1::Profile profile = Own("by_socket: true\ncheck: {bytes: \"01\"}\n");
  EXPECT_EQ(JudgeReply(profile, "\1", "anything").kind, ReplyKind::kAnswer);
}

}  // namespace
}  // namespace hedgerow
