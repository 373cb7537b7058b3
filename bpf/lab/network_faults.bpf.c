// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Network faults: loss, duplication, delay and reordering between hosts of the lab, on any kernel that has htb. TC
 * egress of the switch's ports: what is sent to a host meets it once, before the host's own XDP programs, and
 * answers that a node's XDP has sent meet it on their way, too. And TC ingress of the delay line's far end,
 * where what was held back comes out.
 *
 * The delay line is the htb one of bench/delay_line/delay_line.bpf.c: a throw-away copy empties a leaf's
 * tokens, the packet behind it waits until they are back, which takes the leaf's period. Loaded and told what
 * to do by deploy/lab/network_faults.py; no part of the product.
 */
#include "bpf/lab/network_faults_abi.h"
#include "bpf/map.bpf.h"

#include <linux/pkt_cls.h>

HR_HASH(faults_links, HR_FAULTS_LINKS, struct hr_faults_pair, struct hr_faults_link);

/* The interface number of the delay line's near end. */
HR_ARRAY(faults_line, 1, __u32);

/* When a leaf was last taken (CLOCK_MONOTONIC). */
HR_ARRAY(faults_leaves, HR_FAULTS_DELAY_CLASSES *HR_FAULTS_LEAVES, __u64);

HR_ARRAY(faults_turns, HR_FAULTS_DELAY_CLASSES, __u32);

/* What is drawn for a packet. */
enum { HR_DRAW_LOSS = 0, HR_DRAW_DUPLICATE = 1, HR_DRAW_DELAY = 2, HR_DRAW_CLASS = 3 };

/* 0 to `below` - 1; splitmix64 of the packet's number. The same in deploy/lab/network_faults.py. */
HR_INLINE __u32 hr_faults_draw(__u64 seed, __u64 number, __u32 purpose, __u32 below) {
  __u64 z = seed + (number * 4 + purpose + 1) * 0x9e3779b97f4a7c15ull;

  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return ((z >> 32) * below) >> 32;
}

/* A leaf is free again after twice the delay: the copy's, and the packet's own. -1: all are in use, they are
 * taken in turn. */
HR_INLINE int hr_faults_take_leaf(__u32 delay_class, __u64 now_ns) {
  __u64 busy_ns = 2ull * HR_FAULTS_SHORTEST_NS << (delay_class & 63), taken_ns, *leaf;
  __u32 *turn = bpf_map_lookup_elem(&faults_turns, &delay_class);
  __u32 index;

  if (!turn) return -1;
  index = delay_class * HR_FAULTS_LEAVES + __sync_fetch_and_add(turn, 1) % HR_FAULTS_LEAVES;
  leaf = bpf_map_lookup_elem(&faults_leaves, &index);
  if (!leaf) return -1;
  taken_ns = READ_ONCE(*leaf);
  if (taken_ns && now_ns < taken_ns + busy_ns) return -1;
  if (__sync_val_compare_and_swap(leaf, taken_ns, now_ns) != taken_ns) return -1;
  return index;
}

HR_INLINE int hr_faults_hold(struct __sk_buff *skb, struct hr_faults_link *link, __u32 delay_class) {
  __u32 zero = 0, *line = bpf_map_lookup_elem(&faults_line, &zero);
  int leaf = -1;

  if (line && skb->len <= HR_FAULTS_FRAME_BYTES) leaf = hr_faults_take_leaf(delay_class, bpf_ktime_get_ns());
  if (leaf >= 0) {
    skb->priority = HR_FAULTS_HANDLE | (HR_FAULTS_LEAF_BASE + (__u32)leaf);
    skb->mark = HR_FAULTS_MARK | HR_FAULTS_CHARGE;
    if (!bpf_clone_redirect(skb, *line, 0)) {
      skb->mark = HR_FAULTS_MARK | HR_FAULTS_HELD | (skb->ifindex & 0xffff);
      __sync_fetch_and_add(&link->delayed_count, 1);
      return bpf_redirect(*line, 0);
    }
    skb->priority = 0;
    skb->mark = 0;
  }
  __sync_fetch_and_add(&link->not_delayed_count, 1);
  return TC_ACT_UNSPEC;
}

/* Again: at the end of the delay line, and at the port. */
HR_INLINE int hr_faults_marked(struct __sk_buff *skb) {
  __u32 port = skb->mark & 0xffff;

  switch (skb->mark & HR_FAULTS_MARK_KIND) {
    case HR_FAULTS_HELD: skb->mark = HR_FAULTS_MARK | HR_FAULTS_DONE; return bpf_redirect(port, 0);
    case HR_FAULTS_CHARGE: return TC_ACT_SHOT;
    default: skb->mark = 0; return TC_ACT_UNSPEC;
  }
}

SEC("tc")
int hr_faults(struct __sk_buff *skb) {
  struct hr_faults_pair pair = {.source = skb->ingress_ifindex, .destination = skb->ifindex};
  struct hr_faults_link *link;
  __u64 number, seed;
  __u32 classes;

  if ((skb->mark & HR_FAULTS_MARK_MASK) == HR_FAULTS_MARK) return hr_faults_marked(skb);
  link = bpf_map_lookup_elem(&faults_links, &pair);
  if (!link) return TC_ACT_UNSPEC;
  number = __sync_fetch_and_add(&link->met, 1);
  seed = link->seed;
  if (hr_faults_draw(seed, number, HR_DRAW_LOSS, HR_FAULTS_MILLION) < link->lost) {
    __sync_fetch_and_add(&link->lost_count, 1);
    return TC_ACT_SHOT;
  }
  if (hr_faults_draw(seed, number, HR_DRAW_DUPLICATE, HR_FAULTS_MILLION) < link->duplicated) {
    skb->mark = HR_FAULTS_MARK | HR_FAULTS_DONE;
    if (!bpf_clone_redirect(skb, skb->ifindex, 0)) __sync_fetch_and_add(&link->duplicated_count, 1);
    skb->mark = 0;
  }
  if (hr_faults_draw(seed, number, HR_DRAW_DELAY, HR_FAULTS_MILLION) >= link->delayed) return TC_ACT_UNSPEC;
  classes = link->last_class - link->first_class + 1;
  return hr_faults_hold(skb, link, link->first_class + hr_faults_draw(seed, number, HR_DRAW_CLASS, classes));
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
