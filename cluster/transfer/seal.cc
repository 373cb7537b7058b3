// SPDX-License-Identifier: Apache-2.0
#include "cluster/transfer/seal.h"

#include <sys/random.h>

#include "cluster/raft/bytes.h"
#include "cluster/raft/check.h"

namespace hedgerow::transfer {
namespace {

// Sets this key's use apart from datagrams and announcements, which begin otherwise.
constexpr char kPurpose[] = "hedgerow transfer 1";

uint64_t KeyHalf(const hr_siphash_key& key, uint8_t half, const v1::Hello& hello, const v1::Challenge& challenge) {
  ByteWriter writer(128);
  writer.PutText<uint8_t>(kPurpose);
  writer.Put(half);
  writer.Put(uint64_t{hello.cluster_id()});
  writer.Put(uint64_t{hello.from()});
  writer.Put(uint64_t{hello.to()});
  writer.PutText<uint32_t>(hello.nonce());
  writer.PutText<uint32_t>(challenge.nonce());
  return hr_siphash(&key, writer.view().data(), writer.view().size());
}

absl::StatusOr<v1::Message> Parse(const std::string& bytes) {
  v1::Message message;
  if (!message.ParseFromString(bytes)) return absl::InvalidArgumentError("a frame that holds no message");
  return message;
}

}  // namespace

std::string DrawNonce() {
  std::string nonce(kNonce_bytes, '\0');
  HEDGEROW_CHECK(getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()));
  return nonce;
}

v1::Frame Open(const v1::Message& message) {
  v1::Frame frame;
  frame.set_message(message.SerializeAsString());
  return frame;
}

absl::StatusOr<v1::Message> ReadOpen(const v1::Frame& frame) { return Parse(frame.message()); }

Seal::Seal(const wire::Key& cluster_key, const v1::Hello& hello, const v1::Challenge& challenge, End self)
    : self_(self) {
  const hr_siphash_key key = wire::SipHashKey(cluster_key);
  key_.k0 = KeyHalf(key, 1, hello, challenge);
  key_.k1 = KeyHalf(key, 2, hello, challenge);
}

uint64_t Seal::Tag(End from, uint64_t number, const std::string& message) const {
  ByteWriter writer(message.size() + 9);
  writer.Put(static_cast<uint8_t>(from));
  writer.Put(number);
  writer.PutBytes(message);
  return hr_siphash(&key_, writer.view().data(), writer.view().size());
}

v1::Frame Seal::Close(const v1::Message& message) {
  v1::Frame frame = Open(message);
  frame.set_tag(Tag(self_, sent_++, frame.message()));
  return frame;
}

absl::StatusOr<v1::Message> Seal::Read(const v1::Frame& frame) {
  const End other = self_ == End::kCaller ? End::kCalled : End::kCaller;
  if (frame.tag() != Tag(other, received_++, frame.message())) {
    return absl::PermissionDeniedError(
        "a frame has a wrong tag: its sender has another cluster key, or it was changed on its way");
  }
  return Parse(frame.message());
}

}  // namespace hedgerow::transfer
