// SPDX-License-Identifier: Apache-2.0
//
// Sockets of processes as daemons make them are found, given to the worker that reads them, and paired; what cannot be
// adopted is refused by name.
#include "steer/adopt/adopted_sockets.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>

#include <list>
#include <optional>
#include <set>

#include "net/namespace_test.h"
#include "net/socket_address.h"
#include "steer/adopt/daemon_test.h"

namespace hedgerow::steer {
namespace {

using net::FailsWith;
using net::IsOk;

class AdoptedSocketsTest : public net::NamespaceTest {
 protected:
  static SocketSearch Search(std::vector<pid_t> pids, std::set<Transport> transports = {},
                             const char* address = "127.0.0.1") {
    return {.pids = std::move(pids),
            .listen = {net::IpAddress::Parse(address).value(), 2055},
            .transports = std::move(transports)};
  }
  static std::vector<pid_t> Pids(const AdoptedWorkers& found) {
    std::vector<pid_t> pids;
    for (const AdoptedWorker& worker : found.workers) pids.push_back(worker.process.pid);
    return pids;
  }
};

bool HoldBoth() { return MakeUdp() >= 0 && MakeTcp() >= 0; }

TEST_F(AdoptedSocketsTest, ProcessesWithSocketsOfTheirOwnAreOneWorkerEach) {
  InNamespace([&] {
    const Child first(HoldBoth), second(HoldBoth);
    ASSERT_TRUE(first.ready() && second.ready());
    const auto found = FindWorkers(Search({second.pid(), first.pid()}));
    ASSERT_THAT(found.status(), IsOk());
    ASSERT_EQ(Pids(*found), (std::vector{first.pid(), second.pid()}))
        << "in the order in which they started, not in that of the call";
    std::set<uint64_t> cookies;
    for (const AdoptedWorker& worker : found->workers) {
      EXPECT_TRUE(worker.certain);
      ASSERT_TRUE(worker.udp && worker.tcp);
      for (const auto& [socket, type] : {std::pair(*worker.udp, SOCK_DGRAM), std::pair(*worker.tcp, SOCK_STREAM)}) {
        const auto copy = OpenSocket(socket);
        ASSERT_THAT(copy.status(), IsOk());
        int actual = 0;
        socklen_t bytes = sizeof(actual);
        ASSERT_EQ(getsockopt(copy->get(), SOL_SOCKET, SO_TYPE, &actual, &bytes), 0);
        EXPECT_EQ(actual, type);
        cookies.insert(socket.cookie);
      }
    }
    EXPECT_EQ(cookies.size(), 4u);
    EXPECT_EQ(*CookiesOf(Search({})), cookies);
  });
}

TEST_F(AdoptedSocketsTest, ChildrenOfANamedProcessCount) {
  InNamespace([&] {
    const Child master([] { return ForkWorkers(3, [](size_t) { return HoldBoth(); }); });
    ASSERT_TRUE(master.ready());
    const auto found = FindWorkers(Search({master.pid()}));
    ASSERT_THAT(found.status(), IsOk());
    EXPECT_EQ(found->workers.size(), 3u);
  });
}

TEST_F(AdoptedSocketsTest, WithoutAPidTheDaemonIsTheOneProgramThatHasThePort) {
  InNamespace([&] {
    EXPECT_THAT(FindWorkers(Search({})).status(),
                FailsWith(absl::StatusCode::kNotFound, "no process has 127.0.0.1:2055 open: start the daemon first"));
    std::optional<Child> workers(std::in_place, [] { return ForkWorkers(3, [](size_t) { return HoldBoth(); }); });
    ASSERT_TRUE(workers->ready());
    const auto found = FindWorkers(Search({}));
    ASSERT_THAT(found.status(), IsOk());
    EXPECT_EQ(found->workers.size(), 3u);
    const Child stranger(
        [] { return seteuid(65534) == 0 && absl::IsPermissionDenied(FindWorkers(Search({})).status()); });
    EXPECT_TRUE(stranger.ready()) << "who may not look is told that";
    // Its socket stays open in a program of another path.
    const Child other([] {
      const int socket = MakeUdp();
      if (socket < 0 || fcntl(socket, F_SETFD, 0) != 0) return false;
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sleep", "sleep", "60", nullptr);
        _exit(1);
      }
      return child > 0;
    });
    ASSERT_TRUE(other.ready());
    for (int i = 0; i < 5000 && FindWorkers(Search({})).ok(); ++i) usleep(1000);
    EXPECT_THAT(FindWorkers(Search({})).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, "several programs have 127.0.0.1:2055 open"));
  });
}

TEST_F(AdoptedSocketsTest, AHelperMayBeNamedBesideItsParent) {
  InNamespace([&] {
    int pids[2];
    ASSERT_EQ(pipe(pids), 0);
    const Child daemon([&] {
      return ForkWorkers(1,
                         [&](size_t) {
                           const pid_t own = getpid();
                           return write(pids[1], &own, sizeof(own)) == sizeof(own);
                         }) &&
             HoldBoth();
    });
    ASSERT_TRUE(daemon.ready());
    pid_t helper = 0;
    ASSERT_EQ(read(pids[0], &helper, sizeof(helper)), static_cast<ssize_t>(sizeof(helper)));
    const auto found = FindWorkers(Search({helper, daemon.pid()}));
    ASSERT_THAT(found.status(), IsOk());
    EXPECT_EQ(Pids(*found), (std::vector{daemon.pid()}));
    EXPECT_THAT(FindWorkers(Search({helper})).status(),
                FailsWith(absl::StatusCode::kNotFound, "has no UDP or listening TCP socket"));
  });
}

// As nginx does: every process holds every socket, and each worker polls its own.
TEST_F(AdoptedSocketsTest, OfSocketsThatAllHoldTheEpollSetsTellTheWorker) {
  InNamespace([&] {
    const Child master([&] {
      for (int i = 0; i < 3; ++i) {
        if (MoveTo(100 + i, MakeUdp()) < 0 || MoveTo(110 + i, MakeTcp()) < 0) return false;
      }
      // The last ones first, so that the order of the descriptors tells something else.
      return ForkWorkers(3, [&](size_t i) {
        return AddToEpoll({102 - static_cast<int>(i), 112 - static_cast<int>(i)});
      });
    });
    ASSERT_TRUE(master.ready());
    const auto found = FindWorkers(Search({master.pid()}));
    ASSERT_THAT(found.status(), IsOk());
    ASSERT_EQ(found->workers.size(), 3u);
    for (int i = 0; i < 3; ++i) {
      const AdoptedWorker& worker = found->workers[static_cast<size_t>(i)];
      EXPECT_NE(worker.process.pid, master.pid());
      EXPECT_TRUE(worker.certain);
      EXPECT_EQ(worker.udp->descriptor, 102 - i);
      EXPECT_EQ(worker.tcp->descriptor, 112 - i);
    }
  });
}

// The master of a daemon starts another worker a moment after one has died.
TEST_F(AdoptedSocketsTest, OfASocketInNoEpollSetTheOldestHolderIsNamed) {
  InNamespace([&] {
    const Child master([&] {
      for (int i = 0; i < 2; ++i) {
        if (MoveTo(100 + i, MakeUdp()) < 0 || MoveTo(110 + i, MakeTcp()) < 0) return false;
      }
      return ForkWorkers(1, [](size_t) { return AddToEpoll({101, 111}); });
    });
    ASSERT_TRUE(master.ready());
    const auto found = FindWorkers(Search({master.pid()}));
    ASSERT_THAT(found.status(), IsOk());
    ASSERT_EQ(found->workers.size(), 2u);
    for (const AdoptedWorker& worker : found->workers) {
      EXPECT_EQ(worker.certain, worker.udp->descriptor == 101);
      EXPECT_EQ(worker.process.pid == master.pid(), !worker.certain);
    }
  });
}

TEST_F(AdoptedSocketsTest, WithoutEpollSetsPairsAreRefusedAndOneTransportIsNot) {
  InNamespace([&] {
    const Child master([&] {
      for (int i = 0; i < 2; ++i) {
        if (MoveTo(100 + i, MakeUdp()) < 0 || MoveTo(110 + i, MakeTcp()) < 0) return false;
      }
      return ForkWorkers(2, [](size_t) { return true; });
    });
    ASSERT_TRUE(master.ready());
    const SocketSearch search = Search({master.pid()});
    EXPECT_THAT(FindWorkers(search).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition,
                          "has the UDP sockets 100, 101 and the TCP sockets 110, 111 of 127.0.0.1:2055"));
    const auto udp = FindWorkers(Search({master.pid()}, {Transport::kUdp}));
    ASSERT_THAT(udp.status(), IsOk());
    EXPECT_EQ(udp->workers.size(), 2u);
    EXPECT_FALSE(udp->workers[0].certain);
    // Sockets that have slots are paired already, and one that was made again joins the other one of its worker.
    SocketSearch known = search;
    for (const size_t slot : {0, 1}) known.slots[udp->workers[slot].udp->cookie] = slot;
    const auto tcp = FindWorkers(Search({master.pid()}, {Transport::kTcp}));
    known.slots[tcp->workers[1].tcp->cookie] = 0;
    const auto paired = FindWorkers(known);
    ASSERT_THAT(paired.status(), IsOk());
    EXPECT_EQ(paired->workers[0].udp->descriptor, 100);
    EXPECT_EQ(paired->workers[0].tcp->descriptor, 111);
    EXPECT_EQ(paired->workers[1].tcp->descriptor, 110);
  });
}

TEST_F(AdoptedSocketsTest, MptcpIsRefusedByName) {
  InNamespace([&] {
    const Child daemon([] {
      const int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP), on = 1;
      const net::SocketAddress address(net::IpAddress::Parse("127.0.0.1").value(), 2055);
      return setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0 &&
             bind(listener, address.get(), address.bytes) == 0 && listen(listener, 1) == 0;
    });
    ASSERT_TRUE(daemon.ready());
    EXPECT_THAT(FindWorkers(Search({daemon.pid()})).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, "listens by MPTCP"));
  });
}

TEST_F(AdoptedSocketsTest, ThreadsOfOneProcessAreWorkersAndTheirEpollSetsPairThem) {
  InNamespace([&] {
    const Child daemon([&] {
      for (int i = 0; i < 2; ++i) {
        if (MoveTo(100 + i, MakeUdp()) < 0 || MoveTo(110 + i, MakeTcp()) < 0) return false;
      }
      return AddToEpoll({100, 111}) && AddToEpoll({101, 110});
    });
    ASSERT_TRUE(daemon.ready());
    const auto found = FindWorkers(Search({daemon.pid()}));
    ASSERT_THAT(found.status(), IsOk());
    ASSERT_EQ(found->workers.size(), 2u);
    EXPECT_EQ(Pids(*found), (std::vector{daemon.pid(), daemon.pid()}));
    EXPECT_EQ(found->workers[0].udp->descriptor, 100);
    EXPECT_EQ(found->workers[0].tcp->descriptor, 111);
    EXPECT_EQ(found->workers[1].tcp->descriptor, 110);
  });
}

TEST_F(AdoptedSocketsTest, ThreadsWithUnequalNumbersAreRefusedUnlessOneTransportIsNamed) {
  InNamespace([&] {
    const Child daemon([&] { return MakeUdp() >= 0 && MakeUdp() >= 0 && MakeTcp() >= 0; });
    ASSERT_TRUE(daemon.ready());
    EXPECT_THAT(
        FindWorkers(Search({daemon.pid()})).status(),
        FailsWith(absl::StatusCode::kFailedPrecondition, "has 2 UDP and 1 listening TCP sockets of 127.0.0.1:2055"));
    const auto found = FindWorkers(Search({daemon.pid()}, {Transport::kUdp}));
    ASSERT_THAT(found.status(), IsOk());
    EXPECT_EQ(found->workers.size(), 2u);
    EXPECT_FALSE(found->workers[0].tcp.has_value());
  });
}

TEST_F(AdoptedSocketsTest, ADescriptorThatIsDuplicatedIsOneSocket) {
  InNamespace([&] {
    const Child daemon([&] { return dup(MakeUdp()) >= 0 && dup(MakeTcp()) >= 0; });
    ASSERT_TRUE(daemon.ready());
    const auto found = FindWorkers(Search({daemon.pid(), daemon.pid()}));
    ASSERT_THAT(found.status(), IsOk());
    EXPECT_EQ(found->workers.size(), 1u);
  });
}

TEST_F(AdoptedSocketsTest, ConnectionsAndConnectedSocketsAreNone) {
  InNamespace([&] {
    const Child daemon([&] {
      const int udp = MakeUdp(), connected = MakeUdp(), listener = MakeTcp(), client = socket(AF_INET, SOCK_STREAM, 0);
      const net::SocketAddress address(net::IpAddress::Parse("127.0.0.1").value(), 2055);
      const net::SocketAddress peer(net::IpAddress::Parse("127.0.0.1").value(), 9);
      return udp >= 0 && connect(connected, peer.get(), peer.bytes) == 0 &&
             connect(client, address.get(), address.bytes) == 0 && accept(listener, nullptr, nullptr) >= 0;
    });
    ASSERT_TRUE(daemon.ready());
    const auto found = FindWorkers(Search({daemon.pid()}));
    ASSERT_THAT(found.status(), IsOk());
    EXPECT_EQ(found->workers.size(), 1u);
    EXPECT_EQ(CookiesOf(Search({}))->size(), 2u);
  });
}

TEST_F(AdoptedSocketsTest, IPv6IsFoundByItsOwnAddress) {
  InNamespace([&] {
    const Child daemon([] { return MakeUdp({.address = "::"}) >= 0; });
    ASSERT_TRUE(daemon.ready());
    EXPECT_THAT(FindWorkers(Search({daemon.pid()}, {}, "::")).status(), IsOk());
    EXPECT_THAT(FindWorkers(Search({daemon.pid()}, {}, "0.0.0.0")).status(),
                FailsWith(absl::StatusCode::kNotFound, "it has UDP [::]:2055: name that address"));
  });
}

TEST_F(AdoptedSocketsTest, WhatCannotBeAdoptedIsRefusedByName) {
  InNamespace([&] {
    std::optional<Child> gone(HoldBoth);
    const pid_t gone_pid = gone->pid();
    gone.reset();
    EXPECT_THAT(FindWorkers(Search({gone_pid})).status(),
                FailsWith(absl::StatusCode::kNotFound, absl::StrCat("there is no process ", gone_pid)));
    const Child idle([] { return true; });
    EXPECT_THAT(FindWorkers(Search({idle.pid()})).status(),
                FailsWith(absl::StatusCode::kNotFound, absl::StrCat("process ", idle.pid(), " (")));
    const Child named(HoldBoth);
    EXPECT_THAT(FindWorkers(Search({named.pid(), idle.pid()})).status(),
                FailsWith(absl::StatusCode::kNotFound, "has no UDP or listening TCP socket of 127.0.0.1:2055"));
    const Child unnamed(HoldBoth);
    const auto found = FindWorkers(Search({named.pid()}));
    ASSERT_THAT(found.status(), IsOk());
    EXPECT_THAT(RefuseOthers(*found),
                FailsWith(absl::StatusCode::kFailedPrecondition, absl::StrCat("process ", unnamed.pid(), " (")));
    EXPECT_THAT(FindWorkers(Search({named.pid(), unnamed.pid()})).status(), IsOk());
    const Child udp_only([] { return MakeUdp() >= 0; });
    EXPECT_THAT(FindWorkers(Search({named.pid(), unnamed.pid(), udp_only.pid()})).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, absl::StrCat("process ", udp_only.pid(), " (")));
    EXPECT_THAT(FindWorkers(Search({udp_only.pid()}, {Transport::kUdp, Transport::kTcp})).status(),
                FailsWith(absl::StatusCode::kNotFound, "has a TCP socket of 127.0.0.1:2055"));
  });
}

TEST_F(AdoptedSocketsTest, SocketsWithoutReusePortAreRefused) {
  InNamespace([&] {
    const Child daemon([] { return MakeUdp({.reuse_port = false}) >= 0; });
    ASSERT_TRUE(daemon.ready());
    EXPECT_THAT(FindWorkers(Search({daemon.pid()})).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, "has no SO_REUSEPORT"));
  });
}

TEST_F(AdoptedSocketsTest, SocketsOfDifferentDevicesAndUsersAreRefused) {
  InNamespace([&] {
    ASSERT_EQ(Shell("ip link add one type veth peer name two"), 0);
    const auto bound_to = [](const char* device, uid_t user) {
      return [device, user] { return seteuid(user) == 0 && MakeUdp({.address = "0.0.0.0", .device = device}) >= 0; };
    };
    const Child first(bound_to("one", 0));
    std::optional<Child> second(bound_to("two", 0));
    ASSERT_TRUE(first.ready() && second->ready());
    EXPECT_THAT(FindWorkers(Search({first.pid(), second->pid()}, {}, "0.0.0.0")).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition,
                          "sockets that are bound to different devices: that of process"));
    second.reset();
    const Child other([] {
      return setresgid(65534, 65534, 0) == 0 && seteuid(65534) == 0 &&
             MakeUdp({.address = "0.0.0.0", .device = "two"}) >= 0;
    });
    ASSERT_TRUE(other.ready());
    EXPECT_THAT(FindWorkers(Search({first.pid(), other.pid()}, {}, "0.0.0.0")).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, "sockets of different users: that of process"));
  });
}

TEST_F(AdoptedSocketsTest, ADaemonInAnotherNamespaceIsRefusedWithTheWayIn) {
  InNamespace([&] {
    const Child elsewhere([] { return unshare(CLONE_NEWNET) == 0 && MakeUdp({.address = "0.0.0.0"}) >= 0; });
    ASSERT_TRUE(elsewhere.ready());
    EXPECT_THAT(FindWorkers(Search({elsewhere.pid()}, {}, "0.0.0.0")).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition,
                          absl::StrCat("nsenter --net=/proc/", elsewhere.pid(), "/ns/net")));
  });
}

TEST_F(AdoptedSocketsTest, MoreWorkersThanSlotsAreRefused) {
  InNamespace([&] {
    const Child daemon([] {
      for (int i = 0; i < HR_STEER_SLOTS; ++i) {
        if (MakeUdp() < 0) return false;
      }
      return true;
    });
    ASSERT_TRUE(daemon.ready());
    EXPECT_EQ(FindWorkers(Search({daemon.pid()}))->workers.size(), static_cast<size_t>(HR_STEER_SLOTS));
    const Child more([] { return MakeUdp() >= 0; });
    EXPECT_THAT(FindWorkers(Search({daemon.pid(), more.pid()})).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, "257 workers: a group has at most 256"));
  });
}

TEST_F(AdoptedSocketsTest, ASocketThatClosedIsNotOpenedAgain) {
  InNamespace([&] {
    std::optional<Child> daemon([] { return MakeUdp() >= 0; });
    const auto found = FindWorkers(Search({daemon->pid()}));
    ASSERT_THAT(found.status(), IsOk());
    AdoptedSocket other = *found->workers[0].udp;
    ++other.cookie;
    EXPECT_THAT(OpenSocket(other).status(), FailsWith(absl::StatusCode::kNotFound, "has closed its socket"));
    daemon.reset();
    EXPECT_THAT(OpenSocket(*found->workers[0].udp).status(),
                FailsWith(absl::StatusCode::kNotFound, "has closed its socket"));
    EXPECT_TRUE(CookiesOf(Search({}))->empty()) << "nothing here keeps a socket open";
  });
}

}  // namespace
}  // namespace hedgerow::steer
