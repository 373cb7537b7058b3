// SPDX-License-Identifier: Apache-2.0
//
// Which requests may be answered, which are refused and how.

#include "operate/http_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::operate {
namespace {

HttpHead From(const std::string& host) { return {.method = "GET", .version = "HTTP/1.1", .hosts = {host}}; }

int RefusedWith(const HttpHead& head) {
  const std::optional<HttpResponse> refusal = Refusal(head);
  if (!refusal.has_value()) return 0;
  EXPECT_FALSE(refusal->body.empty()) << "in words";
  return refusal->status;
}

TEST(HttpRequest, AParameterIsTheFirstOfItsName) {
  const HttpRequest request{.parameters = {{"after", "17"}, {"x", "y"}, {"after", "18"}}};
  EXPECT_EQ(request.Parameter("after"), "17");
  EXPECT_EQ(request.Parameter("x"), "y");
  EXPECT_EQ(request.Parameter("aft"), "");
}

TEST(Refusal, WhatIsNoGetIsRefused) {
  for (const char* method : {"POST", "DELETE", "OPTIONS", "PUT", "get", ""}) {
    HttpHead head = From("localhost");
    head.method = method;
    EXPECT_EQ(RefusedWith(head), 405) << method;
  }
  HttpHead head = From("localhost");
  head.has_body = true;
  EXPECT_EQ(RefusedWith(head), 413);
  head.has_body = false;
  head.method = "HEAD";
  EXPECT_EQ(RefusedWith(head), 0);
}

// DNS rebinding: the attacker's page asks under its own name, which by now means 127.0.0.1.
TEST(Refusal, EveryHostThatSomebodyElseMayNameIsRefused) {
  for (const char* host : {"evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example",
                           "10.77.0.1", "[fd77::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "2130706433", "", "[::1",
                           "[::1]x", "localhost:x", "localhost:99999", "127.0.0.1:"}) {
    EXPECT_EQ(RefusedWith(From(host)), 421) << host;
  }
  HttpHead twice = From("localhost");
  twice.hosts.push_back("evil.example");
  EXPECT_EQ(RefusedWith(twice), 400);
}

TEST(Refusal, AnyHostIsAnsweredWhereNoBrowserIsMisled) {
  EXPECT_FALSE(Refusal(From("proxy1.example.com:9464"), HostRule::kAny).has_value());
  EXPECT_EQ(Refusal({.method = "GET", .version = "HTTP/1.1", .hosts = {"a", "b"}}, HostRule::kAny)->status, 400);
}

TEST(ShowsToken, AsABearersOrAsABrowsersPassword) {
  const std::vector<std::string> tokens = {"0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"};
  const auto shows = [&](std::vector<std::string> lines) {
    return ShowsToken({.authorizations = std::move(lines)}, tokens);
  };
  EXPECT_TRUE(shows({"Bearer 0123456789abcdef0123456789abcdef"}));
  EXPECT_TRUE(shows({"bearer  fedcba9876543210fedcba9876543210"}));
  EXPECT_TRUE(shows({"Basic YW55OjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm"}));  // any:0123...
  EXPECT_FALSE(shows({}));
  EXPECT_FALSE(shows({""}));
  EXPECT_FALSE(shows({"Bearer"}));
  EXPECT_FALSE(shows({"Bearer 0123456789abcdef0123456789abcde"}));
  EXPECT_FALSE(shows({"Bearer 1123456789abcdef0123456789abcdef"}));
  EXPECT_FALSE(shows({"Digest 0123456789abcdef0123456789abcdef"}));
  EXPECT_FALSE(shows({"Basic !!!"}));
  EXPECT_FALSE(shows({"Basic MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}));  // no colon
  EXPECT_FALSE(shows({"Bearer 0123456789abcdef0123456789abcdef", "Bearer 0123456789abcdef0123456789abcdef"}));
  EXPECT_FALSE(ShowsToken({.authorizations = {"Bearer "}}, {}));
}

TEST(Refusal, EveryNameOfLoopbackIsAnswered) {
  for (const char* host :
       {"localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:9464", "127.8.8.8", "[::1]", "[::1]:1"}) {
    EXPECT_EQ(RefusedWith(From(host)), 0) << host;
  }
}

TEST(Refusal, OnlyHttp10MayLeaveTheHostOut) {
  EXPECT_EQ(RefusedWith({.method = "GET", .version = "HTTP/1.1"}), 400);
  EXPECT_EQ(RefusedWith({.method = "GET", .version = "HTTP/1.0"}), 0);
}

TEST(StrictHeaders, AllowNothingUnsafe) {
  std::string policy;
  for (const HttpHeader& header : StrictHeaders()) {
    EXPECT_THAT(header.value, testing::Not(testing::HasSubstr("unsafe"))) << header.name;
    if (std::string(header.name) == "Content-Security-Policy") policy = header.value;
  }
  EXPECT_THAT(policy, testing::StartsWith("default-src 'none'; script-src 'self'; "));
  EXPECT_THAT(policy, testing::HasSubstr("frame-ancestors 'none'"));
}

}  // namespace
}  // namespace hedgerow::operate
