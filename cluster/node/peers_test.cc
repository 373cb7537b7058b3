// SPDX-License-Identifier: Apache-2.0
//
// What leaves for the other nodes, as datagrams: which appends say that another follows, and what becomes of
// those to nodes that have left.
#include "cluster/node/peers.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bpf/abi/peer_abi.h"
#include "cluster/node/socket_testing.h"

namespace hedgerow::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PeersTest : public testing::Test {
 protected:
  PeersTest() { peers_.SetMembers(Others(), 0, 0); }
  ~PeersTest() override { std::filesystem::remove_all(folder_); }

  static std::string MakeFolder() {
    std::string folder = testing::TempDir() + "hedgerow-peers-test.XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    return folder;
  }

  std::vector<PeerState> Others() const {
    return {{.id = raft::NodeId(2), .address = receiver_->LocalAddress().value(), .position = 7}};
  }
  void Append(uint64_t prev_index, uint64_t count, const raft::Entry& like = {.term = raft::Term(1)}) {
    raft::AppendRequest request{.prev_index = raft::LogIndex(prev_index), .prev_term = raft::Term(1)};
    for (uint64_t i = 1; i <= count; ++i) {
      request.entries.push_back(like);
      request.entries.back().index = raft::LogIndex(prev_index + i);
    }
    peers_.Send(
        {.from = raft::NodeId(1), .to = raft::NodeId(2), .term = raft::Term(1), .body = std::move(request)});
  }
  // The flags of the appends that leave.
  std::vector<uint32_t> Flushed() {
    peers_.Flush();
    sender_->Flush();
    std::vector<uint32_t> flags;
    for (const Datagram& datagram : receiver_->Receive(0)) {
      EXPECT_GE(datagram.bytes.size(), wire::kAppendFixed_bytes);
      uint32_t value = 0;
      std::memcpy(&value, datagram.bytes.data() + wire::kPeerHeader_bytes + offsetof(hr_peer_append, flags),
                  sizeof(value));
      flags.push_back(value);
    }
    return flags;
  }

  std::unique_ptr<UdpSocket> sender_ = AnySocket();
  std::unique_ptr<UdpSocket> receiver_ = AnySocket();
  uint64_t drawn_ = 0;
  const std::string folder_ = MakeFolder();
  KnownLogs known_ = KnownLogs::Open(folder_, 11).value();
  Peers peers_{*sender_,
               {.cluster_id = 7, .key = {}, .self = raft::NodeId(1), .life = 5},
               /*log_id=*/11,
               known_,
               [this] { return ++drawn_; }};
};

TEST_F(PeersTest, AnAppendSaysThatTheNextOneLeftWithIt) {
  Append(0, 2);
  Append(2, 1);
  Append(9, 1);
  EXPECT_THAT(Flushed(), ElementsAre(HR_PEER_APPEND_MORE, 0, 0)) << "the last does not begin where one ends";
}

TEST_F(PeersTest, TheLastOneNeverSaysSo) {
  Append(0, 1);
  EXPECT_THAT(Flushed(), ElementsAre(0)) << "or nobody would acknowledge it";
  Append(1, 1);
  EXPECT_THAT(Flushed(), ElementsAre(0));
}

TEST_F(PeersTest, ABurstIsAcknowledgedNowAndThen) {
  for (uint64_t prev_index = 0; prev_index < 20; ++prev_index) Append(prev_index, 1);
  const std::vector<uint32_t> flags = Flushed();
  ASSERT_EQ(flags.size(), 20u);
  uint32_t unsaid = 0;
  for (const uint32_t flag : flags) {
    unsaid = flag == 0 ? 0 : unsaid + 1;
    EXPECT_LE(unsaid, 7u) << "the last one's loss would leave all of them unsaid";
  }
  EXPECT_EQ(std::count(flags.begin(), flags.end(), 0u), 3);
}

TEST_F(PeersTest, NobodysAcknowledgementWaitsForWhatOnlyAProcessStores) {
  Append(0, 1);
  Append(1, 1, {.term = raft::Term(1), .payload = raft::Payload(std::string(1600, 'x'))});
  EXPECT_THAT(Flushed(), ElementsAre(0, 0)) << "too long for a kernel part";
  Append(2, 1);
  Append(3, 1, {.term = raft::Term(1), .kind = raft::EntryKind::kConfiguration});
  EXPECT_THAT(Flushed(), ElementsAre(0, 0));
  Append(4, 1);
  Append(5, 1, {.term = raft::Term(0)});
  EXPECT_THAT(Flushed(), ElementsAre(0, 0)) << "not of the leader's own term";
}

// Its position is beyond those of members.
TEST_F(PeersTest, WhatWaitsForANodeThatHasLeftMeanwhileGoesNowhere) {
  Append(0, 2);
  Append(2, 1);
  peers_.SetMembers({}, 1, 1);
  EXPECT_THAT(Flushed(), IsEmpty());
  EXPECT_EQ(peers_.counters().nowhere, 2u);
}

}  // namespace
}  // namespace hedgerow::node
