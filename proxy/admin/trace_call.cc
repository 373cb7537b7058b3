// SPDX-License-Identifier: Apache-2.0
#include "proxy/admin/trace_call.h"

#include <algorithm>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "net/steady_wait.h"
#include "proxy/trace/trace_event.h"
#include "proxy/trace/trace_filter.h"

namespace hedgerow {
namespace {

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

}  // namespace

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

}  // namespace hedgerow
