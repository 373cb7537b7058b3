// SPDX-License-Identifier: Apache-2.0
//
// Pins and their adoption after a SIGKILL, what is not adopted, and the members' MACs by netlink. The programs
// themselves are tested in bpf/tests/node.
#include "cluster/offload/bpf_kernel.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <poll.h>
#include <dlfcn.h>
#include <linux/bpf.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "bpf/tests/node/node_fixture.h"
#include "cluster/offload/neighbours.h"
#include "net/bpffs.h"
#include "net/namespace_test.h"

namespace {

// The kernel's verifier, as strict as a test wants it: libbpf calls this one, not the C library's.
std::set<std::string>& RefusedPrograms() {
  static auto* const names = new std::set<std::string>();
  return *names;
}

// So many runs of a program find no memory.
int runs_without_memory = 0;

}  // namespace

extern "C" long syscall(long number, ...) noexcept {
  using Syscall = long (*)(long, ...);
  static const auto next = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_bpf && arguments[0] == BPF_PROG_LOAD) {
    const auto* const attributes = reinterpret_cast<const bpf_attr*>(arguments[1]);
    if (RefusedPrograms().count(attributes->prog_name) != 0) {
      errno = EACCES;
      return -1;
    }
  }
  if (number == SYS_bpf && arguments[0] == BPF_PROG_TEST_RUN && runs_without_memory > 0) {
    --runs_without_memory;
    errno = ENOMEM;
    return -1;
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

namespace hedgerow::offload {
namespace {

using net::IsOk;
using packets::kOwnIncarnation;
using packets::kSelf;

constexpr char kInstance[] = "kern-test";

class BpfKernelTest : public net::NamespaceTest {
 protected:
  // In a namespace of its own, with an empty bpffs.
  void WithBpffs(const std::function<void()>& body) {
    InNamespace([&] {
      ASSERT_EQ(mount("kern", net::kDefaultBpffs, "bpf", 0, nullptr), 0) << strerror(errno);
      body();
    });
  }
  static BpfKernelOptions Options() {
    const hr_node_config config = packets::NodeConfig(false);
    return {.cluster_id = config.cluster_id,
            .keys = {packets::NodeKey()},
            .self = config.self,
            .address = config.address,
            .port = packets::kPeerPort,
            .instance = kInstance,
            .pin = true};
  }
  static std::unique_ptr<BpfKernel> MustOpen(const BpfKernelOptions& options = Options()) {
    auto kernel = BpfKernel::Open(options);
    EXPECT_THAT(kernel.status(), IsOk());
    return kernel.ok() ? *std::move(kernel) : nullptr;
  }
  static absl::Status CheckPins() {
    return BpfKernel::CheckPins(net::kDefaultBpffs, kInstance, packets::kNodeCluster, kSelf);
  }
  static void Begin(BpfKernel& kernel) {
    kernel.SetMember(1, packets::MemberOf(packets::kLeader, false));
    kernel.SetIncarnation(1, packets::IncarnationOf(packets::kLeader), 0);
    hr_node_control request{};
    request.operation = HR_NODE_ADOPT;
    request.incarnation = kOwnIncarnation;
    kernel.Control(request);
    request.operation = HR_NODE_OPEN;
    request.shared = packets::FollowerShared(packets::MonotonicNs());
    kernel.Control(request);
    ASSERT_EQ(request.result, uint32_t{HR_NODE_DONE});
  }
};

TEST_F(BpfKernelTest, WhatWasAcceptedSurvivesASigkill) {
  WithBpffs([&] {
    constexpr int kEntries = 20, kReleased = 5;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto kernel = MustOpen();
      if (kernel == nullptr || kernel->adopted()) _exit(1);
      Begin(*kernel);
      auto node = packets::LoadedNode::Of(std::move(kernel));
      for (int i = 0; i < kEntries; ++i) {
        const packets::Bytes body = packets::AppendBody(packets::kLastIndex + i, packets::kTerm, packets::kTerm, {64});
        const auto header = packets::PeerHead(HR_PEER_APPEND, packets::kLeader, i + 1);
        if (node->Xdp(packets::PeerFrame(packets::kLeader, packets::SealPeer(header, body), false)).action != XDP_TX)
          _exit(2);
      }
      const auto records = node->TakeAll();
      node->kernel().Release(records[kReleased - 1].end);
      node->kernel().DrawPacketNumber();
      raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);

    const auto kernel = MustOpen();
    ASSERT_NE(kernel, nullptr);
    EXPECT_TRUE(kernel->adopted());
    hr_node_control adopt{};
    adopt.operation = HR_NODE_ADOPT;
    adopt.incarnation = kOwnIncarnation + 1;
    kernel->Control(adopt);
    EXPECT_EQ(adopt.shared.capabilities, 0u);
    EXPECT_EQ(adopt.shared.raft.last_index, packets::kLastIndex + kEntries);
    std::vector<RingRecord> records;
    kernel->Take(kernel->ProducerPosition(), true, records);
    ASSERT_EQ(records.size(), size_t{kEntries - kReleased});
    EXPECT_EQ(records.front().head.last_index, packets::kLastIndex + kReleased + 1);
    EXPECT_EQ(records.back().head.last_index, packets::kLastIndex + kEntries);
    EXPECT_EQ(kernel->DrawPacketNumber(), uint64_t{kEntries} + 2);
    EXPECT_THAT(BpfKernel::RemovePins(net::kDefaultBpffs, kInstance), IsOk());
  });
}

TEST_F(BpfKernelTest, MapsOfAnotherLayoutNodeOrClusterAreRefused) {
  WithBpffs([&] {
    ASSERT_NE(MustOpen(), nullptr);
    EXPECT_THAT(CheckPins(), IsOk());
    EXPECT_THAT(BpfKernel::CheckPins(net::kDefaultBpffs, kInstance, packets::kNodeCluster, kSelf + 1),
                net::FailsWith(absl::StatusCode::kFailedPrecondition, "are of node 1"));
    BpfKernelOptions other = Options();
    other.self = kSelf + 1;
    EXPECT_THAT(BpfKernel::Open(other).status(),
                net::FailsWith(absl::StatusCode::kFailedPrecondition, "are of node 1"));
    other = Options();
    other.cluster_id += 1;
    EXPECT_THAT(BpfKernel::Open(other).status(),
                net::FailsWith(absl::StatusCode::kFailedPrecondition, "of cluster 77"));
    const net::UniqueFd about(bpf_obj_get(absl::StrCat(net::PinDir(net::kDefaultBpffs, kInstance), "/about").c_str()));
    const hr_node_about newer = {
        .abi_version = HR_NODE_ABI_VERSION + 1, .self = kSelf, .cluster_id = packets::kNodeCluster};
    const uint32_t zero = 0;
    ASSERT_EQ(bpf_map_update_elem(about.get(), &zero, &newer, BPF_ANY), 0);
    const auto fails =
        net::FailsWith(absl::StatusCode::kFailedPrecondition, absl::StrCat("layout ", HR_NODE_ABI_VERSION + 1));
    EXPECT_THAT(BpfKernel::Open(Options()).status(), fails);
    EXPECT_THAT(CheckPins(), fails) << "it can be asked before anything is changed";
  });
}

// One program of several: what it would do is off and says why, the rest goes on.
TEST_F(BpfKernelTest, ARefusedProgramCostsItsOwnOffloadAlone) {
  WithBpffs([&] {
    ASSERT_EQ(Shell("ip link add up0 type veth peer name wire0; ip addr add 10.78.0.1/24 dev up0;"
                    "ip link set up0 up; ip link set wire0 up"),
              0);
    for (const std::string refused : {"hr_node_xdp", "hr_node_broadca", "hr_node_control"}) {  // cut to 15 characters
      RefusedPrograms() = {refused};
      const auto kernel = BpfKernel::Open(Options());
      RefusedPrograms().clear();
      if (refused == "hr_node_control") {
        EXPECT_THAT(kernel.status(), net::FailsWith(absl::StatusCode::kPermissionDenied, "refused"));
        continue;
      }
      ASSERT_THAT(kernel.status(), IsOk());
      (*kernel)->Attach({});
      const bool no_xdp = refused == "hr_node_xdp";
      const HookStatus off = no_xdp ? (*kernel)->Xdp() : (*kernel)->Broadcast();
      const HookStatus on = no_xdp ? (*kernel)->Broadcast() : (*kernel)->Xdp();
      EXPECT_FALSE(off.on);
      EXPECT_THAT(off.detail, testing::HasSubstr("the kernel refused"));
      EXPECT_TRUE(on.on) << on.detail;
      Begin(**kernel);
    }
  });
}

TEST_F(BpfKernelTest, HalfMadePinsAreMadeAnew) {
  WithBpffs([&] {
    ASSERT_NE(MustOpen(), nullptr);
    const std::string about = absl::StrCat(net::PinDir(net::kDefaultBpffs, kInstance), "/about");
    ASSERT_TRUE(std::filesystem::remove(about));
    const auto kernel = MustOpen();
    ASSERT_NE(kernel, nullptr);
    EXPECT_FALSE(kernel->adopted());
    EXPECT_TRUE(std::filesystem::exists(about));
  });
}

// However often it is tried, and whatever becomes of the process before it has noted that it is lost.
TEST_F(BpfKernelTest, WhereSomethingIsOwedNothingIsPinnedAnew) {
  WithBpffs([&] {
    BpfKernelOptions owing = Options();
    owing.must_adopt = true;
    for (int start = 0; start < 2; ++start) {
      EXPECT_TRUE(absl::IsDataLoss(BpfKernel::Open(owing).status()));
      EXPECT_FALSE(BpfKernel::HasPins(net::kDefaultBpffs, kInstance));
    }
    ASSERT_NE(MustOpen(), nullptr);
    const auto kernel = MustOpen(owing);
    ASSERT_NE(kernel, nullptr);
    EXPECT_TRUE(kernel->adopted());
  });
}

TEST_F(BpfKernelTest, ARequestWaitsAsLongAsTheHostHasNoMemoryForIt) {
  WithBpffs([&] {
    const auto kernel = MustOpen();
    ASSERT_NE(kernel, nullptr);
    runs_without_memory = 1200;
    Begin(*kernel);
    EXPECT_EQ(runs_without_memory, 0);
  });
}

TEST_F(BpfKernelTest, PinsThatAreClearedWhileItRunsAreMadeAgain) {
  WithBpffs([&] {
    {
      const auto kernel = MustOpen();
      ASSERT_NE(kernel, nullptr);
      Begin(*kernel);
      EXPECT_FALSE(kernel->KeepPins().value()) << "they are there";
      ASSERT_THAT(BpfKernel::RemovePins(net::kDefaultBpffs, kInstance), IsOk());
      EXPECT_TRUE(kernel->KeepPins().value());
      EXPECT_FALSE(kernel->KeepPins().value());
    }
    BpfKernelOptions owed = Options();
    owed.must_adopt = true;
    const auto next = MustOpen(owed);
    ASSERT_NE(next, nullptr);
    hr_node_control request{.operation = HR_NODE_READ};
    next->Control(request);
    EXPECT_EQ(request.shared.incarnation, kOwnIncarnation) << "the very maps of before";
  });
}

TEST_F(BpfKernelTest, ABpffsIsMountedWhereThereIsNone) {
  InNamespace([&] {
    BpfKernelOptions options = Options();
    options.bpffs = "/tmp/kern-bpffs";
    std::filesystem::create_directories(options.bpffs);
    ASSERT_NE(MustOpen(options), nullptr);
    EXPECT_TRUE(MustOpen(options)->adopted());
    EXPECT_THAT(BpfKernel::RemovePins(options.bpffs, kInstance), IsOk());
    EXPECT_THAT(net::ReleaseBpffs(options.bpffs).status(), IsOk());
    std::filesystem::remove(options.bpffs);
  });
}

TEST_F(BpfKernelTest, TheMembersMacsFollowTheNeighbours) {
  InNamespace([&] {
    ASSERT_EQ(Shell("ip link add up0 type veth peer name wire0; ip link set up0 up; ip link set wire0 up;"
                    "ip addr add 10.78.0.1/24 dev up0; ip route add 10.99.0.0/16 via 10.78.0.9"),
              0);
    BpfKernelOptions options = Options();
    options.pin = false;
    const auto kernel = MustOpen(options);
    ASSERT_NE(kernel, nullptr);
    auto neighbours = Neighbours::Open(*kernel);
    ASSERT_THAT(neighbours.status(), IsOk());
    hr_address far{};
    far.words[2] = htonl(0xffff);
    far.words[3] = htonl(0x0a630001);  // 10.99.0.1, behind 10.78.0.9
    neighbours->SetMember(0, 1, packets::MemberOf(1, false).address, packets::kPeerPort);
    neighbours->SetMember(1, 2, packets::MemberOf(2, false).address, packets::kPeerPort);
    neighbours->SetMember(2, 3, far, packets::kPeerPort);
    ASSERT_THAT(neighbours->Refresh(), IsOk());
    EXPECT_EQ(kernel->Reachable(), 0u);
    EXPECT_EQ(Shell("ip neigh show 10.78.0.2 dev up0 | grep -q INCOMPLETE"), 0) << "nobody asked for it";
    ASSERT_EQ(Shell("ip neigh replace 10.78.0.2 lladdr 02:00:00:00:00:22 dev up0;"
                    "ip neigh replace 10.78.0.9 lladdr 02:00:00:00:00:99 dev up0"),
              0);
    pollfd events{.fd = neighbours->events(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&events, 1, 2000), 1);
    ASSERT_THAT(neighbours->Refresh(), IsOk());
    EXPECT_EQ(kernel->Reachable(), 0b110u);
    EXPECT_EQ(kernel->Member(1).mac[5], 0x22);
    EXPECT_EQ(kernel->Member(2).mac[5], 0x99);
    EXPECT_EQ(kernel->Member(1).ifindex, kernel->Member(2).ifindex);
    ASSERT_EQ(Shell("ip neigh del 10.78.0.2 dev up0"), 0);
    ASSERT_THAT(neighbours->Refresh(), IsOk());
    EXPECT_EQ(kernel->Reachable(), 0b100u);
  });
}

}  // namespace
}  // namespace hedgerow::offload
