// SPDX-License-Identifier: Apache-2.0
//
// Which misspellings are recognised, and that no input makes it slow.

#include "config/suggest.h"

#include <gtest/gtest.h>

namespace hedgerow::config {
namespace {

TEST(Suggest, FindsTheNearestWordOrNone) {
  const std::vector<std::string> keys = {"delay", "deadline", "retention"};
  EXPECT_EQ(Suggest("dealy", keys), "delay");
  EXPECT_EQ(Suggest("dead-line", keys), "deadline");
  EXPECT_EQ(Suggest("Delay", keys), "delay");
  EXPECT_EQ(Suggest("timeout", keys), "");
  EXPECT_EQ(Suggest("c", {"a", "b"}), "");
  EXPECT_EQ(Suggest(std::string(5000, 'x'), keys), "");
}

}  // namespace
}  // namespace hedgerow::config
