// SPDX-License-Identifier: Apache-2.0
//
// What watch_live_test's files share: the stage on which a leader dies, is stopped or waits, and what its peers and
// proxies must then have heard. Test code only.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bpf/tests/checksum.h"
#include "cluster/offload/watch.h"
#include "cluster/offload/testing/watch_live.h"
#include "cluster/wire/announce.h"
#include "cluster/wire/peer.h"
#include "net/netlink/link.h"
#include "net/namespace_test.h"

namespace hedgerow::offload {

inline constexpr uint16_t kPeerPorts[] = {5002, 5003};
inline constexpr uint16_t kProxyPort = 6000;
inline constexpr int kLaps = Watch::kResigningLaps;
inline constexpr int kQuiet_ms = 150;
inline constexpr int kLongest_ms = 5'000;

inline wire::Key KeyOf(uint64_t k0, uint64_t k1) {
  wire::Key key;
  const uint64_t halves[2] = {k0, k1};
  memcpy(key.bytes.data(), halves, sizeof(halves));
  return key;
}

// As node 2 of the cluster opens it.
inline wire::Opened OpenAsPeer(const Heard& heard) {
  const wire::PeerCodec codec(
      {.cluster_id = 42, .keys = KeyOf(1, 2), .self = raft::NodeId(2), .incarnation = 99, .config_epoch = 5});
  return codec.Open(heard.payload);
}

inline std::optional<wire::Announcement> OpenNews(const Heard& heard) {
  return wire::OpenAnnouncement(heard.payload, KeyOf(uint64_t{100} + heard.port, 4));
}

inline std::vector<Heard> To(uint16_t port, const std::vector<Heard>& heard) {
  std::vector<Heard> result;
  std::copy_if(heard.begin(), heard.end(), std::back_inserter(result),
               [=](const Heard& one) { return one.port == port; });
  return result;
}

// The first or the last of the processors that the test may use.
inline cpu_set_t Processor(bool last) {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    const int cpu = last ? CPU_SETSIZE - 1 - i : i;
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  }
  return one;
}

inline void PinTo(pid_t pid, const cpu_set_t& one) { EXPECT_EQ(sched_setaffinity(pid, sizeof(one), &one), 0); }

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

  // All that is said until the victim's clock rests.
  std::vector<Heard> ListenUntilRest(const Victim& victim) {
    std::vector<Heard> heard;
    const auto listen = [&](int quiet_ms) {
      for (Heard& one : Listen(quiet_ms, 50)) heard.push_back(std::move(one));
    };
    const uint64_t until_ns = MonotonicNs() + uint64_t{kLongest_ms} * 1'000'000;
    while (victim.clock().running != 0 && MonotonicNs() < until_ns) listen(5);
    listen(50);
    return heard;
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
        ASSERT_TRUE(opened.ok()) << "a peer does not believe it, for reason " << static_cast<int>(opened.reason);
        const auto* resign = std::get_if<wire::Resign>(&opened.body);
        ASSERT_NE(resign, nullptr);
        EXPECT_FALSE(resign->stalled);
        numbers[i].push_back(opened.header.packet_number);
        EXPECT_EQ(opened.header.from_incarnation, 0x1234567890abcdefull);
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

  // `command` kills the process; it says when it begins.
  void ExpectDeathByCommand(const std::string& command, int threads, uint32_t cause, uint32_t signal) {
    OnStage([&] {
      Victim victim({.threads = threads});
      ExpectLeads(victim);
      const uint64_t begun_ns = victim.Command(command);
      ASSERT_NE(begun_ns, 0u);
      ExpectResignation(ListenUntilRest(victim));
      victim.Wait();
      EXPECT_EQ(victim.watched().cause, cause);
      EXPECT_EQ(victim.watched().signal, signal);
      EXPECT_EQ(victim.clock().running, 0u);
      printf("%s, %d threads: dead in the kernel's eyes after %.3f ms, resigned after %.3f ms\n", command.c_str(),
             threads, static_cast<double>(victim.watched().dead_ns - begun_ns) / 1e6,
             static_cast<double>(victim.clock().resigned_ns - begun_ns) / 1e6);
    });
  }

  std::unique_ptr<Ear> ear_;
};

}  // namespace hedgerow::offload
