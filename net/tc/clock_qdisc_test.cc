// SPDX-License-Identifier: Apache-2.0
//
// The clock's qdisc with a real circulating packet: a TC program at the far end notes the time and sends the
// packet back into the qdisc. The bounds are generous (a busy test machine); the figures are printed and kept
// in the test's record.
#include "net/tc/clock_qdisc.h"

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "net/bpf_program_test.h"
#include "net/netlink/link.h"
#include "net/namespace_test.h"
#include "net/tc/tc_attach.h"

namespace hedgerow::net {

// For the names of tests.
void PrintTo(ClockKind kind, std::ostream* out) { *out << ToString(kind); }

namespace {

constexpr uint32_t kTimes = 4096;  // laps whose times are kept; a power of two

// At c1's ingress: count the lap, note its time, set the priority the test asks for, redirect into c0's egress.
class LapProgram {
 public:
  explicit LapProgram(int target_ifindex) : control_(MakeArray("control", 2)), times_(MakeArray("times", kTimes)) {
    std::vector<bpf_insn> code = {MovReg(BPF_REG_6, BPF_REG_1), Call(BPF_FUNC_ktime_get_ns),
                                  MovReg(BPF_REG_9, BPF_REG_0), MovImm(BPF_REG_2, 0)};
    LookUp(code, control_.get(), BPF_REG_2);  // [0]: laps so far
    code.push_back(Insn(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_0, 0, 2, 0));
    code.push_back(MovImm(BPF_REG_0, TC_ACT_SHOT));
    code.push_back(Exit());
    code.push_back(Load64(BPF_REG_7, BPF_REG_0, 0));
    code.push_back(MovReg(BPF_REG_1, BPF_REG_7));
    code.push_back(AddImm(BPF_REG_1, 1));
    code.push_back(Store64(BPF_REG_0, BPF_REG_1, 0));
    code.push_back(Insn(BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_7, 0, 0, kTimes - 1));
    LookUp(code, times_.get(), BPF_REG_7);
    code.push_back(JumpIfZero(BPF_REG_0, 1));
    code.push_back(Store64(BPF_REG_0, BPF_REG_9, 0));
    code.push_back(MovImm(BPF_REG_2, 1));
    LookUp(code, control_.get(), BPF_REG_2);  // [1]: the priority of the next lap; 0: stop
    code.push_back(Insn(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_0, 0, 2, 0));
    code.push_back(MovImm(BPF_REG_0, TC_ACT_SHOT));
    code.push_back(Exit());
    code.push_back(Load64(BPF_REG_1, BPF_REG_0, 0));
    code.push_back(Insn(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_1, 0, 2, 0));
    code.push_back(MovImm(BPF_REG_0, TC_ACT_SHOT));
    code.push_back(Exit());
    code.push_back(Store32(BPF_REG_6, BPF_REG_1, offsetof(__sk_buff, priority)));
    code.push_back(MovImm(BPF_REG_1, target_ifindex));
    code.push_back(MovImm(BPF_REG_2, 0));
    code.push_back(Call(BPF_FUNC_redirect));
    code.push_back(Exit());
    program_ = LoadTc("lap", code);
  }
  int fd() const { return program_.get(); }
  uint64_t laps() const { return Element(control_, 0); }
  void SetPriority(uint64_t priority) const {
    const uint32_t index = 1;
    ASSERT_EQ(bpf_map_update_elem(control_.get(), &index, &priority, BPF_ANY), 0);
  }
  // Sorted distances, in ns, between the last `count` laps.
  std::vector<uint64_t> Periods(size_t count) const {
    const uint64_t last = laps();
    std::vector<uint64_t> periods;
    for (uint64_t lap = last > count ? last - count : 1; lap < last; ++lap) {
      periods.push_back(Element(times_, lap % kTimes) - Element(times_, (lap - 1) % kTimes));
    }
    std::sort(periods.begin(), periods.end());
    return periods;
  }

 private:
  UniqueFd control_;
  UniqueFd times_;
  UniqueFd program_;
};

class ClockQdiscTest : public NamespaceTest {
 protected:
  // The clock's veth with the qdisc on c0 and the lap program on c1.
  void InClock(const ClockQdiscOptions& options, const std::function<void(const LapProgram&)>& body) {
    InNamespace([&] {
      const auto pair = CreateVethPair({.name = "hr0c0", .peer_name = "hr0c1", .instance = "clock-test"});
      ASSERT_THAT(pair.status(), IsOk());
      c0_ = pair->link.ifindex;
      ASSERT_THAT(InstallClockQdisc(c0_, options), IsOk());
      const LapProgram program(c0_);
      auto attachment = Attachment::Attach(
          {.ifindex = pair->peer.ifindex, .instance = "clock-test", .role = "lap", .pin_dir = ""}, program.fd());
      ASSERT_THAT(attachment.status(), IsOk());
      body(program);
      program.SetPriority(0);
      usleep(30'000);
    });
  }
  // Puts one packet into the qdisc.
  void Start(const LapProgram& program, uint32_t priority, size_t frame_bytes = 60) const {
    program.SetPriority(priority);
    UniqueFd fd(socket(AF_PACKET, SOCK_RAW, 0));
    ASSERT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority)), 0);
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = c0_;
    std::vector<uint8_t> frame(frame_bytes, 0xff);
    frame[12] = 0x88;
    frame[13] = 0xb5;
    ASSERT_EQ(sendto(fd.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)),
              static_cast<ssize_t>(frame.size()));
  }
  static bool WaitForLaps(const LapProgram& program, uint64_t laps, std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (program.laps() < laps && std::chrono::steady_clock::now() < end) usleep(1000);
    return program.laps() >= laps;
  }
  // Prints and checks the periods of the last `laps` laps. A soft interrupt is never early, so the lower bound
  // is strict.
  static void ExpectPeriod(const LapProgram& program, size_t laps, uint64_t nominal_ns, const char* what) {
    const auto periods = program.Periods(laps);
    ASSERT_GE(periods.size(), laps / 2);
    const uint64_t p50_ns = periods[periods.size() / 2];
    const uint64_t p99_ns = periods[periods.size() * 99 / 100];
    std::printf("%s: nominal %.0f us, %zu laps: p50 %.1f us, p99 %.1f us, max %.1f us\n", what,
                static_cast<double>(nominal_ns) / 1e3, periods.size(), static_cast<double>(p50_ns) / 1e3,
                static_cast<double>(p99_ns) / 1e3, static_cast<double>(periods.back()) / 1e3);
    EXPECT_GE(p50_ns, nominal_ns * 95 / 100) << what;
    EXPECT_LE(p50_ns, nominal_ns * 3 / 2 + 400'000) << what;
  }

  int c0_ = 0;
};

TEST_F(ClockQdiscTest, EachClassKeepsItsPeriodWhateverTheFrameSize) {
  for (const size_t frame_bytes : {60u, 600u, 1514u}) {
    const ClockQdiscOptions options;
    InClock(options, [&](const LapProgram& program) {
      Start(program, ClockPriority(0), frame_bytes);
      ASSERT_TRUE(WaitForLaps(program, 1000, std::chrono::seconds(5))) << program.laps() << " laps";
      ExpectPeriod(program, 900, options.period_ns[0], std::to_string(frame_bytes).c_str());
    });
  }
}

TEST_F(ClockQdiscTest, ClassIsSwitchedLiveByPriority) {
  const ClockQdiscOptions options;
  InClock(options, [&](const LapProgram& program) {
    Start(program, ClockPriority(1));
    for (const auto& [index, laps] :
         {std::pair(1u, 200u), std::pair(2u, 20u), std::pair(0u, 1000u), std::pair(1u, 200u)}) {
      program.SetPriority(ClockPriority(index));
      const uint64_t before = program.laps();
      ASSERT_TRUE(WaitForLaps(program, before + laps + 5, std::chrono::seconds(5))) << index;
      ExpectPeriod(program, laps, options.period_ns[index], ("class " + std::to_string(index)).c_str());
    }
    EXPECT_EQ(Shell("test $(tc -s class show dev hr0c0 | grep -c 'dropped 0,') = 4"), 0)
        << "one class a period and the default one, none of which has dropped the packet";
  });
}

TEST_F(ClockQdiscTest, UnknownPriorityIsDelayedAndNeverDropped) {
  InClock({}, [&](const LapProgram& program) {
    // Priority 1 is no class: the packet goes round through the default class.
    Start(program, 1);
    ASSERT_TRUE(WaitForLaps(program, 100, std::chrono::seconds(5)));
    ExpectPeriod(program, 90, ClockQdiscOptions().default_period_ns, "default class");
    // Twenty packets of no class beside the circulating one.
    program.SetPriority(0);
    usleep(20'000);
    const uint64_t before = program.laps();
    for (int i = 0; i < 20; ++i) Start(program, 0);
    EXPECT_TRUE(WaitForLaps(program, before + 20, std::chrono::seconds(2)))
        << program.laps() - before << " of 20 arrived";
  });
}

TEST_F(ClockQdiscTest, InstallingTwiceIsAnErrorAndRemovingTwiceIsNot) {
  InClock({}, [&](const LapProgram&) {
    EXPECT_TRUE(absl::IsAlreadyExists(InstallClockQdisc(c0_, {}))) << InstallClockQdisc(c0_, {});
    EXPECT_THAT(RemoveClockQdisc(c0_), IsOk());
    EXPECT_THAT(RemoveClockQdisc(c0_), IsOk());
    EXPECT_FALSE(HasClockQdisc(c0_, ClockKind::kHtb).value());
    EXPECT_THAT(InstallClockQdisc(c0_, {}), IsOk());
  });
}

TEST_F(ClockQdiscTest, BadPeriodsAreRefusedAndLeaveNoQdisc) {
  InNamespace([&] {
    const auto pair = CreateVethPair({.name = "hr0c0", .peer_name = "hr0c1", .instance = "clock-test"});
    ASSERT_THAT(pair.status(), IsOk());
    const int c0 = pair->link.ifindex;
    const std::vector<std::vector<uint64_t>> bad = {
        {}, {9'999}, {1'000'000'001}, {100'000, 0}, std::vector<uint64_t>(kClockPeriodsMax + 1, 1'000'000)};
    for (const auto& periods : bad) {
      EXPECT_TRUE(absl::IsInvalidArgument(InstallClockQdisc(c0, {.period_ns = periods}))) << periods.size();
      EXPECT_EQ(Shell("tc qdisc show dev hr0c0 | grep -q htb"), 256) << "a qdisc was left";
    }
    EXPECT_FALSE(InstallClockQdisc(4711, {}).ok());
    EXPECT_THAT(InstallClockQdisc(c0, {.period_ns = {kClockPeriodMin_ns, kClockPeriodMax_ns}}), IsOk());
  });
}

// The kinds that only some kernels have: what cannot be installed must say so and leave nothing.
class ClockKindTest : public ClockQdiscTest, public testing::WithParamInterface<ClockKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ClockKindTest, testing::Values(ClockKind::kHtb, ClockKind::kFq),
                         [](const auto& info) { return std::string(ToString(info.param)); });

TEST_P(ClockKindTest, IsInstalledAndRemovedWholeOrTheKernelLacksIt) {
  InNamespace([&] {
    const auto pair = CreateVethPair({.name = "hr0c0", .peer_name = "hr0c1", .instance = "clock-test"});
    ASSERT_THAT(pair.status(), IsOk());
    const int c0 = pair->link.ifindex;
    const ClockQdiscOptions options{.kind = GetParam()};
    const absl::Status installed = InstallClockQdisc(c0, options);
    if (installed.ok()) {
      EXPECT_TRUE(HasClockQdisc(c0, GetParam()).value());
      EXPECT_TRUE(absl::IsAlreadyExists(InstallClockQdisc(c0, options))) << InstallClockQdisc(c0, options);
    } else {
      EXPECT_TRUE(absl::IsNotFound(installed)) << installed;
      EXPECT_NE(GetParam(), ClockKind::kHtb) << "every kernel has it";
    }
    EXPECT_THAT(RemoveClockQdisc(c0), IsOk());
    EXPECT_FALSE(HasClockQdisc(c0, GetParam()).value());
    EXPECT_EQ(Shell("tc qdisc show dev hr0c0 | grep -qE 'htb|fq'"), 256) << "a qdisc was left";
  });
}

}  // namespace
}  // namespace hedgerow::net
