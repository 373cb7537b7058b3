// SPDX-License-Identifier: Apache-2.0
#include "steer/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::steer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LineFileTest : public testing::Test {
 protected:
  LineFileTest() : path_(testing::TempDir() + "/line_file_test." + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove(path_);
  }
  ~LineFileTest() override { std::filesystem::remove(path_); }

  void Write(const std::string& text) { std::ofstream(path_) << text; }
  // All its lines; the error, as the last of them.
  std::vector<std::string> Read(const std::string& path, absl::Duration silence = LineFile::kSilence) {
    absl::StatusOr<LineFile> file = LineFile::Open(path, err_, silence);
    if (!file.ok()) return {std::string(file.status().message())};
    std::vector<std::string> lines;
    while (true) {
      const auto line = file->Next();
      if (!line.ok()) lines.push_back(std::string(line.status().message()));
      if (!line.ok() || !line->has_value()) return lines;
      lines.push_back(**line);
    }
  }

  const std::string path_;
  std::ostringstream err_;
};

TEST_F(LineFileTest, GivesEveryLine) {
  Write("10.0.0.1\n\n10.0.0.2");
  EXPECT_THAT(Read(path_), ElementsAre("10.0.0.1", "", "10.0.0.2"));
  Write("");
  EXPECT_THAT(Read(path_), ElementsAre());
  std::string many;
  for (int i = 0; i < 50'000; ++i) many += std::to_string(i) + "\n";
  Write(many);
  const std::vector<std::string> lines = Read(path_);
  ASSERT_EQ(lines.size(), 50'000u);
  for (int i = 0; i < 50'000; ++i) EXPECT_EQ(lines[static_cast<size_t>(i)], std::to_string(i));
}

TEST_F(LineFileTest, ALineHasABound) {
  Write("a\n" + std::string(LineFile::kLineMax_bytes, 'x') + "\nb\n");
  EXPECT_EQ(Read(path_).size(), 3u);
  Write("a\n" + std::string(LineFile::kLineMax_bytes + 1, 'x') + "\nb\n");
  EXPECT_THAT(Read(path_), ElementsAre("a", HasSubstr("line 2 has more than 4096 bytes")));
}

TEST_F(LineFileTest, ADeviceWithoutAnEndIsRefused) {
  EXPECT_THAT(Read("/dev/zero"), ElementsAre(HasSubstr("cannot read /dev/zero: line 1 has more than 4096 bytes: it is no file of lines")));
  EXPECT_THAT(Read("/"), ElementsAre(HasSubstr("cannot read /: it is no file of lines")));
  EXPECT_THAT(Read("/no/such/file"), ElementsAre(HasSubstr("cannot read /no/such/file")));
}

TEST_F(LineFileTest, APipeToWhichNoProcessWritesIsRefused) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(Read(path_, absl::Milliseconds(20)), ElementsAre("cannot read " + path_ + ": no process writes to it"));
}

TEST_F(LineFileTest, APipeWhoseWriterIsSlowIsWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int both = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(both, 0);
  // Written only once the reader has said that it waits.
  class Told : public std::stringbuf {
   public:
    explicit Told(int pipe) : pipe_(pipe) {}
    int sync() override {
      EXPECT_EQ(write(pipe_, "10.0.0.1\n", 9), 9);
      close(pipe_);
      return 0;
    }
    const int pipe_;
  } told(both);
  std::ostream err(&told);
  absl::StatusOr<LineFile> file = LineFile::Open(path_, err, absl::Milliseconds(1));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(**file->Next(), "10.0.0.1");
  EXPECT_FALSE(file->Next()->has_value());
  EXPECT_EQ(told.str(), "hedgerow-steer: waits for lines from " + path_ + "\n");
}

}  // namespace
}  // namespace hedgerow::steer
