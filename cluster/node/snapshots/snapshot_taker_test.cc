// SPDX-License-Identifier: Apache-2.0
//
// How much of the loop a snapshot takes, and what becomes of it when the disk says no: a replica of one, with
// the time in the test's hands.
#include "cluster/node/snapshots/snapshot_taker.h"

#include <atomic>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/storage/testing/storage_story.h"

namespace hedgerow::node {
namespace {

class SnapshotTakerTest : public ::testing::Test, public kv::ReplicaHost {
 protected:
  SnapshotTakerTest() {
    std::filesystem::create_directory(folder_.log());
    snapshots_.emplace(*storage::SnapshotFolder::Open(folder_.log()));
    kv::ReplicaOptions options;
    options.raft.self = raft::NodeId(1);
    options.raft.initial = raft::Configuration::OfVoters({raft::NodeId(1)});
    options.snapshots.every_entries = 1000;
    replica_.emplace(*this, options, raft::RestoredState{});
    taker_.emplace(
        *snapshots_, 7, [this] { return now_ns_ += kRead_ns; }, [this] { woken_ = true; });
    now_ns_ = replica_->next_deadline_ns();
    replica_->Tick();
    replica_->Settle();
    EXPECT_EQ(replica_->raft().role(), raft::Role::kLeader);
  }
  // So many values of a kilobyte.
  void Write(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      kv::Operation put{
          .kind = kv::OperationKind::kPut, .key = std::to_string(++written_), .value = std::string(1000, 'v')};
      replica_->ReceiveRequest(now_ns_, {.command = {.key = {.kind = kv::CommandKind::kWindowed, .a = written_},
                                                     .operations = {std::move(put)}},
                                         .timeout_ns = 1'000'000'000});
      replica_->Settle();
    }
  }
  bool Turn() {
    const bool taken = taker_->Turn(now_ns_, replica_->wants_snapshot(), *replica_);
    replica_->Settle();
    return taken;
  }
  // Until it has one, or has failed once more.
  bool Finish() {
    const uint64_t failed = taker_->status().failed;
    for (int i = 0; i < 100'000 && taker_->status().failed == failed; ++i) {
      now_ns_ = taker_->next_deadline_ns() == UINT64_MAX ? now_ns_ + 1000 : taker_->next_deadline_ns();
      if (Turn()) return true;
      if (taker_->next_deadline_ns() == UINT64_MAX) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return false;
  }

  // kv::ReplicaHost
  uint64_t Now_ns() override { return now_ns_; }
  uint64_t StampClock_ns() override { return now_ns_; }
  uint64_t Random() override { return ++random_; }
  uint64_t Secret() override { return Random(); }
  void Persist(raft::Persist persist) override {
    if (persist.new_start.has_value()) starts_.push_back(*persist.new_start);
    replica_->Feed(raft::Persisted{.sequence = persist.sequence});
  }
  void Send(raft::Message) override {}
  void Send(kv::Answer) override {}
  void Send(kv::Forward) override {}
  void LeaderIs(raft::NodeId, raft::Term) override {}

  static constexpr uint64_t kRead_ns = 10'000;  // what a step takes, by the test's clock
  storage::TestFolder folder_;
  std::optional<storage::SnapshotFolder> snapshots_;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t random_ = 0;
  uint64_t written_ = 0;
  std::atomic<bool> woken_ = false;
  std::vector<raft::NewStart> starts_;
  std::optional<kv::Replica> replica_;
  std::optional<SnapshotTaker> taker_;
};

TEST_F(SnapshotTakerTest, TakesNoneBeforeItIsTimeAndOneWhenItIs) {
  Write(900);
  EXPECT_FALSE(Turn());
  EXPECT_FALSE(taker_->taking());
  Write(100);
  EXPECT_TRUE(Finish());
  EXPECT_TRUE(woken_);
  EXPECT_EQ(snapshots_->List().size(), 1u);
  ASSERT_EQ(starts_.size(), 1u);
  EXPECT_EQ(starts_[0].snapshot, replica_->raft().snapshot().last);
  EXPECT_GT(taker_->status().last_size_bytes, 1'000'000u);
  EXPECT_FALSE(Turn()) << "and no second one";
  EXPECT_FALSE(taker_->taking());
}

TEST_F(SnapshotTakerTest, LeavesFourFifthsOfTheLoopToOthers) {
  Write(3000);
  Turn();
  ASSERT_TRUE(taker_->taking());
  uint64_t slices = 0;
  while (replica_->taking_snapshot()) {
    now_ns_ = taker_->next_deadline_ns();
    const uint64_t begin_ns = now_ns_;
    Turn();
    const uint64_t slice_ns = now_ns_ - begin_ns;
    EXPECT_LE(slice_ns, 250'000u);
    if (!replica_->taking_snapshot()) break;
    EXPECT_GE(taker_->next_deadline_ns(), now_ns_ + 3 * slice_ns);
    const uint64_t next_ns = taker_->next_deadline_ns();
    now_ns_ = next_ns - 1;
    Turn();
    EXPECT_EQ(taker_->next_deadline_ns(), next_ns) << "not before its time";
    ++slices;
  }
  EXPECT_GT(slices, 5u);
  EXPECT_LE(taker_->status().longest_slice_ns, 250'000u);
  EXPECT_TRUE(Finish());
}

TEST_F(SnapshotTakerTest, ADiskThatSaysNoIsTriedAgainLater) {
  Write(1000);
  std::filesystem::rename(folder_.log() + "/snapshots", folder_.log() + "/elsewhere");
  EXPECT_FALSE(Finish());
  EXPECT_EQ(taker_->status().failed, 1u);
  EXPECT_THAT(taker_->status().error, ::testing::HasSubstr("cannot make"));
  EXPECT_FALSE(replica_->taking_snapshot());
  EXPECT_TRUE(starts_.empty()) << "the log is not cut";
  std::filesystem::rename(folder_.log() + "/elsewhere", folder_.log() + "/snapshots");
  Turn();
  EXPECT_FALSE(taker_->taking()) << "not at once";
  now_ns_ += 10'000'000'000;
  EXPECT_TRUE(Finish());
  EXPECT_EQ(taker_->status().error, "");
  EXPECT_EQ(starts_.size(), 1u);
}

TEST_F(SnapshotTakerTest, CopiesOfWhatChangesMeanwhileAreBounded) {
  const auto put = [this](uint64_t key, char value) {
    ++written_;
    replica_->ReceiveRequest(now_ns_, {.command = {.key = {.kind = kv::CommandKind::kWindowed, .a = written_},
                                                   .operations = {{.kind = kv::OperationKind::kPut,
                                                                   .key = std::to_string(key),
                                                                   .value = std::string(10'000, value)}}},
                                       .timeout_ns = 1'000'000'000});
    replica_->Settle();
  };
  ASSERT_TRUE(replica_->ChangeSettings({{.setting = kv::Setting::kMemory, .value = uint64_t{160} << 20}}));
  replica_->Settle();
  constexpr uint64_t most_bytes = uint64_t{20} << 20;  // an eighth
  constexpr uint64_t kKeys = 2'400;
  for (uint64_t key = 0; key < kKeys; ++key) put(key, 'a');
  Turn();
  ASSERT_TRUE(taker_->taking());
  // No slice is made meanwhile: as if the disk took nothing.
  uint64_t key = 0;
  for (; key < kKeys && replica_->taking_snapshot(); ++key) {
    put(key, 'b');
    EXPECT_LE(replica_->snapshot_held_bytes(), most_bytes + 20'000);
    taker_->Turn(now_ns_, false, *replica_);
  }
  EXPECT_LT(key, kKeys) << "it was given up";
  EXPECT_EQ(replica_->snapshot_held_bytes(), 0u);
  EXPECT_FALSE(taker_->taking());
  EXPECT_EQ(taker_->status().failed, 1u);
  EXPECT_EQ(taker_->status().gave_up, 1u);
  EXPECT_EQ(taker_->status().held_bytes, 0u);
  EXPECT_THAT(taker_->status().error,
              ::testing::HasSubstr("20 MiB wait for it, of the 20 that may (an eighth of memory.limit_mib)"));
  now_ns_ += 10'000'000'000;
  // The disk takes its own time, whatever the test's clock says.
  for (int i = 0; i < 20'000 && taker_->status().taken == 0; ++i) {
    now_ns_ += 2'000'000;
    Turn();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(taker_->status().taken, 1u) << "where the disk keeps up the next one is whole";
  EXPECT_EQ(taker_->status().error, "");
}

TEST_F(SnapshotTakerTest, OneThatIsAskedForIsTakenUnlessThereIsNothingNew) {
  Write(5);
  taker_->Ask();
  EXPECT_TRUE(Finish());
  taker_->Ask();
  Turn();
  EXPECT_FALSE(taker_->taking());
  EXPECT_EQ(taker_->status().taken, 1u);
}

TEST_F(SnapshotTakerTest, ADamagedFileIsReplacedAlsoWhereNothingIsNew) {
  Write(5);
  taker_->Ask();
  ASSERT_TRUE(Finish());
  const std::string path = snapshots_->PathOf(snapshots_->List().at(0));
  const std::string sound = storage::ReadFile(path);
  storage::WriteFile(path, std::string(sound.size(), 'x'));
  taker_->Replace();
  Turn();
  ASSERT_TRUE(taker_->taking());
  EXPECT_TRUE(Finish());
  EXPECT_EQ(storage::ReadFile(path), sound);
  EXPECT_EQ(snapshots_->List().size(), 1u);
  taker_->Ask();
  Turn();
  EXPECT_FALSE(taker_->taking()) << "once";
}

TEST_F(SnapshotTakerTest, ALeadersSnapshotEndsIt) {
  Write(2000);
  Turn();
  now_ns_ = taker_->next_deadline_ns();
  Turn();
  ASSERT_TRUE(replica_->taking_snapshot());
  EXPECT_GT(taker_->status().held_bytes, 0u);
  replica_->AbandonSnapshot();  // as when the state is replaced
  now_ns_ = taker_->next_deadline_ns();
  Turn();
  EXPECT_FALSE(taker_->taking());
  EXPECT_EQ(taker_->status().held_bytes, 0u);
  EXPECT_TRUE(starts_.empty());
  Write(1);
  for (int i = 0; i < 1000 && !taker_->taking(); ++i) {
    taker_->Ask();
    Turn();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(Finish()) << "the next one is taken once the first one's thread has ended";
}

}  // namespace
}  // namespace hedgerow::node
