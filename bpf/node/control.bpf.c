// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CONTROL: never attached; the process runs it by BPF_PROG_TEST_RUN. The only way by which it changes what the kernel
 * programs share with it: compared and set under the same lock (R0). The frame is 14 bytes of Ethernet header and a
 * request, which becomes its answer. Returns 0 when the request was carried out or refused, 1 when there was none.
 */
#include "bpf/node/maps.bpf.h"
#include "bpf/node/raft/control.h"

#include <linux/if_ether.h>

SEC("tc")
int hr_node_control(struct __sk_buff *skb) {
  struct hr_node_control *request = (void *)(long)skb->data + ETH_HLEN;
  enum hr_node_control_result result;
  struct hr_node *state;
  __u32 zero = 0;

  state = bpf_map_lookup_elem(&node, &zero);
  if ((void *)(request + 1) > (void *)(long)skb->data_end || !state) return 1;
  bpf_spin_lock(&state->lock);
  result = hr_node_control_shared(&state->shared, request);
  request->shared = state->shared;
  bpf_spin_unlock(&state->lock);
  request->result = result;
  return 0;
}

SEC("tc")
int hr_node_window(struct __sk_buff *skb) {
  struct hr_node_window_control *request = (void *)(long)skb->data + ETH_HLEN;
  struct hr_node_locked_window *locked;
  __u32 slot;

  if ((void *)(request + 1) > (void *)(long)skb->data_end) return 1;
  slot = request->slot;
  locked = bpf_map_lookup_elem(&windows, &slot);
  if (!locked) {
    request->result = HR_NODE_INVALID;
    return 0;
  }
  bpf_spin_lock(&locked->lock);
  hr_node_window_begin(&locked->window, request->incarnation, request->floor);
  bpf_spin_unlock(&locked->lock);
  request->result = HR_NODE_DONE;
  return 0;
}

char hr_license[] SEC("license") = "Dual BSD/GPL";
