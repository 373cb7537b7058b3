// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/announce.h"

#include "bpf/abi/siphash_abi.h"
#include "cluster/raft/bytes.h"

namespace hedgerow::wire {
namespace {

constexpr size_t kTagOffset = 8;
constexpr size_t kReservedAfterPort_bytes = 2;
constexpr size_t kSuccessors_bytes = 32;

uint16_t NetworkOrder(uint16_t port) { return static_cast<uint16_t>(port >> 8 | port << 8); }

uint64_t Tag(std::string_view datagram, const Key& key) {
  const hr_siphash_key siphash_key = SipHashKey(key);
  return hr_siphash_sealed(&siphash_key, datagram.data(), datagram.size());
}

bool IsState(uint8_t state) { return state == HR_ANNOUNCEMENT_LEADING || state == HR_ANNOUNCEMENT_RESIGNING; }

}  // namespace

std::string SealAnnouncement(const Announcement& announcement, const Key& proxy_key) {
  ByteWriter writer(HR_ANNOUNCEMENT_BYTES);
  writer.Put(uint32_t{HR_ANNOUNCEMENT_MAGIC});
  writer.Put(uint8_t{HR_ANNOUNCEMENT_VERSION});
  writer.Put(static_cast<uint8_t>(announcement.state));
  writer.Put(uint16_t{HR_ANNOUNCEMENT_BYTES});
  writer.Put(uint64_t{0});  // the tag, below
  writer.Put(announcement.cluster_id);
  writer.Put(announcement.cluster_epoch);
  writer.Put(announcement.term.value());
  writer.Put(announcement.sequence);
  for (const uint8_t byte : announcement.leader_address) writer.Put(byte);
  // Put is little-endian on every host, so this is network order on every host.
  writer.Put(NetworkOrder(announcement.leader_port));
  writer.PutZeros(kReservedAfterPort_bytes);
  writer.Put(announcement.holds_ms);
  writer.PutZeros(kSuccessors_bytes);
  writer.PutAt(kTagOffset, Tag(writer.view(), proxy_key));
  return writer.Take();
}

std::optional<Announcement> OpenAnnouncement(std::string_view datagram, const Key& proxy_key) {
  if (datagram.size() != HR_ANNOUNCEMENT_BYTES) return std::nullopt;
  ByteReader reader(datagram);
  Announcement announcement;
  if (reader.Get<uint32_t>() != HR_ANNOUNCEMENT_MAGIC) return std::nullopt;
  if (reader.Get<uint8_t>() != HR_ANNOUNCEMENT_VERSION) return std::nullopt;
  const auto state = reader.Get<uint8_t>();
  if (!IsState(state)) return std::nullopt;
  announcement.state = static_cast<AnnouncementState>(state);
  if (reader.Get<uint16_t>() != HR_ANNOUNCEMENT_BYTES) return std::nullopt;
  if (reader.Get<uint64_t>() != Tag(datagram, proxy_key)) return std::nullopt;
  announcement.cluster_id = reader.Get<uint64_t>();
  announcement.cluster_epoch = reader.Get<uint64_t>();
  announcement.term = raft::Term(reader.Get<uint64_t>());
  announcement.sequence = reader.Get<uint64_t>();
  for (uint8_t& byte : announcement.leader_address) byte = reader.Get<uint8_t>();
  announcement.leader_port = NetworkOrder(reader.Get<uint16_t>());
  // What is reserved may mean something one day; until then only 0 is understood.
  const auto zeros = [&reader](size_t bytes) {
    bool all = true;
    while (bytes-- > 0) all = reader.Get<uint8_t>() == 0 && all;
    return all;
  };
  if (!zeros(kReservedAfterPort_bytes)) return std::nullopt;
  announcement.holds_ms = reader.Get<uint32_t>();
  if (!zeros(kSuccessors_bytes)) return std::nullopt;
  return announcement;
}

Key DeriveProxyKey(const Key& announce_key, std::string_view proxy_name) {
  const hr_siphash_key siphash_key = SipHashKey(announce_key);
  Key key;
  for (size_t half = 0; half < 2; ++half) {
    ByteWriter writer(1 + proxy_name.size());
    writer.Put(static_cast<uint8_t>(half + 1));
    writer.PutBytes(proxy_name);
    const uint64_t hash = hr_siphash(&siphash_key, writer.view().data(), writer.view().size());
    for (size_t i = 0; i < 8; ++i) key.bytes[half * 8 + i] = static_cast<uint8_t>(hash >> (8 * i));
  }
  return key;
}

}  // namespace hedgerow::wire
