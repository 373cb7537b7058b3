// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/host/scheduling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "cluster/node/host/sched_attributes.h"

namespace hedgerow::node {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;

// "/autogroup-12 nice -5"; empty where the kernel does not group sessions.
std::string Autogroup() {
  std::ifstream file("/proc/self/autogroup");
  std::string line;
  std::getline(file, line);
  return line;
}

// Of the calling thread.
SchedAttributes Attributes() {
  SchedAttributes attributes;
  EXPECT_TRUE(GetSched(attributes));
  return attributes;
}

// What a process of this nice value then finds, in a session of its own or in ours.
std::string AfterwardsIn(bool own_session, int nice) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (own_session) setsid();
    const bool set = setpriority(PRIO_PROCESS, 0, nice) == 0;
    const absl::Status status = GiveSessionOwnNice();
    const std::string found = set && status.ok() ? Autogroup() : status.ToString();
    _exit(write(ends[1], found.data(), found.size()) == static_cast<ssize_t>(found.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string found(200, '\0');
  found.resize(static_cast<size_t>(std::max<ssize_t>(0, read(ends[0], found.data(), found.size()))));
  close(ends[0]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  return found;
}

TEST(Scheduling, ASessionOfItsOwnGetsTheProcesssNiceValue) {
  ASSERT_EQ(geteuid(), 0u) << "needs root: sudo ./dev test";
  EXPECT_THAT(AfterwardsIn(/*own_session=*/true, -5), AnyOf("", EndsWith(" nice -5")));
  EXPECT_THAT(AfterwardsIn(/*own_session=*/true, 7), AnyOf("", EndsWith(" nice 7")));
}

TEST(Scheduling, AnotherProcesssSessionIsNotChanged) {
  const std::string before = Autogroup();
  EXPECT_EQ(AfterwardsIn(/*own_session=*/false, 3), before);
  EXPECT_EQ(Autogroup(), before);
}

TEST(Scheduling, TheSliceIsShorterAndNothingElseChanges) {
  std::thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 3), 0);
    const SchedAttributes before = Attributes();
    const absl::Status status = ShortenSlices();
    ASSERT_TRUE(status.ok()) << status;
    const SchedAttributes after = Attributes();
    EXPECT_EQ(after.policy, before.policy);
    EXPECT_EQ(after.nice, 3);
    // 0 before and after: a kernel without slices of one's own.
    EXPECT_EQ(after.runtime_ns, before.runtime_ns == 0 ? 0 : kSlice_ns);
  }).join();
}

TEST(Scheduling, AnUnusualPolicyIsLeftAlone) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    const SchedAttributes before = Attributes();
    EXPECT_TRUE(ShortenSlices().ok());
    EXPECT_EQ(Attributes().policy, static_cast<uint32_t>(SCHED_IDLE));
    EXPECT_EQ(Attributes().runtime_ns, before.runtime_ns);
  }).join();
}

}  // namespace
}  // namespace hedgerow::node
