/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way into the delay line of engine qdisc: a clone of the request, as it came from the client, is put into a queueing
 * discipline that holds it for the service's delay. Called by the splitter; the way out is rescuer.bpf.c.
 */
#ifndef HEDGEROW_BPF_PROXY_DELAY_LINE_BPF_H_
#define HEDGEROW_BPF_PROXY_DELAY_LINE_BPF_H_

#include "bpf/proxy/trace.bpf.h"
#include "bpf/proxy/wheel.bpf.h"

HR_INLINE int hr_engine_is_qdisc(void) { return load_config.engine != HR_ENGINE_WHEEL; }

/*
 * The next htb leaf of a delay class; -1 while it is still in use, which means that all of them are: they are taken in
 * turn. A leaf is free again after twice the delay: the charger's, and the clone's own.
 */
HR_INLINE int hr_take_leaf(__u32 delay_class, __u64 delay_ns, __u64 now_ns) {
  __u32 *cursor = bpf_map_lookup_elem(&delay_cursors, &delay_class);
  struct hr_delay_leaf *leaf;
  __u64 taken_ns;
  __u32 index;

  if (!cursor) return -1;
  index = delay_class * HR_DELAY_LEAVES + __sync_fetch_and_add(cursor, 1) % HR_DELAY_LEAVES;
  leaf = bpf_map_lookup_elem(&delay_leaves, &index);
  if (!leaf) return -1;
  taken_ns = READ_ONCE(leaf->taken_ns);
  if (taken_ns && now_ns < taken_ns + 2 * delay_ns) return -1;
  if (__sync_val_compare_and_swap(&leaf->taken_ns, taken_ns, now_ns) != taken_ns) return -1;
  return index;
}

HR_INLINE long hr_clone_into_line(struct __sk_buff *skb, __u32 mark, __u32 priority) {
  skb->mark = mark;
  skb->priority = priority;
  return bpf_clone_redirect(skb, load_config.delay_out_ifindex, 0);
}

/* A request whose copy cannot wait is not hedged, and counted. */
HR_INLINE void hr_delay(struct __sk_buff *skb, const struct hr_service *service, __u32 request,
                        struct hr_stats *service_stats, __u64 now_ns) {
  __u32 mark = skb->mark, priority = skb->priority;
  __u32 line_priority = (__u32)service->delay_ns & HR_CLOCK_WAIT_MASK;
  long failed = 0;

  if (load_config.engine == HR_ENGINE_NETEM) {
    line_priority = HR_CLOCK_HANDLE | (1 + service->delay_class);
  } else if (load_config.engine == HR_ENGINE_HTB) {
    int leaf = hr_take_leaf(service->delay_class, service->delay_ns, now_ns);

    line_priority = HR_CLOCK_HANDLE | (HR_DELAY_LEAF_BASE + (__u32)leaf);
    failed = leaf < 0 ? -1 : hr_clone_into_line(skb, HR_MARK_CHARGE, line_priority);
  }
  if (!failed) failed = hr_clone_into_line(skb, HR_MARK_DELAYED | HR_MARK_VALUE(request), line_priority);
  if (failed) {
    hr_reason(service_stats, HR_REASON_DELAY_LINE_FULL);
    hr_trace_note(request, HR_TRACE_NO_HEDGE, HR_REASON_DELAY_LINE_FULL, HR_NO_BACKEND, 0);
  }
  skb->mark = mark;
  skb->priority = priority;
}

#endif /* HEDGEROW_BPF_PROXY_DELAY_LINE_BPF_H_ */
