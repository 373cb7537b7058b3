// SPDX-License-Identifier: Apache-2.0
//
// The load of the chaos experiments on etcd: the same clients, operations and times as on our own store, over
// etcd's own protocol (gRPC). An increment is a put whose answer carries the version before it: etcd counts the
// puts of each key, once each and in order, so that the version is the counter and the same judge can be asked.
//
// It behaves as etcd's Go client with all endpoints given: requests go round the servers that are connected and
// wait for a connection; a read is sent again 25 ms after an "unavailable", until its deadline; a write is not,
// because nothing would keep it from being done twice. Sends come from the calling thread, answers are read by
// another: gRPC's queue sleeps by milliseconds, which would delay the sends.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "chaos/etcd/kv.grpc.pb.h"
#include "chaos/load/final_read.h"
#include "chaos/load/hkv_load.h"

namespace hedgerow::chaos {

class EtcdLoad {
 public:
  static absl::StatusOr<std::unique_ptr<EtcdLoad>> Make(const LoadOptions& options);
  ~EtcdLoad();

  // Connects the clients and lets each read once: up to 10 s.
  absl::Status Open();

  // Until `stop` or the end of the run, and then until nothing is outstanding any more.
  void Run(const std::atomic<bool>& stop);

  // After Run.
  const std::vector<Record>& records() const { return records_; }
  const LoadCounters& counters() const { return counters_; }

  // For ReadFinalState.
  static absl::StatusOr<ReadKey> ConnectTo(const std::string& server);

 private:
  struct Client {
    std::unique_ptr<etcdserverpb::KV::Stub> stub;
    OperationMix mix;
    uint64_t next_send_ns;
  };
  struct Call;

  explicit EtcdLoad(const LoadOptions& options) : options_(options), rooms_(options.mix) {}

  void Issue(Client& client, uint64_t intended_ns);
  void Start(Call& call);
  void Collect();
  void End(Call& call);
  void Conclude(Call& call, Record& record);
  bool SendAgain(Call& call);

  LoadOptions options_;
  std::vector<Client> clients_;
  grpc::CompletionQueue queue_;
  // Appended by the sending thread within the reserved room; a record belongs to the receiving thread from its
  // send to its end.
  std::vector<Record> records_;
  std::atomic<uint64_t> outstanding_ = 0;
  absl::Mutex rooms_mutex_;
  KeyRooms rooms_ ABSL_GUARDED_BY(rooms_mutex_);
  LoadCounters counters_;  // of the receiving thread, but for `sent` and the lag
};

}  // namespace hedgerow::chaos
