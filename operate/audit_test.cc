// SPDX-License-Identifier: Apache-2.0
//
// What the log says of a change that was asked for, and what it keeps to itself.

#include "operate/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operate/echo_test.pb.h"

namespace hedgerow::operate {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr Asker kRoot = {.pid = 4711, .uid = 0};

test::WordsRequest Request(const std::string& text) {
  test::WordsRequest request;
  request.set_text(text);
  return request;
}

TEST(AuditLine, NamesTheUserTheCommandAndTheResult) {
  const std::string done = AuditLine(kRoot, Request("hello"), grpc::Status::OK);
  EXPECT_THAT(done, StartsWith("audit: user root (0), process 4711: Words {\"text\":\"hello\""));
  EXPECT_THAT(done, EndsWith(": done"));
  EXPECT_THAT(AuditLine(kRoot, Request("hello"), grpc::Status(grpc::StatusCode::NOT_FOUND, "no backend \"z\"")),
              EndsWith(": refused: no backend \\\"z\\\""));
}

TEST(AuditLine, AUserThatThisHostDoesNotKnowIsANumber) {
  EXPECT_THAT(AuditLine({.pid = 1, .uid = 64799}, Request(""), grpc::Status::OK),
              StartsWith("audit: user 64799, process 1: "));
}

TEST(AuditLine, HoldsNoSecret) {
  test::WordsRequest request = Request("x");
  request.set_new_key("00112233445566778899aabbccddeeff");
  request.add_tokens("first-secret");
  request.mutable_inner()->set_blob("\x01\x02\x03");
  const std::string line = AuditLine(kRoot, request, grpc::Status::OK);
  EXPECT_THAT(line, Not(HasSubstr("0011")));
  EXPECT_THAT(line, Not(HasSubstr("first-secret")));
  EXPECT_THAT(line, HasSubstr("(hidden)"));
}

TEST(AuditLine, IsOneLineOfBoundedLengthWhateverIsAskedFor) {
  const std::string forged = AuditLine(kRoot, Request("x\naudit: user root (0): Down {}: done"),
                                       grpc::Status(grpc::StatusCode::INTERNAL, "a\nb\x1b[2J"));
  EXPECT_THAT(forged, Not(HasSubstr("\n")));
  EXPECT_THAT(forged, Not(HasSubstr("\x1b")));
  EXPECT_LT(AuditLine(kRoot, Request(std::string(100'000, 'x')),
                      grpc::Status(grpc::StatusCode::INTERNAL, std::string(100'000, 'y')))
                .size(),
            2100u);
}

// A command that was understood may have come to nothing all the same.
TEST(AuditLine, SaysWhatTheReplyHolds) {
  test::WordsReply reply;
  const auto line = [&reply] { return AuditLine(kRoot, Request("x"), grpc::Status::OK, &reply); };
  EXPECT_THAT(line(), EndsWith(": done"));
  reply.add_problems("c.yaml:3:1: unknown key");
  reply.add_problems("and\nmore");
  EXPECT_THAT(line(), EndsWith(R"(: refused: c.yaml:3:1: unknown key; and\nmore)"));
  reply.set_applied(true);
  EXPECT_THAT(line(), EndsWith(R"(: done, with problems: c.yaml:3:1: unknown key; and\nmore)"));
}

}  // namespace
}  // namespace hedgerow::operate
