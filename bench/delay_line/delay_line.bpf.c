// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Hedging by the published technique, for comparison: a clone of every request waits in a queueing discipline, and is
 * sent to the standby if it comes out before an answer. UDP over IPv4, one primary, one standby, no budget, no health.
 * The programs have the names of Hedgerow's that do the same work, so that the cost of each stands in one column
 * (bench/parking.py). Loaded by delay_line_main.cc; no part of the product.
 */
#include "bench/delay_line/delay_line_abi.h"
#include "bpf/compiler.h"

#include <linux/bpf.h>
/* The order matters: the helpers need the types. */
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#define HR_LINE_MARK_CLONE 0x4c000000u
#define HR_LINE_MARK_CHARGER 0x4d000000u
#define HR_LINE_UDP_CHECKSUM (ETH_HLEN + sizeof(struct iphdr) + 6)

const volatile struct hr_line_config config;

struct hr_line_key {
  __u32 id;
  __u16 client_port_be;
  __u16 pad;
};
struct hr_line_request {
  __u64 sent_ns;
  __u32 answered;
  __u32 pad;
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, HR_LINE_REQUESTS);
  __type(key, struct hr_line_key);
  __type(value, struct hr_line_request);
} requests SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct hr_line_counters);
} counters SEC(".maps");

__u32 next_leaf;
__u64 leaf_taken_ns[HR_LINE_LEAVES];
__u32 fired;
__u32 fire_error_ns[HR_LINE_FIRE_ERRORS]; /* sent - due, of each hedge */

struct hr_line_frame {
  struct ethhdr ethernet;
  struct iphdr ip;
  struct udphdr udp;
  __u32 id;
} __attribute__((packed));

HR_INLINE struct hr_line_counters* hr_line_counted(void) {
  __u32 zero = 0;

  return bpf_map_lookup_elem(&counters, &zero);
}

/* 0: a whole UDP datagram over IPv4 without options, with an id. */
HR_INLINE int hr_line_read(struct __sk_buff* skb, struct hr_line_frame* frame) {
  if (bpf_skb_load_bytes(skb, 0, frame, sizeof(*frame))) return -1;
  if (frame->ethernet.h_proto != bpf_htons(ETH_P_IP) || frame->ip.version != 4 || frame->ip.ihl != 5) return -1;
  if (frame->ip.protocol != IPPROTO_UDP || frame->ip.frag_off & bpf_htons(0x3fff)) return -1;
  return 0;
}

HR_INLINE int hr_line_replace(struct __sk_buff* skb, __u32 field, __u32 from_be, __u32 to_be) {
  if (bpf_l4_csum_replace(skb, HR_LINE_UDP_CHECKSUM, from_be, to_be, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | 4))
    return -1;
  if (bpf_l3_csum_replace(skb, ETH_HLEN + 10, from_be, to_be, 4)) return -1;
  return bpf_skb_store_bytes(skb, ETH_HLEN + field, &to_be, 4, 0) ? -1 : 0;
}

/* The next leaf; -1 while it is still in use, which means that all of them are: they are taken in turn. */
HR_INLINE int hr_line_take_leaf(__u64 now_ns) {
  __u32 leaf = __sync_fetch_and_add(&next_leaf, 1) % HR_LINE_LEAVES;
  __u64 taken_ns = READ_ONCE(leaf_taken_ns[leaf]);

  if (taken_ns && now_ns < taken_ns + 2 * config.delay_ns) return -1;
  return __sync_val_compare_and_swap(&leaf_taken_ns[leaf], taken_ns, now_ns) == taken_ns ? (int)leaf : -1;
}

HR_INLINE long hr_line_clone(struct __sk_buff* skb, __u32 mark, __u32 priority) {
  skb->mark = mark;
  skb->priority = priority;
  return bpf_clone_redirect(skb, config.line_ifindex, 0);
}

HR_INLINE long hr_line_wait(struct __sk_buff* skb, __u64 now_ns) {
  __u32 priority = 0;

  if (config.qdisc == HR_LINE_HTB) {
    int leaf = hr_line_take_leaf(now_ns);

    if (leaf < 0) return -1;
    priority = HR_LINE_HANDLE | (HR_LINE_LEAF_BASE + (__u32)leaf);
    if (hr_line_clone(skb, HR_LINE_MARK_CHARGER, priority)) return -1;
  }
  return hr_line_clone(skb, HR_LINE_MARK_CLONE, priority);
}

/* TC egress of the uplink: a request goes to the primary as it is, and its clone into the line. */
SEC("tc")
int hr_splitter(struct __sk_buff* skb) {
  struct hr_line_counters* count = hr_line_counted();
  struct hr_line_request request = {};
  struct hr_line_key key = {};
  struct hr_line_frame frame;
  __u32 mark = skb->mark, priority = skb->priority;

  if (!count || hr_line_read(skb, &frame)) return TC_ACT_UNSPEC;
  if (frame.ip.daddr != config.primary_be || frame.udp.dest != config.port_be) return TC_ACT_UNSPEC;
  count->requests++;
  key.id = frame.id & config.id_mask_be;
  key.client_port_be = frame.udp.source;
  request.sent_ns = bpf_ktime_get_ns();
  if (bpf_map_update_elem(&requests, &key, &request, BPF_ANY) || hr_line_wait(skb, request.sent_ns)) count->line_full++;
  skb->mark = mark;
  skb->priority = priority;
  return TC_ACT_UNSPEC;
}

/* TC egress of the line, where it is an fq: a redirect clears an skb's time stamp, so the departure time is set here.
 */
SEC("tc")
int hr_departure(struct __sk_buff* skb) {
  if (skb->mark == HR_LINE_MARK_CLONE) skb->tstamp = bpf_ktime_get_ns() + config.delay_ns;
  return TC_ACT_UNSPEC;
}

/* TC ingress of the line's other end: a clone that has waited becomes the hedge, or ends, as most do. */
SEC("tc")
int hr_rescuer(struct __sk_buff* skb) {
  struct hr_line_counters* count = hr_line_counted();
  __u64 now_ns = bpf_ktime_get_ns(), due_ns;
  struct hr_line_request* request;
  struct hr_line_key key = {};
  struct hr_line_frame frame;
  __u32 index;

  if (!count || skb->mark != HR_LINE_MARK_CLONE || hr_line_read(skb, &frame)) return TC_ACT_SHOT;
  key.id = frame.id & config.id_mask_be;
  key.client_port_be = frame.udp.source;
  request = bpf_map_lookup_elem(&requests, &key);
  if (!request || READ_ONCE(request->answered)) return TC_ACT_SHOT;
  /* A younger request has the key by now, and its own clone is still to come. */
  due_ns = request->sent_ns + config.delay_ns;
  if (now_ns < due_ns) return TC_ACT_SHOT;
  if (hr_line_replace(skb, 16, frame.ip.daddr, config.standby_be)) {
    count->hedges_failed++;
    return TC_ACT_SHOT;
  }
  count->hedges++;
  index = __sync_fetch_and_add(&fired, 1);
  if (index < HR_LINE_FIRE_ERRORS) fire_error_ns[index] = bpf_ktime_get_ns() - due_ns;
  skb->mark = 0;
  return bpf_redirect_neigh(config.uplink_ifindex, 0, 0, 0);
}

/* TC ingress of the uplink: the first answer goes to the client, as the primary's; the second ends. */
SEC("tc")
int hr_reply(struct __sk_buff* skb) {
  struct hr_line_counters* count = hr_line_counted();
  struct hr_line_request* request;
  struct hr_line_key key = {};
  struct hr_line_frame frame;

  if (!count || hr_line_read(skb, &frame) || frame.udp.source != config.port_be) return TC_ACT_UNSPEC;
  if (frame.ip.saddr != config.primary_be && frame.ip.saddr != config.standby_be) return TC_ACT_UNSPEC;
  key.id = frame.id & config.id_mask_be;
  key.client_port_be = frame.udp.dest;
  request = bpf_map_lookup_elem(&requests, &key);
  if (!request) return TC_ACT_UNSPEC;
  if (__sync_lock_test_and_set(&request->answered, 1)) {
    count->losers_dropped++;
    return TC_ACT_SHOT;
  }
  if (frame.ip.saddr == config.primary_be) return TC_ACT_UNSPEC;
  count->won_by_hedge++;
  return hr_line_replace(skb, 12, frame.ip.saddr, config.primary_be) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
