// SPDX-License-Identifier: Apache-2.0
#include "bench/kv/etcd_loop.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "chaos/etcd/kv.grpc.pb.h"
#include "operate/clock.h"

namespace hedgerow::bench {
namespace {

constexpr auto kConnectWithin = std::chrono::seconds(10);

// gRPC would let channels to one address share a connection: a pool of its own keeps each one's apart.
std::shared_ptr<grpc::Channel> Connection(const std::string& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(absl::StrCat("ipv4:", server), grpc::InsecureChannelCredentials(), arguments);
}

class EtcdCallers final : public Callers {
 public:
  explicit EtcdCallers(const ClosedLoopOptions& options) : options_(options), calls_(options.clients) {}
  ~EtcdCallers() override;

  absl::Status Connect(size_t connections);
  absl::Status Send(size_t caller, std::string key) override;
  absl::Status Wait(uint64_t until_ns, absl::FunctionRef<absl::Status(const Ended&)> on_ended) override;

 private:
  struct Call {
    etcdserverpb::KV::Stub* stub = nullptr;
    uint64_t sent_ns = 0;
    std::unique_ptr<grpc::ClientContext> context{};
    grpc::Status status{};
    etcdserverpb::RangeResponse range{};
    etcdserverpb::PutResponse put{};
    std::unique_ptr<grpc::ClientAsyncResponseReader<etcdserverpb::RangeResponse>> range_reader{};
    std::unique_ptr<grpc::ClientAsyncResponseReader<etcdserverpb::PutResponse>> put_reader{};
  };

  const ClosedLoopOptions& options_;
  std::vector<std::unique_ptr<etcdserverpb::KV::Stub>> stubs_;
  grpc::CompletionQueue queue_;
  std::vector<Call> calls_;
};

// Every call has a deadline, so this ends; the queue writes into the calls until it is empty.
EtcdCallers::~EtcdCallers() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status EtcdCallers::Connect(size_t connections) {
  for (size_t i = 0; i < connections; ++i) {
    const std::shared_ptr<grpc::Channel> channel = Connection(options_.server);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + kConnectWithin)) {
      return absl::UnavailableError(absl::StrCat("no connection to ", options_.server, " within 10 s"));
    }
    stubs_.push_back(etcdserverpb::KV::NewStub(channel));
  }
  for (size_t i = 0; i < calls_.size(); ++i) calls_[i].stub = stubs_[i % stubs_.size()].get();
  return absl::OkStatus();
}

absl::Status EtcdCallers::Send(size_t caller, std::string key) {
  Call& call = calls_[caller];
  call.context = std::make_unique<grpc::ClientContext>();
  call.context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(options_.timeout));
  void* const tag = reinterpret_cast<void*>(caller);
  call.sent_ns = operate::Monotonic_ns();
  if (options_.operation == KvOperation::kGet) {
    etcdserverpb::RangeRequest request;
    request.set_key(std::move(key));
    call.range_reader = call.stub->AsyncRange(call.context.get(), request, &queue_);
    call.range_reader->Finish(&call.range, &call.status, tag);
  } else {
    etcdserverpb::PutRequest request;
    request.set_key(std::move(key));
    request.set_value(std::string(options_.value_bytes, 'v'));
    call.put_reader = call.stub->AsyncPut(call.context.get(), request, &queue_);
    call.put_reader->Finish(&call.put, &call.status, tag);
  }
  return absl::OkStatus();
}

absl::Status EtcdCallers::Wait(uint64_t until_ns, absl::FunctionRef<absl::Status(const Ended&)> on_ended) {
  const uint64_t now_ns = operate::Monotonic_ns();
  const auto until =
      std::chrono::system_clock::now() + std::chrono::nanoseconds(until_ns > now_ns ? until_ns - now_ns : 0);
  void* tag = nullptr;
  bool ok = false;
  if (queue_.AsyncNext(&tag, &ok, until) != grpc::CompletionQueue::GOT_EVENT) return absl::OkStatus();
  const auto caller = reinterpret_cast<size_t>(tag);
  const Call& call = calls_[caller];
  const bool lost = call.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  return on_ended({.caller = caller,
                   .ending = call.status.ok() ? Ending::kAnswered
                             : lost           ? Ending::kLost
                                              : Ending::kFailed,
                   .sent_ns = call.sent_ns,
                   .ended_ns = operate::Monotonic_ns()});
}

}  // namespace

absl::StatusOr<ClosedLoopReport> RunEtcdClosedLoop(const ClosedLoopOptions& options, size_t connections,
                                                   void (*on_phase)(const char* phase)) {
  EtcdCallers callers(options);
  absl::Status connected = callers.Connect(connections == 0 ? options.clients : connections);
  if (!connected.ok()) return connected;
  return RunLoop(options, callers, on_phase);
}

}  // namespace hedgerow::bench
