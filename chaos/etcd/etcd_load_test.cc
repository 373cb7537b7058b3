// SPDX-License-Identifier: Apache-2.0
//
// The load against an etcd of a few lines: the version of a key counts its puts, as etcd's does.
#include "chaos/etcd/etcd_load.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chaos/check/verdict.h"

namespace hedgerow::chaos {
namespace {

constexpr uint64_t kMs = 1'000'000;

class FakeEtcd final : public etcdserverpb::KV::Service {
 public:
  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest* request,
                     etcdserverpb::RangeResponse* answer) override {
    const std::lock_guard lock(mutex_);
    if (++reads_ % 7 == 0) return {grpc::StatusCode::UNAVAILABLE, "etcdserver: leader changed"};
    const auto found = keys_.find(request->key());
    if (found != keys_.end()) *answer->add_kvs() = found->second;
    return grpc::Status::OK;
  }
  grpc::Status Put(grpc::ServerContext*, const etcdserverpb::PutRequest* request,
                   etcdserverpb::PutResponse* answer) override {
    const std::lock_guard lock(mutex_);
    ++puts_;
    enough = puts_ >= 40;
    if (puts_ % 10 == 0) return {grpc::StatusCode::UNAVAILABLE, "etcdserver: request timed out"};
    etcdserverpb::KeyValue& key = keys_[request->key()];
    if (request->prev_kv() && key.version() > 0) *answer->mutable_prev_kv() = key;
    key.set_version(key.version() + 1);
    key.set_value(request->value());
    return grpc::Status::OK;
  }
  std::atomic<bool> enough = false;  // puts

  uint64_t puts() {
    const std::lock_guard lock(mutex_);
    return puts_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, etcdserverpb::KeyValue> keys_;
  uint64_t puts_ = 0;
  uint64_t reads_ = 0;
};

TEST(EtcdLoad, ReadsAreSentAgainAndWritesAreNotAndTheHistoryHolds) {
  FakeEtcd etcd;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&etcd);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::vector<std::string> servers = {"127.0.0.1:" + std::to_string(port)};

  auto load = EtcdLoad::Make({.servers = servers, .interval_ns = 4 * kMs, .run_max_ns = 20'000 * kMs});
  ASSERT_TRUE(load.ok()) << load.status();
  ASSERT_TRUE((*load)->Open().ok());
  (*load)->Run(etcd.enough);

  const std::vector<Record>& records = (*load)->records();
  const LoadCounters& counters = (*load)->counters();
  EXPECT_GE(records.size(), 50u);
  EXPECT_EQ(counters.sent, records.size());
  EXPECT_GT(counters.retries, 0u);
  EXPECT_EQ(counters.errors.at("unavailable"), etcd.puts() / 10);
  EXPECT_EQ(counters.ok + etcd.puts() / 10, records.size());
  const auto writes = std::count_if(records.begin(), records.end(), [](const Record& r) { return IsWrite(r.kind); });
  EXPECT_EQ(etcd.puts(), static_cast<uint64_t>(writes)) << "no write was sent twice";

  const auto final_reads = ReadFinalState(servers, ReadsOfAllKeys(records), absl::Seconds(10), EtcdLoad::ConnectTo);
  ASSERT_TRUE(final_reads.ok()) << final_reads.status();
  const absl::StatusOr<Verdict> verdict = Judge(records, *final_reads);
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_TRUE(verdict->linearizable) << ToJson(*verdict);
  EXPECT_EQ(verdict->acked_lost + verdict->double_applied, 0u);
  server->Shutdown();
}

TEST(EtcdLoad, WithoutAServerItSaysSo) { EXPECT_FALSE(EtcdLoad::Make({.servers = {}, .run_max_ns = kMs}).ok()); }

}  // namespace
}  // namespace hedgerow::chaos
