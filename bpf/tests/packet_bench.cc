// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a request costs the kernel programs: DNS requests and their answers by BPF_PROG_TEST_RUN on one processor, timed
// by the kernel (BPF_ENABLE_STATS). The cells take turns in short runs, of which the lowest and the median count: the
// lowest says what the programs take, the median what they take here and now. By hand, as root:
// build/release/bin/packet_bench.

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

constexpr int kRounds = 400, kRequests = 256, kPorts = 64, kIds = 64;
constexpr int kLapEvery = 32;  // requests

struct Cell {
  std::string name;
  uint8_t attempts;                         // 1: nothing is parked
  uint64_t delay_ns;                        // for so long an answered request stays in the wheel
  int behind;                               // so many requests wait for their answer at a time
  std::array<std::vector<double>, 3> ns{};  // a request: splitter, reply program, clock
};

class PacketBench : public PacketTest {
 protected:
  std::array<uint64_t, 3> RunTimes() {
    std::array<uint64_t, 3> times{};
    const auto &programs = skeleton()->progs;
    const bpf_program *const all[] = {programs.hr_splitter, programs.hr_reply, programs.hr_clock};
    for (size_t i = 0; i < times.size(); ++i) {
      bpf_prog_info info{};
      uint32_t bytes = sizeof(info);
      EXPECT_EQ(bpf_obj_get_info_by_fd(bpf_program__fd(all[i]), &info, &bytes), 0);
      times[i] = info.run_time_ns;
    }
    return times;
  }

  void TakeLap() {
    static const Bytes lap = Tagged(Bytes(HR_CLOCK_FRAME_BYTES));
    RunUncounted(skeleton()->progs.hr_clock, lap,
                 {.mark = HR_MARK_LAP | HR_MARK_VALUE(Wheel().epoch), .ifindex = TestLinks::Get().clock_in.ifindex});
  }

  void Ask(size_t packet) {
    RunUncounted(skeleton()->progs.hr_splitter, requests_[packet % requests_.size()],
                 {.ifindex = TestLinks::Get().proxy.ifindex});
  }
  void Answer(size_t packet) {
    RunUncounted(skeleton()->progs.hr_reply, replies_[packet % replies_.size()],
                 {.ifindex = TestLinks::Get().uplink.ifindex});
  }

  void RunOnce(Cell &cell) {
    ServiceConfig(kDns4Service).attempts = cell.attempts;
    ServicePolicy(kDns4Service).delay_ns = cell.delay_ns;
    size_t asked = next_, answered = next_;
    for (; asked < next_ + static_cast<size_t>(cell.behind); ++asked) Ask(asked);
    const std::array<uint64_t, 3> before = RunTimes();
    for (int i = 0; i < kRequests; ++i) {
      Ask(asked++);
      Answer(answered++);
      if (i % kLapEvery == 0) TakeLap();
    }
    const std::array<uint64_t, 3> after = RunTimes();
    for (size_t i = 0; i < cell.ns.size(); ++i)
      cell.ns[i].push_back(static_cast<double>(after[i] - before[i]) / kRequests);
    for (; answered < asked; ++answered) Answer(answered);
    next_ = asked;
  }

  std::vector<Bytes> requests_, replies_;
  size_t next_ = 0;
};

TEST_F(PacketBench, ARequest) {
  DataPlaneSpec spec = Spec();
  const DataPlaneSpec defaults;
  spec.max_requests = defaults.max_requests;
  spec.max_parked = defaults.max_parked;
  spec.max_flows = spec.max_connections = defaults.max_flows;
  Start(spec);
  const int stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
  ASSERT_GE(stats, 0);
  ServiceConfig(kDns4Service).deadline_ns = 4 * kSecond;
  ServiceConfig(kDns4Service).budget_ppm = 0;
  for (int id = 0; id < kIds; ++id) {
    for (int port = 0; port < kPorts; ++port) {
      const auto number = static_cast<uint16_t>(id * kPorts + port), from = static_cast<uint16_t>(kClientPort + port);
      requests_.push_back(DnsRequest4(number, "www.example.org", from));
      replies_.push_back(DnsReply4(number, kA4, /*rcode=*/0, "www.example.org", from));
    }
  }
  std::vector<Cell> cells = {{"not parked", 1, 0, 0},
                             {"0.2 ms, 1 waits", 2, 200'000, 0},
                             {"1 ms, 16 wait", 2, kMillisecond, 15},
                             {"10 ms, 64 wait", 2, 10 * kMillisecond, 63},
                             {"10 ms, 512 wait", 2, 10 * kMillisecond, 511}};
  for (int round = 0; round < kRounds; ++round)
    for (Cell &cell : cells) RunOnce(cell);
  std::printf("%-16s %19s %19s %19s\n", "ns, lowest median", "splitter", "reply program", "clock");
  for (Cell &cell : cells) {
    std::printf("%-16s", cell.name.c_str());
    for (std::vector<double> &each : cell.ns) {
      std::sort(each.begin(), each.end());
      std::printf(" %9.0f %9.0f", each.front(), each[each.size() / 2]);
    }
    std::printf("\n");
  }
  close(stats);
  Advance(50 * kMillisecond);
  for (int i = 0; i < 64; ++i) TakeLap();
}

}  // namespace
}  // namespace hedgerow::packets
