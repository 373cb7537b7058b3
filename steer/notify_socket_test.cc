// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "operate/service_manager.h"
#include "steer/worker.h"

namespace hedgerow::steer {
namespace {

TEST(NotifySocket, TellsWhoSaidWhat) {
  char pattern[] = "/tmp/hedgerow-notify-test.XXXXXX";
  const std::string folder = mkdtemp(pattern);
  const std::string path = folder + "/notify.sock";
  { ASSERT_TRUE(NotifySocket::Open(path).ok()); }
  const auto socket = NotifySocket::Open(path);  // in place of a dead one's
  ASSERT_TRUE(socket.ok()) << socket.status();
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u) << "workers of any user write there";
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  operate::NotifyServiceManager("READY=1\nSTATUS=WATCHDOG=1");
  operate::NotifyServiceManager("WATCHDOG=1\n");
  operate::NotifyServiceManager("STOPPING=1");
  operate::NotifyServiceManager("READY=10");
  std::vector<Notice> notices;
  socket->Read([&](const Notice& notice) { notices.push_back(notice); });
  ASSERT_EQ(notices.size(), 4u);
  for (const Notice& notice : notices) EXPECT_EQ(notice.pid, getpid());
  EXPECT_TRUE(notices[0].ready && !notices[0].watchdog && !notices[0].stopping);
  EXPECT_TRUE(!notices[1].ready && notices[1].watchdog && !notices[1].stopping);
  EXPECT_TRUE(!notices[2].ready && !notices[2].watchdog && notices[2].stopping);
  EXPECT_TRUE(!notices[3].ready && !notices[3].watchdog && !notices[3].stopping);
  // A descriptor that comes along is closed.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  operate::NotifyServiceManager("READY=1", ends[1]);
  close(ends[1]);
  notices.clear();
  socket->Read([&](const Notice& notice) { notices.push_back(notice); });
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].pid, getpid());
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "no process has the other end";
  close(ends[0]);
  unsetenv("NOTIFY_SOCKET");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hedgerow::steer
