// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace hedgerow {
namespace {

TEST(Check, ABrokenInvariantEndsTheProcessWhereNoProcessReadsItsReason) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  while (write(ends[1], "x", 1) == 1) {
  }
  fcntl(ends[1], F_SETFL, 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    CheckFailed("file", 1, "condition");
  }
  int state = 0;
  pid_t ended = 0;
  for (int i = 0; i < 200 && ended == 0; ++i, usleep(50'000)) ended = waitpid(pid, &state, WNOHANG);
  if (ended == 0) kill(pid, SIGKILL);
  EXPECT_EQ(ended, pid) << "it hangs in the write";
  EXPECT_TRUE(WIFSIGNALED(state));
  for (const int end : ends) close(end);
}

}  // namespace
}  // namespace hedgerow
