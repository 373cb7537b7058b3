// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * RESCUER of engine qdisc: TC ingress of the delay line's inner end. A clone that has waited out its service's delay
 * arrives here; if its request still has no answer, it becomes the hedge, otherwise it ends, as most do. With the wheel
 * this is the clock's business (clock.bpf.c), and this program is not attached.
 */
#include "bpf/proxy/attempt.bpf.h"
#include "bpf/proxy/rewrite.bpf.h"

#include <linux/pkt_cls.h>

/* The clone itself is sent: rewritten like any request, its checksum still the stack's to finish. */
HR_INLINE int hr_send_clone(struct __sk_buff *skb, struct hr_request *request, const struct hr_attempt *attempt) {
  __u32 backend_id = attempt->backend_id;
  struct hr_backend *backend = bpf_map_lookup_elem(&backends, &backend_id);
  struct hr_packet packet = {};
  struct hr_address address;

  if (!backend || hr_parse(skb, &packet)) return -1;
  address = backend->address;
  if (hr_rewrite_destination(skb, &packet, &address, backend->port_be)) return -1;
  skb->mark = request->mark;
  return bpf_redirect_neigh(backend->uplink_ifindex, 0, 0, 0);
}

HR_INLINE int hr_fire_clone(struct __sk_buff *skb, __u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_attempt attempt = hr_attempt_of(index, 0, HR_TRACE_HEDGE);
  __u64 now_ns = hr_now_ns();
  __u32 service_id;
  int verdict;

  if (!request) return TC_ACT_SHOT;
  attempt.word = READ_ONCE(request->word);
  if (HR_WORD_STATE(attempt.word) != HR_STATE_PENDING) return TC_ACT_SHOT;
  /* A younger request has the place by now: this clone was held up, and that one's is still to come. */
  if (now_ns < request->fire_ns) return TC_ACT_SHOT;
  service_id = request->key.service;
  hr_trace_note(index, HR_TRACE_DUE, HR_REASON_NONE, HR_NO_BACKEND, 0);
  hr_claim_next(&attempt, now_ns);
  if (attempt.index == HR_NO_BACKEND) {
    if (attempt.reason) hr_reason(hr_stats_of(service_id), attempt.reason);
    hr_trace_note(index, HR_TRACE_NO_HEDGE, attempt.reason, HR_NO_BACKEND, 0);
    return TC_ACT_SHOT;
  }
  verdict = hr_send_clone(skb, request, &attempt);
  if (hr_settle(&attempt, verdict < 0 ? HR_OUTCOME_FAILED : HR_OUTCOME_SENT)) return TC_ACT_SHOT;
  hr_record_service(service_id, HR_HISTOGRAM_FIRE_ERROR, hr_now_ns() - request->fire_ns);
  return verdict;
}

SEC("tc")
int hr_rescuer(struct __sk_buff *skb) {
  __u32 mark = skb->mark;

  switch (HR_MARK_KIND(mark)) {
    case HR_MARK_DELAYED:
      return hr_fire_clone(skb, HR_MARK_VALUE(mark));
    case HR_MARK_CHARGE:
      return TC_ACT_SHOT;
  }
  hr_host_reason(HR_REASON_CLOCK_STALE);
  return TC_ACT_SHOT;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
