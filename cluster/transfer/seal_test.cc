// SPDX-License-Identifier: Apache-2.0
//
// A seal is good for one frame, in one place, of one connection, from one end; and its bytes are those that
// docs/WIRE_FORMAT.md states.
#include "cluster/transfer/seal.h"

#include <gtest/gtest.h>

namespace hedgerow::transfer {
namespace {

wire::Key KeyOf(uint8_t byte) {
  wire::Key key;
  key.bytes.fill(byte);
  return key;
}

class SealTest : public ::testing::Test {
 protected:
  SealTest() {
    hello_.set_cluster_id(7);
    hello_.set_from(1);
    hello_.set_to(2);
    hello_.set_nonce(DrawNonce());
    challenge_.set_nonce(DrawNonce());
    message_.mutable_piece()->set_bytes("abc");
  }
  Seal Caller(uint8_t key = 1) const { return Seal(KeyOf(key), hello_, challenge_, Seal::End::kCaller); }
  Seal Called() const { return Seal(KeyOf(1), hello_, challenge_, Seal::End::kCalled); }

  v1::Hello hello_;
  v1::Challenge challenge_;
  v1::Message message_;
};

TEST_F(SealTest, TakesWhatTheOtherEndMadeInItsOrder) {
  Seal sender = Caller();
  Seal reader = Called();
  const v1::Frame first = sender.Close(message_);
  const v1::Frame second = sender.Close(message_);
  EXPECT_NE(first.tag(), second.tag());
  EXPECT_TRUE(reader.Read(first).ok());
  EXPECT_TRUE(reader.Read(second).ok());
  EXPECT_TRUE(sender.Read(reader.Close(message_)).ok()) << "the other direction counts for itself";
}

TEST_F(SealTest, RefusesWhatWasLeftOutRepeatedChangedOrSentBack) {
  Seal sender = Caller();
  const v1::Frame first = sender.Close(message_);
  const v1::Frame second = sender.Close(message_);
  EXPECT_FALSE(Called().Read(second).ok()) << "one was left out";
  Seal repeated = Called();
  EXPECT_TRUE(repeated.Read(first).ok());
  EXPECT_EQ(repeated.Read(first).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(Called().Read(Called().Close(message_)).ok()) << "sent back";
  for (size_t bit = 0; bit < 8 * first.message().size(); ++bit) {
    v1::Frame changed = first;
    char& byte = (*changed.mutable_message())[bit / 8];
    byte = static_cast<char>(byte ^ (1 << bit % 8));
    EXPECT_FALSE(Called().Read(changed).ok()) << "bit " << bit;
  }
}

TEST_F(SealTest, RefusesAnotherKeyAndAnotherConnection) {
  EXPECT_FALSE(Called().Read(Caller(2).Close(message_)).ok());
  const v1::Frame frame = Caller().Close(message_);
  challenge_.set_nonce(DrawNonce());
  EXPECT_FALSE(Called().Read(frame).ok()) << "recorded, and sent to a node that has drawn another number";
  const v1::Frame again = Caller().Close(message_);
  hello_.set_to(3);
  EXPECT_FALSE(Called().Read(again).ok()) << "handed on to another node";
}

// The tag of a frame that is written down: with another tag it is another protocol.
TEST_F(SealTest, IsTheOneThatIsDocumented) {
  hello_.set_nonce(std::string(kNonce_bytes, 'a'));
  challenge_.set_nonce(std::string(kNonce_bytes, 'b'));
  EXPECT_EQ(Caller(0x11).Close(message_).tag(), 14679135166711884412u);
}

}  // namespace
}  // namespace hedgerow::transfer
