// SPDX-License-Identifier: Apache-2.0
//
// The requests of one client that have no answer yet: numbers them, names the session and the lowest unanswered
// write in each, pairs answers with them, and gives up what is past its timeout. Knows no socket and no clock,
// so that clients with other ideas about sending (HkvClient, the load of chaos/) keep the session's rules in
// one place. A write that is given up no longer holds `lowest_unanswered` back: whatever became of it, it is
// not applied after the cluster has seen that. One owner thread.
//
// OVERLOADED speaks of one copy of a request. A proxy may have sent others, so a write that is answered so may have
// been done. With OnOverload::kSettle such writes are sent again under the same number, which does them once, after
// pauses that grow. In the last quarter of the timeout it takes them back: a CANCEL of the same number. What is applied
// first under a number decides, and the answer says which it was.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/kv/command.h"
#include "cluster/wire/hkv.h"

namespace hedgerow::client {

// How a request ended.
struct Outcome {
  wire::HkvKind kind = wire::HkvKind::kGet;
  uint64_t client_id = 0;
  uint64_t seq = 0;  // OPEN, WRITE without a session: the nonce
  uint64_t sent_ns = 0;
  uint64_t ended_ns = 0;
  // Nothing: none came in time; a write may have been applied or not. OVERLOADED with OnOverload::kSettle: a write was
  // taken back, and is never applied.
  std::optional<wire::HkvAnswer> answer{};
  bool overloaded = false;  // an answer to it was OVERLOADED
};

// A request to send, and its bytes. The request is kept by senders that send copies with less timeout left.
struct Draft {
  wire::HkvRequest request{};
  std::string datagram{};
};

// What a write does that is answered OVERLOADED: it ends, or is sent again (Repeat).
enum class OnOverload : uint8_t { kEnd, kSettle };

class PendingRequests {
 public:
  // The ids of GETs are made of the 128 random bits of `secret`. A program that has not seen a GET cannot foresee its
  // id, and so cannot answer it. `trailer_bytes`: that a datagram must have room for beside the request.
  explicit PendingRequests(const kv::SessionName& secret, size_t outstanding_max = 1024,
                           OnOverload on_overload = OnOverload::kEnd, size_t trailer_bytes = 0)
      : secret_(secret), outstanding_max_(outstanding_max), on_overload_(on_overload), trailer_bytes_(trailer_bytes) {}

  // Each notes the request as sent at `now_ns`. ResourceExhausted: outstanding_max requests have no answer yet.
  // InvalidArgument: it fits no datagram. AlreadyExists: the nonce is under way. FailedPrecondition: Write without a
  // session.
  absl::StatusOr<Draft> Open(uint64_t nonce, uint64_t now_ns, uint64_t timeout_ns);
  absl::StatusOr<Draft> Get(std::string key, uint64_t now_ns, uint64_t timeout_ns);
  absl::StatusOr<Draft> Write(std::vector<kv::Operation> operations, uint64_t now_ns, uint64_t timeout_ns);
  // Without a session, under a nonce that is never used again. Copies may be sent for a minute (docs/WIRE_FORMAT.md).
  absl::StatusOr<Draft> WriteOnce(uint64_t nonce, std::vector<kv::Operation> operations, uint64_t now_ns,
                                  uint64_t timeout_ns);

  // The request that `answer` belongs to, over now; nothing if there is none: late, a duplicate, or foreign. An
  // OPEN with OK makes its session the one of later requests. Nothing as well if it will be sent again:
  // `to_be_repeated` counts these.
  std::optional<Outcome> Answer(wire::HkvAnswer answer, uint64_t now_ns);

  // What has no answer is sent again, by Repeat, as soon as that is asked: where it was sent no process listens. Needs
  // OnOverload::kSettle.
  void RepeatAll(uint64_t now_ns);

  // The next request that is to be sent again at `now_ns`, with the timeout that it has left.
  std::optional<Draft> Repeat(uint64_t now_ns);

  // The next request whose timeout has passed at `now_ns`, over now.
  std::optional<Outcome> GiveUp(uint64_t now_ns);

  // When GiveUp has something next; UINT64_MAX: never.
  uint64_t next_deadline_ns() const { return by_deadline_.empty() ? UINT64_MAX : by_deadline_.begin()->first; }
  // When Repeat has; UINT64_MAX: never.
  uint64_t next_repeat_ns() const { return by_repeat_.empty() ? UINT64_MAX : by_repeat_.begin()->first; }
  uint64_t oldest_sent_ns() const;      // 0: none is outstanding
  uint64_t longest_timeout_ns() const;  // of all that are outstanding
  uint64_t to_be_repeated() const { return to_be_repeated_; }

  uint64_t session() const { return session_.id; }    // 0: none
  uint64_t reader_id() const { return RandomId(0); }  // the client_id of GETs
  size_t outstanding() const { return pending_.size(); }
  uint64_t lowest_unanswered() const { return open_writes_.empty() ? next_seq_ : *open_writes_.begin(); }

 private:
  using Id = std::pair<uint64_t, uint64_t>;  // client_id and seq, as in the datagram

  struct Pending {
    wire::HkvKind kind;
    uint64_t sent_ns;
    uint64_t deadline_ns;
    wire::HkvRequest request{};  // of what may have to be sent again
    uint32_t overloaded = 0;     // answers
    uint64_t repeat_ns = 0;      // 0: not to be sent again
    uint64_t take_back_ns = 0;   // from then on its CANCEL is sent in its place
    uint64_t settle_by_ns = 0;   // and never again from then on
    bool taken_back = false;
  };

  uint64_t RandomId(uint64_t number) const;
  absl::StatusOr<Draft> Note(wire::HkvRequest request, uint64_t now_ns, uint64_t timeout_ns);
  bool IsToBeRepeated(const Id& id, Pending& pending, uint64_t now_ns);
  bool IsToBePadded(const Id& id, Pending& pending, const wire::HkvAnswer& answer, uint64_t now_ns);
  Outcome End(std::map<Id, Pending>::iterator pending, uint64_t now_ns);

  kv::SessionName secret_;
  uint64_t gets_ = 0;
  size_t outstanding_max_;
  OnOverload on_overload_;
  size_t trailer_bytes_;
  kv::SessionName session_{};
  uint64_t next_seq_ = 1;  // never starts again: no two requests of a client share their number
  std::map<Id, Pending> pending_;
  std::set<uint64_t> open_writes_;  // of the present session
  std::set<std::pair<uint64_t, Id>> by_deadline_;
  std::set<std::pair<uint64_t, Id>> by_repeat_;
  uint64_t to_be_repeated_ = 0;
  size_t gets_padded_bytes_ = 0;  // what the longest answer so far has wanted (HkvStatus::kShort)
};

}  // namespace hedgerow::client
