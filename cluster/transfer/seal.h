// SPDX-License-Identifier: Apache-2.0
//
// The frames of one transfer, sealed: a key that only this connection has, a tag for each frame, and a count
// for each direction, so that a frame that was forged, changed, repeated, left out or sent back
// is recognised. Used by both ends of a transfer (cluster/api/transfer.proto).

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "bpf/abi/siphash_abi.h"
#include "cluster/api/transfer.pb.h"
#include "cluster/raft/types.h"
#include "cluster/wire/key.h"

namespace hedgerow::transfer {

inline constexpr size_t kNonce_bytes = 16;

// From the kernel's generator.
std::string DrawNonce();

// A frame before there is a key: Hello or Challenge.
v1::Frame Open(const v1::Message& message);
absl::StatusOr<v1::Message> ReadOpen(const v1::Frame& frame);

class Seal {
 public:
  enum class End : uint8_t { kCaller = 1, kCalled = 2 };

  Seal(const wire::Key& cluster_key, const v1::Hello& hello, const v1::Challenge& challenge, End self);

  v1::Frame Close(const v1::Message& message);
  // PermissionDenied: the tag is not the next one that the other end could have made.
  absl::StatusOr<v1::Message> Read(const v1::Frame& frame);

 private:
  uint64_t Tag(End from, uint64_t number, const std::string& message) const;

  hr_siphash_key key_{};
  End self_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

}  // namespace hedgerow::transfer
