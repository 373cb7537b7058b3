// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target for the peers' datagrams: any bytes are refused or opened, and what is opened seals to the
// same bytes, but for a hint that only kernel parts read. A fuzzer cannot make a tag, so every input is tried a
// second time as kind, term and body behind a header that is right.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bpf/abi/peer_abi.h"
#include "bpf/abi/siphash_abi.h"
#include "cluster/raft/bytes.h"
#include "cluster/wire/peer.h"
#include "cluster/wire/peer_incarnations.h"

namespace {

using hedgerow::raft::NodeId;
using hedgerow::wire::Opened;
using hedgerow::wire::PeerCodec;
using hedgerow::wire::PeerIdentity;

constexpr uint64_t kCluster = 7;
constexpr uint64_t kIncarnation = 99;
const hedgerow::wire::Key kKey = {.bytes = {1, 2, 3}};

PeerIdentity Identity(uint64_t node) {
  return {.cluster_id = kCluster, .keys = kKey, .self = NodeId(node), .incarnation = kIncarnation, .config_epoch = 0};
}

std::string Datagram(uint8_t kind, uint64_t term, std::string_view body) {
  const size_t size = hedgerow::wire::kPeerHeader_bytes + body.size();
  hedgerow::ByteWriter writer(size);
  writer.Put(uint32_t{HR_PEER_MAGIC});
  writer.Put(uint8_t{HR_PEER_VERSION});
  writer.Put(kind);
  writer.Put(static_cast<uint16_t>(size));
  writer.Put(uint64_t{0});
  writer.Put(kCluster);
  writer.Put(kIncarnation);
  writer.Put(uint64_t{1});
  writer.Put(uint32_t{2});
  writer.Put(uint32_t{1});
  writer.Put(term);
  writer.Put(uint64_t{0});
  writer.PutBytes(body);
  const hr_siphash_key key = hedgerow::wire::SipHashKey(kKey);
  writer.PutAt(8, uint64_t{hr_siphash_sealed(&key, writer.view().data(), size)});
  return writer.Take();
}

// An append that hints at the next one opens like one that does not.
std::string WithoutHint(uint8_t kind, std::string_view body) {
  std::string plain(body);
  constexpr size_t kFlags = offsetof(hr_peer_append, flags);
  if (kind == HR_PEER_APPEND && plain.size() > kFlags)
    plain[kFlags] = static_cast<char>(plain[kFlags] & ~HR_PEER_APPEND_MORE);
  return plain;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const PeerCodec receiver(Identity(1));
  if (receiver.Open(bytes).ok()) abort();  // it has no key
  if (size < 9 || size > 60'000) return 0;
  hedgerow::ByteReader reader(bytes);
  const auto kind = reader.Get<uint8_t>();
  const auto term = reader.Get<uint64_t>();
  const std::string hinting = Datagram(kind, term, bytes.substr(9));
  Opened opened = receiver.Open(hinting);
  if (!opened.ok()) return 0;
  const std::string datagram = Datagram(kind, term, WithoutHint(kind, bytes.substr(9)));
  PeerCodec sender(Identity(2));
  if (sender.Seal(NodeId(1), opened.header.term, opened.body) != datagram) abort();
  hedgerow::wire::PeerIncarnations incarnations(NodeId(1), {NodeId(1), NodeId(2)}, [] { return uint64_t{5}; });
  incarnations.NonceFor(NodeId(2), 0);
  incarnations.Admit(opened, 0);
  PeerCodec again(Identity(2));
  const auto message = TakeMessage(NodeId(1), opened);
  if (message.has_value() && again.Seal(*message) != datagram) abort();
  return 0;
}
