// SPDX-License-Identifier: Apache-2.0
//
// Attaching: both mechanisms keep the same promises, live beside foreign programs and filters, and leave
// nothing.
#include "net/tc/tc_attach.h"

#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "net/bpf_program_test.h"
#include "net/bpffs.h"
#include "net/netlink/link.h"
#include "net/namespace_test.h"

namespace hedgerow::net {
namespace {

constexpr char kInstance[] = "attach-test";

// Parameter: which mechanism.
class AttachTest : public NamespaceTest, public ::testing::WithParamInterface<Mechanism> {
 protected:
  // A veth pair (hr0 with the programs, hr0p to send from) and a pin folder on a bpffs of the test's own.
  void InHost(const std::function<void()>& body) {
    InNamespace([&] {
      if (GetParam() == Mechanism::kTcx && !*TcxSupported())
        GTEST_SKIP() << "this kernel has no TCX (it came with 6.6)";
      char directory[] = "/tmp/hedgerow-attach-test-XXXXXX";
      ASSERT_NE(mkdtemp(directory), nullptr);
      auto mount = EnsureBpffs(directory);
      ASSERT_THAT(mount.status(), IsOk());
      auto pins = MakePinDir(directory, kInstance);
      ASSERT_THAT(pins.status(), IsOk());
      pin_dir_ = *pins;
      const auto pair = CreateVethPair({.name = "hr0", .peer_name = "hr0p", .instance = kInstance});
      ASSERT_THAT(pair.status(), IsOk());
      ifindex_ = pair->link.ifindex;
      peer_ = pair->peer.ifindex;
      body();
      EXPECT_THAT(RemovePinDir(directory, kInstance), IsOk());
      EXPECT_THAT(ReleaseBpffs(directory).status(), IsOk());
      EXPECT_EQ(rmdir(directory), 0);
    });
  }
  AttachSpec Spec(Direction direction = Direction::kIngress, Order order = Order::kLast) const {
    return {.ifindex = ifindex_,
            .direction = direction,
            .order = order,
            .mechanism = GetParam(),
            .instance = kInstance,
            .role = "reply",
            .pin_dir = pin_dir_};
  }
  // Sends `count` frames that arrive at hr0 (ingress) or leave it (egress).
  void SendFrames(Direction direction, int count) const {
    UniqueFd fd(socket(AF_PACKET, SOCK_RAW, 0));
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_protocol = htons(ETH_P_ALL);
    to.sll_ifindex = ifindex_;
    const UniqueFd arriving(socket(AF_PACKET, SOCK_RAW, 0));
    ASSERT_EQ(bind(arriving.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    to.sll_protocol = 0;
    to.sll_ifindex = direction == Direction::kIngress ? peer_ : ifindex_;
    std::array<uint8_t, 60> frame{};
    frame.fill(0xff);
    frame[12] = 0x88;  // The EtherType for local experiments.
    frame[13] = 0xb5;
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(sendto(fd.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 60);
    }
    // Ingress runs in a soft interrupt, soon but not at once, and right after it has shown the frame to packet sockets.
    for (int shown = 0; shown < count;) {
      pollfd ready{.fd = arriving.get(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(poll(&ready, 1, 5'000), 1);
      std::array<uint8_t, 60> shown_frame{};
      const ssize_t bytes = recv(arriving.get(), shown_frame.data(), shown_frame.size(), 0);
      shown += bytes == 60 && shown_frame == frame;
    }
    usleep(10'000);
  }
  size_t PinCount() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(pin_dir_), {}));
  }
  // Nothing of ours on the hook, no qdisc of ours.
  void ExpectNothingLeft() const {
    EXPECT_EQ(*FindIngressQdisc(ifindex_), IngressQdisc::kNone);
    if (*TcxSupported()) {
      EXPECT_TRUE(ListTcx(ifindex_, Direction::kIngress)->empty());
    }
    EXPECT_EQ(PinCount(), 0u);
  }

  int ifindex_ = 0;
  int peer_ = 0;
  std::string pin_dir_;
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, AttachTest, ::testing::Values(Mechanism::kTcx, Mechanism::kClsact),
                         [](const auto& info) { return info.param == Mechanism::kTcx ? "tcx" : "clsact"; });

// TCX makes no qdisc: these are about ours.
class ClsactQdiscTest : public AttachTest {};
INSTANTIATE_TEST_SUITE_P(Mechanisms, ClsactQdiscTest, ::testing::Values(Mechanism::kClsact),
                         [](const auto&) { return "clsact"; });

TEST_P(AttachTest, ProgramSeesPacketsUntilItIsDetached) {
  InHost([&] {
    for (const Direction direction : {Direction::kIngress, Direction::kEgress}) {
      const CountingProgram program("counts");
      auto attachment = Attachment::Attach(Spec(direction), program.fd());
      ASSERT_THAT(attachment.status(), IsOk());
      EXPECT_EQ(attachment->mechanism(), GetParam());
      SendFrames(direction, 5);
      EXPECT_EQ(program.count(), 5u) << attachment->ToString();
      EXPECT_THAT(attachment->Detach(), IsOk());
      EXPECT_THAT(attachment->Detach(), IsOk()) << "detaching twice is fine";
      SendFrames(direction, 5);
      EXPECT_EQ(program.count(), 5u);
      ExpectNothingLeft();
    }
  });
}

TEST_P(AttachTest, DestructionDetachesAndMovingDoesNot) {
  InHost([&] {
    const CountingProgram program("counts");
    {
      auto attachment = Attachment::Attach(Spec(), program.fd());
      ASSERT_THAT(attachment.status(), IsOk());
      Attachment moved = std::move(*attachment);
      Attachment again = std::move(moved);
      SendFrames(Direction::kIngress, 3);
    }
    EXPECT_EQ(program.count(), 3u);
    SendFrames(Direction::kIngress, 3);
    EXPECT_EQ(program.count(), 3u);
    ExpectNothingLeft();
  });
}

TEST_P(AttachTest, ReleasedProgramLivesOnAndIsAdopted) {
  InHost([&] {
    const CountingProgram program("counts");
    {
      auto attachment = Attachment::Attach(Spec(), program.fd());
      ASSERT_THAT(attachment.status(), IsOk());
      ASSERT_THAT(attachment->Release(), IsOk());
    }
    SendFrames(Direction::kIngress, 4);
    EXPECT_EQ(program.count(), 4u);
    EXPECT_THAT(Attachment::Attach(Spec(), program.fd()).status(), FailsWith(absl::StatusCode::kAlreadyExists, ""));
    auto adopted = Attachment::Adopt(Spec());
    ASSERT_THAT(adopted.status(), IsOk());
    const CountingProgram successor("successor");
    ASSERT_THAT(adopted->Replace(successor.fd()), IsOk());
    SendFrames(Direction::kIngress, 2);
    EXPECT_EQ(program.count(), 4u);
    EXPECT_EQ(successor.count(), 2u);
    EXPECT_THAT(adopted->Detach(), IsOk());
    SendFrames(Direction::kIngress, 2);
    EXPECT_EQ(successor.count(), 2u);
    ExpectNothingLeft();
    EXPECT_TRUE(absl::IsNotFound(Attachment::Adopt(Spec()).status())) << Attachment::Adopt(Spec()).status();
  });
}

TEST_P(AttachTest, SecondAttachOfTheSameRoleNamesTheConflict) {
  InHost([&] {
    const CountingProgram first("first");
    const CountingProgram second("second");
    auto attachment = Attachment::Attach(Spec(), first.fd());
    ASSERT_THAT(attachment.status(), IsOk());
    const absl::Status conflict = Attachment::Attach(Spec(), second.fd()).status();
    EXPECT_THAT(conflict, FailsWith(absl::StatusCode::kAlreadyExists,
                                    GetParam() == Mechanism::kTcx ? "attach-test" : "hedgerow:attach-test:reply"));
    SendFrames(Direction::kIngress, 2);
    EXPECT_EQ(first.count(), 2u) << "the loser must not take the winner down";
    // Another instance is no conflict.
    AttachSpec other = Spec();
    other.instance = "other";
    other.role = "reply-of-other";
    auto beside = Attachment::Attach(other, second.fd());
    ASSERT_THAT(beside.status(), IsOk());
    SendFrames(Direction::kIngress, 2);
    EXPECT_EQ(first.count(), 4u);
    EXPECT_EQ(second.count(), 2u);
  });
}

TEST_P(AttachTest, OrderIsKept) {
  InHost([&] {
    // The foreign program consumes everything, so that only those before it see a packet.
    const CountingProgram foreign("foreign", TC_ACT_SHOT);
    AttachSpec foreign_spec = Spec();
    foreign_spec.instance = "foreign";
    foreign_spec.role = "foreign";
    auto middle = Attachment::Attach(foreign_spec, foreign.fd());
    ASSERT_THAT(middle.status(), IsOk());
    const CountingProgram ours("ours");
    {
      auto first = Attachment::Attach(Spec(Direction::kIngress, Order::kFirst), ours.fd());
      ASSERT_THAT(first.status(), IsOk());
      SendFrames(Direction::kIngress, 3);
      EXPECT_EQ(ours.count(), 3u);
    }
    if (GetParam() == Mechanism::kClsact) return;  // Two filters of one priority have no stated order.
    auto last = Attachment::Attach(Spec(Direction::kIngress, Order::kLast), ours.fd());
    ASSERT_THAT(last.status(), IsOk());
    SendFrames(Direction::kIngress, 3);
    EXPECT_EQ(ours.count(), 3u);
    EXPECT_EQ(foreign.count(), 6u);
    const auto programs = ListTcx(ifindex_, Direction::kIngress);
    ASSERT_THAT(programs.status(), IsOk());
    ASSERT_EQ(programs->size(), 2u);
    EXPECT_EQ(programs->at(0).name, "foreign");
    EXPECT_EQ(programs->at(1).name, "ours");
  });
}

TEST_P(AttachTest, ForeignFilterKeepsItsQdiscAndItsPlace) {
  InHost([&] {
    ASSERT_EQ(Shell("tc qdisc add dev hr0 clsact"), 0);
    ASSERT_EQ(Shell("tc filter add dev hr0 ingress prio 100 bpf bytecode '1,6 0 0 0'"), 0);
    const CountingProgram program("counts");
    {
      auto attachment = Attachment::Attach(Spec(Direction::kIngress, Order::kFirst), program.fd());
      ASSERT_THAT(attachment.status(), IsOk());
      SendFrames(Direction::kIngress, 3);
      EXPECT_EQ(program.count(), 3u);
      ASSERT_THAT(attachment->Detach(), IsOk());
    }
    EXPECT_EQ(*FindIngressQdisc(ifindex_), IngressQdisc::kClsact) << "a qdisc we did not make was removed";
    EXPECT_EQ(Shell("tc filter show dev hr0 ingress | grep -q 'pref 100 bpf'"), 0);
    EXPECT_EQ(PinCount(), 0u);
  });
}

TEST_P(ClsactQdiscTest, ForeignFilterOnOurQdiscOutlivesUs) {
  InHost([&] {
    const CountingProgram program("counts");
    auto attachment = Attachment::Attach(Spec(), program.fd());
    ASSERT_THAT(attachment.status(), IsOk());
    EXPECT_EQ(PinCount(), 1u) << "the marker that says: we made the qdisc";
    ASSERT_EQ(Shell("tc filter add dev hr0 egress prio 100 bpf bytecode '1,6 0 0 0'"), 0);
    ASSERT_THAT(attachment->Detach(), IsOk());
    EXPECT_EQ(*FindIngressQdisc(ifindex_), IngressQdisc::kClsact);
    EXPECT_EQ(Shell("tc filter show dev hr0 egress | grep -q 'pref 100 bpf'"), 0);
    EXPECT_EQ(PinCount(), 0u);
  });
}

TEST_P(ClsactQdiscTest, LastOfTwoRolesRemovesTheQdisc) {
  InHost([&] {
    const CountingProgram program("counts");
    auto ingress = Attachment::Attach(Spec(), program.fd());
    ASSERT_THAT(ingress.status(), IsOk());
    AttachSpec splitter = Spec(Direction::kEgress);
    splitter.role = "splitter";
    auto egress = Attachment::Attach(splitter, program.fd());
    ASSERT_THAT(egress.status(), IsOk());
    ASSERT_THAT(ingress->Detach(), IsOk());
    EXPECT_EQ(*FindIngressQdisc(ifindex_), IngressQdisc::kClsact);
    ASSERT_THAT(egress->Detach(), IsOk());
    ExpectNothingLeft();
  });
}

TEST_P(ClsactQdiscTest, IngressQdiscExcludesTheClsactEgressHookAndSaysSo) {
  InHost([&] {
    ASSERT_EQ(Shell("tc qdisc add dev hr0 ingress"), 0);
    const CountingProgram program("counts");
    EXPECT_THAT(Attachment::Attach(Spec(Direction::kEgress), program.fd()).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, "excludes clsact"));
    {
      auto attachment = Attachment::Attach(Spec(Direction::kIngress), program.fd());
      ASSERT_THAT(attachment.status(), IsOk());
      SendFrames(Direction::kIngress, 3);
      EXPECT_EQ(program.count(), 3u);
    }
    EXPECT_EQ(*FindIngressQdisc(ifindex_), IngressQdisc::kIngressOnly);
  });
}

TEST_P(AttachTest, BadTargetsAreErrorsAndLeaveNothing) {
  InHost([&] {
    const CountingProgram program("counts");
    EXPECT_FALSE(Attachment::Attach(Spec(), -1).ok());
    ExpectNothingLeft();
    AttachSpec nowhere = Spec();
    nowhere.ifindex = 4711;
    EXPECT_FALSE(Attachment::Attach(nowhere, program.fd()).ok());
    EXPECT_EQ(PinCount(), 0u);
    AttachSpec no_folder = Spec();
    no_folder.pin_dir = pin_dir_ + "/nosuch";
    EXPECT_FALSE(Attachment::Attach(no_folder, program.fd()).ok());
    ExpectNothingLeft();
  });
}

TEST_P(AttachTest, VanishedInterfaceIsNoErrorOnDetach) {
  InHost([&] {
    const CountingProgram program("counts");
    auto attachment = Attachment::Attach(Spec(), program.fd());
    ASSERT_THAT(attachment.status(), IsOk());
    ASSERT_EQ(Shell("ip link del hr0"), 0);
    if (GetParam() == Mechanism::kTcx) {
      EXPECT_TRUE(absl::IsNotFound(Attachment::Adopt(Spec()).status())) << Attachment::Adopt(Spec()).status();
    }
    EXPECT_THAT(attachment->Detach(), IsOk());
    EXPECT_EQ(PinCount(), 0u);
  });
}

TEST_P(AttachTest, ALinkThatCannotBeDescribedIsNoneThatIsGone) {
  if (GetParam() != Mechanism::kTcx) return;  // a filter is no link
  InHost([&] {
    const CountingProgram program("counts");
    const auto link = TcxLink::Attach(program.fd(), ifindex_, Direction::kIngress, Order::kLast);
    ASSERT_THAT(link.status(), IsOk());
    ASSERT_EQ(mount("none", "/proc", "tmpfs", 0, nullptr), 0);
    const absl::Status described = link->Info().status();
    ASSERT_EQ(umount("/proc"), 0);
    EXPECT_THAT(described, FailsWith(absl::StatusCode::kInternal, "describe a BPF link"));
  });
}

TEST(TcAttachTest, UnpinnedTcxLinkCannotBeReleased) {
  const absl::Status status = RunInNewNetworkNamespace([&]() -> absl::Status {
    if (!*TcxSupported()) return absl::OkStatus();
    const CountingProgram program("counts");
    auto attachment = Attachment::Attach(
        {.ifindex = 1, .mechanism = Mechanism::kTcx, .instance = kInstance, .role = "r", .pin_dir = ""}, program.fd());
    EXPECT_THAT(attachment.status(), IsOk());
    EXPECT_THAT(attachment->Release(), FailsWith(absl::StatusCode::kFailedPrecondition, "unpinned"));
    return attachment->Detach();
  });
  if (absl::IsPermissionDenied(status)) GTEST_SKIP() << "needs root: " << status;
  EXPECT_THAT(status, IsOk());
}

TEST(TcAttachTest, MarkerNamesRoundTrip) {
  EXPECT_EQ(ClsactMarkerIfindex("clsact-made-17"), 17);
  for (const char* other : {"clsact-made-", "clsact-made-x", "clsact-made--1", "tc-reply-ingress-17", ""}) {
    EXPECT_EQ(ClsactMarkerIfindex(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace hedgerow::net
