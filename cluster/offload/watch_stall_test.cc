// SPDX-License-Identifier: Apache-2.0
//
// A stalled leader, live: a process that leads gets no processor, or is killed or caught in a loop meanwhile, and its
// kernel hints at the stall or resigns. Part of watch_live_test.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/offload/testing/watch_live_fixture.h"

namespace hedgerow::offload {
namespace {

bool HintsStall(const Heard& heard) {
  const wire::Opened opened = OpenAsPeer(heard);
  const auto* resign = std::get_if<wire::Resign>(&opened.body);
  return opened.ok() && resign != nullptr && resign->stalled;
}

// What a stalled leader of term 7 says: to two peers, and to no proxy.
void ExpectStallHints(const std::vector<Heard>& heard) {
  EXPECT_FALSE(heard.empty());
  for (const Heard& one : heard) {
    EXPECT_EQ(packets::ChecksumFault(one.frame), "");
    EXPECT_NE(one.port, kProxyPort);
    ASSERT_TRUE(HintsStall(one));
    EXPECT_EQ(OpenAsPeer(one).header.term, raft::Term(7));
    EXPECT_EQ(std::get<wire::Resign>(OpenAsPeer(one).body).leader, raft::NodeId(1));
  }
  EXPECT_NEAR(static_cast<double>(To(kPeerPorts[0], heard).size()),
              static_cast<double>(To(kPeerPorts[1], heard).size()), 1);
}

bool HaveTwoProcessors() {
  const cpu_set_t first = Processor(/*last=*/false), last = Processor(/*last=*/true);
  return !CPU_EQUAL(&first, &last);
}

// For 900 ms, and while it lives, it keeps a process's first thread from the one processor that this may
// use, or shares it fairly. Whoever made it is on another meanwhile.
class Hog {
 public:
  explicit Hog(pid_t pid, bool goes_first = true) {
    const cpu_set_t one = Processor(/*last=*/true);
    EXPECT_EQ(sched_getaffinity(0, sizeof(before_), &before_), 0);
    PinTo(0, Processor(/*last=*/false));
    PinTo(pid, one);
    thread_ = std::thread([this, one, goes_first] {
      const sched_param first{.sched_priority = 1};
      PinTo(0, one);
      if (goes_first) {
        EXPECT_EQ(sched_setscheduler(0, SCHED_FIFO, &first), 0);
      }
      while (!over_ && Lasts()) {
      }
    });
  }
  ~Hog() {
    over_ = true;
    thread_.join();
    PinTo(0, before_);
  }
  bool Lasts() const { return MonotonicNs() < until_ns_; }
  uint64_t until_ns() const { return until_ns_; }

 private:
  // After 950 ms the kernel gives the others their turn (sched_rt_runtime_us).
  const uint64_t until_ns_ = MonotonicNs() + 900'000'000;
  cpu_set_t before_{};
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// Within ten seconds. proc_pid_stat(5): the state follows the name in parentheses.
bool HasStopped(pid_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  for (const uint64_t until_ns = MonotonicNs() + 10'000'000'000; MonotonicNs() < until_ns; usleep(100)) {
    std::string line;
    std::getline(std::ifstream(path), line);
    if (line.find(") T ") != std::string::npos) return true;
  }
  return false;
}

// It has one processor with somebody else, who goes first as long as it lasts.
TEST_F(WatchLiveTest, ALeaderThatWaitsForAProcessorIsStalledAndDoesNotResign) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 2, .lease_ms = 100, .stall_from_ms = 20, .stall_until_ms = 10'000});
    ExpectLeads(victim);
    EXPECT_THAT(Listen(50, 50), ::testing::IsEmpty());
    const Hog hog(victim.pid());
    std::vector<Heard> heard;
    while (victim.clock().stall_hints < 40 && hog.Lasts())
      for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));
    for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));  // what was said since
    ExpectStallHints(heard);
    EXPECT_GE(heard.size(), 40u);
    EXPECT_GE(victim.clock().stalls, 1u);
    EXPECT_EQ(victim.clock().resignations, 0u);
    EXPECT_EQ(victim.clock().running, 1u);
  });
}

// The loop misses its lease while its clock stands as well, as on a machine whose processors are elsewhere.
TEST_F(WatchLiveTest, WhatAStandstillOfTheMachineTakesFromTheLeaseIsForgiven) {
  OnStage([&] {
    Victim victim({.threads = 2, .lease_ms = 60});
    ExpectLeads(victim);
    std::string outer;
    const auto links = net::ListLinks();
    for (const net::LinkInfo& link : *links)
      if (link.name.ends_with("c0")) outer = link.name;
    // A lap of 80 ms, for which each packet is charged 1,600 bytes. After 100 ms the process would begin another.
    ASSERT_EQ(Shell("tc class change dev " + outer +
                    " parent 1: classid 1:a htb rate 160kbit ceil 160kbit burst 16 cburst 16"
                    " mpu 1600 quantum 1600"),
              0);
    const auto await_lap = [&] {
      const uint64_t laps = victim.clock().laps;
      for (int i = 0; i < 1'000 && victim.clock().laps == laps; ++i) usleep(1'000);
    };
    for (int turn = 0; turn < 5; ++turn) {
      await_lap();
      victim.Kill(SIGSTOP);
      await_lap();
      victim.Kill(SIGCONT);
      usleep(30'000);
    }
    EXPECT_EQ(victim.clock().resignations, 0u);
    victim.Kill(SIGSTOP);
    EXPECT_FALSE(Listen(1'500, 1'500).empty())
        << "a loop that hangs for longer than a second is not forgiven for late laps";
    EXPECT_EQ(victim.clock().resignations, 1u);
  });
}

TEST_F(WatchLiveTest, ALeaderThatIsStalledForTooLongResigns) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 1, .lease_ms = 50, .stall_from_ms = 25, .stall_until_ms = 400});
    ExpectLeads(victim);
    const Hog hog(victim.pid());
    std::vector<Heard> heard;
    while (victim.clock().running != 0 && hog.Lasts())
      for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));
    for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));  // what was said since
    const auto first = std::find_if(heard.begin(), heard.end(), [](const Heard& one) { return !HintsStall(one); });
    ExpectStallHints({heard.begin(), first});
    EXPECT_GE(first - heard.begin(), 8);
    ExpectResignation({first, heard.end()});
    EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_LEASE_OVER});
  });
}

TEST_F(WatchLiveTest, ALeaderThatResignedIsNotStalledAfterwards) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 1, .lease_ms = 100, .stall_from_ms = 50, .stall_until_ms = 10'000});
    ExpectLeads(victim);
    // A thread needs a processor to stop: with the hog before it, it would be one that waits for it, and stalled.
    victim.Kill(SIGSTOP);
    ASSERT_TRUE(HasStopped(victim.pid()));
    const Hog hog(victim.pid());
    while (victim.clock().resigned == 0 && hog.Lasts()) usleep(100);
    victim.Kill(SIGCONT);
    ExpectResignation(Listen(100));
    EXPECT_EQ(victim.clock().resignations, 1u);
    EXPECT_EQ(victim.clock().stall_hints, 0u);
  });
}

// Followers wait by when they last heard it, however long its lease is.
TEST_F(WatchLiveTest, ALongLeaseMakesAStallNoLaterAndNoLonger) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 1, .lease_ms = 400, .stall_from_ms = 20, .stall_until_ms = 120});
    ExpectLeads(victim);
    const Hog hog(victim.pid());
    std::vector<Heard> heard;
    while (victim.clock().running != 0 && hog.Lasts())
      for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));
    const hr_watch_clock clock = victim.clock();
    for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));  // what was said since
    const auto first = std::find_if(heard.begin(), heard.end(), [](const Heard& one) { return !HintsStall(one); });
    ASSERT_NE(first, heard.begin());
    ASSERT_NE(first, heard.end());
    ExpectStallHints({heard.begin(), first});
    ExpectResignation({first, heard.end()});
    // By the clock's own laps: a lap may come late, and still knows since when the loop has not turned.
    const auto after_ms = [&](uint64_t at_ns) { return static_cast<double>(at_ns - clock.turned_ns) / 1e6; };
    printf("stalled until %.1f ms, RESIGN after %.1f ms\n", after_ms(clock.stall_hint_ns), after_ms(clock.resigned_ns));
    EXPECT_LT(after_ms(clock.stall_hint_ns), 120);
    EXPECT_GT(after_ms(clock.resigned_ns), 350);
  });
}

TEST_F(WatchLiveTest, ALeaderThatIsKilledWhileItIsStalledResignsAtOnce) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 2, .lease_ms = 50, .stall_from_ms = 25, .stall_until_ms = 10'000});
    ExpectLeads(victim);
    const Hog hog(victim.pid());
    while (victim.clock().stall_hints == 0 && hog.Lasts()) usleep(100);
    const uint64_t killed_ns = MonotonicNs();
    victim.Kill(SIGKILL);
    std::vector<Heard> heard = Listen(50);
    std::erase_if(heard, HintsStall);
    ExpectResignation(heard);
    EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_SIGNAL});
    EXPECT_GE(victim.clock().resigned_ns, killed_ns);
    EXPECT_LT(victim.clock().resigned_ns, hog.until_ns()) << "it should have died without a processor";
  });
}

// Alone on a processor, and on one that others take in turns.
TEST_F(WatchLiveTest, ALeaderInABusyLoopIsNotStalled) {
  for (const bool shares : {false, true}) {
    OnStage([&] {
      constexpr uint64_t kLease_ms = 200, kStallUntil_ms = 20'000;
      Victim victim(
          {.threads = 1, .lease_ms = kLease_ms, .stall_from_ms = kLease_ms / 5, .stall_until_ms = kStallUntil_ms});
      ExpectLeads(victim);
      std::optional<Hog> hog;
      if (shares) hog.emplace(victim.pid(), /*goes_first=*/false);
      ASSERT_NE(victim.Command("spin"), 0u);
      std::vector<Heard> heard;
      while (victim.clock().resigned == 0 && MonotonicNs() - victim.clock().turned_ns < kStallUntil_ms / 2 * 1'000'000)
        for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));
      for (Heard& one : ListenUntilRest(victim)) heard.push_back(std::move(one));
      const auto first = std::find_if(heard.begin(), heard.end(), [](const Heard& one) { return !HintsStall(one); });
      ASSERT_NE(first, heard.end());
      EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_LEASE_OVER});
      EXPECT_EQ(victim.watched().dead_ns, 0u);
      victim.Kill(SIGKILL);
    });
  }
}

}  // namespace
}  // namespace hedgerow::offload
