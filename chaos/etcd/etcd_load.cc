// SPDX-License-Identifier: Apache-2.0
#include "chaos/etcd/etcd_load.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include <grpcpp/alarm.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "bench/load/udp_socket.h"
#include "chaos/load/final_read.h"

namespace hedgerow::chaos {
namespace {

constexpr absl::Duration kOpenWithin = absl::Seconds(10);
// As etcd's Go client waits.
constexpr auto kSendAgainAfter = std::chrono::milliseconds(25);

uint64_t Now_ns() { return static_cast<uint64_t>(bench::MonotonicNs()); }

// Requests go round all servers that are connected. A channel of its own for each client: gRPC would let equal
// ones share their connections.
std::shared_ptr<grpc::Channel> Connect(const std::vector<std::string>& servers) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetLoadBalancingPolicyName("round_robin");
  // A server that comes back is used again soon: gRPC's own pauses grow to minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // As etcdctl: a connection that says nothing for 2 s is asked, and given up 6 s later.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 6000);
  return grpc::CreateCustomChannel(absl::StrCat("ipv4:", absl::StrJoin(servers, ",")),
                                   grpc::InsecureChannelCredentials(), arguments);
}

void Prepare(grpc::ClientContext& context, std::chrono::nanoseconds timeout) {
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

std::string ErrorName(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE: return "unavailable";
    case grpc::StatusCode::RESOURCE_EXHAUSTED: return "resource_exhausted";
    case grpc::StatusCode::UNKNOWN: return "unknown";
    default: return absl::StrCat("grpc_", static_cast<int>(status.error_code()));
  }
}

// What a key holds: a counter's version, a register's number, 0 if it is not there.
bool Told(Kind kind, const etcdserverpb::RangeResponse& answer, uint64_t& value) {
  value = 0;
  if (answer.kvs().empty()) return true;
  const etcdserverpb::KeyValue& found = answer.kvs(0);
  if (IsCounter(kind)) {
    value = static_cast<uint64_t>(found.version());
    return true;
  }
  const std::string& text = found.value();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

struct EtcdLoad::Call {
  Client* client = nullptr;
  size_t record = 0;
  Kind kind = Kind::kGet;
  std::string key{};
  uint64_t put_value = 0;
  uint64_t deadline_ns = 0;
  std::unique_ptr<grpc::ClientContext> context{};
  grpc::Status status{};
  etcdserverpb::RangeResponse range{};
  etcdserverpb::PutResponse put{};
  std::unique_ptr<grpc::ClientAsyncResponseReader<etcdserverpb::RangeResponse>> range_reader{};
  std::unique_ptr<grpc::ClientAsyncResponseReader<etcdserverpb::PutResponse>> put_reader{};
  std::unique_ptr<grpc::Alarm> again{};  // set while the call waits to be sent again
  uint32_t attempts = 1;
};

absl::StatusOr<std::unique_ptr<EtcdLoad>> EtcdLoad::Make(const LoadOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  auto load = std::unique_ptr<EtcdLoad>(new EtcdLoad(options));
  // Never more than this: the other thread holds on to its records.
  load->records_.reserve(options.run_max_ns / options.interval_ns * options.clients + options.clients);
  for (uint32_t i = 0; i < options.clients; ++i) {
    load->clients_.push_back({.stub = etcdserverpb::KV::NewStub(Connect(options.servers)),
                              .mix = OperationMix(options.mix, i),
                              .next_send_ns = 0});
  }
  return load;
}

EtcdLoad::~EtcdLoad() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status EtcdLoad::Open() {
  for (Client& client : clients_) {
    grpc::ClientContext context;
    Prepare(context, absl::ToChronoNanoseconds(kOpenWithin));
    etcdserverpb::RangeRequest request;
    etcdserverpb::RangeResponse answer;
    request.set_key("none");
    const grpc::Status status = client.stub->Range(&context, request, &answer);
    if (!status.ok()) return absl::UnavailableError(absl::StrCat("no answer within 10 s: ", status.error_message()));
  }
  return absl::OkStatus();
}

void EtcdLoad::Run(const std::atomic<bool>& stop) {
  bench::AskForExactTimers();
  const uint64_t start_ns = Now_ns() + 5'000'000;
  const uint64_t end_ns = start_ns + options_.run_max_ns;
  for (size_t i = 0; i < clients_.size(); ++i) {
    clients_[i].next_send_ns = start_ns + i * options_.interval_ns / clients_.size();
  }
  std::thread collector([this] { Collect(); });
  while (!stop && Now_ns() < end_ns) {
    uint64_t due_ns = UINT64_MAX;
    for (Client& client : clients_) {
      for (; client.next_send_ns <= Now_ns() && records_.size() < records_.capacity();
           client.next_send_ns += options_.interval_ns) {
        Issue(client, client.next_send_ns);
      }
      due_ns = std::min(due_ns, client.next_send_ns);
    }
    bench::WaitReadable({}, static_cast<int64_t>(std::min(due_ns, Now_ns() + 100'000'000)), {});
  }
  // Every call has a deadline, so this ends.
  while (outstanding_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  queue_.Shutdown();
  collector.join();
}

void EtcdLoad::Issue(Client& client, uint64_t intended_ns) {
  Record record = client.mix.Next();
  {
    const absl::MutexLock lock(&rooms_mutex_);
    record.key = rooms_.Take(record.kind, record.key);
  }
  record.intended_ns = intended_ns;
  record.sent_ns = Now_ns();
  counters_.send_lag_max_ns = std::max(counters_.send_lag_max_ns, record.sent_ns - intended_ns);
  ++counters_.sent;
  auto* call = new Call{.client = &client,
                        .record = records_.size(),
                        .kind = record.kind,
                        .key = KeyName(record.kind, record.key),
                        .put_value = record.value,
                        .deadline_ns = record.sent_ns + options_.timeout_ns};
  records_.push_back(record);
  ++outstanding_;
  Start(*call);
}

void EtcdLoad::Start(Call& call) {
  call.context = std::make_unique<grpc::ClientContext>();
  const uint64_t now_ns = Now_ns();
  const uint64_t left_ns = call.deadline_ns > now_ns ? call.deadline_ns - now_ns : 0;
  Prepare(*call.context, std::chrono::nanoseconds(left_ns));
  if (IsWrite(call.kind)) {
    etcdserverpb::PutRequest request;
    request.set_key(call.key);
    request.set_prev_kv(call.kind == Kind::kIncrement);
    if (call.kind == Kind::kPut) request.set_value(absl::StrCat(call.put_value));
    call.put_reader = call.client->stub->AsyncPut(call.context.get(), request, &queue_);
    call.put_reader->Finish(&call.put, &call.status, &call);
  } else {
    etcdserverpb::RangeRequest request;
    request.set_key(call.key);
    call.range_reader = call.client->stub->AsyncRange(call.context.get(), request, &queue_);
    call.range_reader->Finish(&call.range, &call.status, &call);
  }
}

void EtcdLoad::Collect() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    Call& call = *static_cast<Call*>(tag);
    if (call.again != nullptr) {
      call.again.reset();
      ++call.attempts;
      ++counters_.retries;
      Start(call);
    } else if (!SendAgain(call)) {
      End(call);
      delete &call;
      --outstanding_;
    }
  }
}

bool EtcdLoad::SendAgain(Call& call) {
  if (IsWrite(call.kind) || call.status.error_code() != grpc::StatusCode::UNAVAILABLE) return false;
  const auto wait_ns = static_cast<uint64_t>(std::chrono::nanoseconds(kSendAgainAfter).count());
  if (Now_ns() + wait_ns >= call.deadline_ns) return false;
  call.again = std::make_unique<grpc::Alarm>();
  call.again->Set(&queue_, std::chrono::system_clock::now() + kSendAgainAfter, &call);
  return true;
}

void EtcdLoad::End(Call& call) {
  Record& record = records_.data()[call.record];  // not operator[], which looks at the size that grows meanwhile
  Conclude(call, record);
  const absl::MutexLock lock(&rooms_mutex_);
  rooms_.Ended(record);
}

void EtcdLoad::Conclude(Call& call, Record& record) {
  record.ended_ns = Now_ns();
  record.attempts = call.attempts;
  if (call.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    record.ending = Ending::kTimedOut;
    ++counters_.timed_out;
    return;
  }
  bool understood = call.status.ok();
  if (understood && call.kind == Kind::kIncrement) {
    record.value = static_cast<uint64_t>(call.put.prev_kv().version()) + 1;
  } else if (understood && call.kind == Kind::kGet) {
    understood = Told(call.kind, call.range, record.value);
  }
  record.ending = understood ? Ending::kOk : Ending::kError;
  if (understood) {
    ++counters_.ok;
  } else {
    ++counters_.errors[call.status.ok() ? "no_number" : ErrorName(call.status)];
  }
}

absl::StatusOr<ReadKey> EtcdLoad::ConnectTo(const std::string& server) {
  const auto stub = std::make_shared<etcdserverpb::KV::Stub>(Connect({server}));
  return [stub](Record& record) -> absl::Status {
    etcdserverpb::RangeRequest request;
    request.set_key(KeyName(record.kind, record.key));
    etcdserverpb::RangeResponse answer;
    grpc::ClientContext context;
    Prepare(context, std::chrono::seconds(2));
    const grpc::Status status = stub->Range(&context, request, &answer);
    if (!status.ok()) return absl::UnavailableError(status.error_message());
    if (!Told(record.kind, answer, record.value)) return absl::DataLossError("holds what is no number");
    return absl::OkStatus();
  };
}

}  // namespace hedgerow::chaos
