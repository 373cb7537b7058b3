// SPDX-License-Identifier: Apache-2.0
//
// The JSON that scripts read: every field is there, numbers are numbers, keys
// are sorted within maps, and protobuf's own parser understands it.

#include "config/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include "proxy/api/admin.pb.h"
#include "proxy/api/page.pb.h"
#include "proxy/api/report.pb.h"

namespace hedgerow {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using testing::HasSubstr;

v1::Status Sample() {
  v1::Status status;
  status.set_instance("a \"b\"\n\\\x01");
  status.set_pid(1 << 30);
  status.set_extra_load(0.0125);
  (*status.mutable_maps())["requests"].set_used(7);
  (*status.mutable_maps())["flows"].set_size(65536);
  status.mutable_clock()->set_running(true);
  status.add_problems("one");
  v1::ServiceStatus& service = *status.add_services();
  service.set_name("dns");
  service.set_requests(9'000'000'000'000'000ull);
  (*service.mutable_reasons())["no_budget"] = 3;
  return status;
}

TEST(ToJson, IsReadBackAsTheSameMessage) {
  const v1::Status status = Sample();
  v1::Status read;
  google::protobuf::util::JsonParseOptions options;
  const auto result = google::protobuf::util::JsonStringToMessage(ToJson(status), &read, options);
  ASSERT_TRUE(result.ok()) << result.ToString() << ToJson(status);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(status, read));
}

TEST(ToJson, PrintsZerosAndNumbersPlainly) {
  const std::string json = ToJson(Sample());
  EXPECT_THAT(json, HasSubstr("\"requests\": 9000000000000000"));
  EXPECT_THAT(json, HasSubstr("\"won_by_first\": 0"));
  EXPECT_THAT(json, HasSubstr("\"identity_ok\": false"));
  EXPECT_THAT(json, HasSubstr("\"extra_load\": 0.0125"));
  EXPECT_LT(json.find("\"flows\""), json.find("\"requests\": {"));
}

TEST(ToJson, AnEmptyListIsAnEmptyList) { EXPECT_THAT(ToJson(v1::Status()), HasSubstr("\"services\": []")); }

TEST(ToCompactJson, IsTheSameWithoutBlanks) {
  v1::PageData data;
  data.add_at_ms(1'700'000'000'123);
  data.add_at_ms(-1);
  v1::PageService& service = *data.add_services();
  service.set_name("a \"b\" </script>\n");
  service.add_requests(9'000'000'000'000'000ull);
  *data.mutable_status() = Sample();
  const std::string json = ToCompactJson(data);
  EXPECT_THAT(json, HasSubstr("\"at_ms\":[1700000000123,-1],"));
  EXPECT_THAT(json, HasSubstr("\"requests\":[9000000000000000],"));
  EXPECT_THAT(json, testing::Not(HasSubstr("\n")));
  v1::PageData read;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &read, {}).ok()) << json;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(data, read));
}

// The writer has no case for other types; whoever adds one must add it there.
void ExpectKnownTypes(const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    EXPECT_NE(field.cpp_type(), FieldDescriptor::CPPTYPE_ENUM) << field.full_name();
    EXPECT_NE(field.cpp_type(), FieldDescriptor::CPPTYPE_FLOAT) << field.full_name();
    if (field.is_map()) {
      EXPECT_EQ(field.message_type()->map_key()->cpp_type(), FieldDescriptor::CPPTYPE_STRING) << field.full_name();
    } else if (field.is_repeated() && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      EXPECT_THAT(field.cpp_type(), testing::AnyOf(FieldDescriptor::CPPTYPE_STRING, FieldDescriptor::CPPTYPE_INT64,
                                                   FieldDescriptor::CPPTYPE_UINT64))
          << field.full_name();
    }
  }
}

TEST(ToJson, KnowsEveryTypeOurMessagesUse) {
  for (const google::protobuf::FileDescriptor* file :
       {v1::Status::descriptor()->file(), v1::Plan::descriptor()->file(), v1::PageData::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) ExpectKnownTypes(*file->message_type(i));
  }
}

}  // namespace
}  // namespace hedgerow
