// SPDX-License-Identifier: Apache-2.0
//
// The innermost function that says something decides; names are those at or below an address.
#include <vector>

#include "bench/profile/kernel_symbols.h"
#include "bench/profile/work.h"
#include "gtest/gtest.h"

namespace hedgerow::bench {
namespace {

Work Of(const std::vector<std::string_view>& frames) { return WorkOf(frames); }

TEST(Work, UserCodeHasNoKernelFrames) { EXPECT_EQ(Of({}), Work::kUser); }

TEST(Work, ACopyInsideOfAReceiveIsTheStack) {
  EXPECT_EQ(Of({"copy_user_generic", "_copy_to_iter", "udp_recvmsg", "____sys_recvmsg", "do_syscall_64"}),
            Work::kStack);
}

TEST(Work, AWakeUpInsideOfAReceiveIsScheduling) {
  EXPECT_EQ(
      Of({"_raw_spin_lock", "try_to_wake_up", "ep_poll_callback", "sock_def_readable", "udp_queue_rcv_skb"}),
      Work::kSwitch);
}

TEST(Work, AProgramIsTheOffloadAndWhatItSendsIsTheStack) {
  EXPECT_EQ(Of({"siphash", "bpf_prog_0123_hr_node_xdp", "veth_xdp_rcv_skb", "veth_poll", "net_rx_action"}),
            Work::kOffload);
  EXPECT_EQ(Of({"veth_xmit", "dev_hard_start_xmit", "bpf_clone_redirect", "bpf_prog_0123_hr_node_broadcast"}),
            Work::kStack);
  EXPECT_EQ(Of({"memcpy", "bpf_prog_run_generic_xdp", "do_xdp_generic"}), Work::kStack);
}

TEST(Work, AnIdleCpuIsIdleUntilItWorksOrSwitches) {
  EXPECT_EQ(Of({"pv_native_safe_halt", "default_idle", "do_idle"}), Work::kIdle);
  EXPECT_EQ(Of({"__schedule", "schedule_idle", "do_idle"}), Work::kSwitch);
  EXPECT_EQ(Of({"memcpy", "veth_poll", "net_rx_action", "handle_softirqs", "do_idle"}), Work::kStack);
}

TEST(Work, WhatNoRuleKnowsIsOther) { EXPECT_EQ(Of({"fput", "do_epoll_wait", "do_syscall_64"}), Work::kOther); }

TEST(Work, SoftInterruptsAreToldApart) {
  const std::vector<std::string_view> soft = {"veth_poll", "net_rx_action", "handle_softirqs"};
  const std::vector<std::string_view> task = {"veth_xmit", "udp_sendmsg"};
  EXPECT_TRUE(InSoftIrq(soft));
  EXPECT_FALSE(InSoftIrq(task));
}

TEST(KernelSymbols, AnAddressHasTheNameOfTheFunctionThatBeginsBeforeIt) {
  const KernelSymbols symbols = KernelSymbols::Parse(
      "ffffffff81000200 T second\nffffffff81000100 t first\nffffffff81000180 D data\n"
      "ffffffffc0000000 t bpf_prog_12_hr_node_xdp\t[bpf]\nno symbol\n");
  EXPECT_EQ(symbols.size(), 3u);
  EXPECT_EQ(symbols.NameOf(0xffffffff81000100), "first");
  EXPECT_EQ(symbols.NameOf(0xffffffff810001ff), "first");
  EXPECT_EQ(symbols.NameOf(0xffffffff81000200), "second");
  EXPECT_EQ(symbols.NameOf(0xffffffffc0000010), "bpf_prog_12_hr_node_xdp");
  EXPECT_EQ(symbols.NameOf(0xffffffff81000000), "");
  EXPECT_EQ(symbols.NameOf(0xffffffffb0000000), "");  // far from everything
}

}  // namespace
}  // namespace hedgerow::bench
