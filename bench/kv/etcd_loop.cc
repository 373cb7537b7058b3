// SPDX-License-Identifier: Apache-2.0
#include "bench/kv/etcd_loop.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "bench/load/udp_socket.h"
#include "chaos/etcd/kv.grpc.pb.h"

namespace hedgerow::bench {
namespace {

constexpr auto kConnectWithin = std::chrono::seconds(10);

uint64_t Now_ns() { return static_cast<uint64_t>(MonotonicNs()); }

// gRPC would let channels to one address share a connection: a pool of its own keeps each one's apart.
std::shared_ptr<grpc::Channel> Connection(const std::string& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(absl::StrCat("ipv4:", server), grpc::InsecureChannelCredentials(), arguments);
}

class EtcdLoop {
 public:
  explicit EtcdLoop(const ClosedLoopOptions& options) : options_(options) {}
  ~EtcdLoop();

  absl::Status Connect(size_t connections);
  ClosedLoopReport Run(void (*on_phase)(const char*));

 private:
  struct Caller {
    etcdserverpb::KV::Stub* stub = nullptr;
    uint64_t next_key = 0;
    uint64_t sent_ns = 0;
    std::unique_ptr<grpc::ClientContext> context{};
    grpc::Status status{};
    etcdserverpb::RangeResponse range{};
    etcdserverpb::PutResponse put{};
    std::unique_ptr<grpc::ClientAsyncResponseReader<etcdserverpb::RangeResponse>> range_reader{};
    std::unique_ptr<grpc::ClientAsyncResponseReader<etcdserverpb::PutResponse>> put_reader{};
  };

  void Send(size_t index);
  void Collect(size_t index);
  void CollectFor(absl::Duration duration);

  const ClosedLoopOptions& options_;
  std::vector<std::unique_ptr<etcdserverpb::KV::Stub>> stubs_;
  grpc::CompletionQueue queue_;
  std::vector<Caller> callers_;
  size_t outstanding_ = 0;
  bool stopping_ = false;
  uint64_t begin_ns_ = UINT64_MAX;  // of the measured part
  ClosedLoopReport report_;
};

// Every call has a deadline, so this ends; the queue writes into the callers until it is empty.
EtcdLoop::~EtcdLoop() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status EtcdLoop::Connect(size_t connections) {
  for (size_t i = 0; i < connections; ++i) {
    const std::shared_ptr<grpc::Channel> channel = Connection(options_.server);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + kConnectWithin)) {
      return absl::UnavailableError(absl::StrCat("no connection to ", options_.server, " within 10 s"));
    }
    stubs_.push_back(etcdserverpb::KV::NewStub(channel));
  }
  callers_.resize(options_.clients);
  for (size_t i = 0; i < callers_.size(); ++i) callers_[i].stub = stubs_[i % stubs_.size()].get();
  return absl::OkStatus();
}

void EtcdLoop::Send(size_t index) {
  Caller& caller = callers_[index];
  caller.context = std::make_unique<grpc::ClientContext>();
  caller.context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(options_.timeout));
  void* const tag = reinterpret_cast<void*>(index);
  std::string key = absl::StrCat("bench/", index, "/", caller.next_key++ % options_.keys);
  caller.sent_ns = Now_ns();
  ++outstanding_;
  if (options_.operation == KvOperation::kGet) {
    etcdserverpb::RangeRequest request;
    request.set_key(std::move(key));
    caller.range_reader = caller.stub->AsyncRange(caller.context.get(), request, &queue_);
    caller.range_reader->Finish(&caller.range, &caller.status, tag);
    return;
  }
  etcdserverpb::PutRequest request;
  request.set_key(std::move(key));
  request.set_value(std::string(options_.value_bytes, 'v'));
  caller.put_reader = caller.stub->AsyncPut(caller.context.get(), request, &queue_);
  caller.put_reader->Finish(&caller.put, &caller.status, tag);
}

void EtcdLoop::Collect(size_t index) {
  const Caller& caller = callers_[index];
  --outstanding_;
  if (caller.sent_ns >= begin_ns_) {
    if (caller.status.ok()) {
      ++report_.answered;
      report_.latency_ns.Record(Now_ns() - caller.sent_ns);
    } else if (caller.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      ++report_.lost;
    } else {
      ++report_.failed;
    }
  }
  if (!stopping_) Send(index);
}

void EtcdLoop::CollectFor(absl::Duration duration) {
  const auto end = std::chrono::system_clock::now() + absl::ToChronoNanoseconds(duration);
  void* tag = nullptr;
  bool ok = false;
  while (outstanding_ > 0 && std::chrono::system_clock::now() < end) {
    if (queue_.AsyncNext(&tag, &ok, end) != grpc::CompletionQueue::GOT_EVENT) return;
    Collect(reinterpret_cast<size_t>(tag));
  }
}

ClosedLoopReport EtcdLoop::Run(void (*on_phase)(const char*)) {
  for (size_t i = 0; i < callers_.size(); ++i) Send(i);
  CollectFor(options_.warm_up);
  on_phase("measuring");
  begin_ns_ = Now_ns();
  CollectFor(options_.measured);
  report_.seconds = static_cast<double>(Now_ns() - begin_ns_) / 1e9;
  stopping_ = true;
  on_phase("measured");
  CollectFor(options_.timeout + absl::Seconds(1));  // each has a deadline
  return std::move(report_);
}

}  // namespace

absl::StatusOr<ClosedLoopReport> RunEtcdClosedLoop(const ClosedLoopOptions& options, size_t connections,
                                                   void (*on_phase)(const char* phase)) {
  if (options.rate_per_s > 0) return absl::InvalidArgumentError("etcd's clients are a closed loop: no --rate");
  EtcdLoop loop(options);
  if (absl::Status status = loop.Connect(connections == 0 ? options.clients : connections); !status.ok()) return status;
  return loop.Run(on_phase);
}

}  // namespace hedgerow::bench
