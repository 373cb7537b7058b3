// SPDX-License-Identifier: Apache-2.0
//
// One client's trace, from its first to its last word: runs on the gRPC thread
// that the call holds, while the loop gathers what it sends. Called by the
// administration service.

#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/sync_stream.h>

#include "absl/status/status.h"
#include "proxy/admin/controller.h"
#include "proxy/api/admin.pb.h"
#include "operate/event_loop.h"
#include "proxy/trace/tracer.h"

namespace hedgerow {

// Returns when the client is gone (OK) or the trace was ended (Aborted). `tracer` is the loop's.
absl::Status StreamTrace(EventLoop& loop, Controller& controller, Tracer& tracer, grpc::ServerContext& context,
                         const v1::TraceRequest& request, grpc::ServerWriter<v1::TraceReply>& writer);

}  // namespace hedgerow
