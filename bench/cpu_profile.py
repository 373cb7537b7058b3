# SPDX-License-Identifier: Apache-2.0
"""Where a store's processor time goes: shares of the kernel's network stack, of scheduling and of the offloads' programs, from
bpftrace's samples of all CPUs (a software clock, so it works in virtual machines). Called by bench/offload.py.

The innermost function that a rule knows decides what a sample is: a wake-up inside of a receive is scheduling, a copy inside of it
is the stack. A store's samples are those of its nodes' processes, of soft interrupts in any process, and of the idle task when it is
not idle. The load's own process and other processes of the machine are left out.
"""

import collections
import contextlib
import json
import signal
import subprocess
from collections.abc import Collection, Iterator, Sequence

# The line says that it samples: what comes before is said before it has attached, and before it can be interrupted.
_PROGRAM = 'profile:hz:997 { @[pid, kstack] = count(); } interval:ms:50 { printf("samples"); }'
KINDS = ("user", "stack", "switch", "offload", "other")  # and "idle", which is no work
# Beginnings of the names of kernels 6.1 to 6.18's functions; the first kind that has one wins. A function that no rule knows says
# nothing, so a name that is missing here makes a share too small, never too large.
_RULES = {
    "idle": """default_idle native_safe_halt pv_native_safe_halt mwait_idle intel_idle acpi_idle acpi_safe_halt cpuidle_ arch_cpu_idle
        poll_idle cpu_idle_poll""",
    "stack": "bpf_prog_run_generic_xdp",
    "offload": "bpf_",
    "switch": """schedule __schedule preempt_schedule __cond_resched try_to_wake_up ttwu_ pick_ finish_task_switch __switch_to switch_mm
        do_sched_yield __do_sys_sched_yield __x64_sys_sched_yield enqueue_task dequeue_task enqueue_entity dequeue_entit
        select_task_rq update_curr update_load_avg sched_ scheduler_ resched_ newidle_balance load_balance balance_ put_prev_ set_next_
        yield_task wakeup_preempt check_preempt __wake_up wake_up_ default_wake_function autoremove_wake_function ep_poll_callback
        do_idle flush_smp_call_function tick_nohz_ nohz_""",
    "stack ": """udp __udp tcp_ __tcp_ ip_ __ip_ ip6_ ipv6_ inet_ inet6_ __inet fib_ neigh_ nf_ nft_ sock_ __sock_ sk_ __sk_ skb_ __skb_
        kfree_skb __kfree_skb consume_skb __alloc_skb __build_skb alloc_skb napi_ __napi net_rx_action net_tx_action dev_ __dev_ netif_
        __netif_ netdev_ veth_ br_ eth_ xdp_ __xdp_ do_xdp_generic generic_xdp tcf_ tcx_ qdisc_ __qdisc sch_ process_backlog
        enqueue_to_backlog validate_xmit csum_ __sys_send ___sys_send ____sys_send __sys_recv ___sys_recv ____sys_recv do_recvmmsg
        __x64_sys_send __x64_sys_recv"""}
_BEGINNINGS = [(tuple(names.split()), kind.strip()) for kind, names in _RULES.items()]


def work_of(frames: Sequence[str]) -> str:
    """`frames`: the kernel's functions, from the innermost outwards; none in user code."""
    for frame in frames:
        for beginnings, kind in _BEGINNINGS:
            if frame.startswith(beginnings):
                return kind
    return "other" if frames else "user"


@contextlib.contextmanager
def sampling() -> Iterator[dict]:
    """Of the block's time; what it yields is filled when the block is over: samples by process, in soft interrupts and not, by kind."""
    with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "bpftrace", "-f", "json", "-e", _PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            # It ends, and with it its output, when it cannot attach.
            samples, found = any('"printf"' in line for line in child.stdout), {}
            if samples:
                yield found
            child.send_signal(signal.SIGINT)
            out, errors = child.communicate(timeout=60)
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0 or not samples:
        raise RuntimeError(f"bpftrace: exit {child.returncode}: {errors}")
    found |= by_process(out)


def by_process(said: str) -> dict:
    """Of bpftrace's JSON lines: `{pid: {"task": {kind: samples}, "soft_irq": {..}}}`."""
    found: dict[str, dict[str, collections.Counter]] = {}
    for line in filter(None, said.splitlines()):
        event = json.loads(line)
        for key, count in event["data"]["@"].items() if event["type"] == "map" else ():
            pid, _, stack = key.partition(",")
            frames = [frame.strip().partition("+")[0] for frame in stack.strip().splitlines()]
            soft = "soft_irq" if {"__do_softirq", "handle_softirqs"} & set(frames) else "task"
            found.setdefault(pid, {"task": collections.Counter(), "soft_irq": collections.Counter()})[soft][work_of(frames)] += count
    return found


def shares(profile: dict, nodes: Collection[int]) -> dict:
    """`{"stack": 0.4, ...}` of the store's samples; every share None when there is no sample."""
    counts = dict.fromkeys(KINDS, 0)
    for pid, found in profile.items():
        for kind in KINDS:
            counts[kind] += found["soft_irq"].get(kind, 0) + (found["task"].get(kind, 0) if int(pid) in nodes or pid == "0" else 0)
    total = sum(counts.values())
    return {kind: counts[kind] / total if total else None for kind in KINDS}
