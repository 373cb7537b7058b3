// SPDX-License-Identifier: Apache-2.0
//
// The holders of a port and its open connections, in namespaces of the tests' own.
#include "steer/sock_diag.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "net/namespace_test.h"
#include "net/socket_address.h"

namespace hedgerow::steer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint16_t kPort = 2055;

net::IpAddress Address(const char* text) { return *net::IpAddress::Parse(text); }

net::UniqueFd Bound(int type, const char* address, uint16_t port = kPort) {
  const net::IpAddress parsed = Address(address);
  net::UniqueFd fd(socket(parsed.family(), type | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  const net::SocketAddress to(parsed, port);
  EXPECT_EQ(bind(fd.get(), to.get(), to.bytes), 0) << address;
  if (type == SOCK_STREAM && port == kPort) EXPECT_EQ(listen(fd.get(), 16), 0);
  return fd;
}

net::UniqueFd Connected(const char* from, const char* to) {
  net::UniqueFd fd = Bound(SOCK_STREAM, from, 0);
  const net::SocketAddress address(Address(to), kPort);
  EXPECT_EQ(connect(fd.get(), address.get(), address.bytes), 0);
  return fd;
}

class SockDiagTest : public net::NamespaceTest {};

TEST_F(SockDiagTest, HoldersAreThoseOnWhichPacketsArrive) {
  InNamespace([] {
    const Listen here = *Listen::Parse("127.0.0.1:2055");
    EXPECT_THAT(*ListHolders(Transport::kUdp, here, true), IsEmpty());
    const net::UniqueFd udp = Bound(SOCK_DGRAM, "127.0.0.1");
    const net::UniqueFd other_port = Bound(SOCK_DGRAM, "127.0.0.1", 2056);
    const net::UniqueFd other_address = Bound(SOCK_DGRAM, "127.0.0.2");
    const net::UniqueFd tcp = Bound(SOCK_STREAM, "::");
    const auto held = ListHolders(Transport::kUdp, here, true);
    ASSERT_THAT(*held, SizeIs(1));
    EXPECT_EQ((*held)[0].inode, InodeOf(udp.get()));
    EXPECT_THAT(*ListHolders(Transport::kTcp, here, false), IsEmpty());
    EXPECT_THAT(*ListHolders(Transport::kTcp, here, true), SizeIs(1)) << "[::] takes IPv4 as well";
    EXPECT_THAT(*ListHolders(Transport::kUdp, *Listen::Parse("0.0.0.0:2055"), true), SizeIs(2));
    EXPECT_THAT(*ListHolders(Transport::kUdp, *Listen::Parse("[::1]:2055"), true), IsEmpty());
    EXPECT_THAT(*ListHolders(Transport::kTcp, *Listen::Parse("0.0.0.0:2055"), false), SizeIs(1)) << "as [::] does";
    const std::string text = DescribeHolders(*held);
    EXPECT_THAT(text, HasSubstr(absl::StrCat("pid ", getpid(), " (")));
    EXPECT_THAT(text, HasSubstr("user root"));
  });
}

TEST_F(SockDiagTest, AConnectionIsOpenUntilTheOtherEndHasNothingMoreToSay) {
  InNamespace([] {
    const Listen all = *Listen::Parse("[::]:2055");
    const net::UniqueFd listener = Bound(SOCK_STREAM, "::");
    EXPECT_THAT(*OpenConnections(all), IsEmpty());
    net::UniqueFd waiting = Connected("127.0.0.2", "127.0.0.1");
    net::UniqueFd accepted = Connected("127.0.0.3", "127.0.0.1");
    const net::UniqueFd six = Connected("::1", "::1");
    EXPECT_THAT(*OpenConnections(all), ElementsAre(Address("::1"), Address("127.0.0.2"), Address("127.0.0.3")))
        << "accepted or not";
    EXPECT_THAT(*OpenConnections(*Listen::Parse("127.0.0.1:2055")), SizeIs(2));
    EXPECT_THAT(*OpenConnections(*Listen::Parse("127.0.0.9:2055")), IsEmpty());
    const net::UniqueFd first(accept(listener.get(), nullptr, nullptr));
    net::UniqueFd second(accept(listener.get(), nullptr, nullptr));
    waiting.Reset();
    EXPECT_THAT(*OpenConnections(all), SizeIs(3)) << "the worker may still have something to read";
    second.Reset();
    EXPECT_THAT(*OpenConnections(all), ElementsAre(Address("::1"), Address("127.0.0.2"))) << "the worker has closed it";
    accepted.Reset();
    EXPECT_THAT(*OpenConnections(all), SizeIs(2));
  });
}

}  // namespace
}  // namespace hedgerow::steer
