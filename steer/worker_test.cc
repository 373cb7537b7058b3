// SPDX-License-Identifier: Apache-2.0
//
// The environment and descriptors of a worker, and the report of its end.
#include "steer/worker.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "steer/process.h"

namespace hedgerow::steer {
namespace {

using testing::HasSubstr;
using testing::Not;

class WorkerTest : public testing::Test {
 protected:
  WorkerTest() {
    char pattern[] = "/tmp/hedgerow-worker-test.XXXXXX";
    folder_ = mkdtemp(pattern);
    settings_.places = {.run_dir = folder_, .name = "x"};
  }
  ~WorkerTest() override { std::filesystem::remove_all(folder_); }

  std::string Run(const std::string& script, const std::vector<int>& sockets = {}) {
    settings_.command = {"sh", "-c", script};
    const auto launcher = Launcher::Create(settings_);
    EXPECT_TRUE(launcher.ok()) << launcher.status();
    auto worker = launcher->Start(3, sockets);
    EXPECT_TRUE(worker.ok()) << worker.status();
    EXPECT_TRUE(WaitForEnd(worker->pidfd, 5000));
    return ReapExit(worker->pidfd);
  }
  std::string Written() const {
    std::ifstream file(folder_ + "/out");
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::string folder_;
  Settings settings_;
};

TEST_F(WorkerTest, HasItsSocketsAsDescriptorsFromThreeAndNothingElse) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const net::UniqueFd one(pair[0]), other(pair[1]);
  EXPECT_EQ(
      Run("for n in 0 1 2 3 4; do [ -e /proc/$$/fd/$n ] || exit 1; done; for n in 5 6 7 8 9 12 20; do [ -e /proc/$$/fd/$n ] && exit 2; done;"
          "echo hello >&4; [ $LISTEN_PID = $$ ]",
          {one.get(), one.get()}),
      "exit 0");
  char text[16] = "";
  EXPECT_EQ(read(other.get(), text, sizeof(text)), 6);
  EXPECT_STREQ(text, "hello\n");
}

TEST_F(WorkerTest, KnowsItsSlotAndWhereToSayHowItIs) {
  settings_.heartbeat = absl::Seconds(2);
  setenv("LISTEN_FDNAMES", "of:the:supervisor", 1);
  EXPECT_EQ(Run("env >" + folder_ + "/out; readlink /proc/$$/fd/0 >>" + folder_ + "/out"), "exit 0");
  const std::vector<std::string> lines = absl::StrSplit(Written(), '\n');
  for (const std::string& line : {std::string("LISTEN_FDS=2"), std::string("LISTEN_FDNAMES=udp:tcp"),
                                  std::string("HEDGEROW_STEER_SLOT=3"), std::string("WATCHDOG_USEC=2000000"),
                                  "NOTIFY_SOCKET=" + folder_ + "/x/notify.sock", std::string("/dev/null")}) {
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line), 1) << line;
  }
  EXPECT_THAT(Written(), Not(HasSubstr("of:the:supervisor")));
}

TEST_F(WorkerTest, TheSlotsNumberStandsForPercentS) {
  settings_.command = {"sh", "a%s", "%%s", "%d", "%", "%s-%s", ""};
  EXPECT_THAT(Launcher::Create(settings_)->CommandOf(12),
              testing::ElementsAre("sh", "a12", "%s", "%d", "%", "12-12", ""));
}

TEST_F(WorkerTest, AnEndIsNamed) {
  EXPECT_EQ(Run("exit 7"), "exit 7");
  EXPECT_EQ(Run("kill -KILL $$"), "signal 9 (KILL)");
}

TEST_F(WorkerTest, StartsWithSignalsAsAProgramExpectsThem) {
  signal(SIGPIPE, SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  EXPECT_EQ(Run("grep -E 'SigBlk|SigIgn' /proc/self/status | grep -vc 0000000000000000 >" + folder_ + "/out; true"),
            "exit 0");
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  EXPECT_EQ(Written(), "0\n");
}

TEST_F(WorkerTest, WhatCannotRunIsRefusedBeforeAndAtTheStart) {
  settings_.command = {"no-such-program-here"};
  EXPECT_TRUE(absl::IsNotFound(Launcher::Create(settings_).status()));
  settings_.command = {folder_};
  EXPECT_TRUE(absl::IsNotFound(Launcher::Create(settings_).status()));
  const std::string script = folder_ + "/script";
  std::ofstream(script) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  settings_.command = {script};
  const auto failed = Launcher::Create(settings_)->Start(0, {});
  EXPECT_TRUE(absl::IsFailedPrecondition(failed.status()));
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("No such file"));
}

TEST_F(WorkerTest, IsStartedBesideThreadsThatAllocate) {
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) std::make_unique<std::string>(1000, 'x');
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Run("exit 0"), "exit 0");
  stop = true;
  busy.join();
}

TEST(RestartDelay, GrowsAndIsBounded) {
  EXPECT_LE(RestartDelay(1), absl::Milliseconds(50));
  for (int failures = 1; failures < 40; ++failures) {
    EXPECT_LE(RestartDelay(failures), RestartDelay(failures + 1));
    EXPECT_LE(RestartDelay(failures), absl::Seconds(5));
  }
  EXPECT_EQ(RestartDelay(1000), absl::Seconds(5));
}

TEST(Process, APidThatCameAgainIsAnotherOne) {
  Process self = Identify(getpid());
  EXPECT_EQ(self.pid, getpid());
  EXPECT_TRUE(OpenProcess(self).ok());
  EXPECT_EQ(ReadProcess(getpid())->parent, getppid());
  ++self.start_ticks;
  EXPECT_TRUE(absl::IsNotFound(OpenProcess(self).status()));
  EXPECT_TRUE(absl::IsNotFound(OpenProcess(Process()).status()));
}

}  // namespace
}  // namespace hedgerow::steer
