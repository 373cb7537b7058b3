// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/state_loader.h"

#include <utility>

namespace hedgerow::kv {

bool StateLoader::Fail(std::string why) {
  if (error_.empty()) error_ = std::move(why);
  return false;
}

bool StateLoader::Add(std::string_view chunk) {
  ByteReader reader(chunk);
  while (error_.empty() && reader.left_bytes() > 0) {
    if (!AddRecord(reader)) return Fail("it holds a record that is none");
  }
  return error_.empty();
}

bool StateLoader::AddRecord(ByteReader& reader) {
  const auto kind = static_cast<SnapshotRecord>(reader.Get<uint8_t>());
  if (begun_ != (kind != SnapshotRecord::kState) || ended_) return Fail("its records are out of order");
  switch (kind) {
    case SnapshotRecord::kState: return AddState(reader);
    case SnapshotRecord::kValue: return AddValue(reader);
    case SnapshotRecord::kSession: return AddSession(reader);
    case SnapshotRecord::kWindowed: return AddWindowed(reader);
    case SnapshotRecord::kEnd: return AddEnd(reader);
    case SnapshotRecord::kItem: return version_ >= 2 && AddItem(reader);
    case SnapshotRecord::kSeen: return version_ >= 2 && AddSeen(reader);
  }
  return false;
}

bool StateLoader::AddState(ByteReader& reader) {
  version_ = reader.Get<uint32_t>();
  if (version_ == 0 || version_ > kSnapshotVersion) {
    unknown_version_ = version_ > kSnapshotVersion;
    return Fail("its contents have format " + std::to_string(version_) + ", and this program reads formats up to " +
                std::to_string(kSnapshotVersion) + ": start the version of the program that wrote it");
  }
  SnapshotHeader header;
  GetSnapshotHeader(reader, version_, header);
  content_ = header.content;
  begun_ = true;
  return reader.ok() && state_->Restore(header, /*with_settings=*/version_ >= 3);
}

bool StateLoader::AddValue(ByteReader& reader) {
  const std::string key(reader.GetText<uint32_t>(kKeyMax_bytes));
  std::string value(reader.GetText<uint32_t>(kValueMax_bytes));
  if (!reader.ok()) return false;
  if (state_->values_.Find(key) != nullptr) return Fail("it holds a key twice");
  state_->values_.Put(key, std::move(value));
  return true;
}

bool StateLoader::AddSession(ByteReader& reader) {
  const bool with_token = version_ >= 5;
  SessionRecord session;
  session.name.id = reader.Get<uint64_t>();
  if (with_token) session.name.token = reader.Get<uint64_t>();
  session.nonce = reader.Get<uint64_t>();
  session.lowest_unanswered = reader.Get<uint64_t>();
  session.active_ns = reader.Get<uint64_t>();
  session.wrote = with_token && reader.GetBool();
  const auto count = reader.Get<uint32_t>();
  SessionAnswers answers;
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const auto seq = reader.Get<uint64_t>();
    const uint64_t fingerprint = with_token ? reader.Get<uint64_t>() : 0;
    answers.emplace_hint(answers.end(), seq, SessionAnswer{.fingerprint = fingerprint, .result = GetResult(reader)});
  }
  if (!reader.ok()) return false;
  passed_over_ += !with_token;
  if (!with_token) return true;
  return state_->sessions_.Restore(session, std::move(answers)) || Fail("it holds a session twice");
}

bool StateLoader::AddWindowed(ByteReader& reader) {
  const auto time_ns = reader.Get<uint64_t>();
  RequestKey key{.kind = CommandKind::kWindowed};
  key.a = reader.Get<uint64_t>();
  key.b = reader.Get<uint64_t>();
  key.c = reader.Get<uint64_t>();
  Result result = GetResult(reader);
  if (!reader.ok()) return false;
  if (time_ns < last_time_ns_ || state_->window_.Answer(key) != nullptr) {
    return Fail("its window is out of order");
  }
  last_time_ns_ = time_ns;
  state_->window_.Record(key, std::move(result), time_ns, time_ns);
  return true;
}

bool StateLoader::AddItem(ByteReader& reader) {
  const std::string key(reader.GetText<uint32_t>(kKeyMax_bytes));
  Item item;
  item.value = reader.GetText<uint32_t>(kItemMax_bytes);
  item.flags = reader.Get<uint32_t>();
  item.unique = reader.Get<uint64_t>();
  item.end_ns = reader.Get<uint64_t>();
  if (!reader.ok()) return false;
  return state_->memcached_.RestoreItem(key, std::move(item)) || Fail("it holds an item twice");
}

bool StateLoader::AddSeen(ByteReader& reader) {
  SeenTimes times{.time_ns = reader.Get<uint64_t>()};
  times.origin_ns = version_ >= 3 ? reader.Get<uint64_t>() : times.time_ns;
  RequestKey key{.kind = CommandKind::kMemcached};
  key.a = reader.Get<uint64_t>();
  key.b = reader.Get<uint64_t>();
  key.c = reader.Get<uint64_t>();
  key.d = reader.Get<uint64_t>();
  Result result = GetResult(reader);
  if (!reader.ok() || times.origin_ns > times.time_ns) return false;
  return state_->memcached_.RestoreSeen(times, key, std::move(result)) || Fail("its window is out of order");
}

bool StateLoader::AddEnd(ByteReader& reader) {
  const auto values = reader.Get<uint64_t>();
  const auto sessions = reader.Get<uint64_t>();
  const auto windowed = reader.Get<uint64_t>();
  const auto items = version_ >= 2 ? reader.Get<uint64_t>() : 0;
  const auto seen = version_ >= 2 ? reader.Get<uint64_t>() : 0;
  if (!reader.ok()) return false;
  if (values != state_->values_.size() || sessions != state_->sessions_.size() + passed_over_ ||
      windowed != state_->window_.size() || items != state_->memcached_.items() || seen != state_->memcached_.seen()) {
    return Fail("it does not hold as many records as it says");
  }
  if (version_ >= 5 && content_ != state_->content()) return Fail("its records are not what its beginning says");
  ended_ = true;
  return true;
}

std::unique_ptr<StateMachine> StateLoader::Finish() {
  if (error_.empty() && !ended_) error_ = "its end is missing";
  if (!error_.empty()) return nullptr;
  state_->sessions_.FinishRestore();
  state_->memcached_.FinishRestore();
  return std::move(state_);
}

}  // namespace hedgerow::kv
