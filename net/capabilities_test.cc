// SPDX-License-Identifier: Apache-2.0
//
// Capabilities: the report follows what the thread really has, and the set we call sufficient is.
#include "net/capabilities.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/bpf_program_test.h"
#include "net/bpffs.h"
#include "net/clean.h"
#include "net/tc/clock_qdisc.h"
#include "net/netlink/link.h"
#include "net/namespace_test.h"
#include "net/netlink/route.h"
#include "net/tc/tc_attach.h"

namespace hedgerow::net {
namespace {

constexpr char kInstance[] = "caps-test";

// Leaves the calling thread with exactly these.
void KeepOnly(std::span<const Capability> kept) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  for (const Capability capability : kept) {
    const auto number = static_cast<unsigned>(capability);
    sets[CAP_TO_INDEX(number)].effective |= CAP_TO_MASK(number);
    sets[CAP_TO_INDEX(number)].permitted |= CAP_TO_MASK(number);
  }
  ASSERT_EQ(syscall(SYS_capset, &header, sets), 0);
}

class CapabilitiesTest : public NamespaceTest {};

TEST_F(CapabilitiesTest, MissingOnesAreNamed) {
  InNamespace([] {
    EXPECT_THAT(RequireCapabilities(kCapabilitiesAlways), IsOk());
    KeepOnly({});
    EXPECT_THAT(RequireCapabilities(kCapabilitiesAlways),
                FailsWith(absl::StatusCode::kPermissionDenied, "CAP_BPF (maps, loading programs), CAP_NET_ADMIN"));
    EXPECT_THAT(*MissingCapabilities(std::array{Capability::kSysAdmin}),
                ::testing::ElementsAre(::testing::StartsWith("CAP_SYS_ADMIN (mounting a bpffs")));
  });
}

TEST_F(CapabilitiesTest, TwoAreEnoughForEverythingButTheProgramsOnAMountedBpffs) {
  for (const Mechanism mechanism : {Mechanism::kTcx, Mechanism::kClsact}) {
    char directory[] = "/tmp/hedgerow-caps-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    InNamespace([&] {
      // Mounted by the system, not by us: we could not unmount it without CAP_SYS_ADMIN.
      ASSERT_EQ(mount("bpf", directory, "bpf", 0, nullptr), 0);
      if (mechanism == Mechanism::kTcx && !*TcxSupported()) return;
      KeepOnly(kCapabilitiesToClean);
      const auto pins = MakePinDir(directory, kInstance);
      ASSERT_THAT(pins.status(), IsOk());
      const auto pair = CreateVethPair({.name = "hr0", .peer_name = "hr0p", .instance = kInstance});
      ASSERT_THAT(pair.status(), IsOk());
      EXPECT_THAT(SetTxChecksumOffload("hr0", false), IsOk());
      EXPECT_THAT(InstallClockQdisc(pair->link.ifindex, {}), IsOk());
      const auto source = IpAddress::Parse("10.77.0.1");
      const auto vip = IpAddress::Parse("10.99.0.1");
      EXPECT_THAT(AddSourceAddress(pair->link.ifindex, *source), IsOk());
      EXPECT_THAT(AddVipRoute({.vip = *vip, .ifindex = pair->link.ifindex, .source = *source}), IsOk());
      const CountingProgram program("counts");
      const AttachSpec spec = {
          .ifindex = pair->link.ifindex, .mechanism = mechanism, .instance = kInstance, .role = "r", .pin_dir = *pins};
      {
        auto attachment = Attachment::Attach(spec, program.fd());
        ASSERT_THAT(attachment.status(), IsOk());
        ASSERT_THAT(attachment->Release(), IsOk());
      }
      auto adopted = Attachment::Adopt(spec);
      ASSERT_THAT(adopted.status(), IsOk());
      EXPECT_THAT(adopted->Release(), IsOk());
      const auto report = Clean(kInstance, directory);
      EXPECT_TRUE(report.failures.empty()) << report.failures.front();
      EXPECT_FALSE(report.removed.empty());
      EXPECT_TRUE(absl::IsNotFound(FindLink("hr0").status()));
    });
    EXPECT_EQ(rmdir(directory), 0);
  }
}

TEST_F(CapabilitiesTest, StackSlotsOfPointersAreReusedOnlyWithPerfmon) {
  // What clang does with a stack slot whose pointer is no longer needed, and the splitter's verifier log
  // showed.
  const std::vector<bpf_insn> code = {Store64(BPF_REG_10, BPF_REG_1, -8), MovImm(BPF_REG_2, 0),
                                      Store32(BPF_REG_10, BPF_REG_2, -8), MovImm(BPF_REG_0, TC_ACT_UNSPEC), Exit()};
  InNamespace([&] {
    const auto loads = [&] {
      return UniqueFd(bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "reuse", "GPL", code.data(), code.size(), nullptr))
          .valid();
    };
    KeepOnly(kCapabilitiesAlways);
    EXPECT_TRUE(loads());
    KeepOnly(kCapabilitiesToClean);
    EXPECT_FALSE(loads());
  });
}

TEST_F(CapabilitiesTest, WithoutNetAdminEverythingIsRefusedAndNothingStays) {
  InNamespace([] {
    constexpr std::array kBpfOnly = {Capability::kBpf};
    KeepOnly(kBpfOnly);
    EXPECT_TRUE(
        absl::IsPermissionDenied(CreateVethPair({.name = "hr0", .peer_name = "hr0p", .instance = kInstance}).status()));
    EXPECT_TRUE(absl::IsPermissionDenied(TcxSupported().status())) << TcxSupported().status();
    EXPECT_EQ(ListLinks()->size(), 1u);
  });
}

}  // namespace
}  // namespace hedgerow::net
