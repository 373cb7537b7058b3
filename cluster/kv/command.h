// SPDX-License-Identifier: Apache-2.0
//
// What the replicated store is asked to do, and what it says. Commands travel in the log as bytes; the encoding
// is internal to the cluster (clients speak hkv, which the front end translates).

#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/kv/features.h"
#include "cluster/kv/settings.h"

namespace hedgerow::kv {

constexpr size_t kKeyMax_bytes = 250;
constexpr size_t kValueMax_bytes = 64 * 1024;
constexpr size_t kOperationsMax = 64;

enum class OperationKind : uint8_t { kPut = 1, kDelete = 2, kCompareAndSet = 3, kIncrement = 4 };

struct Operation {
  OperationKind kind = OperationKind::kPut;
  std::string key{};
  std::string value{};                    // put, compare-and-set
  std::optional<std::string> expected{};  // compare-and-set; nothing: the key must not exist
  int64_t delta = 0;                      // increment; a key that does not exist counts as 0

  bool operator==(const Operation&) const = default;
};

// memcached's commands that change something. Items are apart from the keys above: each has flags, a unique
// number that is the log index of its last change, and perhaps an end.
enum class ItemVerb : uint8_t {
  kSet = 1,
  kAdd = 2,
  kReplace = 3,
  kCas = 4,
  kAppend = 5,
  kPrepend = 6,
  kDelete = 7,
  kTouch = 8,
  kIncrement = 9,
  kDecrement = 10,
  kDiscard = 11,  // a set of what is too large: what was there before goes, and the client is told why
  kFlush = 12,    // all items that are there now, or after `life_s`
};

// What is left of the largest message between nodes once everything around a value is in it.
constexpr size_t kItemMax_bytes = 60'000;

struct ItemOperation {
  ItemVerb verb = ItemVerb::kSet;
  std::string key{};
  std::string value{};  // set, add, replace, cas, append, prepend
  uint32_t flags = 0;   // set, add, replace, cas
  int64_t life_s = 0;   // the same and touch, in committed time; 0: no end, negative: ended already. flush: its delay
  uint64_t unique = 0;  // cas: which version is to be replaced
  uint64_t delta = 0;   // increment, decrement

  bool operator==(const ItemOperation&) const = default;
};

enum class CommandKind : uint8_t {
  kOpen = 1,       // a session
  kWrite = 2,      // in a session
  kWindowed = 3,   // one write without a session: known again for a while by its nonce
  kMemcached = 4,  // the same of a memcached client, whose ids come again
  kTick = 5,       // the leader's own: time has passed
  kSettings = 6,   // the cluster's limits from now on (settings.h)
  kCheck = 7,      // what a voter's state was after an earlier entry; changes nothing
  kPurge = 8,      // an administrator's deletes, of the keys that the leader has found; nothing is remembered of them
};

// What makes two commands the same request. kOpen: `a` is the nonce. kWrite: session, seq, fingerprint, token
// (WriteKey). kWindowed: `a` is the nonce, `c` the fingerprint (OnceKey). Of memcached's clients: address,
// frame id, in `c` a fingerprint of the bytes (memcached::KeyOf). kSettings: `a` is kSeed or 0, and with a seed
// `b` is the log's UUID. kCheck: `a` is the entry's index, `b` the fingerprint after it (state_checks.h), `c`
// the voter, `d` how it is computed.
struct RequestKey {
  CommandKind kind = CommandKind::kWrite;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  uint64_t d = 0;

  auto operator<=>(const RequestKey&) const = default;
};

// What goes for all requests of a kind.
struct RequestPolicy {
  // A session's seq and a nonce are used once. A memcached client's ids come again, for other requests, so each of
  // those is answered by its own entry alone.
  bool used_once = false;
  // Known for a window only: its client may not repeat it until it learns what became of it. So a refusal must be true
  // of this copy, whatever its client does next.
  bool no_session = false;
  // Made by a leader for itself. A member forwards none of them.
  bool leaders_own = false;
  // By which a member announces that it knows the kind; 0: all programs do. What is added gets its feature here.
  uint32_t feature = 0;
};
inline constexpr std::array<RequestPolicy, 9> kRequestPolicies = {{
    {},
    {.used_once = true},                      // kOpen
    {.used_once = true},                      // kWrite
    {.used_once = true, .no_session = true},  // kWindowed
    {.no_session = true},                     // kMemcached
    {.leaders_own = true},                    // kTick
    {.leaders_own = true},                    // kSettings
    {.feature = kStateChecksFeature},         // kCheck
    {.leaders_own = true},                    // kPurge
}};
static_assert(static_cast<size_t>(CommandKind::kPurge) + 1 == kRequestPolicies.size());
// Of a number that is none: of none.
constexpr const RequestPolicy& PolicyOf(const RequestKey& key) {
  const auto kind = static_cast<size_t>(key.kind);
  return kRequestPolicies[kind < kRequestPolicies.size() ? kind : 0];
}

// What a client owns a session by: 128 bits that the leader that proposed its OPEN drew at random. The id names the
// session; the token proves it, is a secret of the client and the cluster, and stands in no log line and no metric.
struct SessionName {
  uint64_t id = 0;  // never 0
  uint64_t token = 0;

  bool operator==(const SessionName&) const = default;
};

// Two words are compared by one instruction, whose time does not depend on where they differ.
inline bool IsSameToken(uint64_t one, uint64_t other) { return (one ^ other) == 0; }

// The fingerprint of a CANCEL, and of no write.
constexpr uint64_t kCancels = 0;

// The key of a write in a session. Its fingerprint is SipHash-2-4 of the operations under the session's token and id:
// the same on all replicas, and unpredictable without the token.
RequestKey WriteKey(const SessionName& session, uint64_t seq, const std::vector<Operation>& operations);
// The same of a write without a session. The nonce is the secret.
RequestKey OnceKey(uint64_t nonce, const std::vector<Operation>& operations);
// Of the CANCEL of a write: it is answered with what stands under its number, or sees to it that nothing ever does.
inline RequestKey CancelKey(RequestKey write) {
  write.c = kCancels;
  return write;
}
// Whether what is recorded under this key's number, with this fingerprint, is the answer to it.
inline bool IsAnsweredBy(const RequestKey& key, uint64_t recorded) { return key.c == recorded || key.c == kCancels; }

// A seed applies only where nothing has set the settings before.
constexpr uint64_t kSeed = 1;

// A copy without a session that came to a node longer ago than this is not done, in committed time. Part of the
// format.
constexpr uint64_t kCopyAgeMax_ns = 1'500'000'000;

struct Command {
  RequestKey key{};
  SessionName session{};           // kOpen: the new session's, as the leader drew it
  uint64_t lowest_unanswered = 0;  // kWrite: the client has the answers to all seqs before it, or wants none
  // Without a session: what the node that took the youngest copy from its client had applied by then, in committed
  // time. 0: not said.
  uint64_t came_ns = 0;
  // Committed time: what has passed on the leader's monotonic clock since its previous command of this term, or its
  // election.
  uint64_t elapsed_ns = 0;
  std::vector<Operation> operations{};  // all or none of them; none keeps the session alive
  ItemOperation item{};                 // kMemcached
  // kMemcached: for how long nodes had held the request when the leader stamped the entry. It tells a late copy of a
  // request that another has superseded (DedupeWindow). Nothing: a program whose rule knew no superseding wrote the
  // entry.
  std::optional<uint64_t> age_ns{};
  SettingValues settings{};  // kSettings: what changes; the others stay

  bool operator==(const Command&) const = default;
};

enum class ResultCode : uint8_t {
  kOk = 0,
  // Compare-and-set found another value, a seed found settings, or another request has this number; nothing was
  // done.
  kMismatch = 1,
  kNotANumber = 2,      // increment of something that is none, or past 64 bits; nothing was done
  kUnknownSession = 3,  // never opened, or expired; the client must not assume either outcome for what it sent
  kBelowLowest = 4,     // the client has said that it has this answer
  kOverloaded = 5,      // a bound of the tables is reached; nothing was done
  // But for kNoRoom of memcached's commands only. kMismatch there: the item has another unique number.
  kNotFound = 6,
  kNotStored = 7,  // add found an item; replace, append, prepend found none
  kNoRoom = 8,     // hkv's, too: the store, or memcached's items, take all the memory that they may; nothing was done
  kTooLarge = 9,   // append or prepend would pass kItemMax_bytes; or kDiscard, which has removed what was there
  // A late copy: of a request whose id the client has used for another since, or that came to a node so long
  // ago that it may have been done and forgotten. Not done, not answered.
  kSuperseded = 10,
};
constexpr ResultCode kResultCodeLast = ResultCode::kSuperseded;

struct Result {
  ResultCode code = ResultCode::kOk;
  uint64_t session = 0;  // kOpen
  uint64_t token = 0;    // of that session
  // One for each operation: an increment's new value, else empty. kMemcached: an increment's, else none.
  std::vector<std::string> values{};

  bool operator==(const Result&) const = default;
};

// The answer to a request whose number another one has.
extern const Result kAnotherRequest;

// Which features (features.h) all members must have before a leader proposes this: a member that cannot read an
// entry serves nothing from there on.
uint32_t FeaturesNeeded(const Command& command);

std::string Encode(const Command& command);
// The key in an encoded command if it is used once (RequestPolicy); nothing for other kinds, or other bytes.
std::optional<RequestKey> KeyUsedOnceIn(std::string_view bytes);
// Nothing if the bytes are no command.
std::optional<Command> Decode(std::string_view bytes);
// Into a command that was used before, whose memory is used again. False: the bytes are none, and neither is
// it.
bool DecodeInto(std::string_view bytes, Command& command);

}  // namespace hedgerow::kv
