// SPDX-License-Identifier: Apache-2.0
//
// Durations, percentages and whole numbers: what is accepted, what is not, and
// that printing is the inverse of parsing.

#include "config/scalar.h"

#include <gtest/gtest.h>

namespace hedgerow::config {
namespace {

TEST(ParseDurationNs, ReadsEveryUnitExactly) {
  EXPECT_EQ(ParseDurationNs("250ns"), 250);
  EXPECT_EQ(ParseDurationNs("100us"), 100'000);
  EXPECT_EQ(ParseDurationNs("10ms"), 10'000'000);
  EXPECT_EQ(ParseDurationNs("2s"), 2'000'000'000);
  EXPECT_EQ(ParseDurationNs("90min"), 5'400'000'000'000);
  EXPECT_EQ(ParseDurationNs("168h"), 604'800'000'000'000);
  EXPECT_EQ(ParseDurationNs("0ms"), 0);
}

TEST(ParseDurationNs, ReadsDecimalsThatAreWholeNanoseconds) {
  EXPECT_EQ(ParseDurationNs("1.5ms"), 1'500'000);
  EXPECT_EQ(ParseDurationNs("0.25us"), 250);
  EXPECT_EQ(ParseDurationNs("1.000000001s"), 1'000'000'001);
  EXPECT_EQ(ParseDurationNs("1.500000000ms"), 1'500'000);
}

TEST(ParseDurationNs, RefusesEverythingElse) {
  for (const char* text : {"",
                           "10",
                           "ms",
                           " 10ms",
                           "10 ms",
                           "10ms ",
                           "-1ms",
                           "+1ms",
                           "1e3ms",
                           "1_000ms",
                           ".5ms",
                           "5.ms",
                           "1.5.2ms",
                           "10 parsecs",
                           "10m",
                           "10hours",
                           "-1h",
                           "99999999999999999h",
                           "10MS",
                           "0x10ms",
                           "1.5ns",
                           "0.0001us",
                           "nan s",
                           "infs",
                           "9999999999999999999s",
                           "99999999999s",
                           "1.0000000001s"}) {
    EXPECT_EQ(ParseDurationNs(text), std::nullopt) << text;
  }
}

TEST(ParsePercentPpm, ReadsDownToAMillionth) {
  EXPECT_EQ(ParsePercentPpm("5%"), 50'000);
  EXPECT_EQ(ParsePercentPpm("0%"), 0);
  EXPECT_EQ(ParsePercentPpm("100%"), 1'000'000);
  EXPECT_EQ(ParsePercentPpm("0.0001%"), 1);
  for (const char* text : {"5", "%", "5 %", "-5%", "0.00001%", "5%%", "five%"}) {
    EXPECT_EQ(ParsePercentPpm(text), std::nullopt) << text;
  }
}

TEST(ParseWhole, ReadsPlainDecimalOnly) {
  EXPECT_EQ(ParseWhole("0"), 0);
  EXPECT_EQ(ParseWhole("65535"), 65535);
  EXPECT_EQ(ParseWhole("-3"), -3);
  EXPECT_EQ(ParseWhole("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", "-", "0x35", "1e3", "5.0", "+5", " 5", "5 ", "1_000", "9223372036854775808",
                           "9999999999999999999", "00000000000000000001"}) {
    EXPECT_EQ(ParseWhole(text), std::nullopt) << text;
  }
}

TEST(FormatDurationNs, IsTheInverseOfParsing) {
  for (const int64_t ns : {int64_t{0}, int64_t{1}, int64_t{999}, int64_t{1'500}, int64_t{1'234'567},
                           int64_t{10'000'000}, int64_t{1'500'000'000}, int64_t{60'000'000'001}}) {
    EXPECT_EQ(ParseDurationNs(FormatDurationNs(ns)), ns) << FormatDurationNs(ns);
  }
  EXPECT_EQ(FormatDurationNs(10'000'000), "10ms");
  EXPECT_EQ(FormatDurationNs(1'500'000), "1.5ms");
  EXPECT_EQ(FormatDurationNs(60'000'000'000), "60s");
  EXPECT_EQ(FormatDurationNs(3'600'000'000'000), "1h");
  EXPECT_EQ(FormatPercentPpm(50'000), "5%");
  EXPECT_EQ(FormatPercentPpm(1), "0.0001%");
}

TEST(ParseBytes, ReadsWholeNumbersWithABinaryUnit) {
  for (const auto& [text, bytes] :
       {std::pair("0", int64_t{0}), std::pair("4097", int64_t{4097}), std::pair("64KiB", int64_t{65'536}),
        std::pair("256MiB", int64_t{256} << 20), std::pair("2GiB", int64_t{2} << 30)}) {
    EXPECT_EQ(ParseBytes(text), bytes) << text;
    EXPECT_EQ(FormatBytes(bytes), text);
  }
  for (const char* text :
       {"", "KiB", "1.5MiB", "64MB", "64 MiB", "-1", "+1", "9223372036854775808", "99999999999GiB"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

TEST(RoundedDurationNs, ShowsThreeSignificantDigits) {
  EXPECT_EQ(RoundedDurationNs(0), "0");
  EXPECT_EQ(RoundedDurationNs(850), "850ns");
  EXPECT_EQ(RoundedDurationNs(32'768), "32.8us");
  EXPECT_EQ(RoundedDurationNs(10'183'204), "10.2ms");
  EXPECT_EQ(RoundedDurationNs(999'960), "1.00ms");
  EXPECT_EQ(RoundedDurationNs(401'000'000), "401ms");
  EXPECT_EQ(RoundedDurationNs(2'000'000'000), "2.00s");
}

TEST(AgeText, ShowsTwoUnits) {
  constexpr int64_t kSecond = 1'000'000'000;
  EXPECT_EQ(AgeText(0), "0s");
  EXPECT_EQ(AgeText(59 * kSecond), "59s");
  EXPECT_EQ(AgeText(125 * kSecond), "2m 5s");
  EXPECT_EQ(AgeText(3 * 3600 * kSecond + 60 * kSecond), "3h 1m");
  EXPECT_EQ(AgeText(50 * 3600 * kSecond), "2d 2h");
}

}  // namespace
}  // namespace hedgerow::config
