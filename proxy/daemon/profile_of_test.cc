// SPDX-License-Identifier: Apache-2.0
//
// From the words of a configuration to the bytes that the kernel programs compare.
#include "proxy/daemon/profile_of.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proxy/config/load.h"
#include "proxy/data_plane/profile.h"

namespace hedgerow {
namespace {

hr_profile Of(const std::string& service) {
  const auto config = config::LoadText(
      absl::StrCat(
          "services:\n  - name: s\n    vip: 10.99.0.1\n    port: 7\n", service,
          "    backends: [{name: a, address: 10.77.0.11, port: 7}, {name: b, address: 10.77.0.12, port: 7}]\n"),
      "profile.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? ProfileOf(config->services(0)) : hr_profile{};
}

bool Same(const hr_profile& a, const hr_profile& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

TEST(ProfileOf, BuiltInProfilesAreTheBuiltInOnes) {
  EXPECT_TRUE(Same(Of("    profile: dns\n"), DnsProfile()));
  EXPECT_TRUE(Same(Of("    profile: hkv\n"), HkvProfile()));
  EXPECT_TRUE(Same(Of("    profile: stun\n"), StunProfile()));
  EXPECT_TRUE(Same(Of("    profile: memcached\n"), MemcachedProfile()));
  EXPECT_TRUE(Same(Of("    profile: ntp\n    force: true\n"), NtpProfile()));
}

TEST(ProfileOf, EveryCommandMeansItself) {
  EXPECT_TRUE(Same(Of("    profile: memcached\n    duplicate: [set, add, replace, cas, delete, touch, gat]\n"),
                   MemcachedProfile({MemcachedCommand::kSet, MemcachedCommand::kAdd, MemcachedCommand::kReplace,
                                     MemcachedCommand::kCas, MemcachedCommand::kDelete,
                                     MemcachedCommand::kTouch, MemcachedCommand::kGat})));
}

TEST(ProfileOf, ARawProfileIsWhatItsPartsSay) {
  hr_profile wanted = RawProfile(2, 2, 4, 2, "\xff\x0f");
  wanted.request_matches[0] = MakeMatch(0, "\x40", "\xf0");
  wanted.reply_matches[0] = MakeMatch(0, "\x60", "\xf0", true);
  AddOperation(wanted, {MakeMatch(1, "\x01"), MakeMatch(5, "ab")});
  AddOperation(wanted, {MakeMatch(8, "set ")}, HR_SHAPE_BLOCK_BEFORE_LAST);
  AddNack(wanted, {MakeMatch(1, "\xa3")});
  wanted.echo = HR_ECHO_BYTES;
  wanted.echo_request = MakeField(4, 3);
  wanted.echo_reply = MakeField(6, 3);
  wanted.numbered = 1;
  wanted.sequence_offset = 10;
  wanted.total_offset = 12;
  wanted.line_offset = 8;
  SetOneWay(wanted, " quiet");
  EXPECT_TRUE(Same(Of(R"(    profile: raw
    raw:
      request_offset: 2
      request_length: 2
      reply_offset: 4
      reply_length: 2
      mask: ff0f
      requests: [{offset: 0, bytes: "40", mask: "f0"}]
      replies: [{offset: 0, bytes: "60", mask: "f0", not: true}]
      operations:
        - match: [{offset: 1, bytes: "01"}, {offset: 5, text: ab}]
        - {match: [{offset: 8, text: "set "}], shape: block_before_last}
      refusals: [{match: [{offset: 1, bytes: a3}]}]
      echo: {request_offset: 4, reply_offset: 6, length: 3}
      numbers: {sequence_offset: 10, total_offset: 12}
      line: {offset: 8, one_way: " quiet"}
)"),
                   wanted));
}

TEST(ProfileOf, OneDatagramIsCarried) {
  EXPECT_EQ(
      Of("    profile: raw\n    raw: {request_offset: 0, request_length: 1, reply_offset: 0, reply_length: 1, "
         "one_datagram: true}\n")
          .one_datagram,
      1);
}

}  // namespace
}  // namespace hedgerow
