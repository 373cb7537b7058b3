// SPDX-License-Identifier: Apache-2.0
//
// A receiver whose disk is full, on a small tmpfs that only this process sees. Needs root. The namespace is
// made before any thread, since threads inherit it.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <gmock/gmock.h>

#include "net/unique_fd.h"
#include "cluster/transfer/testing/transfer_testing.h"

namespace hedgerow::transfer {
namespace {

using ::testing::HasSubstr;

class FullDiskTransferTest : public TransferTest {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(unshare(CLONE_NEWNS), 0) << "needs root: sudo ./dev test";
    ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  }
  void SetUp() override {
    ASSERT_EQ(mount("tmpfs", to_.path().c_str(), "tmpfs", 0, "size=4m"), 0);
    TransferTest::SetUp();
  }
  void TearDown() override {
    TransferTest::TearDown();
    EXPECT_EQ(umount2(to_.path().c_str(), MNT_DETACH), 0);
  }
  uint64_t Free() const {
    struct statvfs space {};
    EXPECT_EQ(statvfs(to_.path().c_str(), &space), 0);
    return uint64_t{space.f_bavail} * space.f_frsize;
  }
};

TEST_F(FullDiskTransferTest, NothingIsSentWhereThereIsNoRoomAndItGoesOnWhenThereIs) {
  Take(At(500, 3), 3000);
  const std::string filler = to_.path() + "/filler";
  {
    const net::UniqueFd file(open(filler.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    ASSERT_EQ(posix_fallocate(file.get(), 0, 2 * 1024 * 1024), 0);
  }
  const uint64_t free_bytes = Free();
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3)));
  EXPECT_THAT(std::string(AwaitEnd().message()), HasSubstr("cannot find"));
  EXPECT_EQ(sender->statistics().sent_bytes, 0u);
  EXPECT_EQ(receiver_->statistics().refused, 3u);
  EXPECT_EQ(FilesAtReceiver(), 0u);
  EXPECT_GE(Free() + 8192, free_bytes) << "nothing is left of it";

  std::filesystem::remove(filler);
  {
    absl::MutexLock lock(&mutex_);
    ended_.clear();
  }
  sender->Send(OfferOf(At(500, 3)));
  const absl::Status status = AwaitEnd();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(SameFile(At(500, 3)));
}

}  // namespace
}  // namespace hedgerow::transfer
