// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/kernel_model.h"

#include <algorithm>
#include <utility>

#include "cluster/raft/describe.h"
#include "cluster/sim/server.h"

namespace hedgerow::sim {
namespace {

// Appends that are stored without a word. Often the last before a pause is one of them, as if its answer were
// lost.
constexpr uint64_t kUnsaid_ppm = 200'000;

}  // namespace

KernelModel::KernelModel(World& world, Server& server)
    : world_(world),
      server_(server),
      kernel_(server.id(), {}, world.plan.kernel.ring_records,
              [this](offload::NativeKernel::Done done) { Ended(std::move(done)); }) {
  kernel_.WhenDecided([this](const offload::NativeKernel::Done& done) { Decided(done); });
  kernel_.WhileProcessCalls([this] { OtherCpus(); });
  kernel_.DrawAppendFlags([this] { return world_.random.Chance(kUnsaid_ppm) ? HR_PEER_APPEND_MORE : 0u; });
}

void KernelModel::Arrive(raft::Message message) {
  const uint64_t run = kernel_.Begin(world_.time.now_ns(), std::move(message));
  if (world_.random.Chance(world_.plan.kernel.torn_ppm)) {
    Continue(run);
    return;
  }
  while (kernel_.Step(run)) {
  }
}

void KernelModel::Continue(uint64_t run) {
  world_.time.After(world_.random.Below(world_.plan.kernel.torn_max_ns), [this, run] {
    if (kernel_.Step(run)) Continue(run);
  });
}

void KernelModel::OtherCpus() {
  for (const uint64_t run : kernel_.Running()) {
    if (world_.random.Chance(200'000)) kernel_.Step(run);
  }
}

void KernelModel::Attach() {
  attached_ = true;
  ++attachments_;
}

void KernelModel::ProcessDied() {
  world_.time.After(world_.random.Below(world_.plan.kernel.detach_max_ns), [this, attachment = attachments_] {
    if (attachment == attachments_) attached_ = false;
  });
}

void KernelModel::PowerCut() {
  attached_ = false;
  kernel_.Wipe();
}

void KernelModel::Decided(const offload::NativeKernel::Done& done) {
  if (!done.outcome.answer.has_value()) return;
  ++world_.kernel_answers;
  world_.kernel_appends += done.outcome.event == HR_NODE_EVENT_APPEND_STORED;
  world_.kernel_votes += done.outcome.event == HR_NODE_EVENT_VOTE_GRANTED;
  if (server_.MayBeHeard()) world_.checker.KernelDecided(server_.id(), *done.outcome.answer);
  // R5. What began before the lease had passed may end later.
  const uint64_t turned_ns = server_.last_turn_ns();
  const uint64_t lease_ns = world_.plan.kernel.lease_ns;
  world_.kernel_answers_late += done.arrived_ns >= turned_ns + lease_ns;
  if (done.arrived_ns >= turned_ns + std::max(lease_ns, server_.last_turn_tolerated_ns())) {
    world_.Fail("the kernel part of node ", server_.id().value(), " answers ",
                (done.arrived_ns - turned_ns) / kMicrosecond, " us after its loop's last turn");
  }
}

void KernelModel::Ended(offload::NativeKernel::Done done) {
  if (done.outcome.answer.has_value()) {
    if (world_.trace) world_.Trace("kernel: ", raft::Describe(*done.outcome.answer));
    server_.SendToPeer(std::move(*done.outcome.answer));
  }
  if (done.outcome.verdict == HR_NODE_PASS) server_.ArriveFromKernel(done.arrived_ns, std::move(done.message));
}

}  // namespace hedgerow::sim
