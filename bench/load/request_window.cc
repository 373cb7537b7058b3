// SPDX-License-Identifier: Apache-2.0
#include "bench/load/request_window.h"

#include <algorithm>
#include <bit>

namespace hedgerow::bench {

RequestWindow::RequestWindow(size_t capacity, HedgePolicy policy, int64_t timeout_ns)
    : slots_(std::bit_ceil(std::max<size_t>(capacity, 2))),
      mask_(slots_.size() - 1),
      policy_(policy),
      timeout_ns_(timeout_ns) {}

bool RequestWindow::Begin(uint64_t seq, int64_t intended_ns, int64_t sent_ns) {
  Request& slot = Slot(seq);
  if (seq != next_seq_ || slot.state == Request::State::kPending) return false;
  SkipFinished();
  slot = Request{.seq = seq, .intended_ns = intended_ns, .sent_ns = sent_ns, .state = Request::State::kPending};
  ++next_seq_;
  ++pending_;
  return true;
}

AnswerVerdict RequestWindow::OnAnswer(uint64_t seq, uint8_t source, int64_t now_ns) {
  Request& request = Slot(seq);
  if (request.state == Request::State::kFree || request.seq != seq) return AnswerVerdict::kUnknown;
  if (request.state == Request::State::kTimedOut) return AnswerVerdict::kLate;
  if (request.answers < UINT8_MAX) ++request.answers;
  if (request.state == Request::State::kAnswered) {
    return request.answers <= request.sends ? AnswerVerdict::kLoser : AnswerVerdict::kDuplicate;
  }
  // Still pending for TakeTimeout(), which counts it as lost.
  if (now_ns >= DeadlineNs(request)) return AnswerVerdict::kLate;
  request.state = Request::State::kAnswered;
  request.answered_ns = now_ns;
  request.winner = source;
  --pending_;
  return AnswerVerdict::kFirst;
}

Request* RequestWindow::TakeDueHedge(int64_t now_ns) {
  if (!policy_.enabled) return nullptr;
  while (true) {
    SkipFinished();
    if (hedge_cursor_ >= next_seq_) return nullptr;
    Request& request = Slot(hedge_cursor_);
    if (HedgeDueNs(request) > now_ns) return nullptr;
    ++hedge_cursor_;
    if (request.sends == 1) return &request;
  }
}

Request* RequestWindow::TakeTimeout(int64_t now_ns) {
  SkipFinished();
  if (timeout_cursor_ >= next_seq_) return nullptr;
  Request& request = Slot(timeout_cursor_);
  if (DeadlineNs(request) > now_ns) return nullptr;
  request.state = Request::State::kTimedOut;
  --pending_;
  ++timeout_cursor_;
  return &request;
}

int64_t RequestWindow::NextDueNs() {
  SkipFinished();
  int64_t next_ns = kNeverNs;
  if (timeout_cursor_ < next_seq_) next_ns = DeadlineNs(Slot(timeout_cursor_));
  if (policy_.enabled && hedge_cursor_ < next_seq_) next_ns = std::min(next_ns, HedgeDueNs(Slot(hedge_cursor_)));
  return next_ns;
}

const Request* RequestWindow::Find(uint64_t seq) const {
  const Request& request = slots_[seq & mask_];
  return request.state != Request::State::kFree && request.seq == seq ? &request : nullptr;
}

// Moves both cursors past requests that need nothing any more. A cursor never waits behind a slot that has been
// used again, because it has passed every finished request before Begin() fills one.
void RequestWindow::SkipFinished() {
  while (timeout_cursor_ < next_seq_ && Slot(timeout_cursor_).state != Request::State::kPending) ++timeout_cursor_;
  hedge_cursor_ = std::max(hedge_cursor_, timeout_cursor_);
  while (hedge_cursor_ < next_seq_ && Slot(hedge_cursor_).state != Request::State::kPending) ++hedge_cursor_;
}

}  // namespace hedgerow::bench
