/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A newly announced leader gets the parked requests that it does not hold, because their earlier sends went elsewhere, or
 * because it has been restarted since: once for each term, outside the attempts and the budget, paced. Announcements ask
 * for it (announce.bpf.h), the clock's lap does it. Only a lap frees requests, so one that is pending when the lap looks
 * at it keeps its place in the wheel and its bytes.
 */
#ifndef HEDGEROW_BPF_LIB_HANDOVER_BPF_H_
#define HEDGEROW_BPF_LIB_HANDOVER_BPF_H_

#include "bpf/lib/rescue.bpf.h"

/*
 * A splitter that read the old leader may have read its time after the announcement read its own. Younger requests than
 * this have met the new leader, or were steered elsewhere on purpose. One that is still being claimed when the lap passes
 * is missed; its own next attempt prefers the leader.
 */
#define HR_HANDOVER_SLACK_NS 1000000

/*
 * Was it sent to the leader so long before the announcement that it is lost there? When an attempt went there is not known,
 * only when a handover did; else the first send is asked for, which was no later. So it may be sent twice, which the
 * cluster's dedupe is for, and the second answer is dropped (answer.bpf.h).
 */
HR_INLINE int hr_is_lost(const struct hr_request *request, const struct hr_leader_view *view) {
  __u64 sent_ns = request->sent_ns;

  if (request->handed_to == view->leader + 1 && !hr_engine_is_qdisc()) sent_ns = request->fire_ns;
  return view->holds_ms && sent_ns + (__u64)view->holds_ms * 1000000 < view->since_ns;
}

/* Sends a parked request to its service's leader, if that is due to it. Returns 1 when it was sent. */
__weak __attribute__((noinline)) int hr_give_to_leader(struct __sk_buff *skb, __u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_attempt attempt = {.failover = 1};
  struct hr_stats *service_stats;
  struct hr_service *service;
  struct hr_leader *leader;
  __u32 service_id, marks, bit;
  __u64 now_ns = bpf_ktime_get_ns();
  __u64 word;

  if (!request) return 0;
  word = *(volatile __u64 *)&request->word;
  service_id = request->key.service;
  service = bpf_map_lookup_elem(&services, &service_id);
  leader = bpf_map_lookup_elem(&leaders, &service_id);
  service_stats = hr_stats_of(service_id);
  if (!service || !leader || HR_WORD_STATE(word) != HR_STATE_PENDING) return 0;
  if (leader->view.pinned || request->sent_ns > leader->view.since_ns + HR_HANDOVER_SLACK_NS) return 0;
  if (now_ns >= request->sent_ns + service->deadline_ns) return 0;
  attempt.index = leader->view.leader & (HR_MAX_BACKENDS_PER_SERVICE - 1);
  attempt.backend_id = hr_backend_id(service, attempt.index);
  bit = 1u << attempt.index;
  marks = *(volatile __u32 *)&request->marks;
  if ((HR_SENT(marks) & ~HR_REFUSED(marks) & bit) && !hr_is_lost(request, &leader->view)) return 0;
  if (hr_is_dry(service)) return 0;
  /* Somebody else has it: a leader that is being drained need not. */
  if (hr_is_drained(service, attempt.index) && (HR_SENT(marks) & ~HR_REFUSED(marks) & ~bit)) return 0;
  /* What it refused when it did not lead, it is asked again. */
  if (HR_REFUSED(marks) & bit) __sync_fetch_and_and(&request->marks, ~HR_MARKS_REFUSED(bit));
  /* Its answer's time counts from here. With engine qdisc the field says when the clone is due. */
  if (!hr_engine_is_qdisc()) request->fire_ns = now_ns;
  request->handed_to = attempt.index + 1;
  request->sent_again |= HR_SENT(marks) & bit;
  hr_note_attempt(request, &attempt, service, service_id, now_ns);
  if (hr_build(skb, index, attempt.backend_id)) goto failed;
  if (__sync_fetch_and_add(&request->word, 0) != word) return 0; /* answered meanwhile; a full barrier as in hr_fire */
  request->copy_to = attempt.backend_id;
  skb->mark = HR_MARK_SEND | HR_MARK_VALUE(index);
  if (bpf_clone_redirect(skb, load_config.clock_in_ifindex, BPF_F_INGRESS)) goto failed;
  hr_count_attempt(&attempt, service_stats, now_ns);
  hr_count(service_stats, HR_HANDED_OVER);
  hr_trace_attempt(index, &attempt, HR_TRACE_HANDOVER);
  return 1;

failed:
  __sync_fetch_and_and(&request->marks, ~(HR_MARKS_SENT(bit) | HR_MARKS_FAILOVER(bit)));
  hr_reason(service_stats, HR_REASON_RESCUE_FAILED);
  return 1; /* it counts for the pace: what fails takes as long */
}

struct hr_handover {
  struct __sk_buff *skb;
  struct hr_wheel *wheel;
};

/* All that changes from step to step is in the wheel: see the note on bpf_loop in answer.bpf.h. */
static long hr_hand_over_step(__u32 step, struct hr_handover *handover) {
  struct hr_wheel *wheel = handover->wheel;
  __u32 index = wheel->handover_cursor;
  struct hr_request *request;

  (void)step;
  if (index > wheel->handover_end || !wheel->handover_left) return 1;
  wheel->handover_cursor = index + 1;
  request = hr_request_at(index);
  if (!request || HR_WORD_STATE(*(volatile __u64 *)&request->word) != HR_STATE_PENDING) return 0;
  if (!(wheel->handover_services & (1ull << (request->key.service & (HR_MAX_SERVICES - 1))))) return 0;
  if (hr_give_to_leader(handover->skb, index)) wheel->handover_left--;
  return 0;
}

/* A lap's share of it. */
HR_INLINE void hr_hand_over(struct __sk_buff *skb, struct hr_wheel *wheel) {
  struct hr_handover handover = {.skb = skb, .wheel = wheel};

  if (!wheel->handover_services) {
    __u32 made = *(volatile __u32 *)&wheel->requests_made;

    if (!*(volatile __u64 *)&wheel->handover) return;
    wheel->handover_services = __sync_lock_test_and_set(&wheel->handover, 0);
    wheel->handover_cursor = 1;
    wheel->handover_end = made < load_config.max_requests ? made : load_config.max_requests;
  }
  wheel->handover_left = HR_HANDOVER_PER_LAP;
  bpf_loop(HR_HANDOVER_LOOKS, hr_hand_over_step, &handover, 0);
  if (wheel->handover_cursor > wheel->handover_end) wheel->handover_services = 0;
}

HR_INLINE int hr_handing_over(struct hr_wheel *wheel) {
  return wheel->handover_services || *(volatile __u64 *)&wheel->handover;
}

#endif /* HEDGEROW_BPF_LIB_HANDOVER_BPF_H_ */
