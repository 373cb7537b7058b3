// SPDX-License-Identifier: Apache-2.0
#include "proxy/admin/server.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "net/steady_wait.h"
#include "operate/audit.h"
#include "operate/grpc_status.h"
#include "operate/reply_from_loop.h"
#include "proxy/api/admin.grpc.pb.h"
#include "operate/log.h"
#include "operate/unit.h"
#include "proxy/trace/trace_event.h"
#include "proxy/trace/trace_filter.h"
#include "proxy/trace/tracer.h"

namespace hedgerow {
namespace {

// Longer than any call takes; a stuck loop must not hang the CLI for ever.
constexpr int kThreadsMax = 8;
constexpr int kRequestMax_bytes = 64 * 1024;

constexpr absl::Duration kStartTimeout = absl::Seconds(10);
constexpr absl::Duration kTake = absl::Milliseconds(100);
constexpr absl::Duration kHeartbeat = absl::Seconds(1);
// Of some 200 bytes each, far below the 4 MB that gRPC takes in one message.
constexpr size_t kEventsPerReply = 500;

struct Begun {
  std::shared_ptr<TraceStream> stream;
  v1::Config config;  // a copy: this is not the loop's thread
};

absl::StatusOr<Begun> Begin(Controller& controller, Tracer& tracer, const v1::TraceRequest& request) {
  Begun begun{.stream = nullptr, .config = controller.config()};
  const auto filter = MakeTraceFilter(begun.config, request);
  if (!filter.ok()) return filter.status();
  auto stream = tracer.Start([&] { return controller.OpenTrace(*filter); });
  if (!stream.ok()) return stream.status();
  begun.stream = *std::move(stream);
  return begun;
}

// The loop learns only at its next turn that the previous client is gone. A client that asks right after that one waits
// for this turn.
absl::StatusOr<Begun> BeginSoon(EventLoop& loop, Controller& controller, Tracer& tracer,
                                const v1::TraceRequest& request) {
  const absl::Time patience = net::MonotonicNow() + kTake + 4 * kTraceTurn;
  while (true) {
    auto begun = loop.Call<Begun>(kStartTimeout, [&] { return Begin(controller, tracer, request); });
    if (!absl::IsResourceExhausted(begun.status()) || net::MonotonicNow() > patience) return begun;
    absl::SleepFor(kTraceTurn);
  }
}

// False: the client is gone.
bool Write(const v1::Config& config, const TraceStream::Batch& batch, grpc::ServerWriter<v1::TraceReply>& writer) {
  size_t written = 0;
  do {
    v1::TraceReply reply;
    reply.set_requests_lost(batch.loss.requests);
    reply.set_events_lost(batch.loss.events);
    const size_t end = std::min(written + kEventsPerReply, batch.events.size());
    for (; written < end; ++written) *reply.add_events() = DescribeTraceEvent(config, batch.events[written]);
    if (!writer.Write(reply)) return false;
  } while (written < batch.events.size());
  return true;
}

// One client's trace, from its first to its last word, on the gRPC thread that the call holds, while the loop gathers
// what it sends. Returns when the client is gone (OK) or the trace was ended (Aborted).
absl::Status StreamTrace(EventLoop& loop, Controller& controller, Tracer& tracer, grpc::ServerContext& context,
                         const v1::TraceRequest& request, grpc::ServerWriter<v1::TraceReply>& writer) {
  const auto begun = BeginSoon(loop, controller, tracer, request);
  if (!begun.ok()) return begun.status();
  // The loop sees it at its next turn, even where it would take no closure any more.
  const absl::Cleanup abandon = [&begun] { begun->stream->Abandon(); };
  v1::TraceReply first;
  DescribeServices(begun->config, first);
  if (!writer.Write(first)) return absl::OkStatus();
  absl::Time written = net::MonotonicNow();
  while (!context.IsCancelled()) {
    const TraceStream::Batch batch = begun->stream->Take(kTake);
    const absl::Time now = net::MonotonicNow();
    if (batch.events.empty() && !batch.ended && now - written < kHeartbeat) continue;
    written = now;
    if (!Write(begun->config, batch, writer)) break;
    if (batch.ended) return absl::AbortedError(batch.why);
  }
  return absl::OkStatus();
}

// What changes nothing. The monitoring socket has these calls alone: gRPC refuses the others.
class Monitor : public v1::Admin::Service {
 public:
  Monitor(EventLoop& loop, Controller& controller) : loop_(loop), controller_(controller) {}

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*, v1::Status* reply) override {
    return OnLoop(reply, [this] { return controller_.Status(); });
  }
  grpc::Status LeaderShow(grpc::ServerContext*, const v1::LeaderShowRequest* request, v1::LeaderList* reply) override {
    return OnLoop(reply, [&] { return controller_.LeaderShow(request->service()); });
  }
  grpc::Status GetCounts(grpc::ServerContext*, const v1::GetCountsRequest*, v1::Counts* reply) override {
    return OnLoop(reply, [this] { return controller_.Counts(); });
  }

 protected:
  template <typename T>
  grpc::Status OnLoop(T* reply, std::type_identity_t<std::function<absl::StatusOr<T>()>> body) {
    return operate::ReplyFromLoop<T>(loop_, reply, std::move(body));
  }

  EventLoop& loop_;
  Controller& controller_;
};

// Every call, for the daemon's owner. What changes something, or shows clients' requests, leaves a line in the log.
class Administration final : public Monitor {
 public:
  Administration(EventLoop& loop, Controller& controller) : Monitor(loop, controller), tracer_(loop) {}

  grpc::Status LeaderSet(grpc::ServerContext* context, const v1::LeaderSetRequest* request,
                         v1::Leader* reply) override {
    return Change(*context, *request, reply,
                  [&] { return controller_.LeaderSet(request->service(), request->backend()); });
  }
  grpc::Status LeaderUnset(grpc::ServerContext* context, const v1::LeaderUnsetRequest* request,
                           v1::Leader* reply) override {
    return Change(*context, *request, reply, [&] { return controller_.LeaderUnset(request->service()); });
  }
  grpc::Status Bypass(grpc::ServerContext* context, const v1::BypassRequest* request, v1::BypassReply* reply) override {
    return Change(*context, *request, reply, [&] { return controller_.Bypass(request->service(), request->on()); });
  }
  grpc::Status DryRun(grpc::ServerContext* context, const v1::DryRunRequest* request, v1::DryRunReply* reply) override {
    return Change(*context, *request, reply, [&] { return controller_.DryRun(request->service(), request->on()); });
  }
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request, v1::DrainReply* reply) override {
    return Change(*context, *request, reply,
                  [&] { return controller_.Drain(request->backend(), request->service(), request->on()); });
  }
  grpc::Status TestHedge(grpc::ServerContext* context, const v1::TestHedgeRequest* request,
                         v1::TestHedgeReply* reply) override {
    return Change(*context, *request, reply, [&] { return controller_.TestHedge(*request); });
  }
  grpc::Status Down(grpc::ServerContext* context, const v1::DownRequest* request, v1::DownReply* reply) override {
    return Change(*context, *request, reply, [this] {
      tracer_.Stop("the daemon is going down");
      return controller_.Down();
    });
  }
  grpc::Status Reload(grpc::ServerContext* context, const v1::ReloadRequest* request, v1::ReloadReply* reply) override {
    const auto reload = [&] { return controller_.Reload(request->dry_run(), request->file()); };
    return request->dry_run() ? OnLoop(reply, reload) : Change(*context, *request, reply, reload);
  }
  grpc::Status Trace(grpc::ServerContext* context, const v1::TraceRequest* request,
                     grpc::ServerWriter<v1::TraceReply>* writer) override {
    return Audited(*context, *request,
                   operate::ToGrpc(StreamTrace(loop_, controller_, tracer_, *context, *request, *writer)));
  }

 private:
  template <typename T>
  grpc::Status Change(const grpc::ServerContext& context, const google::protobuf::Message& request, T* reply,
                      std::type_identity_t<std::function<absl::StatusOr<T>()>> body) {
    return Audited(context, request, OnLoop(reply, std::move(body)), reply);
  }
  static grpc::Status Audited(const grpc::ServerContext& context, const google::protobuf::Message& request,
                              grpc::Status result, const google::protobuf::Message* reply = nullptr) {
    return operate::Audited([](const std::string& line) { LogInfo(line); }, context, request, std::move(result), reply);
  }

  Tracer tracer_;  // the loop's
};

operate::AdminSocket::Options OptionsOf(const std::string& hint, const std::string& group) {
  return {.threads_max = kThreadsMax,
          .request_max_bytes = kRequestMax_bytes,
          .hint = hint,
          .group = group,
          .log = [](const std::string& line) { LogWarning(line); }};
}

}  // namespace

absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const std::string& socket_path, EventLoop& loop,
                                                                 Controller& controller) {
  return operate::AdminSocket::Listen(socket_path, std::make_unique<Administration>(loop, controller),
                                      OptionsOf("give this instance its own admin.socket", ""));
}

std::string MonitorSocketOf(const v1::AdminConfig& config) {
  return operate::MonitorSocketOr(config.monitor_socket(), config.socket(), config.monitor_group());
}

absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeMonitor(const v1::AdminConfig& config, EventLoop& loop,
                                                                   Controller& controller) {
  return operate::AdminSocket::ListenForGroup(
      config.monitor_socket(), config.socket(), std::make_unique<Monitor>(loop, controller),
      OptionsOf("give this instance its own admin.monitor_socket", config.monitor_group()));
}

}  // namespace hedgerow
