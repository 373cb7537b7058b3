// SPDX-License-Identifier: Apache-2.0
//
// The texts of --gateway-field that are read, and those that are refused.
#include "steer/gateway_field.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::steer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status Read(const std::string& text, Settings& settings) {
  settings.devices = {Device{.device = {.id = 1, .is_gateway = 1}}};
  return ReadGatewayField(text, settings);
}

std::string ErrorOf(const std::string& text) {
  Settings settings;
  return std::string(Read(text, settings).message());
}

TEST(GatewayField, OffsetAndBytesAreAFixedField) {
  Settings settings;
  ASSERT_TRUE(Read("12:4", settings).ok());
  EXPECT_EQ(settings.field_offset, 12u);
  EXPECT_EQ(settings.field_bytes, 4u);
  EXPECT_EQ(settings.located.field.pairing, HR_PAIR_BYTES);
}

TEST(GatewayField, APathIsRead) {
  Settings settings;
  ASSERT_TRUE(Read("{path: [{skip: 2}, {length: 2, little_endian: true, add: -2}], request_offset: 1, request_length: 4}", settings).ok());
  EXPECT_EQ(settings.field_bytes, 0u);
  EXPECT_EQ(settings.located.field.pairing, HR_PAIR_PATH);
  EXPECT_EQ(settings.located.field.offset, 1);
  EXPECT_EQ(settings.located.field.length, 4);
  ASSERT_EQ(settings.located.path.count, 2);
  EXPECT_EQ(settings.located.path.steps[1].kind, HR_STEP_LENGTH);
  EXPECT_EQ(settings.located.path.steps[1].add, -2);
}

TEST(GatewayField, TokensAreRead) {
  Settings settings;
  ASSERT_TRUE(Read("{tokens: [{header: call-id, short: i}, {header: from, parameter: tag}]}", settings).ok());
  EXPECT_EQ(settings.located.field.pairing, HR_PAIR_TOKENS);
  EXPECT_EQ(settings.located.token_count, 2u);
}

TEST(GatewayField, WrongTextsAreRefusedWithAReason) {
  EXPECT_THAT(ErrorOf("12"), AllOf(HasSubstr("--gateway-field: got \"12\""), HasSubstr("12:4")));
  EXPECT_THAT(ErrorOf("12:17"), HasSubstr("1 to 16"));
  EXPECT_THAT(ErrorOf("{path: [{ber: value}, {skip: 1}], request_length: 4}"), HasSubstr("expected it at the path's end"));
  EXPECT_THAT(ErrorOf("{path: [{skip: 1}]}"), HasSubstr("path"));
  EXPECT_THAT(ErrorOf("{paths: []}"), HasSubstr("paths"));
  EXPECT_THAT(ErrorOf("{request_length: 4, replies: [{offset: 0, bytes: aa}]}"), HasSubstr("got replies, expected request_offset"));
  EXPECT_THAT(ErrorOf("{flow: true}"), HasSubstr("got flow, expected request_offset"));
  EXPECT_THAT(ErrorOf("{path: ["), HasSubstr("--gateway-field"));
  Settings settings;
  EXPECT_THAT(std::string(ReadGatewayField("12:4", settings).message()), HasSubstr("no line of --devices says gateway"));
}

}  // namespace
}  // namespace hedgerow::steer
