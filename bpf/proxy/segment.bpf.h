/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Several datagrams in one packet: a client or a backend behind a veth sends with UDP_SEGMENT, or the uplink merges
 * what it receives (rx-udp-gro-forwarding, rx-gro-list). A program cannot split a packet, and its datagrams may have
 * different fates. So the packet goes once round the clock's link, which has no transmit checksum offload: the kernel
 * makes single datagrams of it there, as for a device that cannot segment, and each comes back to the hook where it is
 * judged (docs/adr/0047). Called by the splitter and the reply program, and by the clock for the second half.
 */
#pragma once

#include "bpf/proxy/wheel.bpf.h"

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

/* What the second half needs, kept in the frame's Ethernet source, which no other program reads before the frame is
 * rewritten. */
struct hr_segment_note {
  union {
    __u8 destination[ETH_ALEN]; /* HR_MARK_SEGMENT_IN */
    struct {                    /* HR_MARK_SEGMENT_OUT */
      __u32 mark;
      __u16 client;
    };
  };
};

/* The packet, of `client`, at this interface to the clock's link; -1: it stays as it is. A global function: it has a
 * frame of its own. */
HR_GLOBAL int hr_to_segments(struct __sk_buff *skb, __u32 kind, __u32 ifindex, __u32 client) {
  struct hr_segment_note note = {};

  if (HR_MARK_KIND(ifindex)) return -1;
  if (kind == HR_MARK_SEGMENT_IN) {
    if (bpf_skb_load_bytes(skb, 0, note.destination, ETH_ALEN)) return -1;
  } else {
    note.mark = skb->mark;
    note.client = client;
  }
  if (bpf_skb_store_bytes(skb, ETH_ALEN, &note, ETH_ALEN, 0) || hr_put_tag(skb)) return -1;
  skb->mark = kind | HR_MARK_VALUE(ifindex);
  skb->priority = hr_priority_unheld();
  hr_count(hr_stats_of(HR_MAX_SERVICES), HR_SEGMENTED);
  return bpf_redirect(load_config.clock_out_ifindex, 0);
}

/* One datagram of it, back to where the packet was taken. */
HR_GLOBAL int hr_return_segment(struct __sk_buff *skb, __u32 mark) {
  struct hr_segment_note note = {};
  int inwards = HR_MARK_KIND(mark) == HR_MARK_SEGMENT_IN;

  skb->priority = 0;
  if (!skb->gso_size && !bpf_skb_load_bytes(skb, ETH_ALEN, &note, ETH_ALEN) &&
      !bpf_skb_store_bytes(skb, 0, &note, ETH_ALEN, 0)) {
    skb->mark = inwards ? 0 : note.mark;
    skb->tc_index = inwards ? 0 : note.client;
    return bpf_redirect(HR_MARK_VALUE(mark), inwards ? BPF_F_INGRESS : 0);
  }
  hr_host_reason(HR_REASON_SEND_FAILED);
  return TC_ACT_SHOT;
}
