// SPDX-License-Identifier: Apache-2.0
//
// The peers' TCP port without gRPC: how many connections there may be, of whom, and which one makes room.
#include "cluster/transfer/peer_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hedgerow::transfer {
namespace {

constexpr int kSoon_ms = 20'000;

class PeerListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto listening = PeerListener::Listen("127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening.status();
    listener_ = *std::move(listening);
    port_ = listener_->port();
    listener_->Accept([](const net::IpAddress& source) { return source != *net::IpAddress::Parse("127.0.0.66"); },
                      [this](int connection) {
                        absl::MutexLock lock(&mutex_);
                        handed_.emplace_back(connection);
                        handed_from_.push_back(Source(connection));
                      },
                      [](const net::IpAddress& source) { return "not " + source.ToString(); });
  }

  // From an address of this host, such as 127.0.0.2.
  net::UniqueFd Connect(const char* from) {
    net::UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Connect(from, connection);
    return connection;
  }
  void Connect(const char* from, const net::UniqueFd& connection) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, from, &address.sin_addr), 1);
    EXPECT_EQ(bind(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    address.sin_port = htons(port_);
    EXPECT_EQ(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr), 1);
    EXPECT_EQ(connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  static std::string Source(int connection) {
    sockaddr_in other{};
    socklen_t length = sizeof(other);
    EXPECT_EQ(getpeername(connection, reinterpret_cast<sockaddr*>(&other), &length), 0);
    char text[INET_ADDRSTRLEN];
    return inet_ntop(AF_INET, &other.sin_addr, text, sizeof(text));
  }
  // As gRPC would name it.
  static std::string Caller(const net::UniqueFd& connection) {
    sockaddr_in own{};
    socklen_t length = sizeof(own);
    EXPECT_EQ(getsockname(connection.get(), reinterpret_cast<sockaddr*>(&own), &length), 0);
    char text[INET_ADDRSTRLEN];
    return absl::StrCat("ipv4:", inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text)), ":", ntohs(own.sin_port));
  }
  void AwaitHanded(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto all = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return handed_.size() >= count; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&all), absl::Milliseconds(kSoon_ms)));
  }
  void AwaitHandedFrom(const char* source, long count) {
    absl::MutexLock lock(&mutex_);
    const auto all = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return std::count(handed_from_.begin(), handed_from_.end(), source) >= count;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&all), absl::Milliseconds(kSoon_ms)));
  }
  // Whether the listener's end is shut down, waiting for it if it is to be.
  static bool Ended(const net::UniqueFd& connection, int wait_ms = kSoon_ms) {
    pollfd polled{.fd = connection.get(), .events = POLLIN, .revents = 0};
    return poll(&polled, 1, wait_ms) == 1;
  }
  void Await(uint64_t PeerListener::Statistics::*what, uint64_t count) {
    for (int i = 0; i < kSoon_ms && listener_->statistics().*what < count; ++i) (void)poll(nullptr, 0, 1);
    EXPECT_EQ(listener_->statistics().*what, count);
  }

  uint16_t port_ = 0;
  absl::Mutex mutex_;
  std::vector<net::UniqueFd> handed_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> handed_from_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<PeerListener> listener_;
};

TEST_F(PeerListenerTest, BeyondTheBoundASourcesOldestUnprovedConnectionMakesRoom) {
  std::vector<net::UniqueFd> mine;
  for (size_t i = 0; i < PeerListener::kConnectionsOfSource; ++i) {
    mine.push_back(Connect("127.0.0.2"));
    AwaitHanded(i + 1);
  }
  listener_->Proved(Caller(mine[0]));
  const net::UniqueFd others = Connect("127.0.0.3");
  const net::UniqueFd next = Connect("127.0.0.2");
  AwaitHanded(PeerListener::kConnectionsOfSource + 2);
  EXPECT_TRUE(Ended(mine[1])) << "the oldest that has not shown the key";
  for (size_t i = 0; i < mine.size(); ++i) {
    if (i != 1) EXPECT_FALSE(Ended(mine[i], 0)) << i;
  }
  EXPECT_FALSE(Ended(others, 0)) << "another source's";
  EXPECT_FALSE(Ended(next, 0));
  EXPECT_EQ(listener_->statistics().displaced, 1u);
}

TEST_F(PeerListenerTest, NoProvedConnectionMakesRoom) {
  std::vector<net::UniqueFd> mine;
  for (size_t i = 0; i < PeerListener::kConnectionsOfSource; ++i) {
    mine.push_back(Connect("127.0.0.2"));
    AwaitHanded(i + 1);
    listener_->Proved(Caller(mine.back()));
  }
  EXPECT_TRUE(Ended(Connect("127.0.0.2")));
  Await(&PeerListener::Statistics::no_place, 1);
  for (const net::UniqueFd& connection : mine) EXPECT_FALSE(Ended(connection, 0));
}

TEST_F(PeerListenerTest, AllSourcesTogetherHaveABound) {
  std::vector<net::UniqueFd> all;
  for (size_t i = 0; i < PeerListener::kConnectionsMax; ++i) {
    all.push_back(Connect(absl::StrCat("127.0.1.", 1 + i / PeerListener::kConnectionsOfSource).c_str()));
    AwaitHanded(i + 1);
  }
  EXPECT_EQ(listener_->statistics().displaced, 0u);
  const net::UniqueFd next = Connect("127.0.2.1");
  AwaitHanded(PeerListener::kConnectionsMax + 1);
  EXPECT_TRUE(Ended(all[0]));
  EXPECT_EQ(listener_->statistics().displaced, 1u);
}

TEST_F(PeerListenerTest, AStrangerIsToldWhyAndNothingOfItsIsReadOrHandedOn) {
  const net::UniqueFd member = Connect("127.0.0.2");
  AwaitHanded(1);
  std::vector<net::UniqueFd> strangers;
  for (int i = 0; i < 50; ++i) strangers.push_back(Connect("127.0.0.66"));
  for (const net::UniqueFd& stranger : strangers) {
    char told[64] = {};
    EXPECT_TRUE(Ended(stranger));
    EXPECT_EQ(std::string(told, static_cast<size_t>(std::max<ssize_t>(read(stranger.get(), told, sizeof(told)), 0))),
              "not 127.0.0.66");
  }
  const net::UniqueFd next = Connect("127.0.0.2");
  AwaitHanded(2);
  EXPECT_EQ(listener_->statistics().strangers, 50u);
  EXPECT_FALSE(Ended(member, 0));
  EXPECT_FALSE(Ended(next, 0));
  EXPECT_EQ(listener_->statistics().no_place, 0u);
  absl::MutexLock lock(&mutex_);
  EXPECT_EQ(std::count(handed_from_.begin(), handed_from_.end(), "127.0.0.66"), 0);
}

// Of a member's address, from which any program of that host may call.
TEST_F(PeerListenerTest, AConnectionThatSendsMuchBeforeItShowsTheKeyIsEnded) {
  const net::UniqueFd proved = Connect("127.0.0.2");
  const net::UniqueFd unproved = Connect("127.0.0.3");
  AwaitHanded(2);
  listener_->Proved(Caller(proved));
  std::thread reader([this] {  // as gRPC reads it
    std::vector<pollfd> both;
    {
      absl::MutexLock lock(&mutex_);
      for (const net::UniqueFd& connection : handed_) both.push_back({.fd = connection.get(), .events = POLLIN});
    }
    std::string bytes(65'536, 0);
    while (poll(both.data(), both.size(), 1000) > 0) {
      for (pollfd& one : both)
        if (one.revents != 0 && read(one.fd, bytes.data(), bytes.size()) <= 0) one.fd = -1;
    }
  });
  const std::string piece(PeerListener::kUnprovedMax_bytes / 8, 'x');
  for (int i = 0; i < 7; ++i) {
    for (const int fd : {proved.get(), unproved.get()}) ASSERT_GT(send(fd, piece.data(), piece.size(), 0), 0);
  }
  EXPECT_FALSE(Ended(unproved, 100)) << "a handshake may be so long";
  for (int i = 0; i < 3; ++i) {
    for (const int fd : {proved.get(), unproved.get()}) (void)send(fd, piece.data(), piece.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(Ended(unproved));
  EXPECT_FALSE(Ended(proved, 100));
  EXPECT_EQ(listener_->statistics().unproved, 1u);
  reader.join();
}

TEST_F(PeerListenerTest, AConnectionThatDoesNotShowTheKeyInTimeIsEnded) {
  const net::UniqueFd proved = Connect("127.0.0.2");
  const net::UniqueFd unproved = Connect("127.0.0.2");
  AwaitHanded(2);
  listener_->Proved(Caller(proved));
  EXPECT_FALSE(Ended(unproved, PeerListener::kUnproved_ms / 2));
  EXPECT_TRUE(Ended(unproved));
  EXPECT_FALSE(Ended(proved, 0));
  EXPECT_EQ(listener_->statistics().unproved, 1u);
}

// It is a member's, but what it opens is another program's.
TEST_F(PeerListenerTest, ASourceThatOpensManyKeepsNoOtherWaiting) {
  constexpr long kFlood = PeerListener::kPerSecond + 50;
  const absl::Time begin = absl::Now();
  std::vector<net::UniqueFd> flood;
  for (long i = 0; i < kFlood; ++i) flood.push_back(Connect("127.0.0.2"));
  const net::UniqueFd other = Connect("127.0.0.3");
  AwaitHandedFrom("127.0.0.3", 1);
  const uint64_t closed = listener_->statistics().rate;
  absl::MutexLock lock(&mutex_);
  const long handed = std::count(handed_from_.begin(), handed_from_.end(), "127.0.0.2");
  EXPECT_EQ(handed + static_cast<long>(closed), kFlood);
  EXPECT_LE(handed, PeerListener::kOfSourcePerSecond * (absl::ToInt64Seconds(absl::Now() - begin) + 2));
}

TEST_F(PeerListenerTest, AfterAQuietSecondEachSourceIsHeardAgain) {
  std::vector<net::UniqueFd> flood;
  for (uint32_t i = 0; i < 3 * PeerListener::kOfSourcePerSecond; ++i) flood.push_back(Connect("127.0.0.2"));
  const net::UniqueFd member = Connect("127.0.0.3");
  AwaitHandedFrom("127.0.0.3", 1);
  const size_t handed = flood.size() - listener_->statistics().rate;
  EXPECT_LT(handed, flood.size());
  (void)poll(nullptr, 0, 1100);
  const net::UniqueFd next = Connect("127.0.0.2");
  AwaitHandedFrom("127.0.0.2", static_cast<long>(handed) + 1);
  EXPECT_FALSE(Ended(next, 0));
}

TEST_F(PeerListenerTest, WhereNoDescriptorIsLeftAConnectionIsClosedForThatReason) {
  const net::UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int next_one = net::UniqueFd(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0)).get();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // Accepted it may be, but not kept beside what gRPC gets.
  const rlimit one_more{.rlim_cur = static_cast<rlim_t>(next_one) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  Connect("127.0.0.2", connection);
  Await(&PeerListener::Statistics::no_descriptor, 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(Ended(connection));
  EXPECT_EQ(listener_->statistics().no_place, 0u);
}

TEST_F(PeerListenerTest, APlaceIsFreeOnceGrpcHasShutItsConnection) {
  for (size_t i = 1; i <= 3 * PeerListener::kConnectionsOfSource; ++i) {
    const net::UniqueFd connection = Connect("127.0.0.2");
    AwaitHanded(i);
    absl::MutexLock lock(&mutex_);
    shutdown(handed_.back().get(), SHUT_RDWR);
  }
  Await(&PeerListener::Statistics::silent, 3 * PeerListener::kConnectionsOfSource);
  EXPECT_EQ(listener_->statistics().displaced, 0u);
}

TEST_F(PeerListenerTest, CallsOfAConnectionAreCounted) {
  const net::UniqueFd connection = Connect("127.0.0.2");
  AwaitHanded(1);
  const std::string caller = Caller(connection);
  for (int i = 0; i < PeerListener::kCallsPerConnection; ++i) EXPECT_TRUE(listener_->BeginCall(caller));
  EXPECT_FALSE(listener_->BeginCall(caller));
  EXPECT_EQ(listener_->statistics().calls, 1u);
  listener_->EndCall(caller);
  listener_->EndCall(caller);
  EXPECT_TRUE(listener_->BeginCall(caller));
}

TEST(ParseCallerTest, ReadsWhatGrpcNames) {
  EXPECT_EQ(ParseCaller("ipv4:10.0.0.1:40000"), (TcpEnd{*net::IpAddress::Parse("10.0.0.1"), 40000}));
  EXPECT_EQ(ParseCaller("ipv6:%5Bfd00::1%5D:7"), (TcpEnd{*net::IpAddress::Parse("fd00::1"), 7}));
  EXPECT_EQ(ParseCaller("ipv6:[fe80::1%25eth0]:7"), (TcpEnd{*net::IpAddress::Parse("fe80::1"), 7}));
  EXPECT_EQ(ParseCaller("unix:/run/x"), std::nullopt);
  EXPECT_EQ(ParseCaller("ipv4:10.0.0.1:70000"), std::nullopt);
}

}  // namespace
}  // namespace hedgerow::transfer
