// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/hkv_trailer.h"

#include "bpf/abi/siphash_abi.h"
#include "cluster/raft/bytes.h"
#include "cluster/wire/hkv.h"

namespace hedgerow::wire {
namespace {

constexpr size_t kKindOffset = 2;
constexpr uint8_t kAnswerBit = 0x80;

uint8_t ByteAt(std::string_view bytes, size_t offset) { return static_cast<uint8_t>(bytes[offset]); }

// Requests and answers have their flags in different places.
size_t FlagsOffset(std::string_view datagram) {
  return (ByteAt(datagram, kKindOffset) & kAnswerBit) != 0 ? kHkvAnswerFlagsOffset : kHkvRequestFlagsOffset;
}

size_t HeaderOf(std::string_view datagram) {
  return (ByteAt(datagram, kKindOffset) & kAnswerBit) != 0 ? kHkvAnswerHeader_bytes : kHkvRequestHeader_bytes;
}

uint64_t TagOf(std::string_view bytes, const Key& key) {
  const hr_siphash_key siphash_key = SipHashKey(key);
  return hr_siphash(&siphash_key, bytes.data(), bytes.size());
}

void AppendTag(std::string& datagram, const Key& key) {
  ByteWriter writer(kHkvTag_bytes);
  writer.Put(TagOf(datagram, key));
  datagram += writer.view();
}

}  // namespace

bool HasHkvTrailer(std::string_view datagram) {
  if (datagram.size() <= kKindOffset || datagram.size() <= FlagsOffset(datagram)) return false;
  return (ByteAt(datagram, FlagsOffset(datagram)) & kHkvAuthenticated) != 0;
}

std::optional<HkvTrailer> FindHkvTrailer(std::string_view datagram) {
  if (datagram.size() < kHkvRequestHeader_bytes + kHkvRequestTrailerFixed_bytes) return std::nullopt;
  const size_t fixed = datagram.size() - kHkvRequestTrailerFixed_bytes;
  ByteReader reader(datagram.substr(fixed));
  const size_t name_bytes = reader.Get<uint8_t>();
  if (name_bytes == 0 || name_bytes > kHkvClientNameMax_bytes || fixed < kHkvRequestHeader_bytes + name_bytes)
    return std::nullopt;
  return HkvTrailer{.client = datagram.substr(fixed - name_bytes, name_bytes), .sent_ms = reader.Get<uint64_t>()};
}

bool IsHkvTagRight(std::string_view datagram, const Key& key) {
  if (!HasHkvTrailer(datagram) || datagram.size() < HeaderOf(datagram) + kHkvTag_bytes) return false;
  const std::string_view sealed = datagram.substr(0, datagram.size() - kHkvTag_bytes);
  return ByteReader(datagram.substr(sealed.size())).Get<uint64_t>() == TagOf(sealed, key);
}

std::string SealHkvRequest(std::string request, std::string_view client, uint64_t sent_ms, const Key& key) {
  const size_t size = request.size() + client.size() + kHkvRequestTrailerFixed_bytes;
  if (request.size() < kHkvRequestHeader_bytes || size > kHkvMax_bytes || client.empty() ||
      client.size() > kHkvClientNameMax_bytes)
    return {};
  request[kHkvRequestFlagsOffset] = static_cast<char>(ByteAt(request, kHkvRequestFlagsOffset) | kHkvAuthenticated);
  request += client;
  ByteWriter writer(1 + sizeof(sent_ms));
  writer.Put(static_cast<uint8_t>(client.size()));
  writer.Put(sent_ms);
  request += writer.view();
  AppendTag(request, key);
  return request;
}

std::string SealHkvAnswer(std::string answer, const Key& key) {
  answer[kHkvAnswerFlagsOffset] = static_cast<char>(ByteAt(answer, kHkvAnswerFlagsOffset) | kHkvAuthenticated);
  AppendTag(answer, key);
  return answer;
}

}  // namespace hedgerow::wire
