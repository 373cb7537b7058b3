// SPDX-License-Identifier: Apache-2.0
//
// The client's protocol, hkv version 2: requests and answers as datagrams (docs/WIRE_FORMAT.md; hkv_table.h has its
// operations). The node's
// front end parses requests and encodes answers, clients the other way round. What proves a client is hkv_trailer.h's.
// Anything may arrive, so a request that is none is either answered with what is wrong or dropped, by rules that never
// let a node answer a node. All functions are pure and may run in any thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/kv/command.h"
#include "cluster/wire/hkv_table.h"

namespace hedgerow::wire {

constexpr size_t kHkvMax_bytes = 1232;
constexpr size_t kHkvRequestHeader_bytes = 40;
constexpr size_t kHkvAnswerHeader_bytes = 32;
constexpr uint8_t kHkvMagic = 0x48;
constexpr uint8_t kHkvVersion = 2;
// The flags of requests and answers. An authenticated trailer follows the body (hkv_trailer.h); every other bit is 0.
constexpr uint8_t kHkvAuthenticated = 0x01;
constexpr size_t kHkvRequestFlagsOffset = 3;
constexpr size_t kHkvAnswerFlagsOffset = 24;
constexpr uint16_t kHkvPort = 4801;
// As the client_id of a WRITE: it stands for itself, and its seq is a nonce.
constexpr uint64_t kHkvNoSession = 0;

// HkvAnswer::pushback: a proxy or client should not hedge requests to this node.
constexpr uint32_t kHkvNeverHedge = 0xffffffff;

struct HkvRequest {
  HkvKind kind = HkvKind::kGet;
  uint32_t timeout_us = 0;                  // as on the wire; see Timeout_ns
  uint64_t client_id = 0;                   // OPEN: 0; WRITE, CANCEL: the session, or kHkvNoSession
  uint64_t seq = 0;                         // OPEN, WRITE and CANCEL without a session: the nonce
  uint64_t lowest_unanswered = 0;           // in a session, else 0
  uint64_t token = 0;                       // in a session its token, else 0
  std::string key{};                        // GET
  std::vector<kv::Operation> operations{};  // WRITE
  // The whole request, with zeros behind its body; 0, or less than it has without: none are there. What proves no
  // source gets no answer longer than three times what it has sent (HkvStatus::kShort).
  size_t padded_bytes = 0;

  bool operator==(const HkvRequest&) const = default;
};

struct HkvAnswer {
  HkvKind kind = HkvKind::kGet;   // the request's; with kMalformed and kUnknownVersion it may be none of these
  uint8_t version = kHkvVersion;  // of the request, with kUnknownVersion; else kHkvVersion
  HkvStatus status = HkvStatus::kOk;
  uint32_t hint = 0;
  uint64_t client_id = 0;
  uint64_t seq = 0;
  uint32_t pushback = 0;     // about hedging: 0 nothing, kHkvNeverHedge, or no sooner than this many milliseconds
                             // after the request; only where there is no hint
  uint64_t session = 0;      // OPEN with kOk
  uint64_t token = 0;        // the same
  std::string value{};       // GET with kOk
  HkvDenial denial{};        // kDenied
  std::string denied_key{};  // the same: the key for which the right is missing, else empty
  std::vector<std::string> values{};  // WRITE, CANCEL with kOk: one for each operation of the write

  bool operator==(const HkvAnswer&) const = default;
};

// Why a datagram at the clients' port gets no answer. The numbers are never reused.
enum class HkvDrop : uint8_t {
  kNone = 0,
  kTooShort = 1,    // less than 2 bytes
  kMagic = 2,       // something else altogether
  kAnAnswer = 3,    // an answer: two nodes would send each other MALFORMED for ever
  kSource = 4,      // from none of the networks that the node serves (`clients`)
  kServerPort = 5,  // an error to a port from which servers answer: two would answer each other for ever
  kOpens = 6,       // said by the front end: more OPENs than a source may send
  kTooLong = 7,     // said by the front end: an answer that is longer than three times its request
  kBytes = 8,       // said by the front end: an answer beyond what may leave for a prefix
  kKeyGone = 9,     // said by the front end: an answer to a client whose key has been removed meanwhile
};
constexpr size_t kHkvDrops = 10;

// Exactly one of the three: a request; or what to answer instead; or a reason to say nothing.
struct HkvParse {
  std::optional<HkvRequest> request{};
  std::optional<HkvAnswer> answer{};
  HkvDrop drop = HkvDrop::kNone;
};
// With a trailer, the request before it: whether the tag is right is the caller's to see.
HkvParse ParseHkvRequest(std::string_view datagram);

// The same of an answer's tag. Nothing if it is no answer of this version to a request; or kUnknownVersion of any
// version, which all write alike.
std::optional<HkvAnswer> ParseHkvAnswer(std::string_view datagram);

// Empty if the request passes 1,232 bytes, 64 operations, or a key's 250 bytes.
std::string Encode(const HkvRequest& request);

// Never longer than 1,232 bytes less those that are reserved, for a tag: what would be is said to be kTooLarge instead.
// Fields that the kind and status do not have are left out.
std::string Encode(const HkvAnswer& answer, size_t reserved_bytes = 0);

// The command of a request that writes; none of its strings are left in `request`.
kv::Command CommandOf(HkvRequest&& request);

// From the client's sending to when it no longer cares: 0 on the wire is a second, and a minute is the most.
uint64_t Timeout_ns(const HkvRequest& request);

HkvStatus StatusOf(kv::ResultCode code);

// For metrics and messages: "not_leader", "an_answer".
std::string_view Name(HkvStatus status);
std::string_view Name(HkvDrop drop);
std::string_view Name(HkvDenial denial);

}  // namespace hedgerow::wire
