// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/records.h"

#include <zlib.h>

#include <limits>

#include "cluster/raft/check.h"
#include "cluster/raft/configuration.h"
#include "cluster/raft/bytes.h"

namespace hedgerow::storage {
namespace {

// A record: size, checksum, batch, checksum of size and batch alone, number of entries, the rest of the state,
// term before; then of each entry its payload's size, kind, term, payload; zeros up to the alignment, which the
// size leaves out. What is looked for where records may stand costs one short checksum at each place, whatever
// bytes a client had put there.
constexpr size_t kSize_bytes = 4;
constexpr size_t kSealed_at = 8;  // what stands before it is the size and the checksum
constexpr size_t kHeadChecksum_at = 16;
constexpr size_t kCount_at = 20;
constexpr size_t kState_at = 24;
constexpr size_t kHead_bytes = kState_at + 6 * 8 + 8;
constexpr size_t kEntryHead_bytes = 4 + 1 + 8;
static_assert(kHead_bytes == kRecordMin_bytes && kHead_bytes % kRecordAlign_bytes == 0);

constexpr std::string_view kHeaderMagic = "hrlog\r\n\x1a";

size_t Aligned(size_t bytes) { return (bytes + kRecordAlign_bytes - 1) / kRecordAlign_bytes * kRecordAlign_bytes; }

void PutNumber(std::string& bytes, size_t place, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) bytes[place + i] = static_cast<char>(value >> (8 * i) & 0xff);
}

template <typename Number>
Number NumberAt(std::string_view bytes, size_t place) {
  return ByteReader(bytes.substr(place)).Get<Number>();
}

uint32_t HeadChecksum(std::string_view record, uint64_t salt) {
  std::string key;
  AppendNumber<uint64_t>(key, salt);
  key.append(record.substr(0, kSize_bytes));
  return Checksum(key, record.substr(kSealed_at, 8));
}

uint32_t RecordChecksum(std::string_view record, uint64_t salt) {
  std::string key;
  AppendNumber<uint64_t>(key, salt);
  key.append(record.substr(0, kSize_bytes));
  return Checksum(key, record.substr(kSealed_at));
}

StateRecord ReadState(ByteReader& reader, uint64_t batch) {
  StateRecord state;
  state.batch = batch;
  state.hard_state.term = raft::Term(reader.Get<uint64_t>());
  state.hard_state.voted_for = raft::NodeId(reader.Get<uint64_t>());
  state.last_index = raft::LogIndex(reader.Get<uint64_t>());
  state.last_term = raft::Term(reader.Get<uint64_t>());
  state.start.index = raft::LogIndex(reader.Get<uint64_t>());
  state.start.term = raft::Term(reader.Get<uint64_t>());
  return state;
}

}  // namespace

uint32_t Checksum(std::string_view key, std::string_view body) {
  uLong checksum = crc32_z(0, nullptr, 0);
  checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(key.data()), key.size());
  checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return static_cast<uint32_t>(checksum);
}

void RecordBuilder::Clear() {
  bytes_.assign(kHead_bytes, '\0');
  places_.clear();
}

void RecordBuilder::Append(const raft::Entry& entry) {
  if (bytes_.empty()) Clear();
  places_.push_back(bytes_.size());
  AppendNumber<uint32_t>(bytes_, entry.payload.size_bytes());
  AppendNumber<uint8_t>(bytes_, static_cast<uint64_t>(entry.kind));
  AppendNumber<uint64_t>(bytes_, entry.term.value());
  bytes_.append(entry.payload.view());
}

void RecordBuilder::TakeBack(size_t entries) {
  HEDGEROW_CHECK(entries <= places_.size());
  if (entries == 0) return;
  bytes_.resize(places_[places_.size() - entries]);
  places_.resize(places_.size() - entries);
}

std::string& RecordBuilder::Finish(const StateRecord& state, raft::Term term_before) {
  if (bytes_.empty()) Clear();
  HEDGEROW_CHECK(bytes_.size() <= std::numeric_limits<uint32_t>::max());
  PutNumber(bytes_, 0, bytes_.size(), kSize_bytes);
  PutNumber(bytes_, kSealed_at, state.batch, 8);
  PutNumber(bytes_, kCount_at, places_.size(), 4);
  size_t place = kState_at;
  for (const uint64_t value :
       {state.hard_state.term.value(), state.hard_state.voted_for.value(), state.last_index.value(),
        state.last_term.value(), state.start.index.value(), state.start.term.value(), term_before.value()}) {
    PutNumber(bytes_, place, value, 8);
    place += 8;
  }
  bytes_.resize(Aligned(bytes_.size()));
  return bytes_;
}

void SealRecord(std::string& record, uint64_t salt) {
  const size_t size = NumberAt<uint32_t>(record, 0);
  PutNumber(record, kHeadChecksum_at, HeadChecksum(record, salt), 4);
  PutNumber(record, kSize_bytes, RecordChecksum(std::string_view(record).substr(0, size), salt), 4);
}

uint64_t BatchNumber(std::string_view record) { return NumberAt<uint64_t>(record, kSealed_at); }

size_t RecordSize(std::string_view bytes, uint64_t salt, uint64_t batch) {
  if (bytes.size() < kRecordMin_bytes || BatchNumber(bytes) != batch) return 0;
  const size_t size = NumberAt<uint32_t>(bytes, 0);
  if (size < kHead_bytes || Aligned(size) > bytes.size()) return 0;
  if (NumberAt<uint32_t>(bytes, kHeadChecksum_at) != HeadChecksum(bytes, salt)) return 0;
  const uint64_t checksum = NumberAt<uint32_t>(bytes, kSize_bytes);
  return RecordChecksum(bytes.substr(0, size), salt) == checksum ? Aligned(size) : 0;
}

std::optional<StateRecord> ParseState(std::string_view record) {
  if (record.size() < kRecordMin_bytes) return std::nullopt;
  ByteReader reader(record.substr(kState_at));
  return ReadState(reader, BatchNumber(record));
}

std::optional<BatchRecord> ParseBatch(std::string_view record) {
  if (record.size() < kRecordMin_bytes) return std::nullopt;
  ByteReader reader(record.substr(kState_at, NumberAt<uint32_t>(record, 0) - kState_at));
  BatchRecord batch;
  batch.state = ReadState(reader, BatchNumber(record));
  batch.term_before = raft::Term(reader.Get<uint64_t>());
  const uint64_t count = NumberAt<uint32_t>(record, kCount_at);
  if (count > batch.state.last_index.value() || count > record.size() / kEntryHead_bytes) return std::nullopt;
  batch.entries.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    raft::Entry entry;
    entry.index = raft::LogIndex(batch.state.last_index.value() - count + 1 + i);
    const size_t size = reader.Get<uint32_t>();
    const uint64_t kind = reader.Get<uint8_t>();
    entry.term = raft::Term(reader.Get<uint64_t>());
    const std::string_view payload = reader.GetBytes(size);
    if (kind > static_cast<uint64_t>(raft::EntryKind::kConfiguration)) return std::nullopt;
    entry.kind = static_cast<raft::EntryKind>(kind);
    if (!payload.empty()) entry.payload = raft::Payload(payload);
    batch.entries.push_back(std::move(entry));
  }
  if (!reader.done()) return std::nullopt;
  return batch;
}

// Magic, format version, length of the rest, checksum; the rest.
std::string EncodeLogHeader(const LogHeader& header) {
  std::string body;
  AppendNumber<uint64_t>(body, header.identity.cluster_id);
  AppendNumber<uint64_t>(body, header.identity.node.value());
  AppendNumber<uint64_t>(body, header.copy_id);
  AppendNumber<uint64_t>(body, header.generation.epoch);
  AppendNumber<uint64_t>(body, header.generation.nonce);
  body += raft::EncodeConfiguration(header.began_with);
  std::string bytes(kHeaderMagic);
  AppendNumber<uint32_t>(bytes, header.format_version);
  AppendNumber<uint32_t>(bytes, body.size());
  AppendNumber<uint32_t>(bytes, Checksum(bytes, body));
  return bytes + body;
}

std::optional<LogHeader> ParseLogHeader(std::string_view bytes) {
  constexpr size_t kSealed_bytes = kHeaderMagic.size() + 8;
  if (!bytes.starts_with(kHeaderMagic) || bytes.size() < kSealed_bytes + 4) return std::nullopt;
  const std::string_view body = bytes.substr(kSealed_bytes + 4);
  LogHeader header;
  header.format_version = NumberAt<uint32_t>(bytes, kHeaderMagic.size());
  if (NumberAt<uint32_t>(bytes, kHeaderMagic.size() + 4) != body.size() ||
      NumberAt<uint32_t>(bytes, kSealed_bytes) != Checksum(bytes.substr(0, kSealed_bytes), body)) {
    return std::nullopt;
  }
  if (header.format_version > kFormatVersion) return header;
  ByteReader reader(body);
  header.identity.cluster_id = reader.Get<uint64_t>();
  header.identity.node = raft::NodeId(reader.Get<uint64_t>());
  header.copy_id = reader.Get<uint64_t>();
  header.generation.epoch = reader.Get<uint64_t>();
  header.generation.nonce = reader.Get<uint64_t>();
  std::optional<raft::Configuration> began_with = raft::DecodeConfiguration(reader.GetRest());
  if (!reader.done() || !began_with.has_value() || header.copy_id == 0) return std::nullopt;
  header.began_with = *std::move(began_with);
  return header;
}

}  // namespace hedgerow::storage
