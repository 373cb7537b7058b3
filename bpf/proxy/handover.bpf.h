/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A leader gets the parked requests that it does not hold: once for each cause, outside the attempts and the budget,
 * paced. A newly announced one gets those whose earlier sends went elsewhere, or that came before it was restarted. One
 * that is reached by another uplink now gets those that were sent before, since the former uplink may have been down.
 * Announcements ask for it (announce.bpf.h), and the daemon when it follows the network (MoveBackends); the clock's lap
 * does it. Only a lap frees requests, so a request that is pending when the lap looks at it keeps its entry and its
 * place in the wheel.
 */
#pragma once

#include "bpf/proxy/attempt.bpf.h"

/*
 * A splitter that read the old leader may have read its time after the announcement read its own. Younger requests than
 * this have met the new leader, or were steered elsewhere on purpose. The lap misses a request that is still being
 * claimed when it passes; that request's own next attempt prefers the leader.
 */
#define HR_HANDOVER_SLACK_NS 1000000

/*
 * Was the request sent to the leader so long before the announcement that the leader has lost it? Of its further sends
 * the time of one is known. For the others the first send stands in, which was no later. The request may therefore be
 * sent twice: the cluster's dedupe copes with that, and the second answer is dropped (answer.bpf.h).
 */
HR_INLINE int hr_is_lost(const struct hr_request *request, const struct hr_leader_view *view) {
  __u64 holds_ns = (__u64)view->holds_ms * 1000000;

  if (!holds_ns) return 0;
  if ((request->handed_to & ~HR_HANDED_AS_HEDGE) == view->leader + 1)
    return (__s16)(HR_HANDED_TICK(view->since_ns) - request->handed_tick) >= (__s64)(holds_ns >> HR_HANDED_TICK_SHIFT);
  return request->sent_ns + holds_ns < view->since_ns;
}

/* Was it sent before the leader's uplink changed? */
HR_INLINE int hr_is_moved(const struct hr_request *request, const struct hr_service_policy *policy, __u32 bit) {
  return (READ_ONCE(policy->moved) & bit) && request->sent_ns < READ_ONCE(policy->moved_ns);
}

/* Sends a parked request to its service's leader, if the leader is due to get it. Returns 1 when it was tried. */
HR_GLOBAL int hr_give_to_leader(struct __sk_buff *skb, __u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_attempt attempt = hr_attempt_of(index, 0, 0, HR_TRACE_HANDOVER);
  __u64 now_ns = hr_now_ns();
  struct hr_service_config *config;
  struct hr_service_policy *policy;
  struct hr_leader *leader;
  __u32 service_id, place, masks, waited_for, bit, again;
  int moved;
  __u16 handed_tick;
  __u8 handed_to;

  if (!request) return 0;
  attempt.word = READ_ONCE(request->word);
  service_id = request->key.service;
  attempt.config_id = hr_published_config(service_id);
  config = hr_config_of(attempt.config_id);
  policy = hr_policy_of(service_id);
  leader = bpf_map_lookup_elem(&leaders, &service_id);
  if (!config || !policy || !leader || HR_WORD_STATE(attempt.word) != HR_STATE_PENDING) return 0;
  if (now_ns >= request->sent_ns + config->deadline_ns || hr_is_dry(policy)) return 0;
  place = leader->view.leader & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  bit = 1u << place;
  moved = hr_is_moved(request, policy, bit);
  if (!moved && (leader->view.pinned || request->sent_ns > leader->view.since_ns + HR_HANDOVER_SLACK_NS)) return 0;
  if (!hr_is_present(config, place)) return 0;
  masks = READ_ONCE(request->masks);
  waited_for = HR_SENT_MASK(masks) & ~HR_NOT_AWAITED_MASK(masks);
  if ((waited_for & bit) && !moved && !hr_is_lost(request, &leader->view)) return 0;
  /* Another backend has the request, so a leader that is being drained need not get it. */
  if (hr_is_drained(policy, place) && (waited_for & ~bit)) return 0;
  /* The leader is asked again for a request that it sent a nack for when it did not lead. */
  attempt.cleared = masks & HR_MASKS_NOT_AWAITED(bit);
  again = HR_SENT_MASK(masks) & bit & ~(__u32)request->sent_again;
  handed_to = request->handed_to;
  handed_tick = request->handed_tick;
  request->sent_again |= again;
  request->handed_to = place + 1;
  request->handed_tick = HR_HANDED_TICK(now_ns);
  hr_note_attempt(&attempt, place, now_ns);
  if (hr_send_attempt(skb, &attempt)) {
    request->sent_again &= ~again;
    request->handed_to = handed_to;
    request->handed_tick = handed_tick;
  }
  return 1; /* a failed send counts for the pace too, because it takes as long */
}

struct hr_handover {
  struct __sk_buff *skb;
  struct hr_wheel *wheel;
};

/* All that changes from step to step is in the wheel: see the note on bpf_loop in echo.bpf.h. */
static long hr_hand_over_step(__u32 step, struct hr_handover *handover) {
  struct hr_wheel *wheel = handover->wheel;
  __u32 index = wheel->handover_cursor;
  struct hr_request *request;

  (void)step;
  if (index > wheel->handover_end || !wheel->handover_left) return 1;
  wheel->handover_cursor = index + 1;
  request = hr_request_at(index);
  if (!request || HR_WORD_STATE(READ_ONCE(request->word)) != HR_STATE_PENDING) return 0;
  if (!(wheel->handover_services & (1ull << (request->key.service & (HR_MAX_SERVICES - 1))))) return 0;
  if (hr_give_to_leader(handover->skb, index)) wheel->handover_left--;
  return 0;
}

/* Does one lap's share of the handover. */
HR_INLINE void hr_hand_over(struct __sk_buff *skb, struct hr_wheel *wheel) {
  struct hr_handover handover = {.skb = skb, .wheel = wheel};

  if (!wheel->handover_services) {
    __u32 made = READ_ONCE(wheel->requests_made);

    if (!READ_ONCE(wheel->handover)) return;
    wheel->handover_services = __sync_lock_test_and_set(&wheel->handover, 0);
    wheel->handover_cursor = 1;
    wheel->handover_end = made < load_config.max_requests ? made : load_config.max_requests;
  }
  wheel->handover_left = HR_HANDOVER_PER_LAP;
  bpf_loop(HR_HANDOVER_LOOKS, hr_hand_over_step, &handover, 0);
  if (wheel->handover_cursor > wheel->handover_end) wheel->handover_services = 0;
}

HR_INLINE int hr_handing_over(struct hr_wheel *wheel) { return wheel->handover_services || READ_ONCE(wheel->handover); }
