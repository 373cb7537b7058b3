// SPDX-License-Identifier: Apache-2.0
//
// A dying leader, live: a process that leads is killed, crashes, ends or is stopped, and what its peers and
// proxies then hear from its kernel is caught at the far end of a wire. Times go to standard output and into
// the test's record. A stalled one is in watch_stall_test.cc.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/offload/testing/watch_live_fixture.h"

namespace hedgerow::offload {
namespace {

struct Distribution {
  std::vector<double> ms;
  void Add(uint64_t from_ns, uint64_t to_ns) {
    ms.push_back((static_cast<double>(to_ns) - static_cast<double>(from_ns)) / 1e6);
  }
  double At(double quantile) {
    std::sort(ms.begin(), ms.end());
    return ms.at(std::min(ms.size() - 1, static_cast<size_t>(quantile * static_cast<double>(ms.size()))));
  }
  void Print(const char* what) {
    printf("%s: p50 %.3f ms, p90 %.3f, max %.3f (%zu)\n", what, At(0.5), At(0.9), At(1), ms.size());
    ::testing::Test::RecordProperty(what, absl::StrCat("p50 ", At(0.5), " ms, max ", At(1), " ms"));
  }
};

TEST_F(WatchLiveTest, PeersHearOfAKillWithinTwoLaps) {
  OnStage([&] {
    Distribution marked, resigned;
    for (int i = 0; i < 30; ++i) {
      Victim victim({.threads = 4});
      ExpectLeads(victim);
      EXPECT_THAT(Listen(20, 20), ::testing::IsEmpty()) << "before anything has happened";
      const uint64_t monotonic_ns = MonotonicNs();
      const uint64_t realtime_ns = RealtimeNs();
      victim.Kill(SIGKILL);
      const std::vector<Heard> heard = ListenUntilRest(victim);
      ASSERT_FALSE(heard.empty());
      ExpectResignation(heard);
      marked.Add(monotonic_ns, victim.watched().dead_ns);
      resigned.Add(realtime_ns, heard.front().at_ns);
      EXPECT_EQ(victim.watched().cause, uint32_t{HR_WATCH_SIGNAL});
      EXPECT_EQ(victim.watched().signal, uint32_t{SIGKILL});
      EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_SIGNAL});
    }
    marked.Print("SIGKILL to the mark");
    resigned.Print("SIGKILL to RESIGN at a peer");
    EXPECT_LT(resigned.At(0.5), 5.0);
  });
}

// What must outlive the process, and what need not (ADR 0005): a link goes with its last descriptor, when
// exit_files comes to it after exit_mm; the tracepoints have fired by then, and the clock must not be such a
// link.
TEST_F(WatchLiveTest, ItsTracepointsEndWithAProcessAndItsClockDoesNot) {
  OnStage([&] {
    // Half of what is free at most: small machines run this too.
    const int large = static_cast<int>(std::min<uint64_t>(3072, AvailableMegabytes() / 2));
    for (const int megabytes : {0, 0, 0, large}) {
      Victim victim({.threads = 4, .resident_megabytes = megabytes});
      ExpectLeads(victim);
      const std::vector<uint32_t> links = TracepointLinksOf(victim.pid());
      ASSERT_EQ(links.size(), 2u);
      const uint64_t killed_ns = RealtimeNs();
      victim.Kill(SIGKILL);
      while (LinkExists(links[0]) && RealtimeNs() - killed_ns < 30'000'000'000) usleep(50);
      const uint64_t gone_ns = RealtimeNs();
      EXPECT_FALSE(LinkExists(links[0]));
      const std::vector<Heard> heard = ListenUntilRest(victim);
      ExpectResignation(heard);
      ASSERT_FALSE(heard.empty());
      printf(
          "%d MB: the links are gone %.3f ms after SIGKILL, the first RESIGN came after %.3f ms, the last "
          "after %.3f\n",
          megabytes, static_cast<double>(gone_ns - killed_ns) / 1e6,
          static_cast<double>(heard.front().at_ns - killed_ns) / 1e6,
          static_cast<double>(heard.back().at_ns - killed_ns) / 1e6);
    }
  });
}

TEST_F(WatchLiveTest, PeersAndProxiesAreToldOverIpv6) {
  OnStage([&] {
    Victim victim({.ipv6 = true});
    ExpectLeads(victim);
    victim.Kill(SIGKILL);
    ExpectResignation(ListenUntilRest(victim));
  });
}

TEST_F(WatchLiveTest, ASegmentationFaultIsADeath) { ExpectDeathByCommand("segv", 4, HR_WATCH_SIGNAL, SIGSEGV); }
TEST_F(WatchLiveTest, AnAbortIsADeath) { ExpectDeathByCommand("abort", 1, HR_WATCH_SIGNAL, SIGABRT); }
TEST_F(WatchLiveTest, AnExitOfOneThreadIsADeath) { ExpectDeathByCommand("exit", 1, HR_WATCH_EXIT, 0); }
// The other threads hear of exit_group(2) as SIGKILL, before the memory is torn down.
TEST_F(WatchLiveTest, AnExitOfSeveralThreadsIsADeath) { ExpectDeathByCommand("exit", 4, HR_WATCH_SIGNAL, SIGKILL); }

TEST_F(WatchLiveTest, OnlyTheLastThreadsEndIsADeath) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer has a thread of its own in each process, which never ends";
#endif
#endif
  OnStage([&] {
    Victim victim({.threads = 1});
    ExpectLeads(victim);
    const uint64_t begun_ns = victim.Command("last-thread");
    ExpectResignation(ListenUntilRest(victim));
    EXPECT_EQ(victim.watched().cause, uint32_t{HR_WATCH_EXIT});
    EXPECT_GE(victim.watched().dead_ns - begun_ns, 200'000'000u) << "the first thread's end was taken for a death";
  });
}

TEST_F(WatchLiveTest, WhatIsHandledOrEndsAThreadIsNoDeath) {
  OnStage([&] {
    Victim victim({.threads = 4});
    ExpectLeads(victim);
    victim.Kill(SIGTERM);
    victim.Kill(SIGCHLD);
    victim.Kill(SIGWINCH);
    ASSERT_NE(victim.Command("thread"), 0u);
    EXPECT_THAT(Listen(), ::testing::IsEmpty());
    EXPECT_EQ(victim.watched().dead_ns, 0u);
    EXPECT_EQ(victim.clock().running, 1u) << "it goes on leading";
    victim.Kill(SIGTERM);
    victim.Kill(SIGKILL);
    ExpectResignation(ListenUntilRest(victim));
  });
}

TEST_F(WatchLiveTest, AStopIsNoDeathButTheEndOfTheLease) {
  OnStage([&] {
    constexpr uint64_t kLease_ms = 800;
    Victim victim({.threads = 2, .lease_ms = kLease_ms, .stall_from_ms = kLease_ms / 2, .stall_until_ms = 10'000});
    ExpectLeads(victim);
    for (int turn = 1; turn <= 2; ++turn) {
      const uint64_t stopped_ns = RealtimeNs();
      victim.Kill(SIGSTOP);
      const std::vector<Heard> heard = ListenUntilRest(victim);
      ASSERT_FALSE(heard.empty());
      ExpectResignation(heard);
      const double after_ms = static_cast<double>(heard.front().at_ns - stopped_ns) / 1e6;
      printf("SIGSTOP with a lease of %d ms: RESIGN at a peer after %.1f ms\n", static_cast<int>(kLease_ms), after_ms);
      EXPECT_GT(after_ms, static_cast<double>(kLease_ms) / 2) << "its loop last turned a little before";
      EXPECT_EQ(victim.watched().dead_ns, 0u);
      EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_LEASE_OVER});
      EXPECT_EQ(victim.clock().running, 0u) << "said often enough";
      EXPECT_EQ(victim.clock().resignations, static_cast<uint64_t>(turn));
      victim.Kill(SIGCONT);
      for (int i = 0; i < 1'000 && victim.clock().running == 0; ++i) usleep(10'000);
      EXPECT_EQ(victim.clock().running, 1u) << "its loop sets the clock going again";
      EXPECT_THAT(Listen(100, 100), ::testing::IsEmpty());
    }
  });
}

TEST_F(WatchLiveTest, AnExecIsLeftToTheLease) {
  OnStage([&] {
    Victim victim({.threads = 4, .lease_ms = 300, .stall_from_ms = 150, .stall_until_ms = 10'000});
    ExpectLeads(victim);
    const uint64_t begun_ns = RealtimeNs();
    ASSERT_NE(victim.Command("exec"), 0u);
    const std::vector<Heard> heard = ListenUntilRest(victim);
    ExpectResignation(heard);
    ASSERT_FALSE(heard.empty());
    EXPECT_GT(heard.front().at_ns - begun_ns, 150'000'000u);
    EXPECT_EQ(victim.watched().dead_ns, 0u);
    EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_LEASE_OVER});
  });
}

TEST_F(WatchLiveTest, AFollowersDeathIsNotReported) {
  OnStage([&] {
    Victim victim({});
    ExpectLeads(victim);
    ASSERT_NE(victim.Command("follow"), 0u);
    EXPECT_THAT(Listen(50, 50), ::testing::IsEmpty());
    victim.Kill(SIGKILL);
    EXPECT_THAT(Listen(), ::testing::IsEmpty());
    EXPECT_NE(victim.watched().dead_ns, 0u) << "it was noted all the same";
  });
}

TEST_F(WatchLiveTest, AnotherProcessOfTheSameNumberIsNotTheWatchedOne) {
  OnStage([&] {
    Victim victim({});
    ExpectLeads(victim);
    hr_watch forged = victim.watched();
    ++forged.started_ns;
    victim.Forge(forged);
    victim.Kill(SIGKILL);
    EXPECT_THAT(Listen(), ::testing::IsEmpty());
    EXPECT_EQ(victim.watched().dead_ns, 0u);
  });
}

TEST_F(WatchLiveTest, AStateThatAnotherLifeHasTakenOverIsNotSpokenFor) {
  OnStage([&] {
    Victim victim({});
    ExpectLeads(victim);
    ASSERT_NE(victim.Command("adopted"), 0u);
    EXPECT_THAT(Listen(50, 50), ::testing::IsEmpty());
    victim.Kill(SIGKILL);
    EXPECT_THAT(Listen(), ::testing::IsEmpty());
    EXPECT_NE(victim.watched().dead_ns, 0u);
  });
}

TEST_F(WatchLiveTest, ThePlanOfAnotherTermNamesNoSuccessor) {
  OnStage([&] {
    Victim victim({});
    ExpectLeads(victim);
    ASSERT_NE(victim.Command("new-term"), 0u);
    EXPECT_THAT(Listen(20, 20), ::testing::IsEmpty());
    victim.Kill(SIGKILL);
    const std::vector<Heard> resigns = To(kPeerPorts[0], ListenUntilRest(victim));
    EXPECT_EQ(resigns.size(), size_t{kLaps});
    for (const Heard& one : resigns) {
      const wire::Opened opened = OpenAsPeer(one);
      ASSERT_TRUE(opened.ok());
      EXPECT_EQ(opened.header.term, raft::Term(8));
      EXPECT_THAT(std::get<wire::Resign>(opened.body).successors, ::testing::IsEmpty());
    }
  });
}

TEST_F(WatchLiveTest, TheClockGoesOnlyWhileTheNodeLeads) {
  OnStage([&] {
    Victim victim({});
    ASSERT_TRUE(victim.ready()) << victim.first_line();
    const uint64_t at_rest = victim.clock().laps;
    usleep(100'000);
    EXPECT_EQ(victim.clock().laps, at_rest);
    EXPECT_EQ(victim.clock().running, 0u);
    ASSERT_NE(victim.Command("lead"), 0u);
    // In the calmest of 20 stretches: a machine may stand still in the others.
    double lap_ms = 1e9;
    for (int i = 0; i < 20; ++i) {
      const uint64_t from_ns = MonotonicNs();
      const uint64_t from = victim.clock().laps;
      usleep(25'000);
      const auto laps = static_cast<double>(victim.clock().laps - from);
      if (laps > 0) lap_ms = std::min(lap_ms, static_cast<double>(MonotonicNs() - from_ns) / 1e6 / laps);
    }
    printf("a lap: %.3f ms\n", lap_ms);
    EXPECT_LT(lap_ms, 2.0);
    ASSERT_NE(victim.Command("follow"), 0u);
    for (int i = 0; i < 1'000 && victim.clock().running != 0; ++i) usleep(10'000);
    const uint64_t after = victim.clock().laps;
    usleep(100'000);
    EXPECT_EQ(victim.clock().laps, after);
    EXPECT_EQ(victim.clock().running, 0u);
    EXPECT_EQ(victim.clock().stale, 0u);
  });
}

TEST_F(WatchLiveTest, TheNextIncarnationRemovesWhatAKilledOneLeft) {
  OnStage([&] {
    const auto links = [] { return net::ListLinks()->size(); };
    const size_t before = links();
    {
      Victim killed({});
      ExpectLeads(killed);
      killed.Kill(SIGKILL);
      killed.Wait();
      ExpectResignation(ListenUntilRest(killed));
      EXPECT_EQ(links(), before + 2) << "the clock outlives its process";
    }
    {
      Victim next({.term = 8});
      ExpectLeads(next);
      EXPECT_EQ(links(), before + 2);
      next.Kill(SIGKILL);
      next.Wait();
    }
    EXPECT_THAT(Watch::RemoveLeftovers("watched"), net::IsOk());
    EXPECT_EQ(links(), before);
    EXPECT_THAT(Watch::RemoveLeftovers("watched"), net::IsOk()) << "nothing left is fine";
  });
}

TEST_F(WatchLiveTest, SixteenProxiesAreToldEachWithItsKey) {
  OnStage([&] {
    Victim victim({.proxies = HR_WATCH_PROXIES + 1});
    ExpectLeads(victim);
    victim.Kill(SIGKILL);
    const std::vector<Heard> heard = ListenUntilRest(victim);
    for (uint16_t i = 0; i < HR_WATCH_PROXIES; ++i) {
      const std::vector<Heard> news = To(static_cast<uint16_t>(kProxyPort + i), heard);
      EXPECT_EQ(news.size(), size_t{kLaps});
      for (const Heard& one : news) EXPECT_TRUE(OpenNews(one).has_value());
    }
    EXPECT_THAT(To(kProxyPort + HR_WATCH_PROXIES, heard), ::testing::IsEmpty());
    EXPECT_EQ(victim.clock().failures, 0u);
  });
}

}  // namespace
}  // namespace hedgerow::offload
