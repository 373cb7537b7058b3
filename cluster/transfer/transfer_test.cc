// SPDX-License-Identifier: Apache-2.0
//
// Sender and receiver over loopback: what arrives is what was sent, whatever breaks in between, and a
// caller without the cluster's key gets nothing.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <grpcpp/grpcpp.h>

#include "cluster/api/transfer.grpc.pb.h"
#include "cluster/transfer/seal.h"
#include "cluster/transfer/testing/tcp_relay.h"
#include "cluster/transfer/testing/transfer_testing.h"

namespace hedgerow::transfer {
namespace {

using ::testing::HasSubstr;

TEST_F(TransferTest, WhatArrivesIsWhatWasSent) {
  Take(At(500, 3), 3000);
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3)));
  const absl::Status status = AwaitEnd();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(SameFile(At(500, 3)));
  EXPECT_EQ(FilesAtReceiver(), 1u);
  absl::MutexLock lock(&mutex_);
  EXPECT_EQ(values_, 3000u);
  EXPECT_EQ(event_.leader, raft::NodeId(1));
  EXPECT_EQ(event_.term, raft::Term(9));
  EXPECT_EQ(event_.snapshot.last, At(500, 3));
}

TEST_F(TransferTest, OneThatBreaksOffGoesOnWhereItWas) {
  Take(At(500, 3), 4000);
  const uint64_t size = std::filesystem::file_size(sent_->PathOf(At(500, 3)));
  {
    const std::unique_ptr<Sender> slow = SendSlowly(At(500, 3), 2'000'000, 500'000);
    ASSERT_EQ(slow->UnderWay().size(), 1u);
    EXPECT_EQ(slow->UnderWay()[0].size_bytes, size);
    EXPECT_GT(slow->UnderWay()[0].sent_bytes, 300'000u);
  }
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3)));
  ASSERT_TRUE(AwaitEnd().ok());
  EXPECT_EQ(sender->statistics().resumed, 1u);
  EXPECT_LT(sender->statistics().sent_bytes, size - 300'000);
  EXPECT_TRUE(SameFile(At(500, 3)));
  EXPECT_EQ(receiver_->statistics().broken_off, 1u);
}

TEST_F(TransferTest, ACorruptedFrameCostsItsConnectionAndNothingElse) {
  Take(At(500, 3), 4000);
  // The bytes are in the midst of a piece, so that HTTP/2 sees nothing odd.
  TcpRelay relay(address_, {.corrupt_after_bytes = 2'000'000});
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3), relay.address()));
  const absl::Status status = AwaitEnd();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(relay.corrupted(), 1u);
  EXPECT_EQ(receiver_->statistics().unauthenticated, 1u) << "the frame";
  EXPECT_EQ(sender->statistics().resumed, 1u);
  const uint64_t size = std::filesystem::file_size(sent_->PathOf(At(500, 3)));
  EXPECT_LT(receiver_->statistics().received_bytes, size + 1) << "nothing came twice";
  EXPECT_TRUE(SameFile(At(500, 3)));
}

TEST_F(TransferTest, AConnectionThatBreaksAgainAndAgainArrivesAllTheSame) {
  Take(At(500, 3), 8000);
  TcpRelay relay(address_, {.break_after_bytes = 1'000'000});
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3), relay.address()));
  const absl::Status status = AwaitEnd();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(sender->statistics().resumed, 3u) << "more than it tries without getting further";
  EXPECT_TRUE(SameFile(At(500, 3)));
}

TEST_F(TransferTest, AReceiverThatStartsAnewGetsAllOfItAnew) {
  Take(At(500, 3), 4000);
  const std::unique_ptr<Sender> sender = NewSender(4'000'000, 1, 10);
  sender->Send(OfferOf(At(500, 3)));
  AwaitReceived(500'000);
  receiver_.reset();
  got_.emplace(*storage::SnapshotFolder::Open(to_.log()));
  EXPECT_EQ(FilesAtReceiver(), 0u) << "what was not finished is nothing to the next life";
  Listen();
  const absl::Status status = AwaitEnd();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(SameFile(At(500, 3)));
}

TEST_F(TransferTest, ANewerTransferEndsAnOlderOne) {
  Take(At(500, 3), 4000);
  Take(At(600, 3), 100);
  const std::unique_ptr<Sender> slow = SendSlowly(At(500, 3), 500'000, 200'000);
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(600, 3)));
  ASSERT_TRUE(AwaitEnd().ok());
  EXPECT_EQ(sender->statistics().delivered, 1u);
  EXPECT_TRUE(SameFile(At(600, 3)));
  EXPECT_GE(receiver_->statistics().broken_off, 1u);
}

TEST_F(TransferTest, TheRateIsNotExceeded) {
  Take(At(500, 3), 1000);
  const std::unique_ptr<Sender> sender = NewSender(4'000'000);
  const absl::Time begun = absl::Now();
  sender->Send(OfferOf(At(500, 3)));
  ASSERT_TRUE(AwaitEnd().ok());
  EXPECT_GT(absl::Now() - begun, absl::Milliseconds(200)) << "a megabyte at four a second";
}

TEST_F(TransferTest, WhatIsNotNeededIsNotSent) {
  Take(At(5, 3), 3000);
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(5, 3)));
  EXPECT_TRUE(AwaitEnd().ok());
  EXPECT_EQ(sender->statistics().sent_bytes, 0u);
  EXPECT_EQ(FilesAtReceiver(), 0u);
}

TEST_F(TransferTest, ALeaderWhoseTermIsOverLearnsIt) {
  Take(At(500, 3), 3000);
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOfFormerTerm(At(500, 3)));
  EXPECT_THAT(std::string(AwaitEnd().message()), HasSubstr("node 2: its term is over"));
  EXPECT_EQ(sender->statistics().sent_bytes, 0u);
  EXPECT_EQ(receiver_->statistics().refused, 3u) << "as often as it was tried";
}

TEST_F(TransferTest, ALeaderWhoseTermIsOverEndsNoOtherTransfer) {
  Take(At(500, 3), 4000);
  Take(At(600, 3), 10);
  const std::unique_ptr<Sender> slow = SendSlowly(At(500, 3), 1'000'000, 200'000);
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOfFormerTerm(At(600, 3)));
  EXPECT_THAT(std::string(AwaitEnd().message()), HasSubstr("node 2: its term is over"));
  EXPECT_EQ(receiver_->statistics().broken_off, 0u);
  EXPECT_EQ(receiver_->statistics().begun, 1u);
}

TEST_F(TransferTest, WithoutTheKeyNothingIsReceived) {
  Take(At(500, 3), 10);
  const std::unique_ptr<Sender> sender = NewSender(0, 2);
  sender->Send(OfferOf(At(500, 3)));
  EXPECT_FALSE(AwaitEnd().ok());
  EXPECT_EQ(receiver_->statistics().unauthenticated, 3u);
  EXPECT_EQ(receiver_->statistics().begun, 0u);
  EXPECT_EQ(FilesAtReceiver(), 0u);
}

TEST_F(TransferTest, AConnectionFromElsewhereIsRefusedBeforeItIsAsked) {
  Take(At(500, 3), 10);
  calls_from_ = *net::IpAddress::Parse("127.0.0.9");
  const std::unique_ptr<Sender> sender = NewSender(0, 1, 1);
  sender->Send(OfferOf(At(500, 3)));
  const absl::Status ended = AwaitEnd();
  EXPECT_THAT(ended.message(), HasSubstr("`peer_clients` does not list it")) << ended;
  EXPECT_GE(receiver_->statistics().connections.strangers, 1u) << "gRPC may try again";
  EXPECT_EQ(receiver_->statistics().unauthenticated, 0u);
  EXPECT_EQ(receiver_->statistics().begun, 0u);
}

TEST_F(TransferTest, ACallerIsKnownByItsIpv6AddressToo) {
  Take(At(500, 3), 10);
  receiver_.reset();
  address_ = absl::StrCat("[::1]:", 20000 + getpid() % 20000);
  Listen();
  for (const char* source : {"::2", "::1"}) {
    calls_from_ = *net::IpAddress::Parse(source);
    const std::unique_ptr<Sender> sender = NewSender(0, 1, 1);
    sender->Send(OfferOf(At(500, 3)));
    EXPECT_EQ(AwaitEnd().ok(), calls_from_.is_loopback()) << source;
    absl::MutexLock lock(&mutex_);
    ended_.clear();
  }
  EXPECT_GE(receiver_->statistics().connections.strangers, 1u);
}

TEST_F(TransferTest, UnauthenticatedCallersThatSendNothingKeepNoOtherOut) {
  Take(At(500, 3), 100);
  const auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  const auto stub = v1::SnapshotTransfer::NewStub(channel);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::Frame, v1::Frame>>> silent;
  for (int i = 0; i < 40; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(3));
    silent.push_back(stub->Give(contexts.back().get()));
    // All that can be sent without the key: a caller without it has no answer to the challenge.
    v1::Message hello;
    hello.mutable_hello()->set_cluster_id(kTransferCluster);
    hello.mutable_hello()->set_to(2);
    hello.mutable_hello()->set_nonce(DrawNonce());
    (void)silent.back()->Write(Open(hello));
  }
  // Each listens at once: a status that is not awaited is forgotten when the deadline comes.
  std::atomic<int> left = 0;
  std::vector<std::thread> listeners;
  for (auto& stream : silent) {
    listeners.emplace_back([&left, stream = stream.get()] {
      v1::Frame frame;
      while (stream->Read(&frame)) {
      }
      left += stream->Finish().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    });
  }
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3)));
  const absl::Status status = AwaitEnd();
  EXPECT_TRUE(status.ok()) << status;
  // The receiver shows most of them out, and gRPC turns away a caller that finds none of its threads free. A caller
  // that is left ends by its own deadline.
  EXPECT_GE(receiver_->statistics().unauthenticated, 1u);
  for (std::thread& listener : listeners) listener.join();
  EXPECT_LE(left, 6) << "all others were shown out";
}

// 500 of an address that is no member's, and more than there are places of the leader's own.
TEST_F(TransferTest, IdleConnectionsStopNeitherATransferThatRunsNorTheNextOne) {
  Take(At(500, 3), 4000);
  const std::unique_ptr<Sender> sender = SendSlowly(At(500, 3), 4'000'000, 200'000);
  std::vector<net::UniqueFd> idle;
  for (size_t i = 0; i < 3 * PeerListener::kConnectionsOfSource; ++i) idle.push_back(ConnectFrom("127.0.0.1"));
  for (int i = 0; i < 500; ++i) idle.push_back(ConnectFrom("127.0.0.66"));
  const absl::Status first = AwaitEnd();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_EQ(receiver_->statistics().broken_off, 0u);
  Take(At(600, 3), 10);
  {
    absl::MutexLock lock(&mutex_);
    ended_.clear();
  }
  sender->Send(OfferOf(At(600, 3)));
  const absl::Status next = AwaitEnd();
  EXPECT_TRUE(next.ok()) << next;
  const PeerListener::Statistics connections = receiver_->statistics().connections;
  EXPECT_GT(connections.strangers, 0u);
  EXPECT_GE(connections.displaced, 2 * PeerListener::kConnectionsOfSource);
  EXPECT_EQ(connections.no_place, 0u);
}

TEST_F(TransferTest, UnauthenticatedCallersThatOnlyConnectAreShownOut) {
  const auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  const auto in = [](int seconds) { return std::chrono::system_clock::now() + std::chrono::seconds(seconds); };
  ASSERT_TRUE(channel->WaitForConnected(in(10)));
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, in(10))) << "it may stay for ever";
}

TEST_F(TransferTest, AMissingReceiverIsAFailure) {
  Take(At(500, 3), 10);
  receiver_.reset();
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3)));
  EXPECT_FALSE(AwaitEnd().ok());
  EXPECT_EQ(sender->statistics().failed, 1u);
}

TEST_F(TransferTest, AFileThatIsGoneIsAFailure) {
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3)));
  EXPECT_THAT(std::string(AwaitEnd().message()), HasSubstr("cannot open"));
}

TEST_F(TransferTest, OneThatIsStoppedTellsNoEnd) {
  Take(At(500, 3), 4000);
  const std::unique_ptr<Sender> sender = SendSlowly(At(500, 3), 500'000, 200'000);
  sender->StopAll();
  EXPECT_TRUE(sender->UnderWay().empty());
  while (receiver_->statistics().broken_off < 1) absl::SleepFor(absl::Milliseconds(5));
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(ended_.empty());
}

TEST_F(TransferTest, ADamagedFileIsRefusedAndNotSentAgain) {
  Take(At(500, 3), 100);
  std::string bytes = storage::ReadFile(sent_->PathOf(At(500, 3)));
  bytes[bytes.size() / 2] ^= 1;
  storage::WriteFile(sent_->PathOf(At(500, 3)), bytes);
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3)));
  const absl::Status status = AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("damaged"));
  EXPECT_EQ(sender->statistics().sent_bytes, bytes.size()) << "once";
  EXPECT_EQ(FilesAtReceiver(), 0u);
}

TEST_F(TransferTest, WhatTheCoreDoesNotTakeIsNotDelivered) {
  Take(At(500, 3), 100);
  {
    absl::MutexLock lock(&mutex_);
    take_ = absl::FailedPreconditionError("another term has begun");
  }
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3)));
  std::string trouble;
  for (int i = 0; i < 2000 && trouble.empty(); ++i) {
    const std::vector<Sending> under_way = sender->UnderWay();
    if (!under_way.empty()) trouble = under_way[0].trouble;
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(trouble, "node 2: another term has begun") << "reported while it is tried again";
  EXPECT_THAT(std::string(AwaitEnd().message()), HasSubstr("another term has begun"));
}

// Its log may begin behind that one. (What the core refuses goes: RaftSnapshotsTest.)
TEST_F(TransferTest, ANodeThatStopsMeanwhileKeepsItsOwnSnapshotOfTheSameEntry) {
  Take(At(500, 3), 100);
  std::filesystem::copy_file(sent_->PathOf(At(500, 3)), got_->PathOf(At(500, 3)));
  {
    absl::MutexLock lock(&mutex_);
    take_ = absl::UnavailableError("the node stops");
  }
  const std::unique_ptr<Sender> sender = NewSender(0, 1, 1);
  sender->Send(OfferOf(At(500, 3)));
  EXPECT_THAT(std::string(AwaitEnd().message()), HasSubstr("the node stops"));
  EXPECT_TRUE(SameFile(At(500, 3)));
}

TEST_F(TransferTest, AFollowerThatHasEverythingIsWaitedForWhileItMakesAStateOfIt) {
  Take(At(500, 3), 100);
  mutex_.Lock();  // the host's Take waits here
  const std::unique_ptr<Sender> sender = NewSender();
  sender->Send(OfferOf(At(500, 3)));
  Sending sending;
  for (int i = 0; i < 2000 && !sending.all_sent; ++i) {
    absl::SleepFor(absl::Milliseconds(5));
    const std::vector<Sending> under_way = sender->UnderWay();
    if (!under_way.empty()) sending = under_way[0];
  }
  EXPECT_TRUE(sending.all_sent);
  EXPECT_TRUE(MakesProgress(sending, std::chrono::steady_clock::now() + std::chrono::minutes(1)));
  sending.all_sent = false;
  EXPECT_TRUE(MakesProgress(sending, sending.moved + std::chrono::seconds(1)));
  EXPECT_FALSE(MakesProgress(sending, sending.moved + std::chrono::minutes(1))) << "but not one that takes nothing";
  mutex_.Unlock();
  EXPECT_TRUE(AwaitEnd().ok());
}

}  // namespace
}  // namespace hedgerow::transfer
