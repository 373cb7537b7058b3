// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/stranger.h"

#include <algorithm>
#include <utility>

#include "cluster/sim/client.h"
#include "cluster/sim/membership.h"
#include "cluster/sim/server.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {
namespace {

// Requests by which of the two they are, in `reply_to.request`.
constexpr uint64_t kOpened = 1;
constexpr uint64_t kForged = 2;

}  // namespace

Stranger::Stranger(World& world) : world_(world), random_(world.plan.stranger.seed) {}

void Stranger::Start() {
  if (world_.plan.stranger.mean_interval_ns > 0) Next();
}

void Stranger::Next() {
  world_.time.After(random_.Below(2 * world_.plan.stranger.mean_interval_ns), [this] {
    if (calm_) return;
    Act();
    Next();
  });
}

void Stranger::Act() {
  const bool opens = random_.Chance(500'000);
  world_.forged += !opens;
  kv::Request request{.command = opens ? Open() : Forged(), .timeout_ns = kSecond};
  request.reply_to = {.client = kStranger, .request = opens ? kOpened : kForged};
  Server* const to = &world_.membership->SomeNode();
  world_.network.Send(kStranger, to->id().value(), UINT64_MAX,
                      [to, request = std::move(request)] { to->ArriveRequest(request); });
}

kv::Command Stranger::Open() { return {.key = {.kind = kv::CommandKind::kOpen, .a = random_.Next()}}; }

// The number of a write that is under way, or of the next one: the client's own would find it answered.
kv::Command Stranger::Forged() {
  const Client& victim = *world_.clients[random_.Below(world_.plan.clients.session_clients)];
  const kv::SessionName session{.id = victim.session().id, .token = random_.Pick<uint64_t>({0, 1, random_.Next()})};
  const uint64_t seq = victim.next_seq() - std::min<uint64_t>(victim.next_seq() - 1, random_.Below(3));
  kv::Command command{.key = kv::WriteKey(session, seq, {})};
  if (random_.Chance(300'000)) command.key = kv::CancelKey(command.key);
  command.lowest_unanswered = random_.Pick<uint64_t>({0, seq + 1, UINT64_MAX});
  return command;
}

void Stranger::ArriveAnswer(const kv::Answer& answer) {
  if (answer.reply_to.request != kForged || answer.kind != kv::Answer::Kind::kResult) return;
  const kv::ResultCode code = answer.result.code;
  if (code == kv::ResultCode::kUnknownSession || code == kv::ResultCode::kOverloaded) return;
  world_.Fail("a stranger was answered ", static_cast<int>(code), " to a request under a client's session");
}

}  // namespace hedgerow::sim
