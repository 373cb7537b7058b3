// SPDX-License-Identifier: Apache-2.0
//
// A call of an administration's server whose answer its program's event loop gives. Blocks the server's thread for 10 s
// at most; then, and where the loop has ended, it is an error.

#pragma once

#include <functional>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operate/event_loop.h"
#include "operate/grpc_status.h"

namespace hedgerow::operate {

// `body` runs on the loop's thread.
template <typename T>
grpc::Status ReplyFromLoop(EventLoop& loop, T* reply, std::type_identity_t<std::function<absl::StatusOr<T>()>> body) {
  constexpr absl::Duration kTimeout = absl::Seconds(10);
  absl::StatusOr<T> result = loop.Call<T>(kTimeout, std::move(body));
  if (!result.ok()) return ToGrpc(result.status());
  *reply = *std::move(result);
  return grpc::Status::OK;
}

}  // namespace hedgerow::operate
