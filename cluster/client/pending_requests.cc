// SPDX-License-Identifier: Apache-2.0
#include "cluster/client/pending_requests.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::client {
namespace {

// 0 on the wire would mean a second.
uint32_t PatienceField(uint64_t patience_ns) {
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(patience_ns / 1000, 1, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

absl::StatusOr<Draft> PendingRequests::Open(uint64_t nonce, uint64_t now_ns, uint64_t patience_ns) {
  return Note({.kind = wire::HkvKind::kOpen, .client_id = 0, .seq = nonce}, now_ns, patience_ns);
}

absl::StatusOr<Draft> PendingRequests::Get(std::string key, uint64_t now_ns, uint64_t patience_ns) {
  return Note({.kind = wire::HkvKind::kGet,
               .client_id = session_ != 0 ? session_ : reader_id_,
               .seq = next_seq_,
               .key = std::move(key)},
              now_ns, patience_ns);
}

absl::StatusOr<Draft> PendingRequests::Write(std::vector<kv::Operation> operations, uint64_t now_ns,
                                         uint64_t patience_ns) {
  if (session_ == 0) return absl::FailedPreconditionError("a write needs a session: open one first");
  return Note({.kind = wire::HkvKind::kWrite,
               .client_id = session_,
               .seq = next_seq_,
               .lowest_unanswered = lowest_unanswered(),
               .operations = std::move(operations)},
              now_ns, patience_ns);
}

absl::StatusOr<Draft> PendingRequests::WriteOnce(uint64_t nonce, std::vector<kv::Operation> operations,
                                             uint64_t now_ns, uint64_t patience_ns) {
  return Note({.kind = wire::HkvKind::kWrite,
               .client_id = wire::kHkvNoSession,
               .seq = nonce,
               .operations = std::move(operations)},
              now_ns, patience_ns);
}

absl::StatusOr<Draft> PendingRequests::Note(wire::HkvRequest request, uint64_t now_ns, uint64_t patience_ns) {
  if (pending_.size() >= outstanding_max_) {
    return absl::ResourceExhaustedError(absl::StrCat(pending_.size(), " requests have no answer yet"));
  }
  const Id id{request.client_id, request.seq};
  if (pending_.contains(id)) return absl::AlreadyExistsError("a request with this nonce is under way");
  request.patience_us = PatienceField(patience_ns);
  Draft draft{.request = std::move(request), .datagram = {}};
  draft.datagram = Encode(draft.request);
  if (draft.datagram.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the request fits no datagram: at most ",
                                                   wire::kHkvMax_bytes, " bytes, ", kv::kOperationsMax,
                                                   " operations, and ", kv::kKeyMax_bytes, " bytes of a key"));
  }
  const Pending pending{.kind = draft.request.kind, .sent_ns = now_ns, .deadline_ns = now_ns + patience_ns};
  pending_.emplace(id, pending);
  by_deadline_.emplace(pending.deadline_ns, id);
  const bool write = pending.kind == wire::HkvKind::kWrite;
  // A nonce is none of the session's numbers.
  if (pending.kind == wire::HkvKind::kOpen || (write && id.first == wire::kHkvNoSession)) return draft;
  ++next_seq_;
  if (write) open_writes_.insert(id.second);
  return draft;
}

std::optional<Outcome> PendingRequests::Answer(wire::HkvAnswer answer, uint64_t now_ns) {
  const auto pending = pending_.find({answer.client_id, answer.seq});
  if (pending == pending_.end()) return std::nullopt;
  // A node sends some errors without having understood the request, so their kind may be none.
  const bool misunderstood =
      answer.status == wire::HkvStatus::kMalformed || answer.status == wire::HkvStatus::kUnknownVersion;
  if (answer.kind != pending->second.kind && !misunderstood) return std::nullopt;
  Outcome outcome = End(pending, now_ns);
  if (outcome.kind == wire::HkvKind::kOpen && answer.status == wire::HkvStatus::kOk) {
    session_ = answer.session;
    open_writes_.clear();
  }
  outcome.answer = std::move(answer);
  return outcome;
}

std::optional<Outcome> PendingRequests::GiveUp(uint64_t now_ns) {
  if (next_deadline_ns() > now_ns) return std::nullopt;
  return End(pending_.find(by_deadline_.begin()->second), now_ns);
}

Outcome PendingRequests::End(std::map<Id, Pending>::iterator pending, uint64_t now_ns) {
  const auto [id, request] = *pending;
  pending_.erase(pending);
  by_deadline_.erase({request.deadline_ns, id});
  if (request.kind == wire::HkvKind::kWrite && id.first != wire::kHkvNoSession && id.first == session_) {
    open_writes_.erase(id.second);
  }
  return {.kind = request.kind,
          .client_id = id.first,
          .seq = id.second,
          .sent_ns = request.sent_ns,
          .ended_ns = now_ns,
          .answer = {}};
}

}  // namespace hedgerow::client
