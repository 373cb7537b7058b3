// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/memcached_client.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "cluster/sim/membership.h"
#include "cluster/sim/server.h"

namespace hedgerow::sim {
namespace {

constexpr size_t kOutstandingMax = 4;
constexpr size_t kAnsweredMax = 128;
// As a windowed client's (client.cc): with packets of at most kWindowedDelayMax_ns and copy_age_max_ns on
// nodes, the window of 4 s is not exceeded.
constexpr uint64_t kResend_ns = 1000 * kMillisecond;
constexpr uint64_t kTimeout_ns = 1500 * kMillisecond;

// Copies of a request whose id is used again are under way to the first node for so long at most, and from there to the
// leader for kWindowedDelayMax_ns. For how long a node holds them does not count.
constexpr uint64_t kReuseDelayMax_ns = 50 * kMillisecond;
constexpr uint64_t kToggleFrame = uint64_t{1} << 32;  // no number of a request

uint64_t NumberOf(const std::string& text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

void MemcachedClient::Start() {
  world_.time.After(world_.random.Below(500 * kMillisecond), [this] { Act(); });
}

void MemcachedClient::Act() {
  if (stopped_) return;
  if (operations_.size() < kOutstandingMax) {
    const uint64_t id = next_request_++;
    Operation& operation = operations_[id];
    operation.invoked_ns = world_.time.now_ns();
    operation.give_up_ns = operation.invoked_ns + kTimeout_ns;
    operation.resend_until_ns = operation.invoked_ns + kResend_ns;
    operation.request.reply_to = {.client = address_, .request = id};
    operation.kind = DrawKind();
    Prepare(operation);
    ++world_.operations;
    Send(id);
    if (world_.random.Chance(world_.plan.clients.hedge_ppm))
      world_.time.After(world_.random.Between(1, 30) * kMillisecond, [this, id] { Send(id); });
    Retry(id);
  }
  world_.time.After(1 + world_.random.Below(2 * world_.plan.clients.think_max_ns), [this] { Act(); });
}

MemcachedClient::Kind MemcachedClient::DrawKind() {
  // A client with one id for everything can only store values that never repeat.
  if (one_frame_id_) return MayReuseId() ? Kind::kSet : Kind::kGet;
  if (!has_counter_) return Kind::kAddCounter;
  if (MayReuseId() && world_.random.Chance(500'000)) return Kind::kToggle;
  return world_.random.Pick({Kind::kIncrement, Kind::kIncrement, Kind::kReadCounter, Kind::kSet, Kind::kGet, Kind::kCas,
                             Kind::kReadCas, Kind::kSetBrief, Kind::kGetBrief, Kind::kGetBrief, Kind::kReadToggle,
                             Kind::kReadToggle});
}

bool MemcachedClient::ReusesId(const Operation& operation) const {
  return operation.kind == Kind::kToggle || (one_frame_id_ && operation.kind == Kind::kSet);
}

bool MemcachedClient::MayReuseId() const {
  // What waits before a machine is as what a network holds (ADR 0030).
  if (world_.plan.faults.standstills) return false;
  return !reuse_.under_way && world_.time.now_ns() >= reuse_.rests_until_ns;
}

std::string MemcachedClient::BriefKey() const {
  return "memcached-brief" + std::to_string(address_) + "-" + std::to_string(brief_.number);
}

kv::ItemOperation MemcachedClient::Write(const Operation& operation, kv::ItemVerb verb) {
  return {.verb = verb, .key = operation.key, .value = std::to_string(operation.value)};
}

void MemcachedClient::Prepare(Operation& operation) {
  const uint64_t now_ns = operation.invoked_ns;
  const uint64_t number = operation.request.reply_to.request;
  kv::Command& command = operation.request.command;
  operation.value = address_ << 32 | number;
  switch (operation.kind) {
    case Kind::kAddCounter:
      operation.key = "memcached-counter";
      operation.value = 0;
      command.item = Write(operation, kv::ItemVerb::kAdd);
      break;
    case Kind::kIncrement:
      operation.key = "memcached-counter";
      command.item = {.verb = kv::ItemVerb::kIncrement, .key = operation.key, .delta = 1};
      operation.record = world_.history.InvokeCounter(operation.key, now_ns, true);
      break;
    case Kind::kReadCounter:
      operation.key = "memcached-counter";
      operation.record = world_.history.InvokeCounter(operation.key, now_ns, false);
      break;
    case Kind::kSet:
      operation.key = "memcached-register";
      command.item = Write(operation, kv::ItemVerb::kSet);
      operation.record = world_.history.InvokeRegister(operation.key, now_ns, true, operation.value);
      break;
    case Kind::kGet:
      operation.key = "memcached-register";
      operation.record = world_.history.InvokeRegister(operation.key, now_ns, false, 0);
      break;
    case Kind::kCas:
      operation.key = "memcached-cas";
      command.item = Write(operation, uniques_[operation.key] == 0 ? kv::ItemVerb::kAdd : kv::ItemVerb::kCas);
      command.item.unique = uniques_[operation.key];
      break;
    case Kind::kReadCas: operation.key = "memcached-cas"; break;
    case Kind::kSetBrief:
      brief_ = {.number = number};
      operation.key = BriefKey();
      command.item = Write(operation, kv::ItemVerb::kSet);
      command.item.life_s = static_cast<int64_t>(world_.random.Between(1, 3));
      break;
    case Kind::kGetBrief: operation.key = BriefKey(); break;
    case Kind::kToggle:
      operation.key = ToggleKey();
      operation.value = 1 + toggle_.sets++ % 2;
      toggle_.value = 0;
      command.item = Write(operation, kv::ItemVerb::kSet);
      break;
    case Kind::kReadToggle: operation.key = ToggleKey(); break;
  }
  if (command.item.key.empty()) {
    operation.request.item_keys = {operation.key};
    return;
  }
  if (ReusesId(operation)) reuse_.under_way = true;
  // What the bytes of the command come to.
  const uint64_t fingerprint = std::hash<std::string>()(std::to_string(static_cast<int>(command.item.verb)) +
                                                        command.item.key + " " + command.item.value);
  command.key = {.kind = kv::CommandKind::kMemcached,
                 .a = address_,
                 .b = 0,
                 .c = fingerprint,
                 .d = operation.kind == Kind::kToggle ? kToggleFrame
                      : one_frame_id_                 ? 0
                                                      : number};
}

void MemcachedClient::Send(uint64_t id) {
  const auto found = operations_.find(id);
  if (found == operations_.end()) return;
  Operation& operation = found->second;
  const uint64_t now_ns = world_.time.now_ns();
  if (now_ns >= operation.resend_until_ns) return;
  operation.request.timeout_ns = operation.give_up_ns - now_ns;
  Server* const to = &world_.membership->SomeNode();
  const bool reuse = ReusesId(operation);
  if (world_.trace) world_.Trace("memcached client ", address_, " sends ", id, " to ", to->id().value());
  if (reuse) reuse_.sent_ns = now_ns;
  world_.network.Send(address_, to->id().value(), reuse ? kReuseDelayMax_ns : kWindowedDelayMax_ns,
                      [to, request = operation.request] { to->ArriveRequest(request); });
}

// Until the copies of the last request are off the wire.
void MemcachedClient::RestId() {
  reuse_.under_way = false;
  reuse_.rests_until_ns = reuse_.sent_ns + kReuseDelayMax_ns + kWindowedDelayMax_ns;
}

void MemcachedClient::Retry(uint64_t id) {
  world_.time.After(world_.random.Between(150, 500) * kMillisecond, [this, id] {
    const auto found = operations_.find(id);
    if (found == operations_.end()) return;
    if (world_.time.now_ns() >= found->second.give_up_ns) {
      if (ReusesId(found->second)) RestId();
      // It may yet be done as long as a node may hold it, and the reader of a toggle must know what it holds.
      if (found->second.kind == Kind::kToggle) reuse_.rests_until_ns += kWindowMax_ns;
      operations_.erase(found);  // its outcome stays unknown
      return;
    }
    Send(id);
    Retry(id);
  });
}

void MemcachedClient::ArriveAnswer(const kv::Answer& answer) {
  const uint64_t id = answer.reply_to.request;
  if (world_.trace)
    world_.Trace("memcached client ", address_, " is answered ", id, ": ", static_cast<int>(answer.kind), ", code ",
                 static_cast<int>(answer.result.code));
  const auto found = operations_.find(id);
  if (found != operations_.end()) {
    Answered(found->second, answer);
    return;
  }
  const auto before = answered_.find(id);
  if (before == answered_.end() || answer.kind != kv::Answer::Kind::kResult) return;
  if (answer.result.code != kv::ResultCode::kOverloaded && answer.result != before->second)
    world_.Fail("memcached client ", address_, " got two different answers to request ", id, ": code ",
                static_cast<int>(before->second.code), ", then ", static_cast<int>(answer.result.code));
}

void MemcachedClient::Answered(Operation& operation, const kv::Answer& answer) {
  const uint64_t id = operation.request.reply_to.request;
  if (answer.kind == kv::Answer::Kind::kNotLeader) {
    const uint64_t now_ns = world_.time.now_ns();
    if (now_ns < operation.refused_until_ns) return;
    operation.refused_until_ns = now_ns + world_.random.Between(1, 20) * kMillisecond;
    world_.time.At(operation.refused_until_ns, [this, id] { Send(id); });
    return;
  }
  if (answer.kind == kv::Answer::Kind::kItems) {
    Found(operation, answer.items.empty() ? nullptr : &answer.items[0].second);
  } else {
    if (answer.result.code == kv::ResultCode::kOverloaded) return;  // it will be sent again
    answered_[id] = answer.result;
    if (answered_.size() > kAnsweredMax) answered_.erase(answered_.begin());
    Stored(operation, answer.result);
  }
  ++world_.answers;
  operations_.erase(id);
}

void MemcachedClient::Stored(Operation& operation, const kv::Result& result) {
  const uint64_t now_ns = world_.time.now_ns();
  const bool ok = result.code == kv::ResultCode::kOk;
  if (ReusesId(operation)) RestId();
  if (result.code == kv::ResultCode::kNoRoom) return;  // nothing was done
  switch (operation.kind) {
    case Kind::kAddCounter:
      has_counter_ = true;  // its own or another's
      return;
    case Kind::kIncrement:
      if (!ok || result.values.size() != 1) {
        world_.Fail("memcached client ", address_, ": an increment found no counter");
        return;
      }
      world_.history.AnswerCounter(operation.key, operation.record, now_ns,
                                   static_cast<int64_t>(NumberOf(result.values[0])));
      return;
    case Kind::kSet:
      if (ok) world_.history.AnswerRegister(operation.key, operation.record, now_ns, operation.value);
      return;
    case Kind::kCas:
      if (ok && operation.request.command.item.verb == kv::ItemVerb::kCas)
        world_.history.Replaced(operation.key, operation.request.command.item.unique);
      uniques_[operation.key] = 0;  // a get must tell
      return;
    case Kind::kSetBrief:
      // Committed time never runs ahead of real time, and its life began no earlier than the request.
      if (!ok || operation.request.reply_to.request != brief_.number) return;
      brief_.known_ns = now_ns;
      brief_.must_live_ns =
          operation.invoked_ns + static_cast<uint64_t>(operation.request.command.item.life_s) * kSecond;
      return;
    case Kind::kToggle:
      toggle_.value = operation.value;
      toggle_.known_ns = now_ns;
      return;
    default: return;
  }
}

void MemcachedClient::Found(Operation& operation, const kv::Item* item) {
  const uint64_t now_ns = world_.time.now_ns();
  const uint64_t value = item == nullptr ? 0 : NumberOf(item->value);
  switch (operation.kind) {
    case Kind::kReadCounter:
      world_.history.AnswerCounter(operation.key, operation.record, now_ns, static_cast<int64_t>(value));
      return;
    case Kind::kGet: world_.history.AnswerRegister(operation.key, operation.record, now_ns, value); return;
    case Kind::kReadCas: uniques_[operation.key] = item == nullptr ? 0 : item->unique; return;
    case Kind::kGetBrief:
      if (operation.key != BriefKey()) return;
      if (item != nullptr && operation.invoked_ns >= brief_.missed_ns)
        world_.Fail("memcached client ", address_, ": an item that had ended came back");
      // Only what began after the item was known to be stored says that it has ended.
      if (item != nullptr || operation.invoked_ns < brief_.known_ns) return;
      if (now_ns < brief_.must_live_ns)
        world_.Fail("memcached client ", address_, ": an item ended ", (brief_.must_live_ns - now_ns) / kMillisecond,
                    " ms too soon");
      brief_.missed_ns = std::min(brief_.missed_ns, now_ns);
      return;
    case Kind::kReadToggle: FoundToggle(operation, value); return;
    default: return;
  }
}

// A set that was answered is there until the next one begins, whatever its id was used for before.
void MemcachedClient::FoundToggle(const Operation& operation, uint64_t value) {
  if (toggle_.value == 0 || operation.invoked_ns < toggle_.known_ns || value == toggle_.value) return;
  world_.Fail("memcached client ", address_, ": set number ", toggle_.sets, " of ", operation.key, " to ",
              toggle_.value, " was stored, and it holds ", value);
}

}  // namespace hedgerow::sim
