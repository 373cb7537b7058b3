// SPDX-License-Identifier: Apache-2.0
#include "bench/profile/work.h"

#include <algorithm>

namespace hedgerow::bench {
namespace {

struct Rule {
  std::string_view prefix;
  Work work;
};

// Prefixes of names, the first that fits wins. Of kernels 6.1 to 6.18; a function that none fits is kOther, so
// a name that is missing here makes a share too small, never too large.
constexpr std::array kRules = {
    Rule{"default_idle", Work::kIdle},
    Rule{"native_safe_halt", Work::kIdle},
    Rule{"pv_native_safe_halt", Work::kIdle},
    Rule{"mwait_idle", Work::kIdle},
    Rule{"intel_idle", Work::kIdle},
    Rule{"acpi_idle", Work::kIdle},
    Rule{"acpi_safe_halt", Work::kIdle},
    Rule{"cpuidle_", Work::kIdle},
    Rule{"arch_cpu_idle", Work::kIdle},
    Rule{"poll_idle", Work::kIdle},
    Rule{"cpu_idle_poll", Work::kIdle},

    // Runs a program, and is the stack's own.
    Rule{"bpf_prog_run_generic_xdp", Work::kStack},
    Rule{"bpf_prog_", Work::kOffload},
    Rule{"bpf_", Work::kOffload},

    Rule{"schedule", Work::kSwitch},
    Rule{"__schedule", Work::kSwitch},
    Rule{"preempt_schedule", Work::kSwitch},
    Rule{"__cond_resched", Work::kSwitch},
    Rule{"try_to_wake_up", Work::kSwitch},
    Rule{"ttwu_", Work::kSwitch},
    Rule{"pick_", Work::kSwitch},
    Rule{"finish_task_switch", Work::kSwitch},
    Rule{"__switch_to", Work::kSwitch},
    Rule{"switch_mm", Work::kSwitch},
    Rule{"do_sched_yield", Work::kSwitch},
    Rule{"__do_sys_sched_yield", Work::kSwitch},
    Rule{"__x64_sys_sched_yield", Work::kSwitch},
    Rule{"enqueue_task", Work::kSwitch},
    Rule{"dequeue_task", Work::kSwitch},
    Rule{"enqueue_entity", Work::kSwitch},
    Rule{"dequeue_entit", Work::kSwitch},
    Rule{"select_task_rq", Work::kSwitch},
    Rule{"update_curr", Work::kSwitch},
    Rule{"update_load_avg", Work::kSwitch},
    Rule{"sched_", Work::kSwitch},
    Rule{"scheduler_", Work::kSwitch},
    Rule{"resched_", Work::kSwitch},
    Rule{"newidle_balance", Work::kSwitch},
    Rule{"load_balance", Work::kSwitch},
    Rule{"balance_", Work::kSwitch},
    Rule{"put_prev_", Work::kSwitch},
    Rule{"set_next_", Work::kSwitch},
    Rule{"yield_task", Work::kSwitch},
    Rule{"wakeup_preempt", Work::kSwitch},
    Rule{"check_preempt", Work::kSwitch},
    Rule{"__wake_up", Work::kSwitch},
    Rule{"wake_up_", Work::kSwitch},
    Rule{"default_wake_function", Work::kSwitch},
    Rule{"autoremove_wake_function", Work::kSwitch},
    Rule{"ep_poll_callback", Work::kSwitch},
    Rule{"do_idle", Work::kSwitch},
    Rule{"flush_smp_call_function", Work::kSwitch},
    Rule{"tick_nohz_", Work::kSwitch},
    Rule{"nohz_", Work::kSwitch},

    Rule{"udp", Work::kStack},
    Rule{"__udp", Work::kStack},
    Rule{"tcp_", Work::kStack},
    Rule{"__tcp_", Work::kStack},
    Rule{"ip_", Work::kStack},
    Rule{"__ip_", Work::kStack},
    Rule{"ip6_", Work::kStack},
    Rule{"ipv6_", Work::kStack},
    Rule{"inet_", Work::kStack},
    Rule{"inet6_", Work::kStack},
    Rule{"__inet", Work::kStack},
    Rule{"fib_", Work::kStack},
    Rule{"neigh_", Work::kStack},
    Rule{"nf_", Work::kStack},
    Rule{"nft_", Work::kStack},
    Rule{"sock_", Work::kStack},
    Rule{"__sock_", Work::kStack},
    Rule{"sk_", Work::kStack},
    Rule{"__sk_", Work::kStack},
    Rule{"skb_", Work::kStack},
    Rule{"__skb_", Work::kStack},
    Rule{"kfree_skb", Work::kStack},
    Rule{"__kfree_skb", Work::kStack},
    Rule{"consume_skb", Work::kStack},
    Rule{"__alloc_skb", Work::kStack},
    Rule{"__build_skb", Work::kStack},
    Rule{"alloc_skb", Work::kStack},
    Rule{"napi_", Work::kStack},
    Rule{"__napi", Work::kStack},
    Rule{"net_rx_action", Work::kStack},
    Rule{"net_tx_action", Work::kStack},
    Rule{"dev_", Work::kStack},
    Rule{"__dev_", Work::kStack},
    Rule{"netif_", Work::kStack},
    Rule{"__netif_", Work::kStack},
    Rule{"netdev_", Work::kStack},
    Rule{"veth_", Work::kStack},
    Rule{"br_", Work::kStack},
    Rule{"eth_", Work::kStack},
    Rule{"xdp_", Work::kStack},
    Rule{"__xdp_", Work::kStack},
    Rule{"do_xdp_generic", Work::kStack},
    Rule{"generic_xdp", Work::kStack},
    Rule{"tcf_", Work::kStack},
    Rule{"tcx_", Work::kStack},
    Rule{"qdisc_", Work::kStack},
    Rule{"__qdisc", Work::kStack},
    Rule{"sch_", Work::kStack},
    Rule{"process_backlog", Work::kStack},
    Rule{"enqueue_to_backlog", Work::kStack},
    Rule{"validate_xmit", Work::kStack},
    Rule{"csum_", Work::kStack},
    Rule{"__sys_send", Work::kStack},
    Rule{"___sys_send", Work::kStack},
    Rule{"____sys_send", Work::kStack},
    Rule{"__sys_recv", Work::kStack},
    Rule{"___sys_recv", Work::kStack},
    Rule{"____sys_recv", Work::kStack},
    Rule{"do_recvmmsg", Work::kStack},
    Rule{"__x64_sys_send", Work::kStack},
    Rule{"__x64_sys_recv", Work::kStack},
};

bool Begins(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

}  // namespace

std::string_view Name(Work work) {
  constexpr std::array<std::string_view, kWorkKinds> kNames = {"idle",   "user",    "stack",
                                                               "switch", "offload", "other"};
  return kNames[static_cast<size_t>(work)];
}

Work WorkOf(std::string_view symbol) {
  const auto* rule =
      std::find_if(kRules.begin(), kRules.end(), [&](const Rule& each) { return Begins(symbol, each.prefix); });
  return rule == kRules.end() ? Work::kOther : rule->work;
}

Work WorkOf(std::span<const std::string_view> frames) {
  if (frames.empty()) return Work::kUser;
  for (const std::string_view frame : frames) {
    if (const Work work = WorkOf(frame); work != Work::kOther) return work;
  }
  return Work::kOther;
}

bool InSoftIrq(std::span<const std::string_view> frames) {
  return std::any_of(frames.begin(), frames.end(), [](std::string_view frame) {
    return frame == "__do_softirq" || frame == "handle_softirqs";
  });
}

}  // namespace hedgerow::bench
