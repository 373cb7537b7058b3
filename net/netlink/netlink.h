// SPDX-License-Identifier: Apache-2.0
//
// A small rtnetlink client: build a request, send it, get an acknowledgement, an answer or a dump. It exists
// beside libnl because we need what libnl hides: the kernel's own error number and its explanation (extended
// ack), and attributes newer than the library. Used by every file of net/; not meant for callers outside
// the folder.
//
// A socket belongs to the network namespace of the thread that opened it. It is not thread-safe.
#pragma once

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "net/unique_fd.h"

namespace hedgerow::net::netlink {

// A request under construction. Attributes are appended in order; nested ones between Begin and End.
class Request {
 public:
  template <typename Family>
  Request(uint16_t type, uint16_t flags, const Family& family_header) : Request(type, flags) {
    Append(&family_header, sizeof(family_header));
  }

  Request& Put(uint16_t type, std::span<const uint8_t> bytes);
  Request& PutU8(uint16_t type, uint8_t value) { return PutValue(type, value); }
  Request& PutU32(uint16_t type, uint32_t value) { return PutValue(type, value); }
  Request& PutString(uint16_t type, absl::string_view text);  // zero-terminated on the wire

  template <typename T>
  Request& PutValue(uint16_t type, const T& value) {
    return Put(type, std::span(reinterpret_cast<const uint8_t*>(&value), sizeof(value)));
  }

  size_t Begin(uint16_t type);
  void End(size_t begin);
  // Appends raw bytes, padded to four: the inner header of a nested attribute (veth's peer).
  void Append(const void* data, size_t bytes);

  std::span<const uint8_t> Finish(uint32_t sequence, uint16_t extra_flags);
  uint16_t flags() const { return flags_; }

 private:
  Request(uint16_t type, uint16_t flags);
  uint16_t flags_;
  std::vector<uint8_t> buffer_;
};

// The family header of requests about queueing disciplines, their classes and filters.
inline tcmsg TcHeader(int ifindex, uint32_t parent = 0, uint32_t handle = 0) {
  tcmsg header{};
  header.tcm_ifindex = ifindex;
  header.tcm_parent = parent;
  header.tcm_handle = handle;
  return header;
}

// A read-only view of a run of attributes. The bytes belong to the message it was made from.
class Attributes {
 public:
  Attributes() = default;
  explicit Attributes(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // The payload of the first attribute of this type (nested and byte-order bits ignored); empty optional: not
  // there.
  std::optional<std::span<const uint8_t>> Find(uint16_t type) const;
  Attributes Nested(uint16_t type) const;
  std::string String(uint16_t type) const;  // "" when not there
  template <typename T>
  std::optional<T> Value(uint16_t type) const {
    const auto payload = Find(type);
    if (!payload || payload->size() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, payload->data(), sizeof(T));
    return value;
  }
  void ForEach(const std::function<void(uint16_t type, std::span<const uint8_t> payload)>& visit) const;

 private:
  std::span<const uint8_t> bytes_;
};

// One message from the kernel: its type and everything behind the netlink header.
struct Message {
  uint16_t type = 0;
  std::span<const uint8_t> payload;

  // The family header (ifinfomsg, rtmsg, ...); zeroes when the message is too short to hold one.
  template <typename Family>
  Family Header() const {
    Family header{};
    if (payload.size() >= sizeof(Family)) std::memcpy(&header, payload.data(), sizeof(Family));
    return header;
  }
  template <typename Family>
  Attributes AttributesAfter() const {
    const size_t skip = NLMSG_ALIGN(sizeof(Family));
    return payload.size() > skip ? Attributes(payload.subspan(skip)) : Attributes();
  }
};

using Visitor = std::function<void(const Message&)>;

class Socket {
 public:
  // `groups` are RTNLGRP_* numbers to join (none for requests); `protocol` is NETLINK_ROUTE or another.
  static absl::StatusOr<Socket> Open(std::span<const uint32_t> groups = {}, int protocol = NETLINK_ROUTE);

  // Sends and waits for the acknowledgement. `what` opens the error message ("set hr0 up").
  absl::Status Do(Request& request, absl::string_view what);
  // Sends all at once, as nfnetlink's transactions want it, and waits until each is acknowledged or one is refused.
  absl::Status DoAll(std::span<Request> requests, absl::string_view what);
  // Sends and gives every message of the answer (one for a get, many for a dump) to `visit`.
  absl::Status Ask(Request& request, absl::string_view what, const Visitor& visit);
  // Gives pending messages to `visit` without blocking, until there are none or it returns false; then the rest of that
  // datagram follows, and no other is read. Unavailable: the kernel dropped messages (overflow).
  absl::Status Drain(const std::function<bool(const Message&)>& visit);

  int fd() const { return fd_.get(); }

 private:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}
  absl::Status Converse(Request& request, absl::string_view what, const Visitor* visit);

  UniqueFd fd_;
  uint32_t sequence_ = 0;
};

// Opens a socket for one request: most callers ask once.
absl::Status Do(Request& request, absl::string_view what);
absl::Status Ask(Request& request, absl::string_view what, const Visitor& visit);

// Of a removal: what is not there is removed.
inline absl::Status OkIfGone(absl::Status status) { return absl::IsNotFound(status) ? absl::OkStatus() : status; }

// What failed half way: `undo` removes what it has made, twice if need be. The error says so where it cannot.
absl::Status Undone(absl::Status failed, const std::function<absl::Status()>& undo);

}  // namespace hedgerow::net::netlink
