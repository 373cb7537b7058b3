// SPDX-License-Identifier: Apache-2.0
//
// A group's sockets, programs and pins through starts, ends, takeovers and wrong use, with real sockets.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "net/bpf_program_test.h"
#include "net/bpffs.h"
#include "steer/group_sockets_test.h"
#include "steer/table.h"

namespace hedgerow::steer {
namespace {

using net::FailsWith;
using net::IsOk;
using net::UniqueFd;

constexpr int kSlots = 4;

class GroupLife : public GroupTest {
 protected:
  std::string PinPath(const std::string& pin = "") const {
    return bpffs() + "/hedgerow-steer/test" + (pin.empty() ? "" : "/" + pin);
  }
};

// Loads any SK_REUSEPORT program that lets the kernel choose.
UniqueFd ForeignProgram() {
  const bpf_insn code[] = {net::MovImm(BPF_REG_0, SK_PASS), net::Exit()};
  UniqueFd fd(bpf_prog_load(BPF_PROG_TYPE_SK_REUSEPORT, "foreign", "GPL", code, 2, nullptr));
  EXPECT_TRUE(fd.valid()) << strerror(errno);
  return fd;
}

uint32_t IdOf(int program) {
  bpf_prog_info info{};
  uint32_t bytes = sizeof(info);
  EXPECT_EQ(bpf_obj_get_info_by_fd(program, &info, &bytes), 0);
  return info.id;
}

TEST_F(GroupLife, ASlotTakesOneSocketOfEachTransport) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, 2);
    UniqueFd fd = GroupSocket(Transport::kUdp, kAny4);
    EXPECT_THAT(group->Insert(Transport::kUdp, 3, fd.get()),
                FailsWith(absl::StatusCode::kInvalidArgument, "slot 3: the UDP socket is not bound"));
    BindAndListen(Transport::kUdp, fd.get(), kAny4);
    EXPECT_THAT(group->Insert(Transport::kUdp, 1, fd.get()),
                FailsWith(absl::StatusCode::kAlreadyExists, "slot 1: it has a UDP socket already"));
    EXPECT_THAT(group->Insert(Transport::kTcp, 3, fd.get()),
                FailsWith(absl::StatusCode::kInvalidArgument, "not a TCP socket"));
    EXPECT_THAT(group->Insert(Transport::kUdp, HR_STEER_PLACES, fd.get()),
                FailsWith(absl::StatusCode::kInvalidArgument, "place 4096 of 4096"));
    EXPECT_THAT(group->Insert(Transport::kUdp, -1, fd.get()),
                FailsWith(absl::StatusCode::kInvalidArgument, "place -1"));
    EXPECT_THAT(group->Insert(Transport::kUdp, 3, fd.get()), IsOk());
    EXPECT_THAT(group->Insert(Transport::kUdp, 2, fd.get()),
                FailsWith(absl::StatusCode::kFailedPrecondition, "is in another group"));
    UniqueFd deaf = GroupSocket(Transport::kTcp, kAny4);
    EXPECT_THAT(group->Insert(Transport::kTcp, 3, deaf.get()),
                FailsWith(absl::StatusCode::kInvalidArgument, "does not listen"));
    EXPECT_NE(*group->CookieOf(Transport::kUdp, 3), 0u);
    EXPECT_EQ(*group->CookieOf(Transport::kUdp, 2), 0u);
    fd.Reset();
    EXPECT_EQ(*group->CookieOf(Transport::kUdp, 3), 0u) << "the socket has closed";
    UniqueFd plain(socket(AF_INET, SOCK_DGRAM, 0));
    EXPECT_THAT(group->Attach(Transport::kUdp, plain.get()),
                FailsWith(absl::StatusCode::kInvalidArgument, "SO_REUSEPORT first"));
  });
}

// Sources send all the time while groups are made, their sockets bound and inserted in any order, and removed.
TEST_F(GroupLife, NoDatagramReachesAnotherSlotWhileAGroupStarts) {
  InGroupNamespace([&] {
    constexpr int kSources = 8, kStarts = 30;
    std::vector<UniqueFd> clients;
    for (int i = 0; i < kSources; ++i) clients.push_back(UdpClient(Source4(i), 4000, kTarget4));
    std::atomic<bool> stop = false;
    std::thread sender([&] {  // of this namespace: the sockets are
      while (!stop) {
        for (const UniqueFd& client : clients) send(client.get(), "x", 1, 0);
      }
    });
    const uint64_t seed = std::random_device()();
    std::mt19937_64 random(seed);
    int received = 0;
    for (int start = 0; start < kStarts; ++start) {
      const auto group = MakeGroup(SpecOf(kSlots));
      if (group == nullptr) break;
      std::map<std::string, int> slot_of;
      for (int i = 0; i < kSources; ++i) slot_of[Source4(i)] = Explained(*group, Source4(i)).slot;
      std::vector<int> order = {0, 1, 2, 3};
      std::shuffle(order.begin(), order.end(), random);
      std::vector<UniqueFd> sockets(kSlots);
      for (const int slot : order) {
        sockets[static_cast<size_t>(slot)] = GroupSocket(Transport::kUdp, kAny4);
        if (slot == order[0])
          EXPECT_THAT(group->Attach(Transport::kUdp, sockets[static_cast<size_t>(slot)].get()), IsOk());
        BindAndListen(Transport::kUdp, sockets[static_cast<size_t>(slot)].get(), kAny4);
        usleep(300);
        char byte = 0;
        EXPECT_LT(recv(sockets[static_cast<size_t>(slot)].get(), &byte, 1, 0), 0) << "before it is inserted";
        EXPECT_THAT(group->Insert(Transport::kUdp, slot, sockets[static_cast<size_t>(slot)].get()), IsOk());
      }
      usleep(2000);
      for (int slot = 0; slot < kSlots; ++slot) {
        sockaddr_in from{};
        socklen_t bytes = sizeof(from);
        char byte = 0;
        while (recvfrom(sockets[static_cast<size_t>(slot)].get(), &byte, 1, 0, reinterpret_cast<sockaddr*>(&from),
                        &bytes) >= 0) {
          ++received;
          char text[INET_ADDRSTRLEN];
          EXPECT_EQ(slot_of.at(inet_ntop(AF_INET, &from.sin_addr, text, sizeof(text))), slot)
              << "seed " << seed << ", start " << start;
        }
      }
      EXPECT_THAT(KernelGroup::Remove(bpffs(), "test"), IsOk());
    }
    stop = true;
    sender.join();
    EXPECT_GT(received, kStarts * kSources);
  });
}

TEST_F(GroupLife, AForeignProgramOfTheGroupIsFound) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, kSlots);
    for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
      EXPECT_NE(group->OwnProgram(transport), 0u);
      for (int slot = 0; slot < kSlots; ++slot)
        EXPECT_EQ(*group->ProgramOf(sockets.socket(transport, slot)), group->OwnProgram(transport));

      // Another process of the user binds the same port and attaches a program of its own: the whole group has
      // that now.
      const UniqueFd stranger = GroupSocket(transport, kAny4);
      BindAndListen(transport, stranger.get(), kAny4);
      EXPECT_EQ(*group->ProgramOf(sockets.socket(transport, 0)), group->OwnProgram(transport))
          << "to bind changes nothing";
      EXPECT_TRUE(group->ClassicFilterOf(sockets.socket(transport, 0))->empty()) << "ours is none";
      const UniqueFd foreign = ForeignProgram();
      const int fd = foreign.get();
      ASSERT_EQ(setsockopt(stranger.get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &fd, sizeof(fd)), 0)
          << strerror(errno);
      EXPECT_EQ(*group->ProgramOf(sockets.socket(transport, 0)), IdOf(fd));

      sock_filter first = {BPF_RET | BPF_K, 0, 0, 0};
      const sock_fprog classic = {1, &first};
      ASSERT_EQ(setsockopt(stranger.get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &classic, sizeof(classic)), 0)
          << strerror(errno);
      EXPECT_EQ(*group->ProgramOf(sockets.socket(transport, 0)), HR_STEER_CLASSIC_PROGRAM);
      EXPECT_THAT(*group->ClassicFilterOf(sockets.socket(transport, 0)), testing::ElementsAre(BPF_RET | BPF_K, 0u));
      const int none = 0;
      ASSERT_EQ(setsockopt(stranger.get(), SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &none, sizeof(none)), 0)
          << strerror(errno);
      EXPECT_EQ(*group->ProgramOf(sockets.socket(transport, 0)), 0u);

      ASSERT_THAT(group->Attach(transport, sockets.socket(transport, 0)), IsOk());
      EXPECT_EQ(*group->ProgramOf(stranger.get()), group->OwnProgram(transport)) << "taken back";
    }
    EXPECT_EQ(sockets.Udp(Source4(1)), Explained(*group, Source4(1)).slot)
        << "a stranger's socket in the group gets nothing";
    const UniqueFd plain(socket(AF_INET, SOCK_DGRAM, 0));
    EXPECT_EQ(*group->ProgramOf(plain.get()), 0u);
    const UniqueFd file(open("/dev/null", O_RDONLY));
    EXPECT_THAT(group->ProgramOf(file.get()).status(), FailsWith(absl::StatusCode::kInvalidArgument, "is no socket"));
    EXPECT_FALSE(group->ProgramOf(-1).ok());
  });
}

TEST_F(GroupLife, SeedAndDevicesCannotBeWritten) {
  InGroupNamespace([&] {
    GroupSpec spec = SpecOf(kSlots);
    Device device{};
    device.network.family = 4;
    device.network.prefix_bits = 32 + 8;
    device.network.words[0] = 10;
    spec.devices.push_back(device);
    ASSERT_NE(MakeGroup(spec), nullptr);
    const UniqueFd config(bpf_obj_get(PinPath("config").c_str())),
        devices(bpf_obj_get(PinPath("steer_devices").c_str()));
    ASSERT_TRUE(config.valid() && devices.valid()) << strerror(errno);
    const uint32_t zero = 0;
    EXPECT_NE(bpf_map_update_elem(config.get(), &zero, &spec.config, BPF_ANY), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(bpf_map_update_elem(devices.get(), &device.network, &device.device, BPF_ANY), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(bpf_map_delete_elem(devices.get(), &device.network), 0);
    EXPECT_EQ(errno, EPERM);
  });
}

TEST_F(GroupLife, AGroupOutlivesTheProcessThatMadeItAndIsOpenedAsItWas) {
  InGroupNamespace([&] {
    GroupSpec spec = SpecOf(kSlots);
    spec.config.ipv6_prefix = 64;
    std::vector<UniqueFd> sockets;
    for (int slot = 0; slot < kSlots; ++slot) sockets.push_back(GroupSocket(Transport::kUdp, kAny4));
    const Choice choice = Explain(spec.config, {}, {}, spec.table, *net::IpAddress::Parse("198.19.0.1"), {});
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // The supervisor of a moment.
      auto group = KernelGroup::Create(bpffs(), "test", spec);
      bool ok = group.ok() && (*group)->Attach(Transport::kUdp, sockets[0].get()).ok();
      for (int slot = 0; ok && slot < kSlots; ++slot) {
        BindAndListen(Transport::kUdp, sockets[static_cast<size_t>(slot)].get(), kAny4);
        ok = (*group)->Insert(Transport::kUdp, slot, sockets[static_cast<size_t>(slot)].get()).ok();
      }
      ok = ok && (*group)->Pin({HR_STEER_IPV4, {9, 0}}, 3).ok();
      raise(ok ? SIGKILL : SIGTERM);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
    const auto group = KernelGroup::Open(bpffs(), "test");
    ASSERT_THAT(group.status(), IsOk());
    EXPECT_EQ((*group)->config().seed.k0, spec.config.seed.k0);
    EXPECT_EQ((*group)->config().ipv6_prefix, 64u);
    EXPECT_EQ(memcmp((*group)->ReadTable()->data(), spec.table.data(), sizeof(spec.table)), 0);
    EXPECT_EQ((*group)->Pins()->size(), 1u);
    EXPECT_NE(*(*group)->CookieOf(Transport::kUdp, 3), 0u);
    EXPECT_EQ(*(*group)->ProgramOf(sockets[0].get()), (*group)->OwnProgram(Transport::kUdp));
    const UniqueFd client = UdpClient("198.19.0.1", 0, kTarget4);
    ASSERT_EQ(send(client.get(), "x", 1, 0), 1);
    pollfd polled = {sockets[choice.slot].get(), POLLIN, 0};
    EXPECT_EQ(poll(&polled, 1, 1000), 1) << "slot " << int{choice.slot};
    EXPECT_THAT(KernelGroup::Create(bpffs(), "test", spec).status(),
                FailsWith(absl::StatusCode::kAlreadyExists, "the group 'test' has pins"));
  });
}

TEST_F(GroupLife, AnotherLayoutIsRefused) {
  InGroupNamespace([&] {
    const GroupSpec spec = SpecOf(kSlots);
    ASSERT_NE(MakeGroup(spec), nullptr);
    const auto replace = [&](const char* pin, int fd) {
      ASSERT_EQ(unlink(PinPath(pin).c_str()), 0);
      ASSERT_EQ(bpf_obj_pin(fd, PinPath(pin).c_str()), 0) << strerror(errno);
    };
    const auto refused = [&] { return KernelGroup::Open(bpffs(), "test").status(); };
    const uint32_t zero = 0;

    const UniqueFd narrow(bpf_map_create(BPF_MAP_TYPE_ARRAY, "narrow", 4, 8, 512, nullptr));
    const UniqueFd table(bpf_obj_get(PinPath("steer_table").c_str()));
    replace("steer_table", narrow.get());
    EXPECT_THAT(refused(), FailsWith(absl::StatusCode::kFailedPrecondition, "steer_table has another shape"));
    replace("steer_table", table.get());
    EXPECT_THAT(refused(), IsOk());

    const UniqueFd tcp(bpf_obj_get(PinPath("hr_steer_tcp").c_str()));
    ASSERT_EQ(unlink(PinPath("hr_steer_tcp").c_str()), 0);
    EXPECT_THAT(refused(), FailsWith(absl::StatusCode::kFailedPrecondition, "it has no hr_steer_tcp"));
    ASSERT_EQ(bpf_obj_pin(tcp.get(), PinPath("hr_steer_tcp").c_str()), 0);
    EXPECT_THAT(refused(), IsOk());

    // A later build's constants may be longer; its layout is the first word.
    const UniqueFd later(bpf_map_create(BPF_MAP_TYPE_ARRAY, "later", 4, 128, 1, nullptr));
    const std::array<uint32_t, 32> constants = {HR_STEER_LAYOUT + 1};
    ASSERT_EQ(bpf_map_update_elem(later.get(), &zero, constants.data(), BPF_ANY), 0);
    replace("config", later.get());
    EXPECT_THAT(refused(), FailsWith(absl::StatusCode::kFailedPrecondition, "its layout is 7, and this build's is 6"));
    EXPECT_THAT(refused(), FailsWith(absl::StatusCode::kFailedPrecondition,
                                     "`hedgerow steer clean --name test` ends its workers"));
  });
}

TEST_F(GroupLife, AnUnfinishedGroupIsNoneAndLeavesNothing) {
  InGroupNamespace([&] {
    EXPECT_THAT(KernelGroup::Open(bpffs(), "test").status(), FailsWith(absl::StatusCode::kNotFound, "no group 'test'"));
    // What a process leaves that died while it pinned.
    ASSERT_EQ(mkdir((bpffs() + "/hedgerow-steer").c_str(), 0700), 0);
    ASSERT_EQ(mkdir((PinPath() + "+").c_str(), 0700), 0);
    const UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "left", 4, 8, 1, nullptr));
    ASSERT_EQ(bpf_obj_pin(map.get(), (PinPath() + "+/config").c_str()), 0);
    EXPECT_THAT(KernelGroup::Open(bpffs(), "test").status(), FailsWith(absl::StatusCode::kNotFound, "no group 'test'"));
    ASSERT_NE(MakeGroup(SpecOf(kSlots)), nullptr);
    EXPECT_NE(access((PinPath() + "+").c_str(), F_OK), 0);
    auto second = KernelGroup::Create(bpffs(), "second", SpecOf(kSlots));
    EXPECT_THAT(second.status(), IsOk());
    EXPECT_THAT(KernelGroup::Remove(bpffs(), "test"), IsOk());
    EXPECT_THAT(KernelGroup::Open(bpffs(), "second").status(), IsOk());
    EXPECT_THAT(KernelGroup::Remove(bpffs(), "second"), IsOk());
    EXPECT_THAT(KernelGroup::Remove(bpffs(), "second"), IsOk());
    EXPECT_TRUE(std::filesystem::is_empty(bpffs())) << "and the bpffs, which the test mounted, is gone as well";
  });
}

TEST_F(GroupLife, WrongNamesAreRefusedAndLeaveNothing) {
  InGroupNamespace([&] {
    for (const char* name : {"", ".", "..", "a/b", "10.0.0.1", "a+"}) {
      EXPECT_THAT(KernelGroup::Create(bpffs(), name, SpecOf(kSlots)).status(),
                  FailsWith(absl::StatusCode::kInvalidArgument, "is no name of a group"));
      EXPECT_NE(access((bpffs() + "/hedgerow-steer").c_str(), F_OK), 0);
    }
  });
}

class Migration : public GroupLife, public ::testing::WithParamInterface<std::pair<const char*, const char*>> {};

// Drains the client's slot as a supervisor does: the table first, then the listener closes.
TEST_P(Migration, ConnectionsThatWereNotAcceptedGoToTheSlotOfTheNewTable) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, GetParam().first, kSlots);
    const std::string source = GetParam().second;
    const Choice choice = Explained(*group, source);
    const int from = choice.slot, to = (from + 1) % kSlots, others = (from + 2) % kSlots;
    const UniqueFd queued = TcpClient(source, source.find(':') == std::string::npos ? kTarget4 : kTarget6);
    ASSERT_EQ(send(queued.get(), "q", 1, 0), 1) << strerror(errno);
    // This one stays half open: the listener defers it until data comes.
    const int seconds = 30;
    ASSERT_EQ(
        setsockopt(sockets.socket(Transport::kTcp, from), IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds)), 0);
    const UniqueFd half = TcpClient(source, source.find(':') == std::string::npos ? kTarget4 : kTarget6);

    auto table = *group->ReadTable();
    for (hr_steer_entry& entry : table) entry.slot = static_cast<uint8_t>(others);
    table[choice.bucket].slot = static_cast<uint8_t>(to);
    ASSERT_THAT(group->WriteTable(table, {}, false), IsOk());
    sockets.Close(Transport::kTcp, from);

    char byte = 0;
    const auto [queued_slot, first] = sockets.Accept();
    EXPECT_EQ(queued_slot, to);
    EXPECT_EQ(recv(first.get(), &byte, 1, 0), 1);
    EXPECT_EQ(byte, 'q');
    ASSERT_EQ(send(half.get(), "h", 1, 0), 1) << strerror(errno);
    const auto [half_slot, second] = sockets.Accept();
    EXPECT_EQ(half_slot, to);
    EXPECT_EQ(recv(second.get(), &byte, 1, 0), 1);
    EXPECT_EQ(byte, 'h');
    EXPECT_EQ(group->Counts()->slots[static_cast<size_t>(to)].migrated, 2u);
    EXPECT_EQ(group->Counts()->all.unreadable, 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(, Migration,
                         ::testing::Values(std::pair(kAny4, "198.19.0.5"), std::pair(kAny6, "fd77:5::5"),
                                           std::pair(kAny6, "198.19.0.5")),
                         [](const auto& info) { return std::to_string(info.index); });

TEST_F(GroupLife, AConnectionWhoseSlotIsVacantIsResetWhenItsListenerCloses) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(2));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, 2);
    const int slot = Explained(*group, Source4(1)).slot;
    const UniqueFd client = TcpClient(Source4(1), kTarget4);
    sockets.Close(Transport::kTcp, slot);
    pollfd polled = {client.get(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 1000), 1);
    char byte = 0;
    EXPECT_LT(recv(client.get(), &byte, 1, 0), 0);
    EXPECT_EQ(errno, ECONNRESET);
  });
}

}  // namespace
}  // namespace hedgerow::steer
