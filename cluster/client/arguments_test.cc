// SPDX-License-Identifier: Apache-2.0
#include "cluster/client/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::client {
namespace {

using testing::HasSubstr;

std::string ErrorOf(const std::vector<std::string>& words) {
  return std::string(ParseArguments(words).status().message());
}

TEST(Arguments, AReadAndItsOptions) {
  const Arguments arguments = ParseArguments({"--server", "10.0.0.1:4801", "--timeout=200ms", "get", "a"}).value();
  EXPECT_EQ(arguments.server, "10.0.0.1:4801");
  EXPECT_EQ(arguments.timeout, absl::Milliseconds(200));
  EXPECT_EQ(arguments.get, "a");
  EXPECT_TRUE(arguments.operations.empty());
}

TEST(Arguments, AClientThatProvesItself) {
  const Arguments arguments = ParseArguments({"--client", "web", "--key-file=/etc/app/hkv.key", "get", "a"}).value();
  EXPECT_EQ(arguments.client, "web");
  EXPECT_EQ(arguments.key_file, "/etc/app/hkv.key");
  EXPECT_THAT(ErrorOf({"--key-file"}), HasSubstr("--key-file needs a value"));
}

TEST(Arguments, EveryKindOfWrite) {
  const Arguments arguments =
      ParseArguments({"put", "a",   "x",      "and", "create", "b",    "y", "and", "cas",  "c", "old",
                      "new", "and", "delete", "d",   "and",    "incr", "e", "and", "incr", "f", "-3"})
          .value();
  const std::vector<kv::Operation> expected = {
      {.kind = kv::OperationKind::kPut, .key = "a", .value = "x"},
      {.kind = kv::OperationKind::kCompareAndSet, .key = "b", .value = "y"},
      {.kind = kv::OperationKind::kCompareAndSet, .key = "c", .value = "new", .expected = "old"},
      {.kind = kv::OperationKind::kDelete, .key = "d"},
      {.kind = kv::OperationKind::kIncrement, .key = "e", .delta = 1},
      {.kind = kv::OperationKind::kIncrement, .key = "f", .delta = -3}};
  EXPECT_EQ(arguments.operations, expected);
}

TEST(Arguments, WordsAfterTheCommandAreNeverOptions) {
  EXPECT_EQ(ParseArguments({"put", "--server", "--timeout"})->operations[0].key, "--server");
  EXPECT_EQ(ParseArguments({"--", "get", "a"})->get, "a");
  EXPECT_EQ(ParseArguments({"put", "and", "and"})->operations[0].value, "and");
}

TEST(Arguments, MistakesAreNamed) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("command is missing"));
  EXPECT_THAT(ErrorOf({"frob"}), HasSubstr("'frob' is no command"));
  EXPECT_THAT(ErrorOf({"get"}), HasSubstr("get needs a key"));
  EXPECT_THAT(ErrorOf({"get", "a", "b"}), HasSubstr("'b' is a word too many"));
  EXPECT_THAT(ErrorOf({"put", "a"}), HasSubstr("put needs a value"));
  EXPECT_THAT(ErrorOf({"put", "a", "b", "c"}), HasSubstr("'c' is a word too many"));
  EXPECT_THAT(ErrorOf({"put", "a", "b", "and"}), HasSubstr("another operation"));
  EXPECT_THAT(ErrorOf({"put", "a", "b", "and", "get", "a"}), HasSubstr("'get' is no command"));
  EXPECT_THAT(ErrorOf({"incr", "a", "1.5"}), HasSubstr("'1.5' is no whole number"));
  EXPECT_THAT(ErrorOf({"--timeout", "2h", "get", "a"}), HasSubstr("1ms to 1m"));
  EXPECT_THAT(ErrorOf({"--retry", "get", "a"}), HasSubstr("--retry"));
  EXPECT_THAT(ErrorOf({"--server"}), HasSubstr("--server needs a value"));
}

}  // namespace
}  // namespace hedgerow::client
