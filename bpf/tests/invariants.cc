// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/invariants.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "proxy/data_plane/names.h"

namespace hedgerow::packets {
namespace {

using Faults = std::vector<std::string>;

uint64_t InFlight(const StateView &state, size_t service) {
  uint64_t pending = 0;
  for (const hr_request &request : state.requests)
    pending += HR_WORD_STATE(request.word) == HR_STATE_PENDING && request.key.service == service;
  return pending;
}

void CheckIdentity(const StateView &state, Faults &faults) {
  for (size_t i = 0; i < state.services.size(); ++i) {
    const hr_stats &stats = state.services[i].stats;
    const uint64_t ended = InFlight(state, i) + Outcomes(stats);
    if (stats.counters[HR_REQUESTS] != ended)
      faults.push_back(absl::StrCat("identity: service ", state.services[i].name, " counted ",
                                    stats.counters[HR_REQUESTS], " requests, but ", ended, " ended or are in flight"));
    // Every untracked request has exactly one reason.
    uint64_t reasons = 0;
    for (const ReasonRow &reason : kReasons)
      if (reason.kind == "forwarded") reasons += stats.reasons[reason.number];
    if (stats.counters[HR_PASSED_THROUGH] != reasons)
      faults.push_back(absl::StrCat("reasons: service ", state.services[i].name, " passed ",
                                    stats.counters[HR_PASSED_THROUGH], " through for ", reasons, " reasons"));
  }
}

// Walks one stack of the wheel; every request of it is seen exactly once in all of them.
void Walk(const StateView &state, uint32_t head, const std::string &place, std::map<uint32_t, std::string> &seen,
          Faults &faults) {
  while (head != 0) {
    if (head >= state.requests.size()) {
      faults.push_back(absl::StrCat("wheel: ", place, " names request ", head, ", which does not exist"));
      return;
    }
    if (const auto [at, first] = seen.try_emplace(head, place); !first) {
      faults.push_back(absl::StrCat("wheel: request ", head, " is in ", at->second, " and in ", place));
      return;
    }
    head = state.requests[head].next;
  }
}

void CheckWheel(const StateView &state, Faults &faults) {
  std::map<uint32_t, std::string> seen;
  uint64_t live = 0;
  for (int i = 0; i < HR_FINE_SLOTS; ++i) {
    Walk(state, state.wheel.fine[i].head, absl::StrCat("fine slot ", i), seen, faults);
    live += state.wheel.fine[i].live;
  }
  for (int i = 0; i < HR_COARSE_SLOTS; ++i)
    Walk(state, state.wheel.coarse[i], absl::StrCat("coarse slot ", i), seen, faults);
  Walk(state, state.wheel.list, "the clock's list", seen, faults);
  uint64_t used = 0;
  uint64_t armed = 0;
  for (uint32_t i = 1; i < state.requests.size(); ++i) {
    const bool in_use = HR_WORD_STATE(state.requests[i].word) != HR_STATE_FREE;
    used += in_use;
    armed += in_use && state.requests[i].armed != 0;
    if (in_use != seen.contains(i))
      faults.push_back(absl::StrCat("wheel: request ", i, in_use ? " is in use but nowhere" : " is free but in it"));
  }
  if (used + state.kept_requests.size() != HR_HELD_REQUESTS(state.wheel.held))
    faults.push_back(absl::StrCat("held: ", HR_HELD_REQUESTS(state.wheel.held), ", but ", used,
                                  " requests are in use and ", state.kept_requests.size(), " kept"));
  if (live != armed) faults.push_back(absl::StrCat("live: slots say ", live, ", requests say ", armed));
  if (state.wheel.busy != 0) faults.push_back("busy: no lap is at work");
}

// Indices 1..made are each either in use or free, once.
void CheckFreeList(const char *name, uint32_t made, const std::set<uint32_t> &used, std::vector<uint32_t> free,
                   const std::vector<uint32_t> &kept, Faults &faults) {
  free.insert(free.end(), kept.begin(), kept.end());
  std::set<uint32_t> listed;
  for (const uint32_t index : free) {
    if (!listed.insert(index).second) faults.push_back(absl::StrCat(name, ": ", index, " is twice in the free list"));
    if (used.contains(index)) faults.push_back(absl::StrCat(name, ": ", index, " is in use and in the free list"));
    if (index == 0 || index > made) faults.push_back(absl::StrCat(name, ": ", index, " was never made"));
  }
  for (uint32_t i = 1; i <= made; ++i)
    if (!used.contains(i) && !listed.contains(i)) faults.push_back(absl::StrCat(name, ": ", i, " is lost"));
}

void CheckPools(const StateView &state, Faults &faults) {
  std::set<uint32_t> requests, parked;
  for (uint32_t i = 1; i < state.requests.size(); ++i) {
    const hr_request &request = state.requests[i];
    if (HR_WORD_STATE(request.word) == HR_STATE_FREE) continue;
    requests.insert(i);
    if (request.parked != 0 && !parked.insert(request.parked).second)
      faults.push_back(absl::StrCat("parked: copy ", request.parked, " belongs to two requests"));
    if (request.parked == 0 && HR_WORD_STATE(request.word) == HR_STATE_PENDING)
      faults.push_back(absl::StrCat("parked: pending request ", i, " has no copy"));
  }
  CheckFreeList("requests", state.wheel.requests_made, requests, state.free_requests, state.kept_requests, faults);
  CheckFreeList("parked", state.wheel.pool_made, parked, state.free_parked, state.kept_parked, faults);
}

// What the wheel is said to hold is what requests hold and CPUs keep; each service and each client, what those of their
// requests hold that are counted.
void CheckHeld(const StateView &state, Faults &faults) {
  uint64_t all = state.kept_requests.size() * HR_HELD_REQUEST + state.kept_parked.size() * HR_HELD_COPY;
  std::map<uint32_t, uint64_t> by_service, by_client;
  for (uint32_t i = 1; i < state.requests.size(); ++i) {
    const hr_request &request = state.requests[i];
    if (HR_WORD_STATE(request.word) == HR_STATE_FREE) continue;
    const uint64_t held = HR_HELD_REQUEST + (request.parked != 0 ? HR_HELD_COPY : 0);
    all += held;
    if (!request.counted) continue;
    by_service[request.key.service] += held;
    by_client[request.client] += held;
  }
  if (all != state.wheel.held) faults.push_back(absl::StrCat("held: ", state.wheel.held, " of all, but ", all));
  for (uint32_t i = 0; i < state.held_by_service.size(); ++i)
    if (state.held_by_service[i] != by_service[i])
      faults.push_back(absl::StrCat("held: ", state.held_by_service[i], " of service ", i, ", but ", by_service[i]));
  for (uint32_t i = 0; i < state.held_by_client.size(); ++i)
    if (state.held_by_client[i] != by_client[i])
      faults.push_back(absl::StrCat("held: ", state.held_by_client[i], " of client ", i, ", but ", by_client[i]));
}

// A backend has as many requests in flight as say so, and none that it has answered.
void CheckFlights(const StateView &state, Faults &faults) {
  std::map<std::pair<uint32_t, uint32_t>, int32_t> flights;
  for (uint32_t i = 1; i < state.requests.size(); ++i) {
    const hr_request &request = state.requests[i];
    if (HR_WORD_STATE(request.word) == HR_STATE_FREE) continue;
    const uint32_t wrong = request.in_flight & (HR_ANSWERED_MASK(request.masks) | ~HR_SENT_MASK(request.masks));
    if (wrong != 0)
      faults.push_back(
          absl::StrCat("flights: request ", i, " at backends ", wrong, ", which have answered it, or never got it"));
    for (uint32_t place = 0; place < HR_MAX_BACKENDS_PER_SERVICE; ++place)
      flights[{request.key.service, place}] += request.in_flight >> place & 1;
  }
  for (const StateView::Backend &backend : state.backends)
    if (backend.in_flight != flights[{backend.service, backend.place}])
      faults.push_back(absl::StrCat("flights: ", backend.in_flight, " at place ", backend.place, " of service ",
                                    backend.service, ", but ", flights[{backend.service, backend.place}]));
}

void CheckScoreboard(const StateView &state, Faults &faults) {
  std::set<uint32_t> referred;
  for (const auto &[set, reference] : state.scoreboard) {
    const uint32_t index = HR_REFERENCE_REQUEST(reference);
    if (index == 0 || index >= state.requests.size()) {
      faults.push_back(absl::StrCat("scoreboard: names request ", index));
      continue;
    }
    const hr_request &request = state.requests[index];
    if (!referred.insert(index).second)
      faults.push_back(absl::StrCat("scoreboard: request ", index, " is in it twice"));
    if (HR_WORD_GENERATION(request.word) != HR_REFERENCE_GENERATION(reference) ||
        HR_WORD_STATE(request.word) == HR_STATE_FREE || (request.word & HR_WORD_DETACHED))
      faults.push_back(absl::StrCat("scoreboard: an entry outlived request ", index));
    if (request.set != set || request.tag != HR_REFERENCE_TAG(reference))
      faults.push_back(absl::StrCat("scoreboard: request ", index, " is in the wrong set"));
  }
  for (uint32_t i = 1; i < state.requests.size(); ++i) {
    const hr_request &request = state.requests[i];
    const bool should = HR_WORD_STATE(request.word) != HR_STATE_FREE && !(request.word & HR_WORD_DETACHED);
    if (should && !referred.contains(i)) faults.push_back(absl::StrCat("scoreboard: request ", i, " cannot be found"));
  }
}

}  // namespace

std::vector<std::string> BrokenInvariants(const StateView &state) {
  Faults faults;
  CheckIdentity(state, faults);
  CheckWheel(state, faults);
  CheckPools(state, faults);
  CheckHeld(state, faults);
  CheckFlights(state, faults);
  CheckScoreboard(state, faults);
  return faults;
}

}  // namespace hedgerow::packets
