// SPDX-License-Identifier: Apache-2.0
//
// Configurations by themselves: what a change makes of one, and the bytes of one.
#include "cluster/raft/configuration.h"

#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::raft {
namespace {

using Kind = MemberChange::Kind;
using testing::ElementsAre;

Configuration Three() { return Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)}); }

MemberChange Change(Kind kind, uint64_t node, std::string address = "") {
  return {.kind = kind, .node = NodeId(node), .address = std::move(address)};
}

Configuration Made(const Configuration& from, const std::vector<MemberChange>& changes) {
  const ChangeResult result = Changed(from, changes);
  EXPECT_EQ(result.refusal, ChangeRefusal::kNone);
  return result.next;
}

TEST(Configuration, ALearnerTakesOneEntryAndTheLowestFreeSlot) {
  const Configuration next = Made(Three(), {Change(Kind::kAddLearner, 9, "host9")});
  EXPECT_EQ(next.epoch, 1u);
  EXPECT_FALSE(next.joint());
  EXPECT_EQ(next.voters, 0b0111u);
  EXPECT_EQ(next.learners(), 0b1000u);
  EXPECT_EQ(next.Find(NodeId(9))->address, "host9");
}

TEST(Configuration, VotersChangeThroughAJointOne) {
  const Configuration learner = Made(Three(), {Change(Kind::kAddLearner, 4)});
  const Configuration joint = Made(learner, {Change(Kind::kPromote, 4), Change(Kind::kRemove, 1)});
  EXPECT_EQ(joint.voters, 0b0111u);
  EXPECT_EQ(joint.next_voters, 0b1110u);
  EXPECT_EQ(joint.leaving, 0u) << "it votes until the new ones decide alone";
  const Configuration next = AfterJoint(joint);
  EXPECT_EQ(next.epoch, 3u);
  EXPECT_EQ(next.voters, 0b1110u);
  EXPECT_FALSE(next.joint());
  EXPECT_EQ(next.leaving, 0b0001u);
  EXPECT_EQ(next.learners(), 0u);
}

TEST(Configuration, AFormerMemberMakesRoomForTheNext) {
  Configuration now = AfterJoint(Made(Three(), {Change(Kind::kRemove, 2)}));
  now = Made(now, {Change(Kind::kAddLearner, 7)});
  EXPECT_EQ(now.Find(NodeId(2)), nullptr);
  EXPECT_EQ(now.SlotOf(NodeId(7)), 1u);
  EXPECT_EQ(now.leaving, 0u);
  std::vector<uint64_t> slots;
  for (const Member& member : now.members) slots.push_back(member.slot);
  EXPECT_THAT(slots, ElementsAre(0, 1, 2));
}

TEST(Configuration, EveryRefusalIsSaidForWhatItMeans) {
  const Configuration now = Made(Three(), {Change(Kind::kAddLearner, 4, "a")});
  const auto refusal = [&now](const std::vector<MemberChange>& changes) { return Changed(now, changes).refusal; };
  EXPECT_EQ(refusal({Change(Kind::kAddLearner, 2)}), ChangeRefusal::kMember);
  EXPECT_EQ(refusal({Change(Kind::kPromote, 9)}), ChangeRefusal::kNoMember);
  EXPECT_EQ(refusal({Change(Kind::kRemove, 9)}), ChangeRefusal::kNoMember);
  EXPECT_EQ(refusal({Change(Kind::kPromote, 2)}), ChangeRefusal::kVoter);
  EXPECT_EQ(refusal({Change(Kind::kRemove, 1), Change(Kind::kRemove, 2), Change(Kind::kRemove, 3)}),
            ChangeRefusal::kNoVoterLeft);
  EXPECT_EQ(refusal({Change(Kind::kMove, 1, "a")}), ChangeRefusal::kAddressTaken);
  EXPECT_EQ(refusal({Change(Kind::kMove, 4, "a")}), ChangeRefusal::kNothing);
  Configuration of_a_file = now;
  of_a_file.epoch = 0;
  EXPECT_EQ(Changed(of_a_file, {Change(Kind::kMove, 4, "a")}).refusal, ChangeRefusal::kNone)
      << "the others' files may say another address";
  EXPECT_EQ(refusal({}), ChangeRefusal::kNothing);
  EXPECT_EQ(refusal({Change(Kind::kAddLearner, 5, std::string(kAddressMax_bytes + 1, 'x'))}),
            ChangeRefusal::kAddressTooLong);
  Configuration full = now;
  for (uint64_t id = 5; id <= HR_RAFT_MAX_MEMBERS; ++id) full = Made(full, {Change(Kind::kAddLearner, id)});
  EXPECT_EQ(Changed(full, {Change(Kind::kAddLearner, 20)}).refusal, ChangeRefusal::kFull);
  const ChangeResult who = Changed(now, {Change(Kind::kRemove, 1), Change(Kind::kPromote, 9)});
  EXPECT_EQ(who.about, NodeId(9)) << "of several, the one that cannot be";
}

TEST(Configuration, ItsBytesAreReadAsTheyWereWritten) {
  Configuration now = Made(Three(), {Change(Kind::kAddLearner, 0xfffffffe, "10.0.0.4:4802")});
  EXPECT_EQ(DecodeConfiguration(EncodeConfiguration(now)), now);
  now = Made(now, {Change(Kind::kPromote, 0xfffffffe), Change(Kind::kRemove, 1)});
  EXPECT_EQ(DecodeConfiguration(EncodeConfiguration(now)), now);
  now = AfterJoint(now);
  EXPECT_EQ(DecodeConfiguration(EncodeConfiguration(now)), now);
  EXPECT_EQ(DecodeConfiguration(EncodeConfiguration({})), Configuration());
}

TEST(Configuration, OtherBytesAreNone) {
  const std::string good = EncodeConfiguration(Made(Three(), {Change(Kind::kAddLearner, 4, "host4")}));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DecodeConfiguration(good.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(DecodeConfiguration(good + "x").has_value());
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    const std::optional<Configuration> read = DecodeConfiguration(bytes);
    if (!read.has_value()) continue;
    EXPECT_EQ(EncodeConfiguration(*read), bytes) << "sound, or none";
  }
}

TEST(ConfigurationHistory, TruncationGoesBackToTheOneBefore) {
  ConfigurationHistory history(LogIndex(), Three());
  const Configuration one = Made(Three(), {Change(Kind::kAddLearner, 4)});
  const Configuration two = Made(one, {Change(Kind::kPromote, 4)});
  history.Append(LogIndex(5), one);
  history.Append(LogIndex(9), two);
  EXPECT_EQ(history.latest(), two);
  EXPECT_EQ(history.At(LogIndex(8)), one);
  EXPECT_EQ(history.At(LogIndex(4)), Three());
  history.TruncateFrom(LogIndex(9));
  EXPECT_EQ(history.latest(), one);
  EXPECT_EQ(history.latest_index(), LogIndex(5));
  history.TruncateFrom(LogIndex(6));
  EXPECT_EQ(history.latest(), one);
  history.CompactTo(LogIndex(7));
  EXPECT_EQ(history.At(LogIndex(1)), one) << "nobody asks any more";
}

}  // namespace
}  // namespace hedgerow::raft
