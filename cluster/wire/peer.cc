// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/peer.h"

#include <array>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include "cluster/raft/bytes.h"
#include "cluster/raft/check.h"
#include "cluster/wire/peer_body.h"

namespace hedgerow::wire {
namespace {

constexpr size_t kTagOffset = offsetof(hr_peer_header, tag);
constexpr size_t kAppendFlagsOffset = kPeerHeader_bytes + offsetof(hr_peer_append, flags);

// By number.
constexpr std::array<std::string_view, kDropReasons> kReasonNames = {
    "none",     "too_short",    "magic", "version",     "length",      "other_cluster",       "other_node",
    "tag",      "config_epoch", "kind",  "malformed",   "no_member",   "incarnation_unknown", "other_incarnation",
    "replayed", "too_old",      "nonce", "hello_limit", "foreign_log", "other_durability",    "piece",
    "source",   "key",          "term"};

template <typename Body, typename Variant>
struct IsOneOf;
template <typename Body, typename... Bodies>
struct IsOneOf<Body, std::variant<Bodies...>> : std::disjunction<std::is_same<Body, Bodies>...> {};

Opened Drop(DropReason reason) { return {.reason = reason}; }

}  // namespace

std::string_view Name(DropReason reason) {
  const auto index = static_cast<size_t>(reason);
  return index < kReasonNames.size() ? kReasonNames[index] : "unknown";
}

PeerCodec::PeerCodec(const PeerIdentity& identity) : identity_(identity) {
  HEDGEROW_CHECK(identity.incarnation != 0);
  HEDGEROW_CHECK(identity.self.IsSet() && identity.self.value() <= std::numeric_limits<uint32_t>::max());
}

uint64_t PeerCodec::DrawNumber() {
  packet_number_ = draw_ ? draw_() : packet_number_ + 1;
  return packet_number_;
}

template <typename Body>
std::string PeerCodec::SealBody(raft::NodeId to, raft::Term term, uint32_t config_epoch, const Body& body,
                                bool followed) {
  const size_t size = kPeerHeader_bytes + BodySize_bytes(body);
  if (size > kPeerMax_bytes) return {};
  ByteWriter writer(size);
  writer.Put(uint32_t{HR_PEER_MAGIC});
  writer.Put(uint8_t{HR_PEER_VERSION});
  writer.Put(static_cast<uint8_t>(KindOf<Body>()));
  writer.Put(static_cast<uint16_t>(size));
  writer.Put(uint64_t{0});  // the tag, below
  writer.Put(identity_.cluster_id);
  writer.Put(identity_.incarnation);
  writer.Put(DrawNumber());
  writer.Put(static_cast<uint32_t>(identity_.self.value()));
  writer.Put(static_cast<uint32_t>(to.value()));
  writer.Put(term.value());
  writer.Put(config_epoch);
  writer.Put(identity_.keys.seals().id);
  PutBody(writer, body);
  if (followed) {
    HEDGEROW_CHECK((std::is_same_v<Body, raft::AppendRequest>));
    writer.PutAt(kAppendFlagsOffset, uint32_t{HR_PEER_APPEND_MORE});
  }
  HEDGEROW_CHECK(writer.view().size() == size);
  const hr_siphash_key key = SipHashKey(identity_.keys.seals().key);
  writer.PutAt(kTagOffset, uint64_t{hr_siphash_sealed(&key, writer.view().data(), size)});
  return writer.Take();
}

std::string PeerCodec::Seal(raft::NodeId to, raft::Term term, const PeerBody& body) {
  return std::visit([&](const auto& alternative) { return SealBody(to, term, identity_.config_epoch, alternative); },
                    body);
}

std::string PeerCodec::Seal(const raft::Message& message, bool followed) {
  return std::visit(
      [&](const auto& alternative) {
        return SealBody(message.to, message.term, message.config_epoch, alternative, followed);
      },
      message.body);
}

std::vector<std::string> PeerCodec::Split(std::string_view sealed) {
  constexpr size_t kPieceMax_bytes = kPeerDatagramMax_bytes - kPeerHeader_bytes - kPieceFixed_bytes;
  static_assert(kPieceMax_bytes * HR_PEER_PIECES_MAX >= kPeerMax_bytes);
  HEDGEROW_CHECK(sealed.size() > kPeerDatagramMax_bytes && sealed.size() <= kPeerMax_bytes);
  ByteReader header(sealed.substr(offsetof(hr_peer_header, packet_number)));
  Piece piece{.message = header.Get<uint64_t>(),
              .count = static_cast<uint16_t>((sealed.size() + kPieceMax_bytes - 1) / kPieceMax_bytes)};
  header.Get<uint32_t>();  // from
  const raft::NodeId to(header.Get<uint32_t>());
  const raft::Term term(header.Get<uint64_t>());
  const auto config_epoch = header.Get<uint32_t>();
  std::vector<std::string> datagrams;
  datagrams.reserve(piece.count);
  for (; piece.number < piece.count; ++piece.number) {
    piece.bytes = sealed.substr(piece.number * kPieceMax_bytes, kPieceMax_bytes);
    datagrams.push_back(SealBody(to, term, config_epoch, piece));
  }
  return datagrams;
}

Opened PeerCodec::Open(std::string_view datagram) const { return Open(datagram, /*proven=*/false); }

Opened PeerCodec::OpenProven(std::string_view datagram) const { return Open(datagram, /*proven=*/true); }

DropReason PeerCodec::WhyNotSealed(std::string_view datagram, uint32_t key_id, uint64_t tag, bool proven) const {
  if (proven) return DropReason::kNone;
  const KeyRing::Entry* const entry = identity_.keys.Find(key_id);
  if (entry == nullptr) return DropReason::kKey;
  const hr_siphash_key key = SipHashKey(entry->key);
  return tag == hr_siphash_sealed(&key, datagram.data(), datagram.size()) ? DropReason::kNone : DropReason::kTag;
}

// What is cheap to see comes first; nothing but counters depends on what was not authenticated.
Opened PeerCodec::Open(std::string_view datagram, bool proven) const {
  if (datagram.size() < kPeerHeader_bytes) return Drop(DropReason::kTooShort);
  ByteReader reader(datagram);
  if (reader.Get<uint32_t>() != HR_PEER_MAGIC) return Drop(DropReason::kMagic);
  if (reader.Get<uint8_t>() != HR_PEER_VERSION) return Drop(DropReason::kVersion);
  const auto kind = reader.Get<uint8_t>();
  if (reader.Get<uint16_t>() != datagram.size()) return Drop(DropReason::kLength);
  const auto tag = reader.Get<uint64_t>();
  if (reader.Get<uint64_t>() != identity_.cluster_id) return Drop(DropReason::kOtherCluster);
  Opened opened;
  PeerHeader& header = opened.header;
  header.kind = static_cast<hr_peer_kind>(kind);
  header.from_incarnation = reader.Get<uint64_t>();
  header.packet_number = reader.Get<uint64_t>();
  header.from = raft::NodeId(reader.Get<uint32_t>());
  header.to = raft::NodeId(reader.Get<uint32_t>());
  if (header.to.IsSet() && header.to != identity_.self) return Drop(DropReason::kOtherNode);
  header.term = raft::Term(reader.Get<uint64_t>());
  header.config_epoch = reader.Get<uint32_t>();  // what it means is the core's to say
  if (const DropReason why = WhyNotSealed(datagram, reader.Get<uint32_t>(), tag, proven); why != DropReason::kNone)
    return Drop(why);
  if (!header.from.IsSet() || header.from == identity_.self) return Drop(DropReason::kNoMember);
  if (kind == 0 || kind >= HR_PEER_KINDS) return Drop(DropReason::kKind);
  if (header.from_incarnation == 0 || header.packet_number == 0) return Drop(DropReason::kMalformed);
  opened.body = GetBody(reader, header.kind);
  if (!reader.done()) return Drop(DropReason::kMalformed);
  return opened;
}

std::optional<raft::Message> TakeMessage(raft::NodeId self, Opened& opened) {
  return std::visit(
      [&](auto& body) -> std::optional<raft::Message> {
        using Body = std::remove_reference_t<decltype(body)>;
        if constexpr (IsOneOf<Body, decltype(raft::Message::body)>::value) {
          return raft::Message{.from = opened.header.from,
                               .to = self,
                               .term = opened.header.term,
                               .config_epoch = opened.header.config_epoch,
                               .body = std::move(body)};
        } else {
          return std::nullopt;
        }
      },
      opened.body);
}

}  // namespace hedgerow::wire
