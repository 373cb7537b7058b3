// SPDX-License-Identifier: Apache-2.0
//
// Transfers under mutual TLS: each end knows the other by an authority and by its name, and certificates are exchanged
// while a transfer runs.
#include "cluster/transfer/peer_tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/transfer/testing/transfer_testing.h"
#include "operate/tls_testing.h"

namespace hedgerow::transfer {
namespace {

using ::testing::HasSubstr;

class PeerTlsTest : public TransferTest {
 protected:
  // One end: node 1 sends, node 2 receives.
  struct End {
    End(const std::string& folder, const std::string& name, const operate::TestCertificate& own,
        const std::string& authority)
        : paths(operate::WriteTlsFiles(folder, own, authority)),
          files(paths, name, *operate::ReadTlsMaterial(paths, name, operate::Reader::kServes),
                absl::InfiniteDuration()),
          tls(files, "node-{node}.hedgerow") {}
    operate::TlsPaths paths;
    operate::TlsFiles files;
    PeerTls tls;
  };

  void SetUp() override {
    TransferTest::SetUp();
    Use("node-1.hedgerow", "node-2.hedgerow");
  }
  void TearDown() override {
    receiver_.reset();
    sender_.reset();
  }
  // The names in both ends' certificates.
  void Use(const std::string& sends, const std::string& receives) {
    receiver_.reset();
    one_.emplace(from_.log() + "/tls", sends, authority_.Sign(sends), authority_.Pem());
    two_.emplace(to_.log() + "/tls", receives, authority_.Sign(receives), authority_.Pem());
    tls_ = &two_->tls;
    Listen();
  }
  absl::Status Transfer(const raft::EntryId& last, const PeerTls* tls) {
    {
      absl::MutexLock lock(&mutex_);
      ended_.clear();
    }
    sender_ = NewSender(rate_, 1, 1, tls);
    sender_->Send(OfferOf(last));
    return AwaitEnd();
  }

  const operate::TestAuthority authority_{"the cluster's"};
  std::optional<End> one_, two_;
  uint64_t rate_ = 0;
  std::unique_ptr<Sender> sender_;
};

TEST_F(PeerTlsTest, MembersTransferUnderTheirCertificates) {
  Take(At(500, 3), 100);
  const absl::Status status = Transfer(At(500, 3), &one_->tls);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(SameFile(At(500, 3)));
}

TEST_F(PeerTlsTest, CapitalsInACertificatesNameDoNotMatter) {
  Use("Node-1.Hedgerow", "NODE-2.hedgerow");
  Take(At(500, 3), 100);
  const absl::Status status = Transfer(At(500, 3), &one_->tls);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(PeerTlsTest, ACallerWithAnotherMembersCertificateIsRefusedByName) {
  Use("node-3.hedgerow", "node-2.hedgerow");
  Take(At(500, 3), 100);
  EXPECT_THAT(std::string(Transfer(At(500, 3), &one_->tls).message()),
              HasSubstr("the certificate of node 1 is for node-3.hedgerow, expected node-1.hedgerow: give that node"));
  EXPECT_EQ(receiver_->statistics().certificate, 1u);
  EXPECT_EQ(receiver_->statistics().begun, 0u);
  EXPECT_EQ(FilesAtReceiver(), 0u);
}

TEST_F(PeerTlsTest, AReceiverWithAnotherMembersCertificateGetsNothing) {
  Use("node-1.hedgerow", "node-3.hedgerow");
  Take(At(500, 3), 100);
  EXPECT_THAT(std::string(Transfer(At(500, 3), &one_->tls).message()), HasSubstr("node-2.hedgerow"));
  EXPECT_EQ(receiver_->statistics().begun, 0u);
}

TEST_F(PeerTlsTest, ACertificateOfAnotherAuthorityIsRefused) {
  const operate::TestAuthority others{"another cluster's"};
  Take(At(500, 3), 100);
  End foreign(from_.log() + "/foreign", "node-1.hedgerow", others.Sign("node-1.hedgerow"), authority_.Pem());
  EXPECT_FALSE(Transfer(At(500, 3), &foreign.tls).ok());
  EXPECT_EQ(receiver_->statistics().begun, 0u);
  for (int i = 0; i < 2000 && receiver_->statistics().connections.silent == 0; ++i)
    absl::SleepFor(absl::Milliseconds(5));
  EXPECT_GE(receiver_->statistics().connections.silent, 1u) << "it never came to a call";
}

TEST_F(PeerTlsTest, ACallerWithoutTlsIsRefused) {
  Take(At(500, 3), 100);
  EXPECT_FALSE(Transfer(At(500, 3), nullptr).ok());
  EXPECT_EQ(receiver_->statistics().begun, 0u);
}

TEST_F(PeerTlsTest, CertificatesAreExchangedWhileATransferRuns) {
  Take(At(500, 3), 4000);
  Take(At(600, 3), 10);
  sender_ = NewSender(2'000'000, 1, 1, &one_->tls);
  sender_->Send(OfferOf(At(500, 3)));
  AwaitReceived(200'000);
  // Another authority, too: afterwards the former certificates are worth nothing.
  const operate::TestAuthority next{"the next one"};
  operate::WriteTlsFiles(from_.log() + "/tls", next.Sign("node-1.hedgerow"), next.Pem());
  operate::WriteTlsFiles(to_.log() + "/tls", next.Sign("node-2.hedgerow"), next.Pem());
  two_->files.Get();
  const absl::Status first = AwaitEnd();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_EQ(receiver_->statistics().broken_off, 0u) << "the transfer went on";
  const absl::Status second = Transfer(At(600, 3), &one_->tls);
  EXPECT_TRUE(second.ok()) << second;
  EXPECT_EQ(one_->files.reloads(), 1u);
  EXPECT_EQ(two_->files.reloads(), 1u);
  End former(from_.log() + "/former", "node-1.hedgerow", authority_.Sign("node-1.hedgerow"), next.Pem());
  Take(At(700, 3), 10);
  EXPECT_FALSE(Transfer(At(700, 3), &former.tls).ok());
}

TEST_F(PeerTlsTest, ABadCertificateLeavesTheFormerInUse) {
  Take(At(500, 3), 100);
  operate::WriteTlsFile(two_->paths.certificate, "no certificate", 0644);
  two_->files.Get();
  const absl::Status status = Transfer(At(500, 3), &one_->tls);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(std::string(two_->files.status().message()), HasSubstr("holds no certificate"));
}

}  // namespace
}  // namespace hedgerow::transfer
