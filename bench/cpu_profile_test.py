# SPDX-License-Identifier: Apache-2.0
"""The innermost function that a rule knows decides what a sample is, and a store's samples are its nodes' and the soft interrupts'."""

import json

import pytest

from bench import cpu_profile


@pytest.mark.parametrize("frames, kind", [
    ("", "user"),
    ("copy_user_generic _copy_to_iter udp_recvmsg ____sys_recvmsg do_syscall_64", "stack"),
    ("_raw_spin_lock try_to_wake_up ep_poll_callback sock_def_readable udp_queue_rcv_skb", "switch"),
    ("siphash bpf_prog_0123_hr_node_xdp veth_xdp_rcv_skb veth_poll net_rx_action", "offload"),
    ("veth_xmit dev_hard_start_xmit bpf_clone_redirect bpf_prog_0123_hr_node_broadcast", "stack"),
    ("memcpy bpf_prog_run_generic_xdp do_xdp_generic", "stack"),
    ("pv_native_safe_halt default_idle do_idle", "idle"),
    ("__schedule schedule_idle do_idle", "switch"),
    ("memcpy veth_poll net_rx_action handle_softirqs do_idle", "stack"),
    ("fput do_epoll_wait do_syscall_64", "other")])
def test_the_innermost_function_that_says_something_decides(frames, kind):
    assert cpu_profile.work_of(frames.split()) == kind


def test_shares_are_of_the_nodes_and_of_soft_interrupts_whoever_was_interrupted():
    stacks = {"7,": 2, "7,\n    udp_recvmsg+3\n    do_syscall_64+1\n": 4, "7,\n    __schedule+3\n": 1,  # a node
              "7,\n    bpf_prog_1_hr_node_xdp+1\n    handle_softirqs+2\n": 1,
              "8,": 99, "8,\n    udp_sendmsg+1\n": 99,  # the load, or a stranger
              "8,\n    veth_poll+9\n    net_rx_action+1\n    __do_softirq+8\n": 2,
              "0,\n    default_idle+1\n": 99, "0,\n    __schedule+1\n": 1}
    said = json.dumps({"type": "attached_probes", "data": {"probes": 1}}) + "\n\n" + json.dumps({"type": "map", "data": {"@": stacks}})
    shares = cpu_profile.shares(cpu_profile.by_process(said), {7})
    assert shares == {"user": 2 / 11, "stack": 6 / 11, "switch": 2 / 11, "offload": 1 / 11, "other": 0.0}


def test_shares_of_nothing_are_none():
    assert set(cpu_profile.shares({}, {7}).values()) == {None}
