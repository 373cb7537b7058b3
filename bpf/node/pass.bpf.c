// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * XDP for the other end of a node's veth: an answer sent by XDP_TX is silently lost there unless that end has an XDP
 * program, whatever it does. On the bridge's ports in the lab.
 */
#include <linux/bpf.h>
/* The order of these two matters: the helpers need the types. */
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int hr_xdp_pass(struct xdp_md *ctx) {
  (void)ctx;
  return XDP_PASS;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
