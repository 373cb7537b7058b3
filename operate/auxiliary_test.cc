// SPDX-License-Identifier: Apache-2.0
//
// A page whose port another program has: the program goes on without it, says so, and serves it once the port
// is free.

#include "operate/auxiliary.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "operate/http_server.h"

namespace hedgerow::operate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kSoon = absl::Milliseconds(10);

template <typename Server>
bool ServesWithin(const Auxiliary<Server>& auxiliary, absl::Duration patience) {
  for (const absl::Time until = absl::Now() + patience; absl::Now() < until; absl::SleepFor(kSoon))
    if (auxiliary.problem().empty()) return true;
  return false;
}

TEST(Auxiliary, WhatCanBeServedIsServedAtOnce) {
  const Auxiliary<HttpServer> page("metrics", [] { return HttpServer::Start("127.0.0.1:0", "listen", {}); });
  EXPECT_EQ(page.problem(), "");
  ASSERT_NE(page.server(), nullptr);
}

TEST(Auxiliary, ATakenPortIsAProblemUntilItIsFree) {
  auto other = HttpServer::Start("127.0.0.1:0", "listen", {});
  ASSERT_TRUE(other.ok()) << other.status();
  const std::string address = (*other)->address();
  const Auxiliary<HttpServer> page(
      "metrics", [&] { return HttpServer::Start(address, "listen", {}); }, kSoon);
  EXPECT_THAT(page.problem(),
              AllOf(StartsWith("metrics: cannot listen on " + address), HasSubstr("the rest is served")));
  EXPECT_EQ(page.server(), nullptr);
  EXPECT_FALSE(ServesWithin(page, absl::Milliseconds(200)));
  other->reset();
  EXPECT_TRUE(ServesWithin(page, absl::Seconds(10)));
  ASSERT_NE(page.server(), nullptr);
  EXPECT_EQ(page.server()->address(), address);
}

TEST(Auxiliary, ItsEndWaitsForNoRetry) {
  const absl::Time begun = absl::Now();
  {
    const Auxiliary<HttpServer> page(
        "metrics", []() -> absl::StatusOr<std::unique_ptr<HttpServer>> { return absl::UnavailableError("not today"); },
        absl::Hours(1));
    EXPECT_THAT(page.problem(), StartsWith("metrics: not today; "));
  }
  EXPECT_LT(absl::Now() - begun, absl::Seconds(10));
}

TEST(Auxiliary, WhatIsNotConfiguredIsNoProblem) {
  const Auxiliary<HttpServer> none("metrics", []() -> absl::StatusOr<std::unique_ptr<HttpServer>> { return nullptr; });
  EXPECT_EQ(none.problem(), "");
  EXPECT_EQ(none.server(), nullptr);
}

}  // namespace
}  // namespace hedgerow::operate
