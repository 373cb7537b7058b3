// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/config/setting_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

const kv::SettingInfo& kTimeout = kv::InfoOf(kv::Setting::kSessionTimeout);
const kv::SettingInfo& kMemory = kv::InfoOf(kv::Setting::kMemcachedMemory);

TEST(SettingText, WhatIsWrittenIsReadAsTheSameValue) {
  for (const kv::SettingInfo& info : kv::AllSettings()) {
    for (const uint64_t value : {info.min, kv::Get(kv::Settings(), info.setting), info.max}) {
      const std::string text = FormatSetting(info, value);
      EXPECT_EQ(ParseSetting(info, text), value) << info.name << "=" << text;
    }
  }
}

TEST(SettingText, DurationsAreWrittenInTheLargestUnitThatFits) {
  EXPECT_EQ(FormatSetting(kTimeout, 7'200'000'000'000), "2h");
  EXPECT_EQ(FormatSetting(kTimeout, 5'400'000'000'000), "90min");
  EXPECT_EQ(FormatSetting(kTimeout, 61'000'000'000), "61s");
  EXPECT_EQ(FormatSetting(kTimeout, 10'500'000'000), "10.5s");
}

TEST(SettingText, RangesHold) {
  EXPECT_EQ(RangeOf(kTimeout), "10s to 168h");
  EXPECT_EQ(RangeOf(kMemory), "1 to 1048576");
  for (const char* text : {"", "9s", "169h", "5", "-1h", "1d"}) {
    EXPECT_EQ(ParseSetting(kTimeout, text), std::nullopt) << text;
  }
  for (const char* text : {"", "0", "1048577", "1 ", "+1", "1MiB", "99999999999999999999"}) {
    EXPECT_EQ(ParseSetting(kMemory, text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace hedgerow::node
