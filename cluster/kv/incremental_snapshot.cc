// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/incremental_snapshot.h"

#include <utility>

#include "cluster/kv/content_hash.h"

namespace hedgerow::kv {
namespace {

void PutSteps(ByteWriter& writer, const WindowSteps& steps) {
  writer.Put(static_cast<uint8_t>(steps.size()));
  for (const WindowStep& step : steps) {
    writer.Put(step.from_ns);
    writer.Put(step.window_ns);
  }
}

WindowSteps GetSteps(ByteReader& reader) {
  WindowSteps steps;
  const auto count = reader.Get<uint8_t>();
  for (uint8_t i = 0; i < count && reader.ok(); ++i) {
    const auto from_ns = reader.Get<uint64_t>();
    steps.push_back({.from_ns = from_ns, .window_ns = reader.Get<uint64_t>()});
  }
  return steps;
}

}  // namespace

void PutResult(ByteWriter& writer, const Result& result) {
  writer.Put(static_cast<uint8_t>(result.code));
  writer.Put(result.session);
  writer.Put(static_cast<uint8_t>(result.values.size()));
  for (const std::string& value : result.values) writer.PutText<uint32_t>(value);
}

Result GetResult(ByteReader& reader) {
  Result result;
  const auto code = reader.Get<uint8_t>();
  if (code > static_cast<uint8_t>(kResultCodeLast)) reader.Fail();
  result.code = static_cast<ResultCode>(code);
  result.session = reader.Get<uint64_t>();
  const auto values = reader.Get<uint8_t>();
  for (uint8_t i = 0; i < values && reader.ok(); ++i) {
    result.values.emplace_back(reader.GetText<uint32_t>(kValueMax_bytes));
  }
  return result;
}

SnapshotWriter::SnapshotWriter(const SnapshotHeader& header, size_t chunk_bytes)
    : chunk_bytes_(chunk_bytes), open_(chunk_bytes) {
  open_.Put(static_cast<uint8_t>(SnapshotRecord::kState));
  open_.Put(header.features == 0 ? 5 : kSnapshotVersion);
  open_.Put(header.committed_ns);
  open_.Put(header.content);
  open_.Put(header.settings.version);
  PutSettingValues(open_, ValuesOf(header.settings));
  PutSteps(open_, header.window_steps);
  PutSteps(open_, header.memcached_window_steps);
  open_.Put(header.log_uuid);
  open_.Put(header.items_flushed_before);
  open_.Put(header.items_flush_at_ns);
  if (header.features != 0) open_.Put(header.features);
  Close();
}

void GetSnapshotHeader(ByteReader& reader, uint32_t version, SnapshotHeader& header) {
  header.committed_ns = reader.Get<uint64_t>();
  header.content = reader.Get<uint64_t>();
  if (version < 3) return;
  header.settings.version = reader.Get<uint64_t>();
  SettingValues values;
  GetSettingValues(reader, values);
  if (!reader.ok()) return;
  for (const SettingValue& value : values) Set(header.settings, value.setting, value.value);
  header.window_steps = GetSteps(reader);
  header.memcached_window_steps = GetSteps(reader);
  if (version >= 4) header.log_uuid = reader.Get<uint64_t>();
  if (version < 5) return;
  header.items_flushed_before = reader.Get<uint64_t>();
  header.items_flush_at_ns = reader.Get<uint64_t>();
  if (version >= 6) header.features = reader.Get<uint32_t>();
}

void SnapshotWriter::Close() {
  if (open_.view().empty()) return;
  closed_bytes_ += open_.view().size();
  closed_.push_back(std::exchange(open_, ByteWriter(chunk_bytes_ + chunk_bytes_ / 8)).Take());
}

void SnapshotWriter::RecordEnds() {
  if (open_.view().size() >= chunk_bytes_) Close();
}

void SnapshotWriter::Value(std::string_view key, std::string_view value) {
  open_.Put(static_cast<uint8_t>(SnapshotRecord::kValue));
  open_.PutText<uint32_t>(key);
  open_.PutText<uint32_t>(value);
  ++values_;
  content_ += HashValue(key, value);
  RecordEnds();
}

void SnapshotWriter::Session(const SessionRecord& session, const SessionAnswers& answers) {
  open_.Put(static_cast<uint8_t>(SnapshotRecord::kSession));
  open_.Put(session.name.id);
  open_.Put(session.name.token);
  open_.Put(session.nonce);
  open_.Put(session.lowest_unanswered);
  open_.Put(session.active_ns);
  open_.Put(static_cast<uint8_t>(session.wrote));
  open_.Put(static_cast<uint32_t>(answers.size()));
  for (const auto& [seq, answer] : answers) {
    open_.Put(seq);
    open_.Put(answer.fingerprint);
    PutResult(open_, answer.result);
    content_ += HashAnswer(session.name.id, seq, answer);
  }
  ++sessions_;
  content_ += HashSession(session);
  RecordEnds();
}

void SnapshotWriter::Windowed(const SeenTimes& times, const RequestKey& key, const Result& result) {
  const bool memcached = key.kind == CommandKind::kMemcached;
  open_.Put(static_cast<uint8_t>(memcached ? SnapshotRecord::kSeen : SnapshotRecord::kWindowed));
  open_.Put(times.time_ns);
  if (memcached) open_.Put(times.origin_ns);
  open_.Put(key.a);
  open_.Put(key.b);
  open_.Put(key.c);
  if (memcached) open_.Put(key.d);
  PutResult(open_, result);
  ++(memcached ? seen_ : windowed_);
  content_ += HashSeen(times, key, result);
  RecordEnds();
}

void SnapshotWriter::KeptItem(std::string_view key, const Item& item) {
  open_.Put(static_cast<uint8_t>(SnapshotRecord::kItem));
  open_.PutText<uint32_t>(key);
  open_.PutText<uint32_t>(item.value);
  open_.Put(item.flags);
  open_.Put(item.unique);
  open_.Put(item.end_ns);
  ++items_;
  content_ += HashItem(key, item);
  RecordEnds();
}

void SnapshotWriter::End() {
  Close();
  open_.Put(static_cast<uint8_t>(SnapshotRecord::kEnd));
  open_.Put(values_);
  open_.Put(sessions_);
  open_.Put(windowed_);
  open_.Put(items_);
  open_.Put(seen_);
  Close();
}

std::vector<std::string> SnapshotWriter::TakeChunks() {
  taken_bytes_ = closed_bytes_;
  return std::exchange(closed_, {});
}

}  // namespace hedgerow::kv
