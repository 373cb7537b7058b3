// SPDX-License-Identifier: Apache-2.0
#include "chaos/load/history_file.h"

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace hedgerow::chaos {
namespace {

using testing::HasSubstr;

class HistoryFileTest : public testing::Test {
 protected:
  ~HistoryFileTest() override { std::filesystem::remove(path_); }

  std::string path_ = absl::StrCat(testing::TempDir(), "/history-", getpid(), ".csv");
};

TEST(ReadsOfAllKeys, EachKeyOnceAndCountersAreNoRegisters) {
  const std::vector<Record> reads = ReadsOfAllKeys({{.kind = Kind::kIncrement, .key = 3},
                                                    {.kind = Kind::kPut, .key = 3, .value = 7},
                                                    {.kind = Kind::kGet, .key = 3, .value = 7},
                                                    {.kind = Kind::kGet, .key = 40}});
  EXPECT_EQ(reads, (std::vector<Record>{{.kind = Kind::kGet, .key = 3},
                                        {.kind = Kind::kGet, .key = 40},
                                        {.kind = Kind::kReadCounter, .key = 3}}));
}

TEST_F(HistoryFileTest, WhatIsWrittenIsRead) {
  const std::vector<Record> records = {
      {.client = 1,
       .kind = Kind::kIncrement,
       .key = 3,
       .value = 17,
       .intended_ns = 100,
       .sent_ns = 101,
       .ended_ns = 205,
       .ending = Ending::kOk,
       .attempts = 2},
      {.kind = Kind::kPut, .value = UINT64_MAX, .sent_ns = UINT64_MAX - 1, .ending = Ending::kTimedOut},
      {.kind = Kind::kGet, .ending = Ending::kError},
      {.kind = Kind::kReadCounter, .ending = Ending::kPending}};
  ASSERT_TRUE(WriteHistory(path_, records).ok());
  const absl::StatusOr<std::vector<Record>> read = ReadHistory(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, records);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".partial"));
}

TEST_F(HistoryFileTest, ALineThatIsNoRecordIsNamed) {
  ASSERT_TRUE(WriteHistory(path_, {Record{}}).ok());
  std::ofstream(path_, std::ios::app) << "0,g,0,0,1,2,3,maybe,1\n";
  EXPECT_THAT(std::string(ReadHistory(path_).status().message()), HasSubstr("line 3"));
}

TEST_F(HistoryFileTest, AnotherFileIsRefused) {
  EXPECT_FALSE(ReadHistory(path_).ok());
  std::ofstream(path_) << "seq,intended_us\n";
  EXPECT_THAT(std::string(ReadHistory(path_).status().message()), HasSubstr("does not begin"));
}

}  // namespace
}  // namespace hedgerow::chaos
