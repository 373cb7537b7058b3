// SPDX-License-Identifier: Apache-2.0
//
// The administration service over a real socket and loop, in front of a group that is none.
#include "steer/admin.h"

#include <grp.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operate/call_each_test.h"
#include "steer/admin_client.h"

namespace hedgerow::steer {
namespace {

using Stub = AdminClient::Stub;

class FakeControl final : public Control {
 public:
  absl::StatusOr<v1::Group> Show() override {
    v1::Group group;
    group.set_name("shown");
    return group;
  }
  absl::StatusOr<v1::Change> Resize(uint32_t workers) override {
    if (workers == 0) return absl::InvalidArgumentError("got 0 workers");
    v1::Change change;
    change.set_moved_buckets(workers);
    return change;
  }
  absl::StatusOr<v1::Change> SetWeights(const std::vector<double>& weights) override {
    v1::Change change;
    change.set_moved_buckets(static_cast<uint32_t>(weights.size()));
    return change;
  }
  absl::StatusOr<v1::Change> Drain(uint32_t slot, bool drain) override {
    v1::Change change;
    change.set_moved_buckets(slot * 10 + drain);
    return change;
  }
  absl::StatusOr<v1::Group> Reload(std::optional<uint32_t> slot) override {
    v1::Group group;
    group.set_name(slot.has_value() ? absl::StrCat("slot ", *slot) : "all");
    return group;
  }
  absl::StatusOr<v1::Slot> RestartWorker(uint32_t slot) override {
    v1::Slot reply;
    reply.set_slot(slot);
    return reply;
  }
  absl::StatusOr<v1::StopReply> Stop() override { return v1::StopReply(); }
};

TEST(SteerAdmin, ServesEveryCallToItsOwnerAlone) {
  char pattern[] = "/tmp/hedgerow-steer-test.XXXXXX";
  const std::string folder = mkdtemp(pattern);
  const Places places{.run_dir = folder, .name = "x"};
  EXPECT_TRUE(absl::IsUnavailable(AdminClient::Connect(places).status()));
  const auto loop = *EventLoop::Create();
  FakeControl control;
  auto server = ServeAdmin(places, *loop, control);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(std::filesystem::status(places.admin()).permissions(), std::filesystem::perms(0600));
  std::thread runner([&] { loop->Run(); });
  const auto client = AdminClient::Connect(places);
  ASSERT_TRUE(client.ok()) << client.status();

  EXPECT_EQ(client->Ask(&Stub::Show)->name(), "shown");
  v1::DrainRequest drain;
  drain.set_slot(4);
  drain.set_drain(true);
  EXPECT_EQ(client->Ask(&Stub::Drain, drain)->moved_buckets(), 41u);
  v1::SetWeightsRequest weights;
  for (const double weight : {1.0, 2.0, 3.0}) weights.add_weights(weight);
  EXPECT_EQ(client->Ask(&Stub::SetWeights, weights)->moved_buckets(), 3u);
  EXPECT_TRUE(absl::IsInvalidArgument(client->Ask(&Stub::Resize).status()));
  v1::ReloadRequest reload;
  EXPECT_EQ(client->Ask(&Stub::Reload, reload)->name(), "all");
  reload.set_slot(0);
  EXPECT_EQ(client->Ask(&Stub::Reload, reload)->name(), "slot 0");
  const auto channel = operate::OpenAdminChannel(places.admin(), {});
  for (const auto& [name, status] :
       operate::CallEach(*channel, *v1::Group::descriptor()->file()->FindServiceByName("Steer"))) {
    EXPECT_FALSE(operate::IsMissing(status)) << name;
  }
  loop->Stop();
  runner.join();
  server->reset();
  std::filesystem::remove_all(folder);
}

TEST(SteerAdmin, TheMonitorServesShowAloneToItsGroup) {
  char pattern[] = "/tmp/hedgerow-steer-test.XXXXXX";
  const std::string folder = mkdtemp(pattern);
  const Places places{.run_dir = folder, .name = "x"};
  const auto loop = *EventLoop::Create();
  FakeControl control;
  const auto absent = ServeMonitor(places, *loop, control, "no-such-group");
  ASSERT_TRUE(absent.ok());
  EXPECT_EQ(*absent, nullptr);
  const group* own = getgrgid(getegid());
  ASSERT_NE(own, nullptr);
  auto server = ServeMonitor(places, *loop, control, own->gr_name);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(std::filesystem::status(places.monitor()).permissions(), std::filesystem::perms(0660));
  std::thread runner([&] { loop->Run(); });
  const auto client = AdminClient::ConnectToMonitor(places);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->Ask(&Stub::Show)->name(), "shown");
  const auto channel = operate::OpenAdminChannel(places.monitor(), {});
  for (const auto& [name, status] :
       operate::CallEach(*channel, *v1::Group::descriptor()->file()->FindServiceByName("Steer"))) {
    EXPECT_EQ(operate::IsMissing(status), !absl::EndsWith(name, "Show")) << name;
  }
  loop->Stop();
  runner.join();
  server->reset();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hedgerow::steer
