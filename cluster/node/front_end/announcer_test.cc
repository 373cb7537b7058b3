// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/announcer.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "cluster/node/testing/socket_testing.h"

namespace hedgerow::node {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStarted_ns = 5'000 * kMs;

class AnnouncerTest : public testing::Test {
 protected:
  // The only announcement that has come.
  wire::Announcement Heard() {
    node_->Flush();
    const std::vector<Datagram>& datagrams = proxy_->Receive(Now_ns());
    EXPECT_EQ(datagrams.size(), 1u);
    if (datagrams.size() != 1) return {};
    const auto announcement = wire::OpenAnnouncement(datagrams[0].bytes, wire::Key());
    EXPECT_TRUE(announcement.has_value());
    return announcement.value_or(wire::Announcement());
  }

  std::unique_ptr<UdpSocket> node_ = AnySocket();
  std::unique_ptr<UdpSocket> proxy_ = AnySocket();
  Announcer announcer_{*node_,
                       42,
                       node_->LocalAddress().value(),
                       {.since_ns = kStarted_ns, .longest_ns = 1'000 * kMs},
                       {{.address = proxy_->LocalAddress().value(), .key = wire::Key()}}};
};

// A proxy sends again what the node was sent before: said too long, a request is lost, and 0 says nothing.
TEST_F(AnnouncerTest, ItHoldsRequestsSinceItWasStartedAndNoLongerThanTheDeskDoes) {
  announcer_.Led(raft::Term(1), kStarted_ns);
  EXPECT_EQ(Heard().holds_ms, 1u);
  announcer_.Led(raft::Term(2), kStarted_ns + 40 * kMs + kMs / 2);
  EXPECT_EQ(Heard().holds_ms, 40u) << "rounded down";
  announcer_.HeartbeatRound(kStarted_ns + 999 * kMs);
  EXPECT_EQ(Heard().holds_ms, 999u);
  announcer_.HeartbeatRound(kStarted_ns + 3'600'000 * kMs);
  EXPECT_EQ(Heard().holds_ms, 1'000u);
}

}  // namespace
}  // namespace hedgerow::node
