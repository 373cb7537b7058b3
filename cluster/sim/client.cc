// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/client.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "cluster/sim/membership.h"
#include "cluster/sim/server.h"

namespace hedgerow::sim {
namespace {

constexpr size_t kAnsweredMax = 128;
constexpr uint64_t kOther = uint64_t{1} << 63;  // in `reply_to.request`: of SendOther
// Of a windowed client: every copy leaves within this of the first, and none is cared for after that. With two
// packets of at most kWindowedDelayMax_ns and copy_age_max_ns on nodes, the window of 4 s is not exceeded.
constexpr uint64_t kWindowedResend_ns = 1000 * kMillisecond;
constexpr uint64_t kWindowedTimeout_ns = 1500 * kMillisecond;

uint64_t NumberOf(const std::optional<std::string>& text) {
  uint64_t number = 0;
  if (text.has_value()) std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

kv::Operation Make(kv::OperationKind kind, std::string key, std::string value, int64_t delta) {
  return {.kind = kind, .key = std::move(key), .value = std::move(value), .expected = {}, .delta = delta};
}

}  // namespace

void Client::Start() {
  world_.time.After(world_.random.Below(500 * kMillisecond), [this] { Act(); });
}

void Client::Stop() {
  stopped_ = true;
  if (windowed_) return;
  for (auto& [id, operation] : operations_) {
    operation.give_up_ns = operation.resend_until_ns = world_.time.now_ns() + AnsweredAfterStorm_ns(world_.plan);
  }
}

void Client::Act() {
  if (stopped_) return;
  if (!asleep_ && operations_.size() < world_.plan.clients.outstanding_max) Begin();
  uint64_t pause_ns = 1 + world_.random.Below(2 * world_.plan.clients.think_max_ns);
  asleep_ = !windowed_ && world_.random.Chance(world_.plan.clients.sleep_ppm);
  if (asleep_) pause_ns = world_.plan.settings.shortest_timeout_ns + world_.random.Below(2 * kSecond);
  world_.time.After(pause_ns, [this] {
    asleep_ = false;
    Act();
  });
}

void Client::Begin() {
  if (!windowed_ && session_.id == 0 && opening_) return;
  const uint64_t id = next_request_++;
  Operation& operation = operations_[id];
  operation.invoked_ns = world_.time.now_ns();
  operation.request.reply_to = {.client = address_, .request = id};
  operation.kind = DrawKind();
  Prepare(operation);
  ++world_.operations;
  const uint64_t timeout_ns = windowed_ ? kWindowedTimeout_ns : world_.random.Between(1, 5) * kSecond;
  operation.give_up_ns = operation.invoked_ns + timeout_ns;
  operation.resend_until_ns = windowed_ ? operation.invoked_ns + kWindowedResend_ns : operation.give_up_ns;
  Send(id);
  if (world_.random.Chance(world_.plan.clients.hedge_ppm)) {
    SendAgainLater(id, world_.random.Between(1, 30) * kMillisecond);
  }
  if (world_.plan.clients.other_ppm > 0 && world_.random.Chance(world_.plan.clients.other_ppm)) {
    world_.time.After(world_.random.Below(40 * kMillisecond), [this, id] { SendOther(id); });
  }
  Retry(id);
}

// After the number; of a value that is longer than a datagram.
std::string Client::Padding() {
  if (!world_.random.Chance(world_.plan.sealed.long_values_ppm)) return {};
  return std::string(world_.random.Between(1'000, 8'000), ' ');
}

Client::Kind Client::DrawKind() {
  if (windowed_) return world_.random.Chance(700'000) ? Kind::kIncrement : Kind::kReadCounter;
  if (session_.id == 0) return Kind::kOpen;
  return world_.random.Pick({Kind::kIncrement, Kind::kIncrement, Kind::kReadCounter, Kind::kPut, Kind::kReadRegister,
                             Kind::kReplace, Kind::kReadReplaced, Kind::kTransfer});
}

void Client::Prepare(Operation& operation) {
  const uint64_t now_ns = operation.invoked_ns;
  const std::string number = std::to_string(world_.random.Below(world_.plan.clients.keys));
  kv::Command& command = operation.request.command;
  operation.value = address_ << 32 | next_value_;
  switch (operation.kind) {
    case Kind::kOpen:
      opening_ = true;
      command.key = {.kind = kv::CommandKind::kOpen, .a = world_.random.Next(), .b = 0, .c = 0};
      return;
    case Kind::kIncrement:
      operation.key = (windowed_ ? "window" : "counter") + number;
      command.operations = {Make(kv::OperationKind::kIncrement, operation.key, {}, 1)};
      operation.record = world_.history.InvokeCounter(operation.key, now_ns, true);
      break;
    case Kind::kReadCounter:
      operation.key = (windowed_ ? "window" : "counter") + number;
      operation.record = world_.history.InvokeCounter(operation.key, now_ns, false);
      break;
    case Kind::kPut:
      operation.key = "register" + number;
      command.operations = {
          Make(kv::OperationKind::kPut, operation.key, std::to_string(operation.value) + Padding(), 0)};
      operation.record = world_.history.InvokeRegister(operation.key, now_ns, true, operation.value);
      break;
    case Kind::kReadRegister:
      operation.key = "register" + number;
      operation.record = world_.history.InvokeRegister(operation.key, now_ns, false, 0);
      break;
    case Kind::kReplace: {
      operation.key = "replaced" + number;
      operation.expected = known_[operation.key];
      kv::Operation replace =
          Make(kv::OperationKind::kCompareAndSet, operation.key, std::to_string(operation.value), 0);
      if (operation.expected != 0) replace.expected = std::to_string(operation.expected);
      command.operations = {std::move(replace)};
      break;
    }
    case Kind::kReadReplaced: operation.key = "replaced" + number; break;
    case Kind::kTransfer:
      command.operations = {Make(kv::OperationKind::kIncrement, "from" + number, {}, -3),
                            Make(kv::OperationKind::kIncrement, "to" + number, {}, 3)};
      break;
  }
  if (command.operations.empty()) {
    operation.request.read_key = operation.key;
    return;
  }
  ++next_value_;
  command.key = windowed_ ? kv::OnceKey(address_ << 32 | next_request_, command.operations)
                          : kv::WriteKey(session_, next_seq_++, command.operations);
}

// Something else under the same number: an empty write, or the CANCEL of this one. Of two requests one is done.
void Client::SendOther(uint64_t id) {
  const auto found = operations_.find(id);
  if (found == operations_.end()) return;
  kv::Request other = found->second.request;
  kv::Command& command = other.command;
  if (other.read_key.has_value() || command.key.kind == kv::CommandKind::kOpen) return;
  command.operations.clear();
  other.reply_to.request = id | kOther;
  if (world_.random.Chance(500'000)) {
    command.key = kv::CancelKey(command.key);
  } else {
    command.key = windowed_ ? kv::OnceKey(command.key.a, {})
                            : kv::WriteKey({.id = command.key.a, .token = command.key.d}, command.key.b, {});
  }
  other.timeout_ns = kSecond;
  Server* const to = &world_.membership->SomeNode();
  world_.network.Send(address_, to->id().value(), windowed_ ? kWindowedDelayMax_ns : UINT64_MAX,
                      [to, other = std::move(other)] { to->ArriveRequest(other); });
}

// OK without values: it came first. (With values: the CANCEL of what was done.)
void Client::OtherAnswered(const kv::Answer& answer) {
  const uint64_t id = answer.reply_to.request & ~kOther;
  const bool done = answer.kind == kv::Answer::Kind::kResult && answer.result.code == kv::ResultCode::kOk &&
                    answer.result.values.empty();
  if (!done) return;
  const auto before = answered_.find(id);
  if (before != answered_.end() && before->second.code == kv::ResultCode::kOk) {
    world_.Fail("client ", address_, " was told that two requests under the number of request ", id, " were done");
  }
  others_done_.insert(id);
}

uint64_t Client::LowestUnanswered() const {
  uint64_t lowest = next_seq_;
  for (const auto& [id, operation] : operations_) {
    const kv::RequestKey& key = operation.request.command.key;
    if (!operation.request.read_key.has_value() && key.kind == kv::CommandKind::kWrite && key.a == session_.id) {
      lowest = std::min(lowest, key.b);
    }
  }
  return lowest;
}

void Client::Send(uint64_t id) {
  const auto found = operations_.find(id);
  if (found == operations_.end()) return;
  Operation& operation = found->second;
  const uint64_t now_ns = world_.time.now_ns();
  if (now_ns >= operation.resend_until_ns) return;
  operation.request.timeout_ns = operation.give_up_ns - now_ns;
  if (operation.request.command.key.kind == kv::CommandKind::kWrite) {
    operation.request.command.lowest_unanswered = LowestUnanswered();
  }
  Server* const to = &world_.membership->SomeNode();
  world_.network.Send(address_, to->id().value(), windowed_ ? kWindowedDelayMax_ns : UINT64_MAX,
                      [to, request = operation.request] { to->ArriveRequest(request); });
}

void Client::SendAgainLater(uint64_t id, uint64_t delay_ns) {
  world_.time.After(delay_ns, [this, id] { Send(id); });
}

void Client::Retry(uint64_t id) {
  world_.time.After(world_.random.Between(150, 500) * kMillisecond, [this, id] {
    const auto found = operations_.find(id);
    if (found == operations_.end()) return;
    if (world_.time.now_ns() >= found->second.give_up_ns) {
      // Small limits may refuse a request as often as it comes.
      if (stopped_ && !windowed_ && !(found->second.overloaded && world_.plan.settings.differ)) {
        world_.Fail("request ", id, " of client ", address_, " was not answered within ", kAnsweredWithin_ns / kSecond,
                    " s without faults");
      }
      // Its outcome stays unknown.
      if (found->second.kind == Kind::kOpen) opening_ = false;
      operations_.erase(found);
      return;
    }
    Send(id);
    Retry(id);
  });
}

void Client::ArriveAnswer(const kv::Answer& answer) {
  const uint64_t id = answer.reply_to.request;
  if ((id & kOther) != 0) return OtherAnswered(answer);
  const auto found = operations_.find(id);
  if (found != operations_.end()) {
    Complete(found->second, answer);
    return;
  }
  const auto before = answered_.find(id);
  if (before == answered_.end() || answer.kind != kv::Answer::Kind::kResult) return;
  if (answer.result.code == kv::ResultCode::kOk && before->second.code == kv::ResultCode::kOk &&
      answer.result != before->second) {
    world_.Fail("client ", address_, " got two different answers to request ", id);
  }
}

void Client::Complete(Operation& operation, const kv::Answer& answer) {
  const uint64_t id = operation.request.reply_to.request;
  if (answer.kind == kv::Answer::Kind::kNotLeader) {
    const uint64_t now_ns = world_.time.now_ns();
    if (now_ns < operation.refused_until_ns) return;
    const uint64_t pause_ns = world_.random.Between(1, 20) * kMillisecond;
    operation.refused_until_ns = now_ns + pause_ns;
    SendAgainLater(id, pause_ns);
    return;
  }
  if (answer.kind == kv::Answer::Kind::kValue) {
    Read(operation, answer);
  } else {
    switch (answer.result.code) {
      case kv::ResultCode::kOverloaded: operation.overloaded = true; return;  // it will be sent again
      case kv::ResultCode::kUnknownSession: SessionLost(operation); return;
      case kv::ResultCode::kBelowLowest:
        world_.Fail("client ", address_, " was told that it had the answer to request ", id, ", which it had not");
        return;
      case kv::ResultCode::kNotANumber: world_.Fail("client ", address_, ": an increment found no number"); return;
      case kv::ResultCode::kNotFound:
      case kv::ResultCode::kNotStored:
      case kv::ResultCode::kTooLarge:
      case kv::ResultCode::kSuperseded: world_.Fail("client ", address_, " got an answer of memcached's"); return;
      case kv::ResultCode::kOk:
      case kv::ResultCode::kMismatch:
      case kv::ResultCode::kNoRoom: break;
    }
    // A session that has expired frees its nonce: a ghost of its OPEN opens another, which stays unused.
    if (operation.kind != Kind::kOpen) answered_[id] = answer.result;
    if (answered_.size() > kAnsweredMax) answered_.erase(answered_.begin());
    if (operation.kind != Kind::kOpen) session_active_ns_ = std::max(session_active_ns_, operation.invoked_ns);
    if (answer.result.code == kv::ResultCode::kOk && others_done_.contains(id)) {
      world_.Fail("client ", address_, " was told that two requests under the number of request ", id, " were done");
    }
    if (answer.result.code == kv::ResultCode::kOk) Succeeded(operation, answer.result);
  }
  ++world_.answers;
  operations_.erase(id);
}

void Client::Succeeded(Operation& operation, const kv::Result& result) {
  const uint64_t now_ns = world_.time.now_ns();
  if (operation.request.command.key.kind == kv::CommandKind::kWrite && operation.request.command.key.a == session_.id) {
    wrote_ = true;
  }
  switch (operation.kind) {
    case Kind::kOpen:
      session_ = {.id = result.session, .token = result.token};
      wrote_ = false;
      session_active_ns_ = operation.invoked_ns;
      next_seq_ = 1;
      opening_ = false;
      break;
    case Kind::kIncrement: {
      const bool observed = result.values.size() == 1;
      world_.history.AnswerCounter(operation.key, operation.record, now_ns,
                                   observed ? static_cast<int64_t>(NumberOf(result.values[0])) : 0);
      break;
    }
    case Kind::kPut: world_.history.AnswerRegister(operation.key, operation.record, now_ns, operation.value); break;
    case Kind::kReplace:
      world_.history.Replaced(operation.key, operation.expected);
      known_[operation.key] = operation.value;
      break;
    default: break;
  }
}

void Client::Read(Operation& operation, const kv::Answer& answer) {
  const uint64_t now_ns = world_.time.now_ns();
  const uint64_t value = NumberOf(answer.value);
  if (operation.kind == Kind::kReadCounter) {
    world_.history.AnswerCounter(operation.key, operation.record, now_ns, static_cast<int64_t>(value));
  } else if (operation.kind == Kind::kReadRegister) {
    world_.history.AnswerRegister(operation.key, operation.record, now_ns, value);
  } else {
    known_[operation.key] = value;
  }
}

void Client::SessionLost(const Operation& operation) {
  const uint64_t session = operation.request.command.key.a;
  if (session != session_.id) return;
  // Committed time never runs ahead of real time, so a session lives at least as long as it was promised.
  const uint64_t idle_ns = world_.time.now_ns() - session_active_ns_;
  // One in which nothing was done makes room for others.
  if (wrote_ && idle_ns < world_.plan.settings.shortest_timeout_ns) {
    world_.Fail("the session of client ", address_, " expired after ", idle_ns / kMillisecond, " ms of ",
                world_.plan.settings.shortest_timeout_ns / kMillisecond);
  }
  session_ = {};
  std::erase_if(operations_, [session](const auto& entry) {
    const kv::Request& request = entry.second.request;
    return !request.read_key.has_value() && request.command.key.kind == kv::CommandKind::kWrite &&
           request.command.key.a == session;
  });
}

}  // namespace hedgerow::sim
