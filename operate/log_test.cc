// SPDX-License-Identifier: Apache-2.0
//
// The log when its reader is slow, gone or missing. Each case is a process of its own, whose stderr is one end
// of a pipe.

#include "operate/log.h"
#include "operate/problem_log.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "net/unique_fd.h"

namespace hedgerow {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LogTest : public testing::Test {
 protected:
  LogTest() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~LogTest() override {
    for (const int end : ends_) close(end);
  }

  // `body` in a process that writes its log to the pipe; its result is the exit code, and -1 a death by a
  // signal.
  pid_t Start(const std::function<int()>& body) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    dup2(ends_[1], STDERR_FILENO);
    alarm(20);
    exit(body());  // not _exit: the log is flushed
  }
  static int End(pid_t pid) {
    int state = 0;
    waitpid(pid, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  }
  std::string ReadToTheEnd() {
    close(std::exchange(ends_[1], -1));
    std::string text;
    char buffer[65536];
    for (ssize_t bytes = 0; (bytes = read(ends_[0], buffer, sizeof(buffer))) > 0;)
      text.append(buffer, static_cast<size_t>(bytes));
    return text;
  }

  int ends_[2] = {-1, -1};
};

TEST_F(LogTest, ALineHasItsTimeAndLevel) {
  EXPECT_EQ(End(Start([] {
              LogWarning("before the thread");
              operate::StartLogThread();
              LogInfo("by ", 1, " thread");
              return 0;
            })),
            0);
  const std::vector<std::string> lines = absl::StrSplit(ReadToTheEnd(), '\n');
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], MatchesRegex("20[0-9-]+T[0-9:.]+Z warning before the thread"));
  EXPECT_THAT(lines[1], EndsWith("Z info by 1 thread"));
}

TEST_F(LogTest, AFullPipeHoldsUpNoCallerAndTheLostLinesAreReported) {
  fcntl(ends_[1], F_SETPIPE_SZ, 4096);
  const net::UniqueFd all_logged(eventfd(0, EFD_CLOEXEC));
  const pid_t pid = Start([&all_logged] {
    operate::StartLogThread();
    const absl::Time begun = absl::Now();
    for (int i = 0; i < 20'000; ++i) LogInfo("line ", i, " of many");
    if (absl::Now() - begun > absl::Seconds(5)) return 1;
    uint64_t lost = operate::LostLogLines();
    if (lost == 0) return 2;
    eventfd_write(all_logged.get(), 1);
    // Its reader comes back, and one of these finds room.
    for (LogInfo("later"); operate::LostLogLines() > lost; LogInfo("later")) {
      lost = operate::LostLogLines();
      absl::SleepFor(absl::Milliseconds(50));
    }
    return 0;
  });
  pollfd logged{all_logged.get(), POLLIN, 0};
  EXPECT_EQ(poll(&logged, 1, 20'000), 1);
  const std::string text = ReadToTheEnd();
  EXPECT_EQ(End(pid), 0);
  EXPECT_THAT(text, HasSubstr("line 0 of many\n"));
  EXPECT_THAT(text, HasSubstr(" lines of this log were lost: stderr was full"));
  EXPECT_THAT(text, EndsWith("info later\n"));
  // Kept lines are whole, and in their order.
  EXPECT_LT(text.find("lines of this log were lost"), text.rfind("info later"));
}

TEST_F(LogTest, BeforeTheThreadAFullPipeHoldsUpALineForAMomentOnly) {
  EXPECT_EQ(End(Start([] {
              const absl::Time begun = absl::Now();
              for (int i = 0; i < 40; ++i) LogInfo(std::string(2000, 'x'));  // of 64 KiB
              return absl::Now() - begun < absl::Seconds(5) && operate::LostLogLines() >= 3 ? 0 : 1;
            })),
            0);
}

TEST_F(LogTest, APipeWithoutAReaderCostsLinesAndNotTheProcess) {
  close(std::exchange(ends_[0], -1));
  EXPECT_EQ(End(Start([] {
              operate::StartLogThread();  // SIGPIPE keeps its default, as in a program that forgot it
              for (int i = 0; i < 10; ++i) LogInfo("line");
              for (int i = 0; i < 500 && operate::LostLogLines() < 10; ++i) absl::SleepFor(absl::Milliseconds(10));
              return operate::LostLogLines() == 10 ? 0 : 1;
            })),
            0);
}

TEST_F(LogTest, AFullDiskCostsLinesAndIsReportedOnceThereIsRoom) {
  EXPECT_EQ(End(Start([this] {
              const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
              dup2(full, STDERR_FILENO);
              operate::StartLogThread();
              for (int i = 0; i < 3; ++i) LogInfo("lost");
              for (int i = 0; i < 500 && operate::LostLogLines() < 3; ++i) absl::SleepFor(absl::Milliseconds(10));
              dup2(ends_[1], STDERR_FILENO);
              LogInfo("written");
              return 0;
            })),
            0);
  EXPECT_THAT(ReadToTheEnd(),
              MatchesRegex("[^\n]* warning 3 lines of this log were lost[^\n]*\n[^\n]* info written\n"));
}

TEST_F(LogTest, TheJournalGetsTheLevelAndNoTime) {
  EXPECT_EQ(End(Start([] {
              struct stat info {};
              fstat(STDERR_FILENO, &info);
              setenv("JOURNAL_STREAM", absl::StrCat(info.st_dev, ":", info.st_ino).c_str(), 1);
              LogInfo("one");
              LogWarning("two");
              LogError("three\nand its second line");
              return 0;
            })),
            0);
  EXPECT_EQ(ReadToTheEnd(), "<6>one\n<4>two\n<3>three\n<3>and its second line\n");
}

TEST_F(LogTest, AProblemHasItsBeginAndItsEndAndIsOneWhileItsNumbersGrow) {
  EXPECT_EQ(End(Start([] {
              operate::ProblemLog log;
              const auto at = [&](int second, const std::vector<std::string>& problems) {
                log.Update(problems, absl::FromUnixSeconds(second));
              };
              at(0, {"node 2 (10.0.0.2:4802) is silent for 1.20s: 7 entries wait", "node 3 is silent for 2.00s"});
              at(1, {"node 2 (10.0.0.2:4802) is silent for 900ms: 12 entries wait", "node 3 is silent for 3.00s"});
              for (int second = 2; second < 20; ++second) {
                at(second,
                   second == 4 ? std::vector<std::string>{"node 3 is silent for 1.10s"} : std::vector<std::string>{});
              }
              return 0;
            })),
            0);
  std::vector<std::string> lines = absl::StrSplit(ReadToTheEnd(), '\n');
  for (std::string& line : lines) line = line.substr(std::min(line.size(), line.find('Z') + 1));
  EXPECT_THAT(lines, ElementsAre(" error node 2 (10.0.0.2:4802) is silent for 1.20s: 7 entries wait",
                                 " error node 3 is silent for 2.00s",
                                 " info over, after 1s: node 2 (10.0.0.2:4802) is silent for 1.20s: 7 entries wait",
                                 " info over, after 4s and 2 times: node 3 is silent for 2.00s", ""));
}

TEST_F(LogTest, AFileOpenedLaterNeverBecomesTheLog) {
  EXPECT_EQ(End(Start([] {
              for (const int fd : {0, 1, 2}) close(fd);
              operate::BeginProgram();
              const int file = open("/dev/null", O_RDWR);
              LogInfo("lost");
              return file > 2 && operate::LostLogLines() == 1 ? 0 : 1;
            })),
            0);
}

}  // namespace
}  // namespace hedgerow
