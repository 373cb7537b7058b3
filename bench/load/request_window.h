// SPDX-License-Identifier: Apache-2.0
//
// The requests that are under way, and the deadline logic of application hedging. Time comes in as an argument,
// no socket and no clock are known here, so that every order of events can be tested. A request has two
// ABSOLUTE times, both fixed when it is sent: when its hedge is due and when the client gives up. Nothing that
// arrives moves them. (The published Python client restarts its receive time-out with every stray datagram, so
// a late answer of an earlier request postpones the hedge; that is the fault not to repeat.) Both delays are
// the same for all requests, so due times come in sending order and two cursors replace a heap. Owned by the
// load engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace hedgerow::bench {

inline constexpr int64_t kNeverNs = std::numeric_limits<int64_t>::max();

struct HedgePolicy {
  bool enabled = false;
  int64_t delay_ns = 0;
};

struct Request {
  enum class State : uint8_t { kFree, kPending, kAnswered, kTimedOut };

  uint64_t seq = 0;
  int64_t intended_ns = 0;    // When it was meant to leave; latency counts from here.
  int64_t sent_ns = 0;        // When it left; the two due times count from here.
  int64_t answered_ns = 0;    // First accepted answer.
  int64_t hedge_sent_ns = 0;  // 0 when no hedge was sent.
  uint8_t sends = 1;          // Copies sent.
  uint8_t answers = 0;        // Accepted answers, the first included; stays at 255.
  uint8_t winner = 0;         // Source of the first answer: the place of the target among the client's.
  uint8_t outstanding = 0;    // One bit for each target that was sent a copy and has not answered.
  State state = State::kFree;
};

enum class AnswerVerdict {
  kFirst,      // The answer of a pending request.
  kLoser,      // A further answer that the client's own hedge explains; the hedging client discards it.
  kDuplicate,  // A further answer that no copy explains.
  kLate,       // The client had given up already.
  kUnknown,    // Of a request that was never sent, or so old that its slot was used again.
};

class RequestWindow {
 public:
  // `capacity` (rounded up to a power of two) must hold every request that can be pending at once: a slot may
  // only be used again when its request is over.
  RequestWindow(size_t capacity, HedgePolicy policy, int64_t timeout_ns);

  // Requests are begun in the order 0, 1, 2, .. at times that never go back. False when the slot is still
  // taken.
  bool Begin(uint64_t seq, int64_t intended_ns, int64_t sent_ns);

  // An answer to `seq` read at `now_ns`. An answer read after the deadline is late even when TakeTimeout() has
  // not been asked yet: the deadline decides, not the order of polling.
  AnswerVerdict OnAnswer(uint64_t seq, uint8_t source, int64_t now_ns);

  // The next request whose hedge is due, which is still unanswered and has not been sent twice already, or
  // nullptr. The caller sends it and notes hedge_sent_ns through MarkHedged().
  Request* TakeDueHedge(int64_t now_ns);
  void MarkHedged(Request& request, int64_t sent_ns) {
    request.hedge_sent_ns = sent_ns;
    ++request.sends;
  }

  // The next request whose deadline has passed without an answer, or nullptr. It counts as lost from now on.
  Request* TakeTimeout(int64_t now_ns);

  // The next time at which TakeDueHedge() or TakeTimeout() may return something; kNeverNs when nothing is
  // pending.
  int64_t NextDueNs();

  // Null unless `seq` still has its slot.
  const Request* Find(uint64_t seq) const;
  Request* Find(uint64_t seq) { return const_cast<Request*>(std::as_const(*this).Find(seq)); }

  // What Begin(seq) will find outstanding in the slot, of a request that is over.
  uint8_t OutstandingBefore(uint64_t seq) const { return slots_[seq & mask_].outstanding; }

  int64_t HedgeDueNs(const Request& request) const { return request.sent_ns + policy_.delay_ns; }
  int64_t DeadlineNs(const Request& request) const { return request.sent_ns + timeout_ns_; }
  uint64_t next_seq() const { return next_seq_; }
  uint64_t pending() const { return pending_; }

 private:
  Request& Slot(uint64_t seq) { return slots_[seq & mask_]; }
  void SkipFinished();

  std::vector<Request> slots_;
  uint64_t mask_;
  HedgePolicy policy_;
  int64_t timeout_ns_;
  uint64_t next_seq_ = 0;
  uint64_t hedge_cursor_ = 0;    // Requests below have been hedged or need no hedge any more.
  uint64_t timeout_cursor_ = 0;  // Requests below are answered or timed out.
  uint64_t pending_ = 0;
};

}  // namespace hedgerow::bench
