// SPDX-License-Identifier: Apache-2.0
#include "cluster/client/pending_requests.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bpf/abi/siphash_abi.h"

namespace hedgerow::client {
namespace {

// An overloaded node refuses at once, so what is sent again soon finds the same. The longest pause is about what a
// queue of a node holds (`waiting_max`).
constexpr uint64_t kFirstPause_ns = 5'000'000;
constexpr uint32_t kPauseDoublings = 6;
// A proxy may send copies of the last one for 60 s, and nodes know a nonce for 70 (docs/SAFETY.md).
constexpr uint64_t kNonceIsRepeatedFor_ns = 5'000'000'000;

// The pause after the `overloaded`th such answer. It differs by number, so that writes refused together do not come
// back together.
uint64_t Pause_ns(uint64_t seq, uint32_t overloaded) {
  const uint64_t pause_ns = kFirstPause_ns << std::min(overloaded - 1, kPauseDoublings);
  return pause_ns + pause_ns / 128 * ((seq * 0x9e3779b97f4a7c15) >> 58);
}

// 0 on the wire would mean a second.
uint32_t TimeoutField(uint64_t timeout_ns) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(timeout_ns / 1000, 1, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

absl::StatusOr<Draft> PendingRequests::Open(uint64_t nonce, uint64_t now_ns, uint64_t timeout_ns) {
  return Note({.kind = wire::HkvKind::kOpen, .client_id = 0, .seq = nonce}, now_ns, timeout_ns);
}

// A block of SipHash in counter mode.
uint64_t PendingRequests::RandomId(uint64_t number) const {
  const hr_siphash_key key{.k0 = secret_.id, .k1 = secret_.token};
  return hr_siphash(&key, &number, sizeof(number));
}

absl::StatusOr<Draft> PendingRequests::Get(std::string key, uint64_t now_ns, uint64_t timeout_ns) {
  return Note({.kind = wire::HkvKind::kGet,
               .client_id = reader_id(),
               .seq = RandomId(++gets_),
               .key = std::move(key),
               .padded_bytes = gets_padded_bytes_},
              now_ns, timeout_ns);
}

absl::StatusOr<Draft> PendingRequests::Write(std::vector<kv::Operation> operations, uint64_t now_ns,
                                             uint64_t timeout_ns) {
  if (session_.id == 0) return absl::FailedPreconditionError("a write needs a session: open one first");
  return Note({.kind = wire::HkvKind::kWrite,
               .client_id = session_.id,
               .seq = next_seq_,
               .lowest_unanswered = lowest_unanswered(),
               .token = session_.token,
               .operations = std::move(operations)},
              now_ns, timeout_ns);
}

absl::StatusOr<Draft> PendingRequests::WriteOnce(uint64_t nonce, std::vector<kv::Operation> operations, uint64_t now_ns,
                                                 uint64_t timeout_ns) {
  return Note({.kind = wire::HkvKind::kWrite,
               .client_id = wire::kHkvNoSession,
               .seq = nonce,
               .operations = std::move(operations)},
              now_ns, timeout_ns);
}

absl::StatusOr<Draft> PendingRequests::Note(wire::HkvRequest request, uint64_t now_ns, uint64_t timeout_ns) {
  if (pending_.size() >= outstanding_max_) {
    return absl::ResourceExhaustedError(absl::StrCat(pending_.size(), " requests have no answer yet"));
  }
  const Id id{request.client_id, request.seq};
  if (pending_.contains(id)) return absl::AlreadyExistsError("a request with this nonce is under way");
  request.timeout_us = TimeoutField(timeout_ns);
  Draft draft{.request = std::move(request), .datagram = {}};
  draft.datagram = Encode(draft.request);
  if (draft.datagram.empty() || draft.datagram.size() + trailer_bytes_ > wire::kHkvMax_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the request fits no datagram: at most ",
                                                   wire::kHkvMax_bytes - trailer_bytes_, " bytes, ", kv::kOperationsMax,
                                                   " operations, and ", kv::kKeyMax_bytes, " bytes of a key"));
  }
  Pending pending{.kind = draft.request.kind, .sent_ns = now_ns, .deadline_ns = now_ns + timeout_ns};
  const bool write = pending.kind == wire::HkvKind::kWrite;
  if (!write) pending.request = draft.request;
  if (write && on_overload_ == OnOverload::kSettle) {
    pending.request = draft.request;
    const bool nonce = id.first == wire::kHkvNoSession;
    const uint64_t settle_ns = nonce ? std::min(timeout_ns, kNonceIsRepeatedFor_ns) : timeout_ns;
    pending.settle_by_ns = now_ns + settle_ns;
    pending.take_back_ns = pending.settle_by_ns - settle_ns / 4;
  }
  by_deadline_.emplace(pending.deadline_ns, id);
  pending_.emplace(id, std::move(pending));
  // Only a session's writes have its numbers.
  if (!write || id.first == wire::kHkvNoSession) return draft;
  ++next_seq_;
  open_writes_.insert(id.second);
  return draft;
}

std::optional<Outcome> PendingRequests::Answer(wire::HkvAnswer answer, uint64_t now_ns) {
  const auto pending = pending_.find({answer.client_id, answer.seq});
  if (pending == pending_.end()) return std::nullopt;
  // A node sends some errors without having understood the request, so their kind may be none.
  const bool misunderstood =
      answer.status == wire::HkvStatus::kMalformed || answer.status == wire::HkvStatus::kUnknownVersion;
  const bool cancelled = pending->second.taken_back;
  const bool of_cancel = cancelled && answer.kind == wire::HkvKind::kCancel;
  if (answer.kind != pending->second.kind && !of_cancel && !misunderstood) return std::nullopt;
  if (answer.status == wire::HkvStatus::kOverloaded) {
    ++pending->second.overloaded;
    if (IsToBeRepeated(pending->first, pending->second, now_ns)) return std::nullopt;
  }
  if (answer.status == wire::HkvStatus::kShort && IsToBePadded(pending->first, pending->second, answer, now_ns))
    return std::nullopt;
  // The CANCEL came before the write, which is never done then. The write itself is answered MISMATCH for that; it may
  // as well have been done and have compared in vain: what it found is not known, that nothing was done is.
  const bool came_first = answer.status == wire::HkvStatus::kOk && answer.values.empty();
  if ((of_cancel && came_first) || (cancelled && !of_cancel && answer.status == wire::HkvStatus::kMismatch)) {
    answer.status = wire::HkvStatus::kOverloaded;
  }
  if (of_cancel) answer.kind = wire::HkvKind::kWrite;
  Outcome outcome = End(pending, now_ns);
  if (outcome.kind == wire::HkvKind::kOpen && answer.status == wire::HkvStatus::kOk) {
    session_ = {.id = answer.session, .token = answer.token};
    open_writes_.clear();
  }
  outcome.answer = std::move(answer);
  return outcome;
}

// Reads and OPENs change nothing that anyone could miss, and a write without operations has none to take back: for them
// OVERLOADED is an outcome.
bool PendingRequests::IsToBeRepeated(const Id& id, Pending& pending, uint64_t now_ns) {
  if (on_overload_ == OnOverload::kEnd || pending.kind != wire::HkvKind::kWrite) return false;
  if (pending.request.operations.empty() && !pending.taken_back) return false;
  ++to_be_repeated_;
  if (pending.repeat_ns != 0) return true;  // the answer to an earlier copy, which says nothing new
  // In time for a write to be taken back, and for an answer to that.
  const uint64_t left_ns = pending.settle_by_ns - std::min(pending.settle_by_ns, now_ns);
  const uint64_t no_later_ns =
      now_ns < pending.take_back_ns ? pending.take_back_ns : now_ns + std::max(left_ns / 2, kFirstPause_ns);
  const uint64_t repeat_ns = std::min(now_ns + Pause_ns(id.second, pending.overloaded), no_later_ns);
  if (repeat_ns >= pending.settle_by_ns) return true;  // it stays in doubt
  pending.repeat_ns = repeat_ns;
  by_repeat_.emplace(repeat_ns, id);
  return true;
}

// At once, and once: its answer does not become longer. Later ones are as long from the beginning.
bool PendingRequests::IsToBePadded(const Id& id, Pending& pending, const wire::HkvAnswer& answer, uint64_t now_ns) {
  if (pending.kind != wire::HkvKind::kGet || answer.hint > wire::kHkvMax_bytes) return false;
  gets_padded_bytes_ = std::max<size_t>(gets_padded_bytes_, answer.hint);
  if (pending.request.padded_bytes >= answer.hint) return pending.repeat_ns != 0;
  pending.request.padded_bytes = answer.hint;
  if (on_overload_ == OnOverload::kEnd) return false;
  ++to_be_repeated_;
  if (pending.repeat_ns != 0) return true;
  pending.repeat_ns = now_ns;
  by_repeat_.emplace(now_ns, id);
  return true;
}

void PendingRequests::RepeatAll(uint64_t now_ns) {
  for (auto& [id, pending] : pending_) {
    if (pending.settle_by_ns != 0 && now_ns >= pending.settle_by_ns) continue;  // it stays in doubt
    if (pending.repeat_ns != 0) by_repeat_.erase({pending.repeat_ns, id});
    pending.repeat_ns = now_ns;
    by_repeat_.emplace(now_ns, id);
  }
}

std::optional<Draft> PendingRequests::Repeat(uint64_t now_ns) {
  if (next_repeat_ns() > now_ns) return std::nullopt;
  const Id id = by_repeat_.begin()->second;
  by_repeat_.erase(by_repeat_.begin());
  Pending& pending = pending_.at(id);
  pending.repeat_ns = 0;
  if (pending.kind == wire::HkvKind::kWrite && now_ns >= pending.take_back_ns) {
    pending.taken_back = true;
    pending.request.kind = wire::HkvKind::kCancel;
    pending.request.operations.clear();
  }
  pending.request.timeout_us = TimeoutField(pending.deadline_ns - std::min(pending.deadline_ns, now_ns));
  return Draft{.request = pending.request, .datagram = Encode(pending.request)};
}

std::optional<Outcome> PendingRequests::GiveUp(uint64_t now_ns) {
  if (next_deadline_ns() > now_ns) return std::nullopt;
  return End(pending_.find(by_deadline_.begin()->second), now_ns);
}

uint64_t PendingRequests::oldest_sent_ns() const {
  uint64_t oldest_ns = pending_.empty() ? 0 : UINT64_MAX;
  for (const auto& [id, pending] : pending_) oldest_ns = std::min(oldest_ns, pending.sent_ns);
  return oldest_ns;
}

uint64_t PendingRequests::longest_timeout_ns() const {
  uint64_t longest_ns = 0;
  for (const auto& [id, pending] : pending_) longest_ns = std::max(longest_ns, pending.deadline_ns - pending.sent_ns);
  return longest_ns;
}

Outcome PendingRequests::End(std::map<Id, Pending>::iterator pending, uint64_t now_ns) {
  const Id id = pending->first;
  const Pending request = std::move(pending->second);
  pending_.erase(pending);
  by_deadline_.erase({request.deadline_ns, id});
  if (request.repeat_ns != 0) by_repeat_.erase({request.repeat_ns, id});
  if (request.kind == wire::HkvKind::kWrite && id.first != wire::kHkvNoSession && id.first == session_.id) {
    open_writes_.erase(id.second);
  }
  return {.kind = request.kind,
          .client_id = id.first,
          .seq = id.second,
          .sent_ns = request.sent_ns,
          .ended_ns = now_ns,
          .answer = {},
          .overloaded = request.overloaded > 0};
}

}  // namespace hedgerow::client
