// SPDX-License-Identifier: Apache-2.0
//
// The operations of the client's protocol, hkv version 2, once for all that know them: what each is called, what
// its request has, what its answer has, whether it writes, and whether it belongs to a session. The parser and the
// encoder (hkv.cc) and the command line (cluster/client) go by these rows; hkv_table_test.cc compares
// docs/WIRE_FORMAT.md, the client in Python and the server in Go with them. Numbers are never reused.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cluster/kv/command.h"

namespace hedgerow::wire {

enum class HkvKind : uint8_t { kOpen = 1, kWrite = 2, kGet = 3, kCancel = 4 };

enum class HkvStatus : uint8_t {
  kOk = 0,
  kNotFound = 1,
  kMismatch = 2,
  kNotANumber = 3,
  kUnknownSession = 4,
  kBelowLowest = 5,
  kOverloaded = 6,
  kNotLeader = 7,
  kMalformed = 8,
  kUnknownVersion = 9,
  kTooLarge = 10,
  kDenied = 11,
  kNoSpace = 12,
  kShort = 13,
};

// What a request has behind its header.
enum class HkvBody : uint8_t { kEmpty, kKey, kOperations };
// What an answer with OK has: a session; one value; or a value for each operation.
enum class HkvOutcome : uint8_t { kSession, kValue, kValues };
// What a request's client_id is. With a session the request has its token, too.
enum class HkvClientId : uint8_t { kZero, kSessionOrZero, kRandom };
// What an answer's `hint` is.
enum class HkvHint : uint8_t { kPushback, kLeader, kVersion, kBytes };
// Why a request was DENIED, in the answer's body. An answer for the first two has no tag, and a client with a key takes
// none without: they are for the eyes of whoever sets it up.
enum class HkvDenial : uint8_t {
  kAnonymous = 1,  // requests without a trailer are not served
  kUnproven = 2,   // no client has this name, or its key makes another tag
  kClock = 3,      // the client's clock and the node's differ by more than 20 s
  kRead = 4,       // the client may not read the key in the body
  kWrite = 5,      // nor write it
};
constexpr size_t kHkvDenials = 6;

struct HkvRequestRow {
  HkvKind kind;
  std::string_view name;
  HkvClientId client_id;
  HkvBody body;
  HkvOutcome outcome;
  bool writes;  // goes through the log
};
constexpr std::array kHkvRequests = {
    HkvRequestRow{HkvKind::kOpen, "OPEN", HkvClientId::kZero, HkvBody::kEmpty, HkvOutcome::kSession, true},
    HkvRequestRow{HkvKind::kWrite, "WRITE", HkvClientId::kSessionOrZero, HkvBody::kOperations, HkvOutcome::kValues,
                  true},
    HkvRequestRow{HkvKind::kGet, "GET", HkvClientId::kRandom, HkvBody::kKey, HkvOutcome::kValue, false},
    HkvRequestRow{HkvKind::kCancel, "CANCEL", HkvClientId::kSessionOrZero, HkvBody::kEmpty, HkvOutcome::kValues, true},
};

// What an operation of a WRITE has behind its number and its key, in the order of the row.
enum class HkvField : uint8_t {
  kNone,
  kValue,      // value_bytes (2), value
  kCondition,  // has_expected (1): 0 or 1
  kExpected,   // with has_expected 1: expected_bytes (2), expected
  kDelta,      // delta (8, signed)
};

struct HkvOperationRow {
  kv::OperationKind kind;
  std::string_view name;  // the command of `hkv`
  std::array<HkvField, 3> fields;
  bool answers_number;  // else its value in the answer is empty
};
constexpr std::array kHkvOperations = {
    HkvOperationRow{kv::OperationKind::kPut, "put", {HkvField::kValue}, false},
    HkvOperationRow{kv::OperationKind::kDelete, "delete", {}, false},
    HkvOperationRow{
        kv::OperationKind::kCompareAndSet, "cas", {HkvField::kCondition, HkvField::kValue, HkvField::kExpected}, false},
    HkvOperationRow{kv::OperationKind::kIncrement, "incr", {HkvField::kDelta}, true},
};

struct HkvStatusRow {
  HkvStatus status;
  std::string_view name;  // of metrics; in capitals that of pages and clients
  HkvHint hint;
  std::string_view meaning;
};
constexpr std::array kHkvStatusRows = {
    HkvStatusRow{HkvStatus::kOk, "ok", HkvHint::kPushback, "done"},
    HkvStatusRow{HkvStatus::kNotFound, "not_found", HkvHint::kPushback, "GET: no such key"},
    HkvStatusRow{HkvStatus::kMismatch, "mismatch", HkvHint::kPushback,
                 "compare-and-set found another value, or another request has this number; nothing was done"},
    HkvStatusRow{HkvStatus::kNotANumber, "not_a_number", HkvHint::kPushback,
                 "increment of something that is none, or past 64 bits; nothing was done"},
    HkvStatusRow{HkvStatus::kUnknownSession, "unknown_session", HkvHint::kPushback,
                 "never opened, ended, or another token: open another; assume neither outcome for what was sent"},
    HkvStatusRow{HkvStatus::kBelowLowest, "below_lowest", HkvHint::kPushback,
                 "the client has said that it has this answer"},
    HkvStatusRow{HkvStatus::kOverloaded, "overloaded", HkvHint::kPushback,
                 "a bound is reached; nothing was done by this copy"},
    HkvStatusRow{HkvStatus::kNotLeader, "not_leader", HkvHint::kLeader,
                 "this node can do nothing with it now; ask `hint`"},
    HkvStatusRow{HkvStatus::kMalformed, "malformed", HkvHint::kPushback,
                 "the datagram is no request; bytes 8 to 23 are repeated where they are there, else 0"},
    HkvStatusRow{HkvStatus::kUnknownVersion, "unknown_version", HkvHint::kVersion,
                 "`hint` is the version that this node speaks; the answer itself says that of the request"},
    HkvStatusRow{HkvStatus::kTooLarge, "too_large", HkvHint::kPushback,
                 "the answer would not fit a datagram; a WRITE (of very many increments) was done all the same"},
    HkvStatusRow{HkvStatus::kDenied, "denied", HkvHint::kPushback,
                 "the client may not do it, or has not proved itself; nothing was done by this copy"},
    HkvStatusRow{
        HkvStatus::kNoSpace, "no_space", HkvHint::kPushback,
        "WRITE: it would store more, and the store is full; nothing was done, and never will be under this number"},
    HkvStatusRow{
        HkvStatus::kShort, "short", HkvHint::kBytes,
        "GET: the answer is longer than three times the request; it comes to one of `hint` bytes, with zeros behind it"},
};
constexpr size_t kHkvStatuses = kHkvStatusRows.size();

// Null: no row has this number.
constexpr const HkvRequestRow* FindHkvRequest(uint8_t number) {
  const size_t index = static_cast<size_t>(number) - 1;
  return index < kHkvRequests.size() ? &kHkvRequests[index] : nullptr;
}
constexpr const HkvOperationRow* FindHkvOperation(uint8_t number) {
  const size_t index = static_cast<size_t>(number) - 1;
  return index < kHkvOperations.size() ? &kHkvOperations[index] : nullptr;
}
constexpr const HkvStatusRow* FindHkvStatus(uint8_t number) {
  return number < kHkvStatusRows.size() ? &kHkvStatusRows[number] : nullptr;
}

inline const HkvRequestRow& RowOf(HkvKind kind) { return *FindHkvRequest(static_cast<uint8_t>(kind)); }
inline const HkvOperationRow& RowOf(kv::OperationKind kind) { return *FindHkvOperation(static_cast<uint8_t>(kind)); }

// The rows stand in the order of their numbers.
static_assert([] {
  for (const HkvRequestRow& row : kHkvRequests)
    if (FindHkvRequest(static_cast<uint8_t>(row.kind)) != &row) return false;
  for (const HkvOperationRow& row : kHkvOperations)
    if (FindHkvOperation(static_cast<uint8_t>(row.kind)) != &row) return false;
  for (const HkvStatusRow& row : kHkvStatusRows)
    if (FindHkvStatus(static_cast<uint8_t>(row.status)) != &row) return false;
  return true;
}());

}  // namespace hedgerow::wire
