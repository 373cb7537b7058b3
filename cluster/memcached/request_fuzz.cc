// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target for memcached's text protocol: any bytes are taken, answered or dropped; what is taken may
// be done; and what a node says to what it cannot take is one short datagram that no node would answer.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cluster/kv/item_store.h"
#include "cluster/memcached/answer.h"
#include "cluster/memcached/request.h"

namespace {

using namespace hedgerow;

void Require(bool condition) {
  if (!condition) abort();
}

void RequireSound(const memcached::Request& request) {
  using memcached::Verb;
  Require(request.keys.size() <= memcached::kKeysMax);
  Require((request.verb == Verb::kGet || request.verb == Verb::kGets) == !request.keys.empty());
  for (const std::string& key : request.keys) Require(!key.empty() && key.size() <= kv::kKeyMax_bytes);
  if (!Changes(request.verb)) return;
  const bool flush = request.verb == Verb::kFlushAll;  // the only one without a key
  Require(flush == request.operation.key.empty() && request.operation.key.size() <= kv::kKeyMax_bytes);
  Require(request.operation.value.size() <= memcached::Limits().value_max_bytes);
  kv::Command command{.key = {.kind = kv::CommandKind::kMemcached}, .item = request.operation};
  command.item.life_s = memcached::LifeOf_s(request.exptime, 1'800'000'000);
  Require(kv::Decode(kv::Encode(command)) == command);
  kv::ItemStore items(1 << 20);
  Require(memcached::ResultReply(request.verb, items.Execute(command.item, 1, 2, UINT64_MAX)).outcome !=
          memcached::Outcome::kNone);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const memcached::Limits limits{.once_in_window = true};
  const memcached::Parse parse = memcached::ParseRequest(bytes, limits);
  const bool refused = parse.refusal != memcached::Refusal::kNone;
  Require(parse.request.has_value() + refused + (parse.drop != memcached::Drop::kNone) == 1);
  Require(refused == !parse.answer.empty());
  if (refused) {
    Require(parse.answer.size() < 128 && parse.answer.substr(0, 2) == bytes.substr(0, 2));
    Require(memcached::ParseRequest(parse.answer, limits).drop == memcached::Drop::kAnAnswer);
  }
  if (parse.request.has_value()) RequireSound(*parse.request);
  return 0;
}
