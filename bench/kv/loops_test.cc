// SPDX-License-Identifier: Apache-2.0
//
// The loop with both kinds of callers, against stores of a few lines on the loopback: no client asks again before it
// has its answer, and what is counted is what was served. Bounds are wide: these tests must hold on a busy machine.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "bench/kv/etcd_loop.h"
#include "chaos/etcd/kv.grpc.pb.h"
#include "cluster/client/testing/fake_server.h"

namespace hedgerow::bench {
namespace {

ClosedLoopOptions Options(const std::string& server, KvOperation operation) {
  return {.server = server,
          .clients = 3,
          .operation = operation,
          .keys = 2,
          .warm_up = absl::Milliseconds(20),
          .measured = absl::Milliseconds(600)};
}

void Ignore(const char*) {}

// Every fifth request fails.
class FakeEtcd final : public etcdserverpb::KV::Service {
 public:
  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest*, etcdserverpb::RangeResponse*) override {
    return Serve();
  }
  grpc::Status Put(grpc::ServerContext*, const etcdserverpb::PutRequest*, etcdserverpb::PutResponse*) override {
    ++puts;
    return Serve();
  }

  std::atomic<int> puts = 0;
  std::atomic<int> served = 0;
  std::atomic<int> together_max = 0;

 private:
  grpc::Status Serve() {
    const int together = ++together_;
    int highest = together_max;
    while (together > highest && !together_max.compare_exchange_weak(highest, together)) {
    }
    const bool fails = ++served % 5 == 0;
    --together_;
    return fails ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "planted") : grpc::Status::OK;
  }

  std::atomic<int> together_ = 0;
};

class EtcdClosedLoop : public testing::TestWithParam<KvOperation> {
 protected:
  EtcdClosedLoop() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&etcd_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~EtcdClosedLoop() override { server_->Shutdown(); }

  FakeEtcd etcd_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_P(EtcdClosedLoop, WhatIsCountedIsWhatWasServed) {
  for (const size_t connections : {size_t{1}, size_t{0}}) {
    etcd_.served = 0;
    const auto report = RunEtcdClosedLoop(Options(address_, GetParam()), connections, Ignore);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GT(report->answered, 0u);
    EXPECT_GT(report->failed, 0u);
    EXPECT_EQ(report->lost, 0u);
    EXPECT_LE(report->answered + report->failed, static_cast<uint64_t>(etcd_.served));
    EXPECT_EQ(report->latency_ns.count(), report->answered) << "errors have no latency";
    EXPECT_GE(report->seconds, 0.59);
  }
  EXPECT_LE(etcd_.together_max, 3) << "a client has one request under way";
  EXPECT_EQ(etcd_.puts > 0, GetParam() == KvOperation::kPut);
}

INSTANTIATE_TEST_SUITE_P(Operations, EtcdClosedLoop, testing::Values(KvOperation::kPut, KvOperation::kGet));

TEST(HkvClosedLoop, WhatIsCountedIsWhatWasServed) {
  std::atomic<int> requests = 0;
  const auto server =
      client::FakeServer::Start(std::make_shared<client::FakeStore>(), [&requests](const wire::HkvRequest& request) {
        client::FakeServer::Treatment treatment;
        if (request.kind != wire::HkvKind::kOpen && ++requests % 5 == 0) {
          treatment.instead = wire::HkvAnswer{.kind = request.kind,
                                              .status = wire::HkvStatus::kOverloaded,
                                              .client_id = request.client_id,
                                              .seq = request.seq};
        }
        return treatment;
      });
  ASSERT_TRUE(server.ok()) << server.status();
  for (const KvOperation operation : {KvOperation::kPut, KvOperation::kGet}) {
    requests = 0;
    const auto report = RunClosedLoop(Options((*server)->address(), operation), Ignore);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GT(report->answered, 0u);
    // A write that is refused for want of room is sent again until it is done, and a read is not.
    EXPECT_EQ(report->failed > 0, operation == KvOperation::kGet);
    EXPECT_LT(report->answered, static_cast<uint64_t>(requests));
    EXPECT_LE(report->answered + report->failed, static_cast<uint64_t>(requests));
    EXPECT_EQ(report->latency_ns.count(), report->answered);
  }
}

// A stall in the last moments, which ends after the measured part does.
TEST(HkvClosedLoop, WhatIsUnderWayAtTheEndCountsAsWhatBecomesOfIt) {
  // From the first request on, however late the loop begins.
  absl::Time begins = absl::InfiniteFuture();
  const ClosedLoopOptions times = Options("", KvOperation::kGet);
  const auto server =
      client::FakeServer::Start(std::make_shared<client::FakeStore>(), [&](const wire::HkvRequest& request) {
        begins = std::min(begins, absl::Now() + times.warm_up + times.measured / 2);
        client::FakeServer::Treatment treatment;
        treatment.lost = request.kind != wire::HkvKind::kOpen && absl::Now() > begins;
        return treatment;
      });
  ASSERT_TRUE(server.ok()) << server.status();
  const auto report = RunClosedLoop(Options((*server)->address(), KvOperation::kGet), Ignore);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->answered, 0u);
  EXPECT_EQ(report->lost, 3u) << "one for each client: their time-out is longer than what was left";
}

TEST(HkvClosedLoop, WhatIsNotAnsweredIsLostAndTheClientGoesOn) {
  std::atomic<int> requests = 0;
  const auto server =
      client::FakeServer::Start(std::make_shared<client::FakeStore>(), [&requests](const wire::HkvRequest& request) {
        client::FakeServer::Treatment treatment;
        treatment.lost = request.kind != wire::HkvKind::kOpen && ++requests % 5 == 0;
        return treatment;
      });
  ASSERT_TRUE(server.ok()) << server.status();
  ClosedLoopOptions options = Options((*server)->address(), KvOperation::kPut);
  options.timeout = absl::Milliseconds(100);
  options.measured = absl::Milliseconds(1'500);
  const auto report = RunClosedLoop(options, Ignore);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->lost, 0u);
  EXPECT_GT(report->answered, report->lost) << "a lost request ends by its timeout, and the next one leaves";
}

TEST(HkvPacedLoad, RequestsLeaveAtTheRateAsked) {
  const auto server = client::FakeServer::Start(std::make_shared<client::FakeStore>());
  ASSERT_TRUE(server.ok()) << server.status();
  ClosedLoopOptions options = Options((*server)->address(), KvOperation::kPut);
  options.rate_per_s = 500;
  options.measured = absl::Milliseconds(600);
  const auto report = RunClosedLoop(options, Ignore);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_LE(static_cast<double>(report->answered), 500 * report->seconds + 15)
      << "what the warm-up left behind is in it";
  EXPECT_GE(static_cast<double>(report->answered + report->behind), 500 * report->seconds - 15);
}

TEST(HkvPacedLoad, ARequestThatWaitsForAFreeClientHasWaited) {
  std::atomic<int> requests = 0;
  const auto server =
      client::FakeServer::Start(std::make_shared<client::FakeStore>(), [&requests](const wire::HkvRequest& request) {
        client::FakeServer::Treatment treatment;
        treatment.lost = request.kind != wire::HkvKind::kOpen && ++requests == 20;
        return treatment;
      });
  ASSERT_TRUE(server.ok()) << server.status();
  ClosedLoopOptions options = Options((*server)->address(), KvOperation::kPut);
  options.clients = 1;
  options.rate_per_s = 200;
  options.timeout = absl::Milliseconds(2'000);
  options.measured = absl::Milliseconds(2'500);
  const auto report = RunClosedLoop(options, Ignore);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->lost, 1u);
  EXPECT_GE(report->latency_ns.Quantile(1.0), 1'500'000'000u)
      << "those that fell due meanwhile waited for the only client";
}

TEST_P(EtcdClosedLoop, RequestsLeaveAtTheRateAskedToo) {
  ClosedLoopOptions options = Options(address_, GetParam());
  options.rate_per_s = 500;
  const auto report = RunEtcdClosedLoop(options, 1, Ignore);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_LE(static_cast<double>(report->answered + report->failed), 500 * report->seconds + 15);
  EXPECT_GE(static_cast<double>(report->answered + report->failed + report->behind), 500 * report->seconds - 15);
}

}  // namespace
}  // namespace hedgerow::bench
