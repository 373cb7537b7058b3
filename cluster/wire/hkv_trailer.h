// SPDX-License-Identifier: Apache-2.0
//
// The authenticated trailer of hkv (docs/WIRE_FORMAT.md, docs/adr/0039): what a client and a node that share a key
// append to a request and to its answer. Bit 0 of the flags announces it. A request's trailer has the client's name and
// the time; both have a SipHash-2-4 tag of everything before it, under the client's key. The trailer stands at the
// datagram's end, so that it is found and checked without the body. Used by the node's front end and the clients. Pure;
// any thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/wire/key.h"

namespace hedgerow::wire {

constexpr size_t kHkvClientNameMax_bytes = 31;
constexpr size_t kHkvTag_bytes = 8;
// Behind the client's name: its length, the time, the tag.
constexpr size_t kHkvRequestTrailerFixed_bytes = 1 + 8 + kHkvTag_bytes;
// How far a request's time may be from a node's. A write is done once if its copies come within 65 seconds of the first
// (docs/SAFETY.md). One node takes copies for twice this, which leaves 25 seconds by which the nodes' clocks may
// differ.
constexpr uint64_t kHkvClockTolerance_ms = 20'000;

struct HkvTrailer {
  std::string_view client;  // 1 to 31 bytes
  uint64_t sent_ms = 0;     // since 1970, by the client's clock

  // From the client's name on.
  size_t size_bytes() const { return client.size() + kHkvRequestTrailerFixed_bytes; }
};

// Whether a datagram of this version says that it has a trailer; false if it is too short to say anything.
bool HasHkvTrailer(std::string_view datagram);

// Of a request with one. Nothing: the trailer is not whole. It points into `datagram` and proves nothing yet.
std::optional<HkvTrailer> FindHkvTrailer(std::string_view datagram);

// The tag at the end of a request or an answer is of everything before it. False as well if there is none.
bool IsHkvTagRight(std::string_view datagram, const Key& key);

// An encoded request with its trailer. Empty if `request` is, if that passes 1,232 bytes, or if the name has no 1 to 31
// bytes.
std::string SealHkvRequest(std::string request, std::string_view client, uint64_t sent_ms, const Key& key);

// An encoded answer with its tag. It must have room for that: Encode's `reserved_bytes`.
std::string SealHkvAnswer(std::string answer, const Key& key);

}  // namespace hedgerow::wire
