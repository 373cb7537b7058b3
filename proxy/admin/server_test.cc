// SPDX-License-Identifier: Apache-2.0
//
// The administration service end to end in one process: real gRPC over a real
// unix socket, a real event loop, a fake data plane.

#include "proxy/admin/server.h"

#include <stdlib.h>
#include <unistd.h>

#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "operate/call_each_test.h"
#include "proxy/admin/client.h"
#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

using Stub = AdminClient::Stub;
using testing::HasSubstr;

class AdminTest : public testing::Test {
 protected:
  AdminTest() {
    char pattern[] = "/tmp/hedgerow-admin-test.XXXXXX";
    folder_ = mkdtemp(pattern);
    socket_ = folder_ + "/run/admin.sock";
    loop_ = *EventLoop::Create();
    controller_ = std::make_unique<Controller>(config_, facts_, [this] {
      loop_->Stop();
      return std::vector<std::string>{"link hr0 is busy"};
    });
    controller_->Serve(fake_, fake_);
    auto server = ServeAdmin(socket_, *loop_, *controller_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    runner_ = std::thread([this] { loop_->Run(); });
  }
  ~AdminTest() override {
    loop_->Stop();
    runner_.join();
    server_.reset();
    rmdir((folder_ + "/run").c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "something was left in " << folder_;
  }
  AdminClient Connect() {
    auto client = AdminClient::Connect(socket_);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  // `text` is the request, as protobuf writes it.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(AdminClient::Method<Request, Reply> method, const std::string& text = "") {
    Request request;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
    return Connect().Ask(method, request);
  }

  const v1::Config config_ = FakeConfig();
  DaemonFacts facts_;
  FakeDataPlane fake_;
  std::string folder_;
  std::string socket_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<operate::AdminSocket> server_;
  std::thread runner_;
};

TEST_F(AdminTest, ADaemonThatDoesNotAnswerIsNotedInWords) {
  const auto asked = std::make_shared<absl::Notification>();  // of the loop's thread as well
  loop_->Post([asked] { asked->WaitForNotification(); });
  const auto reply = Connect().Ask(&Stub::GetStatus, {}, absl::Milliseconds(200));
  asked->Notify();
  EXPECT_TRUE(absl::IsDeadlineExceeded(reply.status())) << reply.status();
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("does not answer in time: its process is stopped"));
}

TEST_F(AdminTest, StatusCrossesTheSocket) {
  const auto status = Ask(&Stub::GetStatus);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->instance(), "test");
  EXPECT_EQ(status->pid(), getpid());
  ASSERT_EQ(status->services_size(), 2);
  EXPECT_EQ(status->services(0).requests(), 1000u);
  EXPECT_EQ(status->clock().laps(), 4321u);
}

TEST_F(AdminTest, ALeaderIsPinnedAndUnpinned) {
  auto leader = Ask(&Stub::LeaderSet, "service: 'dns' backend: 'b'");
  ASSERT_TRUE(leader.ok()) << leader.status();
  EXPECT_EQ(leader->leader(), "b");
  EXPECT_TRUE(leader->pinned());
  auto list = Ask(&Stub::LeaderShow, "service: ''");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->leaders_size(), 2);
  leader = Ask(&Stub::LeaderUnset, "service: 'dns'");
  ASSERT_TRUE(leader.ok());
  EXPECT_EQ(leader->leader(), "a");
  EXPECT_FALSE(leader->pinned());
  list = Ask(&Stub::LeaderShow, "service: 'dns'");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->leaders_size(), 1);
}

// A call that is added later is refused to monitors, and leaves a line, unless it is listed here.
TEST_F(AdminTest, WhatIsNoReadIsForTheOwnerAndLeavesALineInTheLog) {
  const std::set<std::string> reads = {"GetStatus", "LeaderShow", "GetCounts"};
  v1::AdminConfig config;
  config.set_monitor_socket(folder_ + "/run/monitor.sock");
  config.set_monitor_group(absl::StrCat(getegid()));
  auto monitor = ServeMonitor(config, *loop_, *controller_);
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  const google::protobuf::ServiceDescriptor& service =
      *google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("hedgerow.v1.Admin");
  const operate::AdminPeer peer{.program = "hedgerowd", .who_may = "", .hint = ""};
  for (const auto& [name, status] :
       operate::CallEach(*operate::OpenAdminChannel(config.monitor_socket(), peer), service)) {
    EXPECT_EQ(status.ok(), reads.contains(name)) << name;
    EXPECT_EQ(operate::IsMissing(status), !reads.contains(name)) << name;
  }
  testing::internal::CaptureStderr();
  const auto called = operate::CallEach(*operate::OpenAdminChannel(socket_, peer), service);
  server_.reset();  // waits for handlers that are still at work
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_GT(called.size(), reads.size());
  for (const auto& [name, status] : called) {
    EXPECT_FALSE(operate::IsMissing(status)) << name;
    const std::string line = absl::StrCat("process ", getpid(), ": ", name, " {");
    EXPECT_EQ(absl::StrContains(log, line), !reads.contains(name)) << log;
  }
}

TEST_F(AdminTest, ADryRunOfAReloadChangesNothingAndLeavesNoLine) {
  testing::internal::CaptureStderr();
  Ask(&Stub::Reload, "dry_run: true").status().IgnoreError();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("audit")));
}

TEST_F(AdminTest, UnknownNamesAreAnsweredWithTheKnownOnes) {
  const absl::Status service = Ask(&Stub::LeaderShow, "service: 'dsn'").status();
  EXPECT_EQ(service.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(service.message()),
              HasSubstr("no service \"dsn\", did you mean \"dns\"? (there are: dns, echo)"));
  const absl::Status backend = Ask(&Stub::LeaderSet, "service: 'dns' backend: 'z'").status();
  EXPECT_EQ(backend.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(backend.message()), HasSubstr("(there are: a, b)"));
  EXPECT_EQ(Ask(&Stub::Bypass, "service: '' on: true").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(AdminTest, BypassReachesTheDataPlane) {
  ASSERT_TRUE(Ask(&Stub::Bypass, "service: 'dns' on: true").ok());
  EXPECT_TRUE(Ask(&Stub::GetStatus)->services(0).bypass());
  EXPECT_FALSE(Ask(&Stub::GetStatus)->services(1).bypass());
  ASSERT_TRUE(Ask(&Stub::Bypass, "service: 'dns' on: false").ok());
  EXPECT_FALSE(Ask(&Stub::GetStatus)->services(0).bypass());
}

TEST_F(AdminTest, ADryRunReachesTheDataPlane) {
  const auto reply = Ask(&Stub::DryRun, "service: 'dns' on: true");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->dry_run());
  EXPECT_TRUE(Ask(&Stub::GetStatus)->services(0).dry_run());
  EXPECT_FALSE(Ask(&Stub::GetStatus)->services(1).dry_run());
  ASSERT_TRUE(Ask(&Stub::DryRun, "service: 'dns' on: false").ok());
  EXPECT_FALSE(Ask(&Stub::GetStatus)->services(0).dry_run());
  EXPECT_EQ(Ask(&Stub::DryRun, "service: 'dsn' on: true").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(AdminTest, ATestOfTheHedgeIsOfOneEndOfOneService) {
  EXPECT_TRUE(Ask(&Stub::TestHedge, "service: 'dns' client: '10.0.0.7' port: 4242").ok());
  ASSERT_EQ(fake_.hedge_tests.size(), 1u);
  EXPECT_EQ(fake_.hedge_tests[0].service, "dns");
  EXPECT_EQ(fake_.hedge_tests[0].port, 4242);
  EXPECT_EQ(Ask(&Stub::TestHedge, "service: 'nosuch' client: '10.0.0.7' port: 4242").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(Ask(&Stub::TestHedge, "service: 'dns' client: 'here' port: 4242").ok());
  EXPECT_FALSE(Ask(&Stub::TestHedge, "service: 'dns' client: '10.0.0.7' port: 70000").ok());
  EXPECT_EQ(fake_.hedge_tests.size(), 1u);
}

TEST_F(AdminTest, ABackendIsDrainedInEveryServiceThatHasItOrInOne) {
  auto reply = Ask(&Stub::Drain, "backend: 'a' service: '' on: true");
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->backends_size(), 1);
  EXPECT_EQ(reply->backends(0).service(), "dns");
  EXPECT_TRUE(reply->backends(0).drained());
  EXPECT_EQ(reply->backends(0).requests_to(), "b");
  EXPECT_FALSE(reply->backends(0).leads()) << "there is no cluster";
  const auto status = Ask(&Stub::GetStatus);
  EXPECT_TRUE(status->services(0).backends(0).drained());
  EXPECT_EQ(status->services(0).leader(), "a");
  EXPECT_EQ(status->services(0).requests_to(), "b");
  reply = Ask(&Stub::Drain, "backend: 'a' service: 'dns' on: false");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->backends(0).requests_to(), "a");
  EXPECT_THAT(std::string(Ask(&Stub::Drain, "backend: 'only' service: 'dns' on: true").status().message()),
              HasSubstr("no backend \"only\" (there are: a, b)"));
  EXPECT_EQ(Ask(&Stub::Drain, "backend: 'a' service: 'nosuch' on: true").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Ask(&Stub::Drain, "backend: '' service: '' on: true").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(AdminTest, AnErrorOfTheDataPlaneReachesTheCaller) {
  ASSERT_TRUE(Ask(&Stub::GetStatus).ok());
  ASSERT_TRUE(loop_
                  ->Call<int>(absl::Seconds(5),
                              [this]() -> absl::StatusOr<int> {
                                fake_.read_error = absl::InternalError("map is gone");
                                return 0;
                              })
                  .ok());
  const absl::Status status = Ask(&Stub::GetStatus).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "map is gone");
}

TEST_F(AdminTest, DownAnswersBeforeTheLoopEnds) {
  const auto reply = Ask(&Stub::Down);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->pid(), getpid());
  ASSERT_EQ(reply->problems_size(), 1);
  EXPECT_EQ(reply->problems(0), "link hr0 is busy");
}

TEST_F(AdminTest, ASecondServerOnTheSameSocketIsRefused) {
  const auto second = ServeAdmin(socket_, *loop_, *controller_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("; give this instance its own admin.socket"));
  EXPECT_TRUE(Ask(&Stub::GetStatus).ok());  // the first one is unharmed
}

TEST(Controller, IsUnavailableUntilThereIsADataPlane) {
  const v1::Config config = FakeConfig();
  const DaemonFacts facts;
  Controller controller(config, facts, [] { return std::vector<std::string>(); });
  EXPECT_EQ(controller.Status().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(controller.LeaderSet("dns", "b").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(controller.Down().status().code(), absl::StatusCode::kUnavailable);
  FakeDataPlane fake;
  controller.Serve(fake, fake);
  EXPECT_TRUE(controller.Status().ok());
  EXPECT_TRUE(controller.Down().ok());
  EXPECT_EQ(controller.Down().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(AdminClient, NobodyThereIsUnavailable) {
  const auto client = AdminClient::Connect("/tmp/hedgerow-no-such.sock");
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("hedgerowd is not running"));
}

TEST_F(AdminTest, CountsAreRaw) {
  const auto counts = Ask(&Stub::GetCounts);
  ASSERT_TRUE(counts.ok()) << counts.status();
  ASSERT_EQ(counts->services_size(), 2);
  EXPECT_EQ(counts->services(0).budget_ppm(), 50'000u);
  EXPECT_EQ(counts->services(0).answers_size(), 2);
  EXPECT_GT(counts->services(0).latency().buckets_size(), 0);
  EXPECT_EQ(counts->status().services(0).requests(), 1000u);
}

// What the trace's thread and the loop share is read on the loop.
int TracesOpen(EventLoop& loop, const FakeDataPlane& fake) {
  return *loop.Call<int>(absl::Seconds(5), [&fake]() -> absl::StatusOr<int> { return fake.traces_open; });
}

TEST_F(AdminTest, ATraceIsStreamedUntilItsClientHasEnough) {
  hr_trace_event event{};
  event.kind = HR_TRACE_SPLIT;
  event.request = 1;
  fake_.trace_events.assign(1'200, event);  // more than one reply holds
  v1::TraceRequest request;
  request.set_service("dns");
  const AdminClient client = Connect();
  TraceCall trace(client, request);
  v1::TraceReply reply;
  ASSERT_TRUE(trace.Next(reply));
  ASSERT_EQ(reply.services_size(), 2) << "the first names the services";
  EXPECT_EQ(reply.services(0).name(), "dns");
  EXPECT_EQ(reply.services(0).backends_size(), 2);
  int events = 0;
  while (events < 1'200 && trace.Next(reply)) events += reply.events_size();
  EXPECT_EQ(events, 1'200);
  EXPECT_EQ(reply.requests_lost(), 3u);
  EXPECT_EQ(reply.events_lost(), 4u);
  EXPECT_TRUE(trace.Next(reply)) << "a sign of life, without events";
  EXPECT_EQ(reply.events_size(), 0);
  EXPECT_EQ(TracesOpen(*loop_, fake_), 1);
  trace.Cancel();
  while (trace.Next(reply)) {
  }
  EXPECT_TRUE(trace.Finish().ok());
  for (int i = 0; i < 2000 && TracesOpen(*loop_, fake_) > 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(TracesOpen(*loop_, fake_), 0);
}

TEST_F(AdminTest, AFilterThatMeansNothingEndsTheTraceAtOnce) {
  v1::TraceRequest request;
  request.set_service("dnss");
  const AdminClient client = Connect();
  TraceCall trace(client, request);
  v1::TraceReply reply;
  EXPECT_FALSE(trace.Next(reply));
  const absl::Status status = trace.Finish();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean \"dns\"?"));
}

TEST_F(AdminTest, DownEndsATraceAndSaysSo) {
  const AdminClient client = Connect();
  TraceCall trace(client, {});
  v1::TraceReply reply;
  ASSERT_TRUE(trace.Next(reply));
  ASSERT_TRUE(Ask(&Stub::Down).ok());
  while (trace.Next(reply)) {
  }
  const absl::Status status = trace.Finish();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("going down"));
}

}  // namespace
}  // namespace hedgerow
