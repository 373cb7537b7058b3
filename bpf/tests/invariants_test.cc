// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The checks that end every packet test, shown failing: each test plants one fault into a good state and wants
// it named.
#include "bpf/tests/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two services; requests 1 and 2 wait, 3 was answered and is retained, 4 is free; copies 1 and 2 are held, 3 is
// free.
StateView GoodState() {
  StateView state;
  state.services = {{"a", {}}, {"b", {}}};
  state.services[0].stats.counters[HR_REQUESTS] = 4;
  state.services[0].stats.counters[HR_WON_BY_HEDGE] = 1;
  state.services[0].stats.counters[HR_PASSED_THROUGH] = 2;
  state.services[0].stats.reasons[HR_REASON_BYPASS] = 1;
  state.services[0].stats.reasons[HR_REASON_GSO] = 1;
  state.services[1].stats.counters[HR_REQUESTS] = 1;
  state.requests.resize(6);
  auto fill = [&](uint32_t index, uint32_t generation, uint8_t state_of, uint16_t service, uint32_t parked) {
    hr_request &request = state.requests[index];
    request.word = HR_WORD(generation, HR_NO_BACKEND, 0, state_of);
    request.key.service = service;
    request.parked = parked;
    request.set = 7;
    request.tag = index & 0xfff;
    request.counted = 1;
    if (state_of != HR_STATE_FREE) state.scoreboard.emplace_back(7, HR_REFERENCE(generation, index, index));
  };
  fill(1, 10, HR_STATE_PENDING, 0, 1);
  fill(2, 20, HR_STATE_PENDING, 1, 2);
  fill(3, 30, HR_STATE_ANSWERED, 0, 0);
  fill(4, 40, HR_STATE_FREE, 0, 0);
  fill(5, 50, HR_STATE_FREE, 0, 0);
  state.requests[1].masks = HR_MASKS_SENT(0b01);
  state.requests[2].masks = HR_MASKS_SENT(0b11);
  state.requests[3].masks = HR_MASKS_SENT(0b11) | HR_MASKS_ANSWERED(0b10);
  state.requests[1].in_flight = state.requests[3].in_flight = 0b01;
  state.requests[2].in_flight = 0b11;
  state.backends = {{0, 0, 2}, {0, 1, 0}, {1, 0, 1}, {1, 1, 1}};
  state.requests[1].armed = state.requests[2].armed = 100 + 1;
  state.wheel.fine[100].head = 1;
  state.wheel.fine[100].live = 2;
  state.requests[1].next = 2;
  state.wheel.coarse[5] = 3;
  state.wheel.held = 4 * HR_HELD_REQUEST + 2 * HR_HELD_COPY;
  state.held_by_service = {2 * HR_HELD_REQUEST + HR_HELD_COPY, HR_HELD_REQUEST + HR_HELD_COPY};
  state.held_by_client = {3 * HR_HELD_REQUEST + 2 * HR_HELD_COPY};
  state.wheel.requests_made = 5;
  state.wheel.pool_made = 3;
  state.free_requests = {4};
  state.kept_requests = {5};
  state.free_parked = {3};
  return state;
}

void ExpectFault(const StateView &state, const std::string &text) {
  EXPECT_THAT(BrokenInvariants(state), Contains(HasSubstr(text)));
}

TEST(InvariantsTest, AGoodStateHasNoFault) { EXPECT_THAT(BrokenInvariants(GoodState()), IsEmpty()); }

TEST(InvariantsTest, ARequestThatVanishedFromTheAccounting) {
  StateView state = GoodState();
  state.services[0].stats.counters[HR_WON_BY_HEDGE]--;
  ExpectFault(state, "identity: service a counted 4 requests, but 3");
}

TEST(InvariantsTest, ARequestThatEndedTwice) {
  StateView state = GoodState();
  state.services[1].stats.counters[HR_UNANSWERED]++;
  ExpectFault(state, "identity: service b counted 1 requests, but 2");
}

TEST(InvariantsTest, InFlightIsCountedFromTheRequests) {
  StateView state = GoodState();
  state.requests[1].word = HR_WORD(10, 0, 0, HR_STATE_ANSWERED);
  ExpectFault(state, "identity: service a");
}

TEST(InvariantsTest, AnUntrackedRequestWithoutAReason) {
  StateView state = GoodState();
  state.services[0].stats.reasons[HR_REASON_GSO] = 0;
  ExpectFault(state, "reasons: service a");
}

TEST(InvariantsTest, ARequestThatFellOutOfTheWheel) {
  StateView state = GoodState();
  state.wheel.coarse[5] = 0;
  ExpectFault(state, "wheel: request 3 is in use but nowhere");
}

TEST(InvariantsTest, ARequestInTwoPlaces) {
  StateView state = GoodState();
  state.wheel.coarse[6] = 3;
  ExpectFault(state, "wheel: request 3 is in coarse slot 5 and in coarse slot 6");
}

TEST(InvariantsTest, ACircleInASlot) {
  StateView state = GoodState();
  state.requests[2].next = 1;
  ExpectFault(state, "wheel: request 1 is in fine slot 100 and in fine slot 100");
}

TEST(InvariantsTest, AFreeRequestInTheWheel) {
  StateView state = GoodState();
  state.wheel.list = 4;
  ExpectFault(state, "wheel: request 4 is free but in it");
}

TEST(InvariantsTest, AWrongNumberOfHeldRequests) {
  StateView state = GoodState();
  state.wheel.held += HR_HELD_REQUEST;
  ExpectFault(state, "held: 5, but 3 requests are in use and 1 kept");
}

TEST(InvariantsTest, AServiceOrClientThatHoldsMoreThanItsRequests) {
  StateView state = GoodState();
  state.held_by_service[0] += HR_HELD_COPY;
  ExpectFault(state, "of service 0");
  state = GoodState();
  state.held_by_client[0] -= HR_HELD_REQUEST;
  ExpectFault(state, "of client 0");
}

TEST(InvariantsTest, ASlotThatStaysLive) {
  StateView state = GoodState();
  state.wheel.fine[9].live = 1;
  ExpectFault(state, "live: slots say 3, requests say 2");
}

TEST(InvariantsTest, ALapThatNeverEnded) {
  StateView state = GoodState();
  state.wheel.busy = 1;
  ExpectFault(state, "busy");
}

TEST(InvariantsTest, ALostRequest) {
  StateView state = GoodState();
  state.free_requests.clear();
  ExpectFault(state, "requests: 4 is lost");
}

TEST(InvariantsTest, AFreeRequestInTwoPlaces) {
  StateView state = GoodState();
  state.free_requests = {4, 5};
  ExpectFault(state, "requests: 5 is twice in the free list");
}

TEST(InvariantsTest, ALostCopy) {
  StateView state = GoodState();
  state.wheel.pool_made = 4;
  ExpectFault(state, "parked: 4 is lost");
}

TEST(InvariantsTest, ACopyGivenBackTwice) {
  StateView state = GoodState();
  state.free_parked = {3, 3};
  ExpectFault(state, "parked: 3 is twice in the free list");
}

TEST(InvariantsTest, ACopyGivenBackWhileInUse) {
  StateView state = GoodState();
  state.free_parked = {3, 1};
  ExpectFault(state, "parked: 1 is in use and in the free list");
}

TEST(InvariantsTest, ACopyWithTwoOwners) {
  StateView state = GoodState();
  state.requests[2].parked = 1;
  ExpectFault(state, "parked: copy 1 belongs to two requests");
}

TEST(InvariantsTest, APendingRequestWithoutItsCopy) {
  StateView state = GoodState();
  state.requests[2].parked = 0;
  ExpectFault(state, "parked: pending request 2 has no copy");
}

TEST(InvariantsTest, AScoreboardEntryThatOutlivedItsRequest) {
  StateView state = GoodState();
  state.scoreboard.emplace_back(7, HR_REFERENCE(40, 4, 4));
  ExpectFault(state, "scoreboard: an entry outlived request 4");
  state = GoodState();
  state.requests[3].word |= HR_WORD_DETACHED;
  ExpectFault(state, "scoreboard: an entry outlived request 3");
}

TEST(InvariantsTest, ARequestThatNoReplyCanFind) {
  StateView state = GoodState();
  state.scoreboard.pop_back();
  ExpectFault(state, "scoreboard: request 3 cannot be found");
}

TEST(InvariantsTest, AnEntryInTheWrongSet) {
  StateView state = GoodState();
  state.scoreboard[0].first = 8;
  ExpectFault(state, "scoreboard: request 1 is in the wrong set");
}

TEST(InvariantsTest, ARequestThatIsCountedNowhereOrTwiceIsFound) {
  StateView state = GoodState();
  state.backends[0].in_flight = 3;
  ExpectFault(state, "flights: 3 at place 0 of service 0, but 2");
  state = GoodState();
  state.requests[3].in_flight = 0b11;
  state.backends[1].in_flight = 1;
  ExpectFault(state, "flights: request 3 at backends 2, which have answered it");
}

}  // namespace
}  // namespace hedgerow::packets
