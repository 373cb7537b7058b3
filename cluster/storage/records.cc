// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/records.h"

#include <zlib.h>

#include "cluster/raft/configuration.h"
#include "cluster/storage/record_bytes.h"

namespace hedgerow::storage {
namespace {

constexpr size_t kChecksum_bytes = 4;
constexpr size_t kEntryFixed_bytes = 17;
constexpr size_t kState_bytes = 56;

std::string Seal(std::string_view key, std::string_view body) {
  std::string record;
  record.reserve(kChecksum_bytes + body.size());
  AppendNumber(record, Checksum(key, body), kChecksum_bytes);
  record.append(body);
  return record;
}

// The body, if it is what was sealed under this key.
std::optional<std::string_view> Unseal(std::string_view key, std::string_view record) {
  RecordReader reader(record);
  const uint64_t checksum = reader.Number(kChecksum_bytes);
  if (record.size() < kChecksum_bytes) return std::nullopt;
  const std::string_view body = reader.Rest();
  if (checksum != Checksum(key, body)) return std::nullopt;
  return body;
}

}  // namespace

uint32_t Checksum(std::string_view key, std::string_view body) {
  uLong checksum = crc32_z(0, nullptr, 0);
  checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(key.data()), key.size());
  checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return static_cast<uint32_t>(checksum);
}

// Big-endian, so that the order of the keys is the order of the log.
std::string EntryKey(raft::LogIndex index) {
  char number[8];
  for (size_t i = 0; i < sizeof(number); ++i)
    number[i] = static_cast<char>(index.value() >> (56 - 8 * i) & 0xff);
  std::string key(kEntryPrefix);
  key.append(number, sizeof(number));
  return key;
}

std::string StateKey(raft::LogIndex last) {
  std::string key = EntryKey(last);
  key.append(kStateSuffix);
  return key;
}

bool IsStateKey(std::string_view key) {
  return key.size() == kEntryPrefix.size() + 8 + kStateSuffix.size() && key.starts_with(kEntryPrefix) &&
         key.ends_with(kStateSuffix);
}

std::string EncodeEntry(const raft::Entry& entry, raft::Term previous_term) {
  std::string record;
  EncodeEntryInto(record, EntryKey(entry.index), entry, previous_term);
  return record;
}

void EncodeEntryInto(std::string& record, std::string_view key, const raft::Entry& entry,
                     raft::Term previous_term) {
  record.clear();
  record.reserve(kChecksum_bytes + kEntryFixed_bytes + entry.payload.size_bytes());
  AppendNumber(record, 0, kChecksum_bytes);  // the checksum, below
  AppendNumber(record, static_cast<uint64_t>(entry.kind), 1);
  AppendNumber(record, entry.term.value(), 8);
  AppendNumber(record, previous_term.value(), 8);
  record.append(entry.payload.view());
  const uint32_t checksum = Checksum(key, std::string_view(record).substr(kChecksum_bytes));
  for (size_t i = 0; i < kChecksum_bytes; ++i) record[i] = static_cast<char>(checksum >> (8 * i) & 0xff);
}

std::optional<StoredEntry> ParseEntry(std::string_view key, std::string_view value) {
  if (key.size() != kEntryPrefix.size() + 8 || key.substr(0, kEntryPrefix.size()) != kEntryPrefix)
    return std::nullopt;
  uint64_t index = 0;
  for (const char byte : key.substr(kEntryPrefix.size())) index = index << 8 | static_cast<unsigned char>(byte);
  const std::optional<std::string_view> body = Unseal(key, value);
  if (!body.has_value()) return std::nullopt;

  RecordReader reader(*body);
  const uint64_t kind = reader.Number(1);
  StoredEntry stored;
  stored.entry.index = raft::LogIndex(index);
  stored.entry.term = raft::Term(reader.Number(8));
  stored.previous_term = raft::Term(reader.Number(8));
  const std::string_view payload = reader.Rest();
  if (!reader.Complete() || kind > static_cast<uint64_t>(raft::EntryKind::kConfiguration)) return std::nullopt;
  stored.entry.kind = static_cast<raft::EntryKind>(kind);
  if (!payload.empty()) stored.entry.payload = raft::Payload(payload);
  return stored;
}

std::string EncodeState(std::string_view key, const StateRecord& state) {
  std::string body;
  for (const uint64_t value : {state.batch, state.hard_state.term.value(), state.hard_state.voted_for.value(),
                               state.last_index.value(), state.last_term.value(), state.start.index.value(),
                               state.start.term.value()}) {
    AppendNumber(body, value, 8);
  }
  return Seal(key, body);
}

std::optional<StateRecord> ParseState(std::string_view key, std::string_view value) {
  const std::optional<std::string_view> body = Unseal(key, value);
  if (!body.has_value()) return std::nullopt;
  RecordReader reader(*body);
  StateRecord state;
  state.batch = reader.Number(8);
  state.hard_state.term = raft::Term(reader.Number(8));
  state.hard_state.voted_for = raft::NodeId(reader.Number(8));
  state.last_index = raft::LogIndex(reader.Number(8));
  state.last_term = raft::Term(reader.Number(8));
  if (key == kFormerStateKey && reader.Complete()) return state;  // format 1
  state.start.index = raft::LogIndex(reader.Number(8));
  state.start.term = raft::Term(reader.Number(8));
  if (body->size() > kState_bytes) {
    // Earlier builds wrote a term here in which a vote may have been given that nothing else tells of. In the next
    // term there was none (docs/adr/0037).
    state.hard_state = {.term = raft::Term(reader.Number(8)).Next()};
  }
  if (!reader.Complete()) return std::nullopt;
  if (key != kFormerStateKey && key != StateKey(state.last_index)) return std::nullopt;
  return state;
}

std::string EncodeIdentity(std::string_view key, const IdentityRecord& identity) {
  std::string body;
  AppendNumber(body, identity.format_version, 4);
  AppendNumber(body, identity.identity.cluster_id, 8);
  AppendNumber(body, identity.identity.node.value(), 8);
  if (identity.format_version >= 3) {
    body += raft::EncodeConfiguration(identity.began_with.value_or(raft::Configuration()));
  }
  return Seal(key, body);
}

std::optional<IdentityRecord> ParseIdentity(std::string_view key, std::string_view value) {
  const std::optional<std::string_view> body = Unseal(key, value);
  if (!body.has_value()) return std::nullopt;
  RecordReader reader(*body);
  IdentityRecord identity;
  identity.format_version = static_cast<uint32_t>(reader.Number(4));
  if (identity.format_version > kFormatVersion) return identity;
  identity.identity.cluster_id = reader.Number(8);
  identity.identity.node = raft::NodeId(reader.Number(8));
  if (identity.format_version >= 3) {
    identity.began_with = raft::DecodeConfiguration(reader.Rest());
    if (!identity.began_with.has_value()) return std::nullopt;
  }
  if (!reader.Complete()) return std::nullopt;
  return identity;
}

std::string EncodeOrigin(std::string_view key, const Origin& origin) {
  std::string body;
  AppendNumber(body, origin.epoch, 8);
  AppendNumber(body, origin.beginning, 8);
  return Seal(key, body);
}

std::string EncodeLogId(uint64_t log_id) {
  std::string body;
  AppendNumber(body, log_id, 8);
  return Seal(kLogIdKey, body);
}

std::optional<uint64_t> ParseLogId(std::string_view value) {
  const std::optional<std::string_view> body = Unseal(kLogIdKey, value);
  if (!body.has_value()) return std::nullopt;
  RecordReader reader(*body);
  const uint64_t log_id = reader.Number(8);
  if (!reader.Complete() || log_id == 0) return std::nullopt;
  return log_id;
}

std::optional<Origin> ParseOrigin(std::string_view key, std::string_view value) {
  const std::optional<std::string_view> body = Unseal(key, value);
  if (!body.has_value()) return std::nullopt;
  RecordReader reader(*body);
  Origin origin;
  origin.epoch = reader.Number(8);
  origin.beginning = reader.Number(8);
  if (!reader.Complete()) return std::nullopt;
  return origin;
}

}  // namespace hedgerow::storage
