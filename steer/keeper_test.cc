// SPDX-License-Identifier: Apache-2.0
//
// The keeper returns a socket that no other process holds, with its queue.
#include "steer/keeper.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace hedgerow::steer {
namespace {

class KeeperTest : public testing::Test {
 protected:
  KeeperTest() {
    char pattern[] = "/tmp/hedgerow-keeper-test.XXXXXX";
    folder_ = mkdtemp(pattern);
    path_ = folder_ + "/keeper.sock";
    auto keeper = KeeperClient::Start(path_);
    EXPECT_TRUE(keeper.ok()) << keeper.status();
    keeper_ = std::make_unique<KeeperClient>(*std::move(keeper));
  }
  ~KeeperTest() override {
    if (keeper_ != nullptr) {
      EXPECT_TRUE(keeper_->End().ok());
      EXPECT_EQ(waitpid(keeper_->pid(), nullptr, 0), keeper_->pid());
    }
    std::filesystem::remove_all(folder_);
  }
  std::string folder_;
  std::string path_;
  std::unique_ptr<KeeperClient> keeper_;
};

TEST_F(KeeperTest, ASocketAndItsQueueOutliveTheirHolder) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
  const net::UniqueFd sender(pair[0]);
  net::UniqueFd kept(pair[1]);
  ASSERT_TRUE(keeper_->Put(Transport::kTcp, 7, kept.get()).ok());
  ASSERT_EQ(send(sender.get(), "queued", 6, 0), 6);
  kept.Reset();
  auto next = KeeperClient::Connect(path_);
  ASSERT_TRUE(next.ok()) << next.status();
  for (int turn = 0; turn < 2; ++turn) {  // a take leaves the keeper's own
    const auto taken = next->Take();
    ASSERT_TRUE(taken.ok()) << taken.status();
    ASSERT_EQ(taken->size(), 1u);
    EXPECT_EQ((*taken)[0].transport, Transport::kTcp);
    EXPECT_EQ((*taken)[0].slot, 7);
    char text[16] = "";
    EXPECT_EQ(recv((*taken)[0].socket.get(), text, sizeof(text), MSG_PEEK), 6);
    EXPECT_STREQ(text, "queued");
  }
  ASSERT_TRUE(next->Drop(Transport::kTcp, 7).ok());
  EXPECT_TRUE(next->Take()->empty());
  EXPECT_LT(send(sender.get(), "x", 1, MSG_NOSIGNAL), 0) << "the last reference has closed";
}

TEST_F(KeeperTest, ItHoldsASocketForEachPlaceOfAGroup) {
  const net::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
    for (int slot = 0; slot < HR_STEER_SOCKETS; ++slot) ASSERT_TRUE(keeper_->Put(transport, slot, socket.get()).ok());
  }
  EXPECT_EQ(keeper_->Take()->size(), 2u * HR_STEER_SOCKETS);
  EXPECT_TRUE(keeper_->Put(Transport::kUdp, HR_STEER_SOCKETS, socket.get()).ok()) << "no such place: ignored";
  EXPECT_EQ(keeper_->Take()->size(), 2u * HR_STEER_SOCKETS);
}

TEST_F(KeeperTest, ItIsForItsUserAloneAndItsEndIsSeen) {
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  auto other = KeeperClient::Connect(path_);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(keeper_->End().ok());
  pollfd end{.fd = other->fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&end, 1, 5000), 1);
  EXPECT_EQ(waitpid(keeper_->pid(), nullptr, 0), keeper_->pid());
  EXPECT_TRUE(absl::IsUnavailable(other->Take().status()));
  EXPECT_TRUE(absl::IsUnavailable(KeeperClient::Connect(path_).status()));
  keeper_.reset();
}

// A poll() that names a connection which accept4() cannot take returns at once, again and again.
TEST_F(KeeperTest, ItSleepsWhileItHasNoDescriptorForAConnection) {
  ASSERT_TRUE(keeper_->Take().ok()) << "it has begun";
  const pid_t pid = keeper_->pid();
  int lowest_free = 0;
  while (std::filesystem::exists(absl::StrCat("/proc/", pid, "/fd/", lowest_free))) ++lowest_free;
  rlimit before{};
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before.rlim_max};
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, &none, nullptr), 0);
  auto other = KeeperClient::Connect(path_);
  ASSERT_TRUE(other.ok());
  clockid_t clock{};
  ASSERT_EQ(clock_getcpuclockid(pid, &clock), 0);
  timespec began{}, ended{};
  clock_gettime(clock, &began);
  poll(nullptr, 0, 500);
  clock_gettime(clock, &ended);
  const int64_t took_ns = (ended.tv_sec - began.tv_sec) * 1'000'000'000 + ended.tv_nsec - began.tv_nsec;
  EXPECT_LT(took_ns, 20'000'000) << "of a processor";
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, &before, nullptr), 0);
  EXPECT_TRUE(other->Take().ok()) << "it waited";
}

}  // namespace
}  // namespace hedgerow::steer
