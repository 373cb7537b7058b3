// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/request_router.h"

#include <algorithm>
#include <utility>

namespace hedgerow::kv {
namespace {

const Result kTooMuch{.code = ResultCode::kOverloaded, .session = 0, .values = {}};

Answer NotLeader(const Request& request, raft::NodeId hint) {
  return {.reply_to = request.reply_to, .kind = Answer::Kind::kNotLeader, .leader_hint = hint};
}

Answer ResultAnswer(const Request& request, Result result) {
  return {.reply_to = request.reply_to, .kind = Answer::Kind::kResult, .result = std::move(result)};
}

// What it takes while it waits. The rest of it, and what it costs in the maps, is about so much.
size_t Size_bytes(const Request& request) {
  size_t bytes = 512 + request.command.item.key.size() + request.command.item.value.size();
  if (request.read_key.has_value()) bytes += request.read_key->size();
  for (const std::string& key : request.item_keys) bytes += sizeof(key) + key.size();
  for (const Operation& operation : request.command.operations) {
    bytes += sizeof(operation) + operation.key.size() + operation.value.size();
    if (operation.expected.has_value()) bytes += operation.expected->size();
  }
  return bytes;
}

}  // namespace

bool RequestRouter::HasRoomFor(size_t bytes) const {
  return waiting_.size() < options_.waiting_max && waiting_bytes_ + bytes <= options_.waiting_max_bytes;
}

void RequestRouter::Receive(uint64_t now_ns, uint64_t arrived_ns, Request request, std::vector<Action>& actions) {
  now_ns_ = now_ns;
  FollowCommittedTime(now_ns);
  const bool fresh = request.hops == 0 && !request.is_read() && PolicyOf(request.command.key).no_session;
  const bool closed = fresh && now_ns < closed_until_ns_;
  counters_.after_standstill += closed;
  if (!serves_ || closed) {
    actions.push_back(NotLeader(request, leader_ == self_ ? raft::NodeId() : leader_));
    return;
  }
  // Less what it waited in the socket: what is applied may have come meanwhile.
  if (fresh) {
    const uint64_t waited_ns = now_ns - std::min(now_ns, arrived_ns);
    const uint64_t committed_ns = state_.committed_time_ns();
    request.command.came_ns = std::max<uint64_t>(committed_ns - std::min(committed_ns, waited_ns), 1);
  }
  if (!request.is_read()) {
    if (std::optional<Result> known = state_.Known(request.command.key)) {
      actions.push_back(ResultAnswer(request, std::move(*known)));
      return;
    }
  }
  const size_t bytes = Size_bytes(request);
  if (!HasRoomFor(bytes)) {
    ++counters_.overloaded;
    CameToNothing(request);
    // A copy that waits here may stand in a log, and is answered. That nothing was done its client would take for both.
    const bool waits = !request.is_read() && by_key_.contains(request.command.key);
    if (!waits) actions.push_back(ResultAnswer(request, kTooMuch));
    return;
  }
  const uint64_t timeout_ns = request.timeout_ns - std::min(request.timeout_ns, request.age_ns);
  const uint64_t end_ns = arrived_ns + timeout_ns;
  if (end_ns <= now_ns) return;  // nobody waits for an answer
  const uint64_t tag = next_tag_++;
  PendingRequest& waiting = waiting_[tag];
  waiting.bytes = bytes;
  waiting_bytes_ += bytes;
  waiting.arrived_ns = arrived_ns;
  waiting.hold_until_ns = arrived_ns + std::min(timeout_ns, options_.hold_max_ns);
  waiting.request = std::move(request);
  if (waiting.request.is_read()) {
    waiting.placed = true;
    CountRead(waiting.request, 1);
    EndAt(tag,
          leader_.IsSet() ? end_ns : waiting.hold_until_ns);  // without a leader its client hears so, as of a write
    actions.push_back(StartRead{.tag = tag, .deadline_ns = waiting.end_ns});
    return;
  }
  by_key_[waiting.request.command.key].insert(tag);
  Place(now_ns, tag, actions);
}

void RequestRouter::StoodStill(uint64_t now_ns) {
  counters_.standstills += now_ns >= closed_until_ns_;
  closed_until_ns_ = now_ns + kClosedAfterStandstill_ns;
}

// A leader counts no more time than passes on its clock, so committed time gets ahead of no clock that runs,
// but for what was late on its way here.
void RequestRouter::FollowCommittedTime(uint64_t now_ns) {
  const uint64_t committed_ns = state_.committed_time_ns();
  if (committed_ns == followed_committed_ns_) return;
  const uint64_t passed_ns = committed_ns - std::min(committed_ns, followed_committed_ns_);
  const uint64_t ran_ns = now_ns - std::min(now_ns, followed_at_ns_);
  if (followed_at_ns_ != 0) ahead_ns_ = ahead_ns_ + passed_ns - std::min(ahead_ns_ + passed_ns, ran_ns);
  followed_committed_ns_ = committed_ns;
  followed_at_ns_ = now_ns;
  if (!caught_up_) ahead_ns_ = 0;
  if (ahead_ns_ < kStandstill_ns) return;
  // Both clocks run alike from here on: one standstill is counted once.
  ahead_ns_ = 0;
  StoodStill(now_ns);
}

bool RequestRouter::TakesPlaceInWindow(const Request& request) const {
  const RequestKey& key = request.command.key;
  return !request.is_read() && key.kind == CommandKind::kWindowed && !by_key_.contains(key) &&
         !state_.Known(key).has_value();
}

bool RequestRouter::IsProposed(const RequestKey& key) const {
  const auto same = by_key_.find(key);
  return same != by_key_.end() && std::any_of(same->second.begin(), same->second.end(),
                                              [this](uint64_t tag) { return waiting_.at(tag).proposed; });
}

// All that are proposed are, or none is (Queued, MayBeProposed): the first says it, however many copies wait.
bool RequestRouter::IsQueued(const RequestKey& key) const {
  const auto same = by_key_.find(key);
  if (same == by_key_.end()) return false;
  for (const uint64_t tag : same->second) {
    if (const PendingRequest& waiting = waiting_.at(tag); waiting.proposed) return waiting.queued;
  }
  return false;
}

uint64_t RequestRouter::Age_ns(uint64_t now_ns, const PendingRequest& waiting) const {
  return waiting.request.age_ns + (now_ns - std::min(now_ns, waiting.arrived_ns));
}

// When its client gives up.
uint64_t RequestRouter::End_ns(const PendingRequest& waiting) const {
  const Request& request = waiting.request;
  return waiting.arrived_ns + request.timeout_ns - std::min(request.timeout_ns, request.age_ns);
}

// A write that is not known to be applied goes to where it can be proposed.
void RequestRouter::Place(uint64_t now_ns, uint64_t tag, std::vector<Action>& actions) {
  PendingRequest& waiting = waiting_.at(tag);
  Request& request = waiting.request;
  if (!leader_.IsSet()) {
    EndAt(tag, waiting.hold_until_ns);
    return;
  }
  if (leader_ == self_ ? Age_ns(now_ns, waiting) > options_.copy_age_max_ns : request.hops > 0) {
    Refuse(tag, actions);
    return;
  }
  if (leader_ != self_) FreeSlots(now_ns);
  if (leader_ != self_ && slots_taken_ >= options_.forwards_max) {
    ++counters_.forwards_queued;
    to_forward_.push_back(tag);
    EndAt(tag, waiting.hold_until_ns);
    return;
  }
  waiting.placed = true;
  // From now on it waits for the entry to be applied here, as long as its client does.
  EndAt(tag, End_ns(waiting));
  if (leader_ == self_) {
    // A hedged copy of what is in the log already, and not yet applied, need not be there twice.
    const bool again = IsProposed(request.command.key);
    const bool queued = again && IsQueued(request.command.key);
    waiting.proposed = true;
    if (queued) return WaitForRoom(tag, waiting);
    if (again) {
      ++waiting.tries;
      return;
    }
    actions.push_back(ProposeCommand{.tag = tag, .key = request.command.key});
    return;
  }
  ForwardIt(now_ns, tag, actions);
}

void RequestRouter::ForwardIt(uint64_t now_ns, uint64_t tag, std::vector<Action>& actions) {
  PendingRequest& waiting = waiting_.at(tag);
  waiting.forwarded_to = leader_;
  waiting.has_slot = true;
  ++waiting.tries;
  ++slots_taken_;
  slots_.emplace_back(now_ns + options_.forward_slot_ns, tag);
  ++counters_.forwards;
  Forward forward{.tag = tag, .to = leader_, .request = waiting.request};
  forward.request.age_ns = Age_ns(now_ns, waiting);
  forward.request.hops = waiting.request.hops + 1;
  actions.push_back(std::move(forward));
}

// Of those that are answered, or should be by now.
void RequestRouter::FreeSlots(uint64_t now_ns) {
  while (!slots_.empty()) {
    const auto found = waiting_.find(slots_.front().second);
    const bool taken = found != waiting_.end() && found->second.has_slot;
    if (taken && slots_.front().first > now_ns) break;
    if (taken) FreeSlot(found->second);
    slots_.pop_front();
  }
}

// As many as there is room for among those that are not answered.
void RequestRouter::ForwardMore(uint64_t now_ns, std::vector<Action>& actions) {
  FreeSlots(now_ns);
  while (!to_forward_.empty() && slots_taken_ < options_.forwards_max) {
    const uint64_t tag = to_forward_.front();
    to_forward_.pop_front();
    if (const auto found = waiting_.find(tag); found != waiting_.end() && !found->second.placed)
      Place(now_ns, tag, actions);
  }
}

void RequestRouter::FreeSlot(PendingRequest& waiting) {
  slots_taken_ -= waiting.has_slot;
  waiting.has_slot = false;
}

uint64_t RequestRouter::next_deadline_ns() const {
  const uint64_t end_ns = by_end_.empty() ? UINT64_MAX : by_end_.begin()->first;
  return to_forward_.empty() || slots_.empty() ? end_ns : std::min(end_ns, slots_.front().first);
}

void RequestRouter::LeaderChanged(uint64_t now_ns, raft::NodeId leader, std::vector<Action>& actions) {
  leader_ = leader;
  slots_.clear();
  to_forward_.clear();
  slots_taken_ = 0;
  std::vector<uint64_t> tags;
  for (auto& [tag, waiting] : waiting_) {
    if (waiting.request.is_read()) continue;
    // Whether the former leader got it into a log that counts, nobody knows. Once more does no harm: the tables
    // see to it that it is applied once.
    waiting.placed = waiting.proposed = waiting.queued = waiting.has_slot = false;
    waiting.forwarded_to = {};
    if (now_ns < waiting.hold_until_ns) tags.push_back(tag);
  }
  for (const uint64_t tag : tags) Place(now_ns, tag, actions);
}

void RequestRouter::ProposalRefused(uint64_t now_ns, const RequestKey& key, raft::RefusalReason reason,
                                    std::vector<Action>& actions) {
  now_ns_ = now_ns;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  const std::vector<uint64_t> tags(found->second.begin(), found->second.end());
  for (const uint64_t tag : tags) {
    PendingRequest& waiting = waiting_.at(tag);
    if (!waiting.proposed) continue;
    --waiting.tries;
    if (reason == raft::RefusalReason::kOverloaded) {
      Overloaded(tag, actions);
    } else if (now_ns >= waiting.hold_until_ns) {
      Refuse(tag, actions);
    } else {
      // Leadership is moving; LeaderChanged will place it.
      waiting.placed = waiting.proposed = waiting.queued = false;
      EndAt(tag, waiting.hold_until_ns);
    }
  }
}

RequestRouter::Wanted RequestRouter::MayBeProposed(uint64_t now_ns, const RequestKey& key,
                                                   std::vector<Action>& actions) {
  now_ns_ = now_ns;
  Wanted wanted;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return wanted;
  const std::vector<uint64_t> tags(found->second.begin(), found->second.end());
  for (const uint64_t tag : tags) {
    PendingRequest& waiting = waiting_.at(tag);
    if (!waiting.proposed) continue;
    const uint64_t age_ns = Age_ns(now_ns, waiting);
    if (age_ns > options_.copy_age_max_ns) {
      Overloaded(tag, actions);
      continue;
    }
    if (wanted.command == nullptr) wanted.command = &waiting.request.command;
    wanted.age_ns = std::min(wanted.age_ns, age_ns);
    wanted.came_ns = std::max(wanted.came_ns, waiting.request.command.came_ns);
    ++waiting.tries;
    if (waiting.queued) EndAt(tag, End_ns(waiting));
    waiting.queued = false;
  }
  return wanted;
}

// All copies wait for the one that is in the queue.
void RequestRouter::Queued(const RequestKey& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  for (const uint64_t tag : found->second) {
    if (PendingRequest& waiting = waiting_.at(tag); waiting.proposed) WaitForRoom(tag, waiting);
  }
}

void RequestRouter::WaitForRoom(uint64_t tag, PendingRequest& waiting) {
  waiting.queued = true;
  EndAt(tag, std::min(waiting.hold_until_ns, End_ns(waiting)));
}

void RequestRouter::ForwardAnswered(uint64_t now_ns, uint64_t tag, raft::NodeId from, const Answer& answer,
                                    std::vector<Action>& actions) {
  now_ns_ = now_ns;
  const auto found = waiting_.find(tag);
  if (found == waiting_.end() || found->second.forwarded_to != from) return;  // answered here, or placed anew
  PendingRequest& waiting = found->second;
  if (answer.kind == Answer::Kind::kResult) {
    if (answer.result.code == ResultCode::kOverloaded && waiting.tries > 1) {
      Refuse(tag, actions);  // see Overloaded
    } else {
      HasOutcome(waiting.request, answer.result);
      actions.push_back(ResultAnswer(waiting.request, answer.result));
      Remove(tag);
    }
    ForwardMore(now_ns, actions);
    return;
  }
  // It leads no more. LeaderChanged will say who does, if that is in time.
  FreeSlot(waiting);
  waiting.placed = false;
  waiting.forwarded_to = {};
  if (now_ns >= waiting.hold_until_ns) {
    Refuse(tag, actions);
  } else {
    EndAt(tag, waiting.hold_until_ns);
  }
}

void RequestRouter::ReadReady(uint64_t tag, std::vector<Action>& actions) {
  const auto found = waiting_.find(tag);
  if (found == waiting_.end()) return;
  if (!serves_) return Refuse(tag, actions);
  const Request& request = found->second.request;
  if (request.read_key.has_value()) {
    Answer answer{.reply_to = request.reply_to, .kind = Answer::Kind::kValue};
    answer.value = state_.Get(*request.read_key);
    actions.push_back(std::move(answer));
  } else {
    actions.push_back(ItemsAnswer(request));
  }
  Remove(tag);
}

const std::string* RequestRouter::ReadKey(uint64_t tag) const {
  const auto found = waiting_.find(tag);
  return found != waiting_.end() && found->second.request.read_key ? &*found->second.request.read_key : nullptr;
}

// Sized before anything is copied: a question of a few bytes may name one large item a hundred times.
Answer RequestRouter::ItemsAnswer(const Request& request) {
  size_t bytes = 0;
  for (const std::string& key : request.item_keys) {
    const Item* const item = state_.FindItem(key);
    if (item != nullptr) bytes += key.size() + item->value.size();
  }
  if (bytes > options_.items_max_bytes)
    return ResultAnswer(request, {.code = ResultCode::kTooLarge, .session = 0, .values = {}});
  if (items_bytes_ + bytes > options_.items_at_once_max_bytes) {
    ++counters_.overloaded;
    return ResultAnswer(request, kTooMuch);
  }
  items_bytes_ += bytes;
  Answer answer{.reply_to = request.reply_to, .kind = Answer::Kind::kItems};
  for (const std::string& key : request.item_keys) {
    if (const Item* item = state_.FindItem(key)) answer.items.emplace_back(key, *item);
  }
  return answer;
}

void RequestRouter::ReadRefused(uint64_t tag, std::vector<Action>& actions) {
  if (waiting_.contains(tag)) Refuse(tag, actions);
}

void RequestRouter::Applied(uint64_t now_ns, const RequestKey& key, const Result& result, bool of_this_term,
                            std::vector<Action>& actions) {
  now_ns_ = now_ns;
  FollowCommittedTime(now_ns);
  if (serves_) Answered(key, result, of_this_term, actions);
  if (!to_forward_.empty()) ForwardMore(now_ns, actions);
}

void RequestRouter::Answered(const RequestKey& key, const Result& result, bool of_this_term,
                             std::vector<Action>& actions) {
  // An entry of a former leader may be of an old request that had the same id; another one may have superseded it
  // since, and what waits here has an entry of its own behind both.
  const bool by_its_own_entry = !PolicyOf(key).used_once;
  if (by_its_own_entry && !of_this_term) return;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  const std::vector<uint64_t> tags(found->second.begin(), found->second.end());
  for (const uint64_t tag : tags) {
    if (by_its_own_entry && !waiting_.at(tag).proposed) continue;
    // An answer would be taken for one to the request that has the id now. A client that waits all the same repeats its
    // request, and that copy is new.
    if (result.code == ResultCode::kSuperseded) {
      ++counters_.superseded;
      Remove(tag);
      continue;
    }
    HasOutcome(waiting_.at(tag).request, result);
    actions.push_back(ResultAnswer(waiting_.at(tag).request, result));
    Remove(tag);
  }
}

void RequestRouter::StateReplaced(std::vector<Action>& actions) {
  std::vector<std::pair<RequestKey, Result>> known;
  for (const auto& [key, tags] : by_key_) {
    if (std::optional<Result> result = state_.Known(key)) known.emplace_back(key, std::move(*result));
  }
  for (const auto& [key, result] : known) Answered(key, result, /*of_this_term=*/false, actions);
}

void RequestRouter::Tick(uint64_t now_ns, std::vector<Action>& actions) {
  now_ns_ = now_ns;
  while (!by_end_.empty() && by_end_.begin()->first <= now_ns) {
    const uint64_t tag = by_end_.begin()->second;
    if (waiting_.at(tag).queued) {
      Overloaded(tag, actions);
      continue;
    }
    // A memcached client has said nothing of its timeout, so silence tells it nothing.
    const PendingRequest& waiting = waiting_.at(tag);
    if (waiting.placed && waiting.request.item_keys.empty() && End_ns(waiting) <= now_ns) {
      CameToNothing(waiting.request);
      Remove(tag);  // its client has given up
    } else {
      Refuse(tag, actions);
    }
  }
  if (!to_forward_.empty()) ForwardMore(now_ns, actions);
}

// Nothing was done: but of what may stand in some former leader's log, nobody knows that.
void RequestRouter::Overloaded(uint64_t tag, std::vector<Action>& actions) {
  if (hands_over_) return Refuse(tag, actions);
  ++counters_.overloaded;
  if (waiting_.at(tag).tries > 0) return Refuse(tag, actions);
  CameToNothing(waiting_.at(tag).request);
  actions.push_back(ResultAnswer(waiting_.at(tag).request, kTooMuch));
  Remove(tag);
}

// To a client without a session a refusal says that this copy did nothing. One that was proposed or forwarded may stand
// in some log: its client is left to its own timeout. (A node that has forwarded it judges for itself.)
void RequestRouter::Refuse(uint64_t tag, std::vector<Action>& actions) {
  const PendingRequest& waiting = waiting_.at(tag);
  CameToNothing(waiting.request);
  const bool write = !waiting.request.is_read() && PolicyOf(waiting.request.command.key).no_session;
  if (write && waiting.tries > 0 && waiting.request.hops == 0) return Remove(tag);
  actions.push_back(NotLeader(waiting.request, leader_ == self_ ? raft::NodeId() : leader_));
  Remove(tag);
}

void RequestRouter::CameToNothing(const Request& request) {
  if (request.is_read() || request.hops > 0) return;  // the node that has forwarded it judges for itself
  if (failing_.writes++ == 0) failing_.since_ns = now_ns_;
  failing_.last_ns = now_ns_;
}

void RequestRouter::HasOutcome(const Request& request, const Result& result) {
  if (result.code == ResultCode::kOverloaded || result.code == ResultCode::kNoRoom) return CameToNothing(request);
  failing_ = {};
}

void RequestRouter::CountRead(const Request& request, int change) {
  reads_.all += change;
  for (const uint16_t place : request.counted_at) reads_.at[place] += change;
}

void RequestRouter::Remove(uint64_t tag) {
  const auto found = waiting_.find(tag);
  const PendingRequest& waiting = found->second;
  by_end_.erase({waiting.end_ns, tag});
  waiting_bytes_ -= waiting.bytes;
  FreeSlot(found->second);
  if (waiting.request.is_read()) {
    CountRead(waiting.request, -1);
  } else {
    const auto same = by_key_.find(waiting.request.command.key);
    same->second.erase(tag);
    if (same->second.empty()) by_key_.erase(same);
  }
  waiting_.erase(found);
}

void RequestRouter::EndAt(uint64_t tag, uint64_t end_ns) {
  PendingRequest& waiting = waiting_.at(tag);
  by_end_.erase({waiting.end_ns, tag});
  waiting.end_ns = end_ns;
  by_end_.insert({end_ns, tag});
}

}  // namespace hedgerow::kv
