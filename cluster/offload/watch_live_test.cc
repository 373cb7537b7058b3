// SPDX-License-Identifier: Apache-2.0
//
// A dying leader, live: a process that leads is killed, crashes, ends or is stopped, and what its peers and
// proxies then hear from its kernel is caught at the far end of a wire. Times go to standard output and into
// the test's record.
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <variant>

#include "bpf/tests/checksum.h"
#include "cluster/offload/watch.h"
#include "cluster/offload/watch_live.h"
#include "cluster/wire/announce.h"
#include "cluster/wire/peer.h"
#include "net/link.h"
#include "net/namespace_test.h"

namespace hedgerow::offload {
namespace {

constexpr uint16_t kPeerPorts[] = {5002, 5003};
constexpr uint16_t kProxyPort = 6000;
constexpr int kLaps = Watch::kResigningLaps;
constexpr int kQuiet_ms = 150;
constexpr int kLongest_ms = 5'000;

wire::Key KeyOf(uint64_t k0, uint64_t k1) {
  wire::Key key;
  const uint64_t halves[2] = {k0, k1};
  memcpy(key.bytes.data(), halves, sizeof(halves));
  return key;
}

// As node 2 of the cluster opens it.
wire::Opened OpenAsPeer(const Heard& heard) {
  const wire::PeerCodec codec(
      {.cluster_id = 42, .key = KeyOf(1, 2), .self = raft::NodeId(2), .life = 99, .config_epoch = 5});
  return codec.Open(heard.payload);
}

std::optional<wire::Announcement> OpenNews(const Heard& heard) {
  return wire::OpenAnnouncement(heard.payload, KeyOf(uint64_t{100} + heard.port, 4));
}

std::vector<Heard> To(uint16_t port, const std::vector<Heard>& heard) {
  std::vector<Heard> result;
  std::copy_if(heard.begin(), heard.end(), std::back_inserter(result),
               [=](const Heard& one) { return one.port == port; });
  return result;
}

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

bool SaysLate(const Heard& heard) {
  const wire::Opened opened = OpenAsPeer(heard);
  const auto* resign = std::get_if<wire::Resign>(&opened.body);
  return opened.ok() && resign != nullptr && resign->late;
}

// The first or the last of the processors that the test may use.
cpu_set_t Processor(bool last) {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    const int cpu = last ? CPU_SETSIZE - 1 - i : i;
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  }
  return one;
}

bool HaveTwoProcessors() {
  const cpu_set_t first = Processor(/*last=*/false), last = Processor(/*last=*/true);
  return !CPU_EQUAL(&first, &last);
}

void PinTo(pid_t pid, const cpu_set_t& one) { EXPECT_EQ(sched_setaffinity(pid, sizeof(one), &one), 0); }

// For half a second, and while it lives, it keeps a process's first thread from the one processor that this may
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

 private:
  const uint64_t until_ns_ = MonotonicNs() + 500'000'000;
  cpu_set_t before_{};
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// Within a second. proc_pid_stat(5): the state follows the name in parentheses.
bool HasStopped(pid_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  for (const uint64_t until_ns = MonotonicNs() + 1'000'000'000; MonotonicNs() < until_ns; usleep(100)) {
    std::string line;
    std::getline(std::ifstream(path), line);
    if (line.find(") T ") != std::string::npos) return true;
  }
  return false;
}

class WatchLiveTest : public net::NamespaceTest {
 protected:
  // The thread that runs `body` is in the node's namespace.
  void OnStage(const std::function<void()>& body) {
    InNamespace([&] {
      auto peer = net::NewNetworkNamespace();
      ASSERT_THAT(peer.status(), net::IsOk());
      const int far_end = JoinNamespaces(peer->get());
      ASSERT_NE(far_end, 0) << "no wire between the namespaces";
      ASSERT_THAT(net::RunInNetworkNamespace(peer->get(),
                                             [&] {
                                               ear_ = std::make_unique<Ear>(far_end);
                                               return absl::OkStatus();
                                             }),
                  net::IsOk());
      body();
      ear_.reset();
    });
  }

  std::vector<Heard> Listen(int quiet_ms = kQuiet_ms, int longest_ms = kLongest_ms) {
    return ear_->Listen(quiet_ms, longest_ms);
  }

  // The clock laps on the processor on which it is set going: not on the one that a hog takes, and with it the
  // kernel's threads that work off soft interrupts.
  static void ExpectLeads(Victim& victim) {
    ASSERT_TRUE(victim.ready()) << victim.first_line();
    PinTo(victim.pid(), Processor(/*last=*/false));
    ASSERT_NE(victim.Command("lead"), 0u);
  }

  // All that a resigning leader of term 7 says, to two peers and one proxy.
  static void ExpectResignation(const std::vector<Heard>& heard, uint32_t laps = kLaps) {
    for (const Heard& one : heard) {
      EXPECT_EQ(packets::ChecksumFault(one.frame), "");
      EXPECT_EQ(one.source_port, 5001);
    }
    std::vector<uint64_t> numbers[2];
    for (int i = 0; i < 2; ++i) {
      const std::vector<Heard> resigns = To(kPeerPorts[i], heard);
      EXPECT_EQ(resigns.size(), laps);
      for (const Heard& one : resigns) {
        const wire::Opened opened = OpenAsPeer(one);
        ASSERT_TRUE(opened.ok()) << "a peer does not believe it, for reason "
                                 << static_cast<int>(opened.reason);
        const auto* resign = std::get_if<wire::Resign>(&opened.body);
        ASSERT_NE(resign, nullptr);
        EXPECT_FALSE(resign->late);
        numbers[i].push_back(opened.header.packet_number);
        EXPECT_EQ(opened.header.from_life, 0x1234567890abcdefull);
        EXPECT_EQ(opened.header.from, raft::NodeId(1));
        EXPECT_FALSE(opened.header.to.IsSet()) << "it is for every peer";
        EXPECT_EQ(opened.header.term, raft::Term(7));
        EXPECT_EQ(resign->incarnation, 0x1234567890abcdefull);
        EXPECT_EQ(resign->leader, raft::NodeId(1));
        EXPECT_THAT(resign->successors, ::testing::ElementsAre(raft::NodeId(3), raft::NodeId(2)));
      }
      EXPECT_EQ(std::set<uint64_t>(numbers[i].begin(), numbers[i].end()).size(), numbers[i].size());
    }
    EXPECT_EQ(numbers[0], numbers[1]) << "one number for all peers";
    const std::vector<Heard> news = To(kProxyPort, heard);
    EXPECT_EQ(news.size(), laps);
    uint64_t sequence = 0;
    for (const Heard& one : news) {
      const auto announcement = OpenNews(one);
      ASSERT_TRUE(announcement.has_value()) << "an announcement that the proxy's key does not open";
      EXPECT_EQ(announcement->state, wire::AnnouncementState::kResigning);
      EXPECT_EQ(announcement->cluster_id, 42u);
      EXPECT_EQ(announcement->term, raft::Term(7));
      EXPECT_EQ(announcement->leader_port, 7000);
      EXPECT_GT(announcement->sequence, sequence);
      sequence = announcement->sequence;
    }
  }

  // What a leader of term 7 says that is late: to two peers, and to no proxy.
  static void ExpectLateness(const std::vector<Heard>& heard) {
    EXPECT_FALSE(heard.empty());
    for (const Heard& one : heard) {
      EXPECT_EQ(packets::ChecksumFault(one.frame), "");
      EXPECT_NE(one.port, kProxyPort);
      ASSERT_TRUE(SaysLate(one));
      EXPECT_EQ(OpenAsPeer(one).header.term, raft::Term(7));
      EXPECT_EQ(std::get<wire::Resign>(OpenAsPeer(one).body).leader, raft::NodeId(1));
    }
    EXPECT_NEAR(static_cast<double>(To(kPeerPorts[0], heard).size()),
                static_cast<double>(To(kPeerPorts[1], heard).size()), 1);
  }

  // `command` kills the process; it says when it begins.
  void ExpectDeathByCommand(const std::string& command, int threads, uint32_t cause, uint32_t signal) {
    OnStage([&] {
      Victim victim({.threads = threads});
      ExpectLeads(victim);
      const uint64_t begun_ns = victim.Command(command);
      ASSERT_NE(begun_ns, 0u);
      ExpectResignation(Listen());
      victim.Wait();
      EXPECT_EQ(victim.watched().cause, cause);
      EXPECT_EQ(victim.watched().signal, signal);
      EXPECT_EQ(victim.clock().running, 0u);
      printf("%s, %d threads: dead in the kernel's eyes after %.3f ms, resigned after %.3f ms\n",
             command.c_str(), threads, static_cast<double>(victim.watched().dead_ns - begun_ns) / 1e6,
             static_cast<double>(victim.clock().resigned_ns - begun_ns) / 1e6);
    });
  }

  std::unique_ptr<Ear> ear_;
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
      const std::vector<Heard> heard = Listen(60);
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
      const std::vector<uint32_t> before = TracepointLinks();
      Victim victim({.threads = 4, .resident_megabytes = megabytes});
      ExpectLeads(victim);
      std::vector<uint32_t> links;
      for (const uint32_t id : TracepointLinks())
        if (std::find(before.begin(), before.end(), id) == before.end()) links.push_back(id);
      ASSERT_EQ(links.size(), 2u);
      const uint64_t killed_ns = RealtimeNs();
      victim.Kill(SIGKILL);
      while (LinkExists(links[0]) && RealtimeNs() - killed_ns < 30'000'000'000) usleep(50);
      const uint64_t gone_ns = RealtimeNs();
      EXPECT_FALSE(LinkExists(links[0]));
      const std::vector<Heard> heard = Listen();
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
    ExpectResignation(Listen());
  });
}

TEST_F(WatchLiveTest, ASegmentationFaultIsADeath) { ExpectDeathByCommand("segv", 4, HR_WATCH_SIGNAL, SIGSEGV); }
TEST_F(WatchLiveTest, AnAbortIsADeath) { ExpectDeathByCommand("abort", 1, HR_WATCH_SIGNAL, SIGABRT); }
TEST_F(WatchLiveTest, AnExitOfOneThreadIsADeath) { ExpectDeathByCommand("exit", 1, HR_WATCH_EXIT, 0); }
// The other threads hear of exit_group(2) as SIGKILL, before the memory is torn down.
TEST_F(WatchLiveTest, AnExitOfSeveralThreadsIsADeath) {
  ExpectDeathByCommand("exit", 4, HR_WATCH_SIGNAL, SIGKILL);
}

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
    ExpectResignation(Listen(400));
    EXPECT_EQ(victim.watched().cause, uint32_t{HR_WATCH_EXIT});
    EXPECT_GE(victim.watched().dead_ns - begun_ns, 200'000'000u)
        << "the first thread's end was taken for a death";
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
    ExpectResignation(Listen());
  });
}

TEST_F(WatchLiveTest, AStopIsNoDeathButTheEndOfTheLease) {
  OnStage([&] {
    constexpr uint64_t kLease_ms = 300;
    Victim victim({.threads = 2, .lease_ms = kLease_ms, .late_from_ms = 150, .late_until_ms = 10'000});
    ExpectLeads(victim);
    for (int turn = 1; turn <= 2; ++turn) {
      const uint64_t stopped_ns = RealtimeNs();
      victim.Kill(SIGSTOP);
      const std::vector<Heard> heard = Listen(600);
      ASSERT_FALSE(heard.empty());
      ExpectResignation(heard);
      const double after_ms = static_cast<double>(heard.front().at_ns - stopped_ns) / 1e6;
      printf("SIGSTOP with a lease of %d ms: RESIGN at a peer after %.1f ms\n", static_cast<int>(kLease_ms),
             after_ms);
      EXPECT_GT(after_ms, static_cast<double>(kLease_ms) - 50);
      EXPECT_EQ(victim.watched().dead_ns, 0u);
      EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_STALLED});
      EXPECT_EQ(victim.clock().running, 0u) << "said often enough";
      EXPECT_EQ(victim.clock().resignations, static_cast<uint64_t>(turn));
      victim.Kill(SIGCONT);
      EXPECT_THAT(Listen(100, 100), ::testing::IsEmpty());
      EXPECT_EQ(victim.clock().running, 1u) << "its loop sets the clock going again";
    }
  });
}

// It has one processor with somebody else, who goes first as long as it lasts.
TEST_F(WatchLiveTest, WhoWaitsForAProcessorIsLateAndDoesNotResign) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 2, .lease_ms = 100, .late_from_ms = 20, .late_until_ms = 10'000});
    ExpectLeads(victim);
    EXPECT_THAT(Listen(50, 50), ::testing::IsEmpty());
    const Hog hog(victim.pid());
    std::vector<Heard> heard;
    while (victim.clock().lates < 40 && hog.Lasts())
      for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));
    ExpectLateness(heard);
    EXPECT_GE(heard.size(), 40u);
    EXPECT_GE(victim.clock().latenesses, 1u);
    EXPECT_EQ(victim.clock().resignations, 0u);
    EXPECT_EQ(victim.clock().running, 1u);
  });
}

TEST_F(WatchLiveTest, WhoIsLateForTooLongResigns) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 1, .lease_ms = 50, .late_from_ms = 25, .late_until_ms = 100});
    ExpectLeads(victim);
    const Hog hog(victim.pid());
    std::vector<Heard> heard;
    while (victim.clock().running != 0 && hog.Lasts())
      for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));
    const auto first =
        std::find_if(heard.begin(), heard.end(), [](const Heard& one) { return !SaysLate(one); });
    ExpectLateness({heard.begin(), first});
    EXPECT_GE(first - heard.begin(), 8);
    ExpectResignation({first, heard.end()});
    EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_STALLED});
  });
}

TEST_F(WatchLiveTest, WhoHasResignedIsNotLateAfterwards) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 1, .lease_ms = 100, .late_from_ms = 50, .late_until_ms = 10'000});
    ExpectLeads(victim);
    // A thread needs a processor to stop: with the hog before it, it would be one that waits for it, and late.
    victim.Kill(SIGSTOP);
    ASSERT_TRUE(HasStopped(victim.pid()));
    const Hog hog(victim.pid());
    while (victim.clock().resigned == 0 && hog.Lasts()) usleep(100);
    victim.Kill(SIGCONT);
    ExpectResignation(Listen(100));
    EXPECT_EQ(victim.clock().resignations, 1u);
    EXPECT_EQ(victim.clock().lates, 0u);
  });
}

// Followers wait by when they last heard it, however long its lease is.
TEST_F(WatchLiveTest, WhoseLeaseIsLongIsLateNoLaterAndNoLonger) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 1, .lease_ms = 400, .late_from_ms = 20, .late_until_ms = 120});
    ExpectLeads(victim);
    const uint64_t begun_ns = RealtimeNs();
    const Hog hog(victim.pid());
    std::vector<Heard> heard;
    while (victim.clock().running != 0 && hog.Lasts())
      for (Heard& one : Listen(20, 200)) heard.push_back(std::move(one));
    const auto first =
        std::find_if(heard.begin(), heard.end(), [](const Heard& one) { return !SaysLate(one); });
    ASSERT_NE(first, heard.begin());
    ASSERT_NE(first, heard.end());
    ExpectLateness({heard.begin(), first});
    ExpectResignation({first, heard.end()});
    const auto after_ms = [&](const Heard& one) { return static_cast<double>(one.at_ns - begun_ns) / 1e6; };
    printf("late from %.1f to %.1f ms, RESIGN after %.1f ms\n", after_ms(heard.front()),
           after_ms(*std::prev(first)), after_ms(*first));
    EXPECT_LT(after_ms(heard.front()), 80);
    EXPECT_LT(after_ms(*std::prev(first)), 200);
    EXPECT_GT(after_ms(*first), 350);
  });
}

TEST_F(WatchLiveTest, WhoIsKilledWhileItIsLateResignsAtOnce) {
  if (!HaveTwoProcessors()) GTEST_SKIP() << "one processor: the clock would wait with the process";
  OnStage([&] {
    Victim victim({.threads = 2, .lease_ms = 50, .late_from_ms = 25, .late_until_ms = 10'000});
    ExpectLeads(victim);
    const Hog hog(victim.pid());
    while (victim.clock().lates == 0 && hog.Lasts()) usleep(100);
    const uint64_t killed_ns = MonotonicNs();
    victim.Kill(SIGKILL);
    std::vector<Heard> heard = Listen(50);
    EXPECT_TRUE(hog.Lasts()) << "it should have died without a processor";
    std::erase_if(heard, SaysLate);
    ExpectResignation(heard);
    EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_SIGNAL});
    EXPECT_LT(victim.clock().resigned_ns - killed_ns, 20'000'000u);
  });
}

// Alone on a processor, and on one that others take in turns.
TEST_F(WatchLiveTest, WhoIsCaughtInALoopOfItsOwnIsNotLate) {
  for (const bool shares : {false, true}) {
    OnStage([&] {
      constexpr uint64_t kLease_ms = 200;
      Victim victim(
          {.threads = 1, .lease_ms = kLease_ms, .late_from_ms = kLease_ms / 5, .late_until_ms = 10'000});
      ExpectLeads(victim);
      std::optional<Hog> hog;
      if (shares) hog.emplace(victim.pid(), /*goes_first=*/false);
      const uint64_t begun_ns = RealtimeNs();
      ASSERT_NE(victim.Command("spin"), 0u);
      const std::vector<Heard> heard = Listen(2 * kLease_ms, kLongest_ms);
      const auto first =
          std::find_if(heard.begin(), heard.end(), [](const Heard& one) { return !SaysLate(one); });
      ASSERT_NE(first, heard.end());
      EXPECT_LT(static_cast<double>(first->at_ns - begun_ns) / 1e6, 2.0 * kLease_ms);
      EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_STALLED});
      EXPECT_EQ(victim.watched().dead_ns, 0u);
      victim.Kill(SIGKILL);
    });
  }
}

TEST_F(WatchLiveTest, AnExecIsLeftToTheLease) {
  OnStage([&] {
    Victim victim({.threads = 4, .lease_ms = 300, .late_from_ms = 150, .late_until_ms = 10'000});
    ExpectLeads(victim);
    const uint64_t begun_ns = RealtimeNs();
    ASSERT_NE(victim.Command("exec"), 0u);
    const std::vector<Heard> heard = Listen(600);
    ExpectResignation(heard);
    ASSERT_FALSE(heard.empty());
    EXPECT_GT(heard.front().at_ns - begun_ns, 200'000'000u);
    EXPECT_EQ(victim.watched().dead_ns, 0u);
    EXPECT_EQ(victim.clock().cause, uint32_t{HR_WATCH_STALLED});
  });
}

TEST_F(WatchLiveTest, AFollowersDeathIsNobodysBusiness) {
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

TEST_F(WatchLiveTest, ThePlanOfAnotherTermNamesNobody) {
  OnStage([&] {
    Victim victim({});
    ExpectLeads(victim);
    ASSERT_NE(victim.Command("new-term"), 0u);
    EXPECT_THAT(Listen(20, 20), ::testing::IsEmpty());
    victim.Kill(SIGKILL);
    const std::vector<Heard> resigns = To(kPeerPorts[0], Listen());
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
    const uint64_t from_ns = MonotonicNs();
    const uint64_t from = victim.clock().laps;
    usleep(500'000);
    const double lap_ms =
        static_cast<double>(MonotonicNs() - from_ns) / 1e6 / static_cast<double>(victim.clock().laps - from);
    printf("a lap: %.3f ms\n", lap_ms);
    EXPECT_LT(lap_ms, 2.0);
    ASSERT_NE(victim.Command("follow"), 0u);
    usleep(50'000);
    const uint64_t after = victim.clock().laps;
    usleep(100'000);
    EXPECT_EQ(victim.clock().laps, after);
    EXPECT_EQ(victim.clock().running, 0u);
    EXPECT_EQ(victim.clock().stale, 0u);
  });
}

TEST_F(WatchLiveTest, TheNextLifeRemovesWhatAKilledOneLeft) {
  OnStage([&] {
    const auto links = [] { return net::ListLinks()->size(); };
    const size_t before = links();
    {
      Victim killed({});
      ExpectLeads(killed);
      killed.Kill(SIGKILL);
      killed.Wait();
      ExpectResignation(Listen());
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
    const std::vector<Heard> heard = Listen();
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
