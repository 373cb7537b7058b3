// SPDX-License-Identifier: Apache-2.0
//
// The requests of one client that have no answer yet: numbers them, names the session and the lowest unanswered
// write in each, pairs answers with them, and gives up what is past its patience. Knows no socket and no clock,
// so that clients with other ideas about sending (HkvClient, the load of chaos/) keep the session's rules in
// one place. A write that is given up no longer holds `lowest_unanswered` back: whatever became of it, it is
// not applied after the cluster has seen that. One owner thread.

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
  std::optional<wire::HkvAnswer> answer{};  // nothing: none came in time; a write may have been applied or not
};

// A request to send, and its bytes. The request is kept by senders that send copies with less patience left.
struct Draft {
  wire::HkvRequest request{};
  std::string datagram{};
};

class PendingRequests {
 public:
  // `reader_id` stands for the session in GETs while there is none: any number that is likely no other client's.
  explicit PendingRequests(uint64_t reader_id, size_t outstanding_max = 1024)
      : reader_id_(reader_id), outstanding_max_(outstanding_max) {}

  // Each notes the request as sent at `now_ns`. ResourceExhausted: outstanding_max requests have no answer yet.
  // InvalidArgument: it fits no datagram. AlreadyExists: the nonce is under way. FailedPrecondition: Write without a
  // session.
  absl::StatusOr<Draft> Open(uint64_t nonce, uint64_t now_ns, uint64_t patience_ns);
  absl::StatusOr<Draft> Get(std::string key, uint64_t now_ns, uint64_t patience_ns);
  absl::StatusOr<Draft> Write(std::vector<kv::Operation> operations, uint64_t now_ns, uint64_t patience_ns);
  // Without a session, under a nonce that is never used again. Copies may be sent for a minute (docs/WIRE_FORMAT.md).
  absl::StatusOr<Draft> WriteOnce(uint64_t nonce, std::vector<kv::Operation> operations, uint64_t now_ns,
                                  uint64_t patience_ns);

  // The request that `answer` belongs to, over now; nothing if there is none: late, a duplicate, or foreign. An
  // OPEN with OK: its session is the one of later requests.
  std::optional<Outcome> Answer(wire::HkvAnswer answer, uint64_t now_ns);

  // The next request whose patience has run out at `now_ns`, over now.
  std::optional<Outcome> GiveUp(uint64_t now_ns);

  // When GiveUp has something next; UINT64_MAX: never.
  uint64_t next_deadline_ns() const { return by_deadline_.empty() ? UINT64_MAX : by_deadline_.begin()->first; }

  uint64_t session() const { return session_; }  // 0: none
  size_t outstanding() const { return pending_.size(); }
  uint64_t lowest_unanswered() const { return open_writes_.empty() ? next_seq_ : *open_writes_.begin(); }

 private:
  using Id = std::pair<uint64_t, uint64_t>;  // client_id and seq, as in the datagram

  struct Pending {
    wire::HkvKind kind;
    uint64_t sent_ns;
    uint64_t deadline_ns;
  };

  absl::StatusOr<Draft> Note(wire::HkvRequest request, uint64_t now_ns, uint64_t patience_ns);
  Outcome End(std::map<Id, Pending>::iterator pending, uint64_t now_ns);

  uint64_t reader_id_;
  size_t outstanding_max_;
  uint64_t session_ = 0;
  uint64_t next_seq_ = 1;  // never starts again: no two requests of a client share their number
  std::map<Id, Pending> pending_;
  std::set<uint64_t> open_writes_;  // of the present session
  std::set<std::pair<uint64_t, Id>> by_deadline_;
};

}  // namespace hedgerow::client
