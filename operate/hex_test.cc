// SPDX-License-Identifier: Apache-2.0
#include "operate/hex.h"

#include "gtest/gtest.h"

namespace hedgerow::operate {
namespace {

TEST(BytesOfHexTest, TwoDigitsOfEitherCaseAreAByte) {
  EXPECT_EQ(BytesOfHex("00097fa0FFbC"), std::string("\x00\x09\x7f\xa0\xff\xbc", 6));
  EXPECT_EQ(BytesOfHex(""), "");
}

}  // namespace
}  // namespace hedgerow::operate
