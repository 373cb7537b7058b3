// SPDX-License-Identifier: Apache-2.0
//
// The page's list of groups: those that answer, and those that have a record and no supervisor.
#include "proxy/page/steer_groups.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steer/admin.h"

namespace hedgerow {
namespace {

class FakeControl final : public steer::Control {
 public:
  absl::StatusOr<steer::v1::Group> Show() override {
    steer::v1::Group group;
    group.set_name("flows");
    group.add_slots()->set_state("serving");
    return group;
  }
  absl::StatusOr<steer::v1::Change> Resize(uint32_t) override { return absl::UnimplementedError(""); }
  absl::StatusOr<steer::v1::Change> SetWeights(const std::vector<double>&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<steer::v1::Change> Drain(uint32_t, bool) override { return absl::UnimplementedError(""); }
  absl::StatusOr<steer::v1::Slot> RestartWorker(uint32_t) override { return absl::UnimplementedError(""); }
  absl::StatusOr<steer::v1::Group> Reload(std::optional<uint32_t>) override { return absl::UnimplementedError(""); }
  absl::StatusOr<steer::v1::StopReply> Stop() override { return absl::UnimplementedError(""); }
};

TEST(SteerGroups, AreThoseThatAnswerAndThoseWithoutASupervisor) {
  char pattern[] = "/tmp/hedgerow-page-test.XXXXXX";
  const std::string run_dir = mkdtemp(pattern);
  EXPECT_EQ(ReadSteerGroups(run_dir + "/none", absl::Now()).groups_size(), 0);
  for (const char* name : {"flows", "gone"}) {
    std::filesystem::create_directories(run_dir + "/" + name);
    std::ofstream(run_dir + "/" + name + "/record.json") << "{}";
  }
  const auto loop = *EventLoop::Create();
  FakeControl control;
  auto server = steer::ServeAdmin({.run_dir = run_dir, .name = "flows"}, *loop, control);
  ASSERT_TRUE(server.ok()) << server.status();
  std::thread runner([&] { loop->Run(); });
  const v1::SteerData data = ReadSteerGroups(run_dir, absl::Now());
  loop->Stop();
  runner.join();
  server->reset();
  std::filesystem::remove_all(run_dir);
  ASSERT_EQ(data.groups_size(), 1);
  EXPECT_EQ(data.groups(0).slots(0).state(), "serving");
  ASSERT_EQ(data.silent_size(), 1);
  EXPECT_EQ(data.silent(0).name(), "gone");
  EXPECT_THAT(data.silent(0).reason(), testing::HasSubstr("hedgerow-steer"));
}

}  // namespace
}  // namespace hedgerow
