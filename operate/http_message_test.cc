// SPDX-License-Identifier: Apache-2.0
//
// Which requests are understood, which are refused and how, and what every answer carries.

#include "operate/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::operate {
namespace {

using testing::HasSubstr;
using State = ParsedHead::State;

int RefusedWith(const std::string& bytes) {
  const ParsedHead parsed = ParseHead(bytes);
  return parsed.state == State::kRefused ? parsed.refusal.status : 0;
}

std::string FromHost(const std::string& host) {
  return absl::StrCat("GET / HTTP/1.1\r\nHost: ", host, "\r\n\r\n");
}

TEST(ParseHead, UnderstandsABrowser) {
  const ParsedHead parsed = ParseHead(
      "GET /api/v1/page?after=17&x=y HTTP/1.1\r\nHost: localhost:9464\r\nAccept: */*\r\nCookie: a=b\r\n\r\n");
  ASSERT_EQ(parsed.state, State::kComplete);
  EXPECT_EQ(parsed.request.method, "GET");
  EXPECT_EQ(parsed.request.path, "/api/v1/page");
  EXPECT_EQ(parsed.request.query, "after=17&x=y");
  EXPECT_EQ(parsed.request.Parameter("after"), "17");
  EXPECT_EQ(parsed.request.Parameter("x"), "y");
  EXPECT_EQ(parsed.request.Parameter("aft"), "");
}

TEST(ParseHead, WaitsForTheWholeHead) {
  const std::string whole = FromHost("localhost");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_EQ(ParseHead(whole.substr(0, bytes)).state, State::kIncomplete) << bytes;
  }
  EXPECT_EQ(ParseHead(whole).state, State::kComplete);
}

TEST(ParseHead, RefusesWhatIsNoGet) {
  EXPECT_EQ(RefusedWith("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
  EXPECT_EQ(RefusedWith("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
  EXPECT_EQ(RefusedWith("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
  EXPECT_EQ(RefusedWith("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"), 413);
  EXPECT_EQ(RefusedWith("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
  EXPECT_EQ(RefusedWith("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n"), 505);
  EXPECT_EQ(RefusedWith("HELLO\r\n\r\n"), 400);
  EXPECT_EQ(RefusedWith("GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(RefusedWith("GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(RefusedWith("GET / HTTP/1.1\r\nHost: localhost\r\n folded: yes\r\n\r\n"), 400);
  EXPECT_EQ(RefusedWith("GET / HTTP/1.1\r\nno colon\r\n\r\n"), 400);
}

TEST(ParseHead, RefusesAHeadWithoutEnd) {
  EXPECT_EQ(RefusedWith(absl::StrCat("GET /", std::string(kMaxHeadBytes, 'a'))), 431);
  EXPECT_EQ(RefusedWith(absl::StrCat("GET /", std::string(kMaxHeadBytes, 'a'), " HTTP/1.1\r\n\r\n")), 431);
}

// DNS rebinding: the attacker's page asks under its own name, which by now means 127.0.0.1.
TEST(ParseHead, RefusesEveryHostThatSomebodyElseMayName) {
  for (const char* host : {"evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example",
                           "10.77.0.1", "[fd77::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "2130706433", "",
                           "[::1", "[::1]x", "localhost:x", "localhost:99999", "127.0.0.1:"}) {
    EXPECT_EQ(RefusedWith(FromHost(host)), 421) << host;
  }
  EXPECT_EQ(RefusedWith("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"), 400);
  EXPECT_EQ(RefusedWith("GET / HTTP/1.1\r\n\r\n"), 400);
}

TEST(ParseHead, AnswersUnderEveryNameOfLoopback) {
  for (const char* host : {"localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:9464", "127.8.8.8", "[::1]", "[::1]:1"}) {
    EXPECT_EQ(ParseHead(FromHost(host)).state, State::kComplete) << host;
  }
  EXPECT_EQ(ParseHead("GET / HTTP/1.0\r\n\r\n").state, State::kComplete);
}

TEST(FormatResponse, EveryAnswerIsStrict) {
  for (const int status : {200, 404, 421}) {
    const std::string answer = FormatResponse({.status = status, .content_type = "text/html", .body = "<p>"}, false);
    EXPECT_TRUE(absl::StartsWith(answer, absl::StrCat("HTTP/1.1 ", status, " "))) << answer;
    EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\n<p>")) << answer;
    for (const char* header : {"Content-Length: 3\r\n", "Connection: close\r\n", "Cache-Control: no-store\r\n",
                               "default-src 'none'; script-src 'self'; ", "frame-ancestors 'none'",
                               "X-Content-Type-Options: nosniff\r\n"}) {
      EXPECT_THAT(answer, HasSubstr(header));
    }
    EXPECT_THAT(answer, testing::Not(HasSubstr("unsafe")));
  }
}

TEST(FormatResponse, AHeadHasTheLengthAndNotTheBody) {
  const std::string answer = FormatResponse({.body = "hello"}, true);
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\n"));
}

}  // namespace
}  // namespace hedgerow::operate
