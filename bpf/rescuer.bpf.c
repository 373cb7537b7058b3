// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * RESCUER of engine qdisc: TC ingress of the delay line's inner end. A clone that has waited out its service's delay
 * arrives here; if its request still has no answer, it becomes the hedge, otherwise it ends, as most do. With the wheel
 * this is the clock's business (clock.bpf.c), and this program is not attached.
 */
#include "bpf/lib/rescue.bpf.h"
#include "bpf/lib/rewrite.bpf.h"

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

HR_INLINE int hr_rescue(struct __sk_buff *skb, __u32 index) {
  struct hr_request *request = hr_request_at(index);
  struct hr_stats *service_stats;
  struct hr_attempt attempt;
  struct hr_service *service;
  __u64 now_ns = bpf_ktime_get_ns();
  __u32 service_id, sent;
  int verdict;

  if (!request || HR_WORD_STATE(*(volatile __u64 *)&request->word) != HR_STATE_PENDING) return TC_ACT_SHOT;
  /* A younger request has the place by now: this clone was held up, and that one's is still to come. */
  if (now_ns < request->fire_ns) return TC_ACT_SHOT;
  service_id = request->key.service;
  service = bpf_map_lookup_elem(&services, &service_id);
  service_stats = hr_stats_of(service_id);
  if (!service) return TC_ACT_SHOT;
  sent = request->marks;
  hr_trace_note(index, HR_TRACE_DUE, HR_REASON_NONE, HR_NO_BACKEND, 0);
  attempt = hr_claim_attempt(request, service, service_id, !(HR_SENT(sent) & ~HR_REFUSED(sent)), now_ns);
  if (attempt.index == HR_NO_BACKEND) {
    if (attempt.reason) hr_reason(service_stats, attempt.reason);
    hr_trace_note(index, HR_TRACE_NO_RESCUE, attempt.reason, HR_NO_BACKEND, 0);
    return TC_ACT_SHOT;
  }
  hr_note_attempt(request, &attempt, service, service_id, now_ns);
  verdict = hr_send_clone(skb, request, &attempt);
  if (verdict < 0) {
    hr_undo_attempt(request, &attempt, service_id, service_stats, HR_REASON_RESCUE_FAILED);
    hr_trace_note(index, HR_TRACE_NO_RESCUE, HR_REASON_RESCUE_FAILED, attempt.index, 0);
    return TC_ACT_SHOT;
  }
  hr_record_service(service_id, HR_HISTOGRAM_FIRE_ERROR, bpf_ktime_get_ns() - request->fire_ns);
  hr_count_attempt(&attempt, service_stats, now_ns);
  hr_trace_attempt(index, &attempt, HR_TRACE_RESCUE);
  return verdict;
}

SEC("tc")
int hr_rescuer(struct __sk_buff *skb) {
  __u32 mark = skb->mark;

  switch (HR_MARK_KIND(mark)) {
    case HR_MARK_DELAYED:
      return hr_rescue(skb, HR_MARK_VALUE(mark));
    case HR_MARK_CHARGE:
      return TC_ACT_SHOT;
  }
  hr_host_reason(HR_REASON_CLOCK_STALE);
  return TC_ACT_SHOT;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
