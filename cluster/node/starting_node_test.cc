// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/starting_node.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/node/status/status_message.h"
#include "cluster/node/status/status_text.h"
#include "cluster/node/testing/node_testing.h"
#include "net/unique_fd.h"

namespace hedgerow::node {
namespace {

using storage::LoadProgress;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kMiB = 1024 * 1024;

class StartingNodeTest : public testing::Test {
 protected:
  StartingNodeTest() {
    config_.self = raft::NodeId(3);
    config_.data_dir = "/var/lib/a-node";
  }
  v1::NodeStatus StatusOf(StartingNode& node) { return ToMessage(*node.Status(), {.serve = {}}); }

  NodeConfig config_;
  uint64_t now_ns_ = 1'000'000'000;
};

TEST_F(StartingNodeTest, SaysWhatTheStartDoesAndHowFarItIs) {
  StartingNode node(config_, [this] { return now_ns_; });
  EXPECT_THAT(StatusOf(node).starting(), HasSubstr("opens /var/lib/a-node"));
  node.progress().Begin(LoadProgress::Stage::kReplaying, 2048 * kMiB);
  node.progress().Add(512 * kMiB);
  now_ns_ += 3'000'000'000;
  const v1::NodeStatus status = StatusOf(node);
  EXPECT_EQ(status.role(), "starting");
  EXPECT_EQ(status.node(), 3u);
  EXPECT_FALSE(status.ready());
  EXPECT_EQ(status.uptime_ns(), 3'000'000'000);
  EXPECT_EQ(status.starting(), "reads the log in /var/lib/a-node, 512 of 2048 MiB");
  EXPECT_THAT(status.problems(), IsEmpty()) << "a start takes its time";
  EXPECT_THAT(StatusText(status),
              AllOf(HasSubstr("512 of 2048 MiB"), HasSubstr("NOT READY"), Not(HasSubstr("leader"))));
}

TEST_F(StartingNodeTest, RefusesWhatNeedsTheNodeAndSaysWhy) {
  StartingNode node(config_);
  node.progress().Begin(LoadProgress::Stage::kSnapshot, 7 * kMiB);
  for (const absl::Status& refused :
       {node.Transfer(raft::NodeId(1)), node.OpenBackup().status(), node.TakeSnapshot().status(),
        node.ChangeMembers({}).status(), node.ChangeSettings({}).status(), node.ReloadKeys(false).status(),
        node.PurgeSome({}).status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is starting")) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("reads the snapshot in /var/lib/a-node, 0 of 7 MiB"));
  }
}

TEST_F(StartingNodeTest, AStartThatStandsStillIsAProblem) {
  StartingNode node(config_, [this] { return now_ns_; });
  node.progress().Begin(LoadProgress::Stage::kChecking, 100 * kMiB);
  for (int i = 0; i < 5; ++i) {
    node.progress().Add(kMiB);
    now_ns_ += StartingNode::kStandsStill_ns - 1;
    EXPECT_THAT(StatusOf(node).problems(), IsEmpty()) << "it moves, however slowly";
  }
  now_ns_ += StartingNode::kStandsStill_ns;
  EXPECT_THAT(StatusOf(node).problems(),
              ElementsAre(AllOf(HasSubstr("has stood still for"), HasSubstr("5 of 100 MiB"))));
  node.progress().Add(kMiB);
  EXPECT_THAT(StatusOf(node).problems(), IsEmpty());
}

TEST_F(StartingNodeTest, WaitsForRoomAndNamesTheDisk) {
  StartingNode node(config_, [this] { return now_ns_; });
  node.SetWaits(absl::ResourceExhaustedError("no space left on /var"));
  now_ns_ += 2 * StartingNode::kStandsStill_ns;
  EXPECT_THAT(StatusOf(node).problems(), ElementsAre("storage: no space left on /var"))
      << "one sentence about one thing";
  EXPECT_THAT(std::string(node.TakeSnapshot().status().message()), HasSubstr("no space left on /var"));
  node.SetWaits(absl::UnavailableError("cannot bind to 10.0.0.1:4802"));
  EXPECT_THAT(StatusOf(node).problems(), ElementsAre("cannot bind to 10.0.0.1:4802"));
  EXPECT_THAT(std::string(node.TakeSnapshot().status().message()),
              AllOf(HasSubstr("tries again every second"), HasSubstr("10.0.0.1:4802")));
}

TEST_F(StartingNodeTest, WaitsNoMoreOnceTheNextTryReadsTheLog) {
  StartingNode node(config_, [this] { return now_ns_; });
  node.progress().Begin(LoadProgress::Stage::kOpened);
  node.SetWaits(absl::UnavailableError("cannot bind to 10.0.0.1:4802"));
  EXPECT_THAT(StatusOf(node).problems(), ElementsAre("cannot bind to 10.0.0.1:4802"));
  node.progress().Begin(LoadProgress::Stage::kReplaying, 8 * kMiB);
  EXPECT_EQ(StatusOf(node).starting(), "reads the log in /var/lib/a-node, 0 of 8 MiB");
  EXPECT_THAT(StatusOf(node).problems(), IsEmpty());
}

// A pipe among the log's files holds the start at it, for as long as the test wants.
class StartOfANodeTest : public NodeTest {};

INSTANTIATE_TEST_SUITE_P(Durability, StartOfANodeTest, testing::Values(Durability::kDisk), DurabilityOf);

TEST_P(StartOfANodeTest, IsAnsweredForUntilTheNodeIsThere) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  EXPECT_EQ(Increment(leader, session, 1), "1");
  const uint64_t starts = leader % 3 + 1;
  Stop(starts);
  const NodeConfig config = ConfigOf(starts);
  const std::string pipe = config.data_dir + "/segments/ffff";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);

  StartingNode front(config);
  absl::StatusOr<std::unique_ptr<Node>> node;
  std::thread creates([&] { node = Node::Create(config, &front.progress()); });
  EXPECT_TRUE(Eventually([&] { return front.progress().stage() == LoadProgress::Stage::kChecking; }));
  const v1::NodeStatus status = ToMessage(*front.Status(), FactsOf(config));
  EXPECT_EQ(status.role(), "starting");
  EXPECT_THAT(status.starting(), HasSubstr("checks the log in " + config.data_dir));
  EXPECT_FALSE(status.ready());
  // Opens only once the start has the other end.
  EXPECT_TRUE(Eventually([&] { return net::UniqueFd(open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)).valid(); }));
  creates.join();
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(front.progress().stage(), LoadProgress::Stage::kOpened);

  std::thread runs([&] { EXPECT_TRUE((*node)->Run().ok()); });
  front.Become(**node);
  EXPECT_TRUE(Eventually([&] { return front.Status()->ready; }));
  EXPECT_EQ(ToMessage(*front.Status(), FactsOf(config)).role(), "follower");
  EXPECT_TRUE(front.TakeSnapshot().ok()) << "what is asked from now on is the node's";
  (*node)->RequestStop();
  runs.join();
}

}  // namespace
}  // namespace hedgerow::node
