// SPDX-License-Identifier: Apache-2.0
//
// The probe against an independent witness: what it says of a qdisc is what `tc` meets.
#include "net/kernel_probe.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>

#include "net/netlink/link.h"
#include "net/namespace_test.h"

namespace hedgerow::net {
namespace {

class KernelProbeTest : public NamespaceTest {};

TEST(KernelVersionTest, ParsesAndRefuses) {
  EXPECT_EQ(*ParseKernelVersion("6.1.0-25-amd64"), 6001);
  EXPECT_EQ(*ParseKernelVersion("6.18.44"), 6018);
  EXPECT_EQ(*ParseKernelVersion("5.15"), 5015);
  for (const char* bad : {"", "six", "6", "6.", "6.x", ".1", "-6.1", "99999999999.1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseKernelVersion(bad).status())) << bad;
  }
}

TEST_F(KernelProbeTest, AgreesWithTheSystemsTools) {
  InNamespace([] {
    std::map<std::string, ProbeResult> results;
    for (const ProbeResult& result : ProbeKernel()) {
      std::printf("%-8s %-8s %s; %s\n", result.name.c_str(), std::string(ToString(result.found)).c_str(),
                  result.offers.c_str(), result.detail.c_str());
      results[result.name] = result;
    }
    ASSERT_EQ(results.size(), 7u);
    EXPECT_EQ(results["kernel"].found, Found::kYes);
    EXPECT_EQ(results["jit"].found, Found::kYes);
    EXPECT_EQ(results["btf"].found == Found::kYes, Shell("test -r /sys/kernel/btf/vmlinux") == 0);
    ASSERT_EQ(Shell("ip link add try0 type veth peer name try1"), 0);
    for (const auto& [kind, command] :
         {std::pair("htb", "tc qdisc add dev try0 root handle 1: htb 2>/dev/null && tc qdisc del dev try0 root"),
          std::pair("fq", "tc qdisc add dev try0 root handle 1: fq 2>/dev/null && tc qdisc del dev try0 root"),
          std::pair("clsact", "tc qdisc add dev try0 clsact 2>/dev/null")}) {
      const Found expected = Shell(command) == 0 ? Found::kYes : Found::kNo;
      EXPECT_EQ(results[kind].found, expected) << kind << ": " << results[kind].detail;
      EXPECT_EQ(results[kind].detail.empty(), expected == Found::kYes) << kind;
    }
    EXPECT_EQ(ListLinks()->size(), 3u) << "the probe left an interface";
  });
}

TEST_F(KernelProbeTest, WithoutPrivilegeItSaysUnknownAndWhy) {
  InNamespace([] {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
    ASSERT_EQ(syscall(SYS_capset, &header, none), 0);
    for (const ProbeResult& result : ProbeKernel()) {
      if (result.name == "kernel" || result.name == "btf") continue;
      EXPECT_EQ(result.found, Found::kUnknown) << result.name;
      EXPECT_FALSE(result.detail.empty()) << result.name;
    }
  });
}

}  // namespace
}  // namespace hedgerow::net
