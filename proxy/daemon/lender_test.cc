// SPDX-License-Identifier: Apache-2.0
//
// When a service in place is given back to its owner, and when it is taken over again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proxy/daemon/lender.h"

namespace hedgerow {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LenderTest, WhatServesNothingForSomeSecondsIsGivenBackAndTriedAgain) {
  Lender lender;
  EXPECT_FALSE(lender.Look("dns", false));
  EXPECT_TRUE(lender.Look("dns", true)) << "rules may be missing";
  for (int i = 2; i < Lender::kBadSeconds; ++i) EXPECT_FALSE(lender.Look("dns", true));
  EXPECT_THAT(lender.given_back(), IsEmpty());
  EXPECT_TRUE(lender.Look("dns", true));
  EXPECT_THAT(lender.given_back(), ElementsAre("dns"));
  for (int i = 1; i < Lender::kPauseSeconds; ++i) EXPECT_FALSE(lender.Look("dns", i % 2 == 0)) << "nothing shows it";
  EXPECT_THAT(lender.given_back(), ElementsAre("dns"));
  EXPECT_TRUE(lender.Look("dns", true));
  EXPECT_THAT(lender.given_back(), IsEmpty());
  for (int i = 0; i < Lender::kBadSeconds; ++i) lender.Look("dns", true);
  EXPECT_THAT(lender.given_back(), ElementsAre("dns")) << "still bad";
}

TEST(LenderTest, ASecondThatIsWellBeginsAnewAndOthersKeepTheirs) {
  Lender lender;
  for (int i = 0; i < 3 * Lender::kBadSeconds; ++i) {
    lender.Look("dns", i % Lender::kBadSeconds != 0);
    lender.Look("ntp", i > 0);
  }
  EXPECT_THAT(lender.given_back(), ElementsAre("ntp"));
}

}  // namespace
}  // namespace hedgerow
