// SPDX-License-Identifier: Apache-2.0
//
// For the tests of transfers: a sender's and a receiver's folder, with a host that takes what comes.

#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "net/unique_fd.h"
#include "cluster/storage/testing/storage_story.h"
#include "cluster/transfer/receiver.h"
#include "cluster/transfer/sender.h"

namespace hedgerow::transfer {

inline constexpr uint64_t kTransferCluster = 7;

inline wire::Key KeyOf(uint8_t byte) {
  wire::Key key;
  key.bytes.fill(byte);
  return key;
}

inline raft::EntryId At(uint64_t index, uint64_t term) {
  return {.index = raft::LogIndex(index), .term = raft::Term(term)};
}

class TransferTest : public ::testing::Test, public ReceiverHost {
 protected:
  SharedKeys keys_{KeyOf(1)};  // the receiver's
  SharedKeys sender_keys_{KeyOf(1)};

  // The folders and all; not in the constructor, so that a test may put a file system there before.
  void SetUp() override {
    for (const std::string& folder : {from_.log(), to_.log()}) std::filesystem::create_directory(folder);
    sent_.emplace(*storage::SnapshotFolder::Open(from_.log()));
    got_.emplace(*storage::SnapshotFolder::Open(to_.log()));
    Listen();
  }
  void TearDown() override { receiver_.reset(); }

  void Listen() {
    receiver_.reset();
    auto listening = Receiver::Listen(
        {.cluster_id = kTransferCluster, .keys = &keys_, .self = raft::NodeId(2), .address = address_, .tls = tls_},
        *got_, *this);
    ASSERT_TRUE(listening.ok()) << listening.status();
    receiver_ = *std::move(listening);
  }
  // A state with so many values of 1,000 bytes, as a snapshot at `last`.
  void Take(const raft::EntryId& last, uint64_t values) {
    kv::StateMachine state;
    for (uint64_t i = 1; i <= values; ++i) {
      kv::Operation put{
          .kind = kv::OperationKind::kPut, .key = absl::StrCat("key", i), .value = std::string(1000, 'v')};
      state.Apply(i, {.key = {.kind = kv::CommandKind::kWindowed, .a = i}, .operations = {std::move(put)}});
    }
    auto writer = sent_->Begin({.cluster_id = kTransferCluster, .snapshot = {.last = last}}, "taking");
    ASSERT_TRUE(writer.ok());
    state.BeginSnapshot();
    while (state.taking_snapshot()) {
      for (const std::string& chunk : state.ContinueSnapshot(100'000)) ASSERT_TRUE(writer->Append(chunk).ok());
    }
    ASSERT_TRUE(writer->Finish().ok() && sent_->Publish(writer->path(), last).ok());
  }
  std::unique_ptr<Sender> NewSender(uint64_t bytes_per_second = 0, uint8_t key = 1, int tries_max = 3,
                                    const PeerTls* tls = nullptr) {
    sender_keys_.Set(KeyOf(key));
    return std::make_unique<Sender>(SenderOptions{.cluster_id = kTransferCluster,
                                                  .keys = &sender_keys_,
                                                  .self = raft::NodeId(1),
                                                  .bytes_per_second = bytes_per_second,
                                                  .retry = absl::Milliseconds(20),
                                                  .tries_max = tries_max,
                                                  .tls = tls},
                                    [this](raft::NodeId, raft::LogIndex index, const absl::Status& status) {
                                      absl::MutexLock lock(&mutex_);
                                      ended_.emplace_back(index, status);
                                    });
  }
  SnapshotOffer OfferOf(const raft::EntryId& last, const std::string& address = "") {
    return {.to = raft::NodeId(2),
            .address = address.empty() ? address_ : address,
            .term = raft::Term(9),
            .last = last,
            .path = sent_->PathOf(last)};
  }
  // A leader's whose term is over.
  SnapshotOffer OfferOfFormerTerm(const raft::EntryId& last) {
    SnapshotOffer offer = OfferOf(last);
    offer.term = raft::Term(4);
    return offer;
  }
  void AwaitReceived(uint64_t bytes) {
    for (int i = 0; i < 4000 && receiver_->statistics().received_bytes < bytes; ++i)
      absl::SleepFor(absl::Milliseconds(5));
    EXPECT_GE(receiver_->statistics().received_bytes, bytes);
  }
  // Slow enough to be met in the midst of it: so much has arrived.
  std::unique_ptr<Sender> SendSlowly(const raft::EntryId& last, uint64_t bytes_per_second, uint64_t arrived_bytes) {
    std::unique_ptr<Sender> sender = NewSender(bytes_per_second);
    sender->Send(OfferOf(last));
    AwaitReceived(arrived_bytes);
    return sender;
  }
  // To the receiver, which never hears a byte on it. From an address of this host, such as 127.0.0.2.
  net::UniqueFd ConnectFrom(const char* from) {
    net::UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, from, &address.sin_addr), 1);
    EXPECT_EQ(bind(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const int port = std::atoi(address_.substr(address_.rfind(':') + 1).c_str());
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr), 1);
    EXPECT_EQ(connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return connection;
  }
  absl::Status AwaitEnd() {
    absl::MutexLock lock(&mutex_);
    const auto one = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !ended_.empty(); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&one), absl::Seconds(30)))
      return absl::DeadlineExceededError("no end");
    return ended_.front().second;
  }
  bool SameFile(const raft::EntryId& last) {
    return storage::ReadFile(got_->PathOf(last)) == storage::ReadFile(sent_->PathOf(last));
  }
  size_t FilesAtReceiver() {
    size_t files = 0;
    for (const auto& file : std::filesystem::directory_iterator(to_.log() + "/snapshots")) files += file.exists();
    return files;
  }

  // ReceiverHost
  bool MayCall(const net::IpAddress& source) override { return source == calls_from_; }
  absl::Status Judge(const Offered& offered) override {
    if (offered.term < raft::Term(5)) return absl::FailedPreconditionError("its term is over");
    return offered.last.index > raft::LogIndex(10) ? absl::OkStatus() : absl::AlreadyExistsError("it is here");
  }
  absl::Status Take(Received received) override {
    absl::MutexLock lock(&mutex_);
    event_ = received.event;
    values_ = received.state->values();
    return take_;
  }

  net::IpAddress calls_from_ = *net::IpAddress::Parse("127.0.0.1");
  storage::TestFolder from_;
  storage::TestFolder to_;
  std::optional<storage::SnapshotFolder> sent_;
  std::optional<storage::SnapshotFolder> got_;
  std::string address_ = absl::StrCat("127.0.0.1:", 20000 + getpid() % 20000);
  const PeerTls* tls_ = nullptr;  // the receiver's
  std::unique_ptr<Receiver> receiver_;
  absl::Mutex mutex_;
  std::vector<std::pair<raft::LogIndex, absl::Status>> ended_ ABSL_GUARDED_BY(mutex_);
  raft::SnapshotReceived event_ ABSL_GUARDED_BY(mutex_);
  size_t values_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status take_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hedgerow::transfer
