// SPDX-License-Identifier: Apache-2.0
//
// How KernelDataPlane writes while the programs run: one element or one aligned word at a time, and a service's
// words in an order in which every state in between is one that a packet may meet (kernel_reconfigure.cc says
// why). Called by FillService, Reconfigure and Forget. The packet tests look at every one of these states.
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proxy/data_plane/kernel_data_plane.h"
#include "proxy/data_plane/service_change.h"
#include "proxy.skel.h"

namespace hedgerow {

absl::Status KernelDataPlane::Step(absl::string_view what) const {
  return before_write_ == nullptr ? absl::OkStatus() : before_write_(what);
}

absl::Status KernelDataPlane::Put(bpf_map* map, const void* key, const void* value) {
  const absl::Status status = Step(bpf_map__name(map));
  return status.ok() ? PutElement(map, key, value) : status;
}

absl::StatusOr<bool> KernelDataPlane::Delete(bpf_map* map, const void* key) {
  const absl::Status status = Step(bpf_map__name(map));
  return status.ok() ? DeleteElement(map, key) : status;
}

absl::Status KernelDataPlane::Zero(bpf_map* map, uint32_t index) {
  const absl::Status status = Step(bpf_map__name(map));
  return status.ok() ? ZeroElement(map, index) : status;
}

// Aligned words, so that no program ever sees half of one, and none before all that were stored earlier.
absl::Status KernelDataPlane::StoreWords(const hr_service& from, volatile hr_service* to) {
  static_assert(sizeof(hr_service) % sizeof(uint64_t) == 0);
  uint64_t words[sizeof(hr_service) / sizeof(uint64_t)];
  memcpy(words, &from, sizeof(words));
  auto* mapped = reinterpret_cast<volatile uint64_t*>(to);
  for (size_t i = 0; i < std::size(words); ++i) {
    if (mapped[i] == words[i]) continue;
    if (absl::Status status = Step(absl::StrCat("services, byte ", i * sizeof(uint64_t))); !status.ok())
      return status;
    __atomic_store_n(&mapped[i], words[i], __ATOMIC_SEQ_CST);
  }
  return absl::OkStatus();
}

// Stores the ids of new places, which no program reads yet because `absent` holds these places and all others beyond the
// former count. Stores also everything that does not concern places.
absl::Status KernelDataPlane::StoreHidden(ServiceChange& change) {
  const hr_service& old = change.old;
  hr_service& step = change.step;
  if (change.has_other_profile()) {
    // A profile is many words, and half of one could take an operation for safe that is not. While it changes,
    // requests are forwarded without a copy, which asks nothing of it; the answers of what is in flight are
    // judged by parts of it that no reload changes (config/diff.h).
    step.switches |= HR_SWITCH_RELOADING;
    absl::Status status = StoreWords(step, change.mapped);
    if (status.ok()) status = WaitForPrograms();
    if (!status.ok()) return status;
  }
  step = change.next;
  const uint32_t hidden = ServiceChange::Places(step) & ~ServiceChange::Present(old);
  step.backend_count = old.backend_count;
  step.absent = static_cast<uint8_t>(old.absent | hidden);
  step.present = old.present;
  step.drained = old.drained;
  // A nack must not name the added backends before their replies are recognized.
  for (uint32_t slot = 0; slot < HR_MAX_BACKENDS_PER_SERVICE; ++slot)
    if ((change.come() >> slot & 1) != 0) step.nodes[slot] = 0;
  if (change.has_other_profile()) step.switches |= HR_SWITCH_RELOADING;
  return StoreWords(step, change.mapped);
}

absl::Status KernelDataPlane::StoreCount(ServiceChange& change) {
  change.step.backend_count = change.next.backend_count;
  return StoreWords(change.step, change.mapped);
}

// Publishes the added backends. The removed ones are still published, so both are present for a moment.
absl::Status KernelDataPlane::Show(ServiceChange& change) {
  hr_service& step = change.step;
  // Waits until the programs have ended that may have read an id or a profile before it was stored.
  if (!change.fresh() && (change.come() != 0 || change.has_other_profile()))
    if (absl::Status status = WaitForPrograms(); !status.ok()) return status;
  step.switches = change.next.switches;
  memcpy(step.nodes, change.next.nodes, sizeof(step.nodes));
  step.absent = static_cast<uint8_t>(step.absent & ~change.come());
  step.present = static_cast<uint8_t>(std::popcount(ServiceChange::Present(step)));
  return StoreWords(step, change.mapped);
}

// Unpublishes the removed backends. Afterwards they are drained no longer.
absl::Status KernelDataPlane::Hide(ServiceChange& change) {
  change.step.absent = change.next.absent;
  change.step.present = change.next.present;
  const absl::Status status = StoreWords(change.step, change.mapped);
  return status.ok() ? StoreWords(change.next, change.mapped) : status;
}

}  // namespace hedgerow
