// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/hkv.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cluster/raft/bytes.h"
#include "cluster/wire/hkv_trailer.h"

namespace hedgerow::wire {
namespace {

constexpr uint8_t kAnswerBit = 0x80;
constexpr size_t kVersionOffset = 1;
constexpr size_t kKindOffset = 2;
constexpr size_t kClientIdOffset = 8;
constexpr size_t kSeqOffset = 16;

constexpr uint32_t kTimeoutDefault_us = 1'000'000;
constexpr uint32_t kTimeoutMax_us = 60'000'000;

// By number.
constexpr std::array<std::string_view, kHkvDrops> kDropNames = {
    "none", "too_short", "magic", "an_answer", "source", "server_port", "opens", "too_long", "bytes", "key_gone"};

constexpr std::array<std::string_view, kHkvDenials> kDenialNames = {"none",  "anonymous", "unproven",
                                                                    "clock", "read",      "write"};

// The bytes that pair answer and request, as far as they are there.
uint64_t NumberAt(std::string_view datagram, size_t offset) {
  if (datagram.size() < offset + sizeof(uint64_t)) return 0;
  return ByteReader(datagram.substr(offset)).Get<uint64_t>();
}

HkvParse Refuse(std::string_view datagram, HkvStatus status, uint32_t hint) {
  HkvParse parse;
  HkvAnswer& answer = parse.answer.emplace();
  if (status == HkvStatus::kUnknownVersion) answer.version = static_cast<uint8_t>(datagram[kVersionOffset]);
  if (datagram.size() > kKindOffset) {
    answer.kind = static_cast<HkvKind>(static_cast<uint8_t>(datagram[kKindOffset]));
  } else {
    answer.kind = HkvKind{};
  }
  answer.status = status;
  answer.hint = hint;
  answer.client_id = NumberAt(datagram, kClientIdOffset);
  answer.seq = NumberAt(datagram, kSeqOffset);
  return parse;
}

void GetField(ByteReader& reader, HkvField field, kv::Operation& operation) {
  switch (field) {
    case HkvField::kNone: return;
    case HkvField::kValue: operation.value = reader.GetText<uint16_t>(kHkvMax_bytes); return;
    case HkvField::kCondition:
      if (reader.GetBool()) operation.expected.emplace();
      return;
    case HkvField::kExpected:
      if (operation.expected.has_value()) *operation.expected = reader.GetText<uint16_t>(kHkvMax_bytes);
      return;
    case HkvField::kDelta: operation.delta = reader.Get<int64_t>(); return;
  }
}

void PutField(ByteWriter& writer, HkvField field, const kv::Operation& operation) {
  switch (field) {
    case HkvField::kNone: return;
    case HkvField::kValue: writer.PutText<uint16_t>(operation.value); return;
    case HkvField::kCondition: writer.Put(static_cast<uint8_t>(operation.expected.has_value())); return;
    case HkvField::kExpected:
      if (operation.expected.has_value()) writer.PutText<uint16_t>(*operation.expected);
      return;
    case HkvField::kDelta: writer.Put(operation.delta); return;
  }
}

size_t Size_bytes(HkvField field, const kv::Operation& operation) {
  switch (field) {
    case HkvField::kNone: return 0;
    case HkvField::kValue: return sizeof(uint16_t) + operation.value.size();
    case HkvField::kCondition: return 1;
    case HkvField::kExpected: return operation.expected.has_value() ? sizeof(uint16_t) + operation.expected->size() : 0;
    case HkvField::kDelta: return sizeof(operation.delta);
  }
  return 0;
}

kv::Operation GetOperation(ByteReader& reader) {
  kv::Operation operation;
  const HkvOperationRow* const row = FindHkvOperation(reader.Get<uint8_t>());
  if (row == nullptr) {
    reader.Fail();
    return operation;
  }
  operation.kind = row->kind;
  operation.key = reader.GetText<uint8_t>(kv::kKeyMax_bytes);
  for (const HkvField field : row->fields) GetField(reader, field, operation);
  return operation;
}

void PutOperation(ByteWriter& writer, const kv::Operation& operation) {
  writer.Put(static_cast<uint8_t>(operation.kind));
  writer.PutText<uint8_t>(operation.key);
  for (const HkvField field : RowOf(operation.kind).fields) PutField(writer, field, operation);
}

size_t Size_bytes(const kv::Operation& operation) {
  size_t size = 2 + operation.key.size();
  for (const HkvField field : RowOf(operation.kind).fields) size += Size_bytes(field, operation);
  return size;
}

// What Encode writes; more than a datagram if it cannot be written.
size_t Size_bytes(const HkvRequest& request) {
  constexpr size_t kNever = kHkvMax_bytes + 1;
  const HkvBody body = RowOf(request.kind).body;
  if (body == HkvBody::kEmpty) return kHkvRequestHeader_bytes;
  if (body == HkvBody::kKey) {
    return request.key.size() > kv::kKeyMax_bytes ? kNever : kHkvRequestHeader_bytes + 1 + request.key.size();
  }
  if (request.operations.size() > kv::kOperationsMax) return kNever;
  size_t size = kHkvRequestHeader_bytes + 1;
  for (const kv::Operation& operation : request.operations) {
    if (operation.key.size() > kv::kKeyMax_bytes) return kNever;
    size += Size_bytes(operation);
  }
  return size;
}

// It has the session's token and the lowest unanswered write.
bool IsInSession(const HkvRequest& request) {
  return RowOf(request.kind).client_id == HkvClientId::kSessionOrZero && request.client_id != kHkvNoSession;
}

// From behind the version.
std::optional<HkvRequest> GetRequest(ByteReader& reader, size_t datagram_bytes) {
  HkvRequest request;
  const HkvRequestRow* const row = FindHkvRequest(reader.Get<uint8_t>());
  const auto flags = reader.Get<uint8_t>();
  if (row == nullptr || (flags & ~kHkvAuthenticated) != 0) return std::nullopt;
  request.kind = row->kind;
  request.timeout_us = reader.Get<uint32_t>();
  request.client_id = reader.Get<uint64_t>();
  request.seq = reader.Get<uint64_t>();
  request.lowest_unanswered = reader.Get<uint64_t>();
  request.token = reader.Get<uint64_t>();
  if (row->client_id == HkvClientId::kZero && request.client_id != 0) return std::nullopt;
  if (!IsInSession(request) && (request.lowest_unanswered != 0 || request.token != 0)) return std::nullopt;
  if (row->body == HkvBody::kKey) request.key = reader.GetText<uint8_t>(kv::kKeyMax_bytes);
  if (row->body == HkvBody::kOperations) {
    const auto count = reader.Get<uint8_t>();
    if (count > kv::kOperationsMax) return std::nullopt;
    request.operations.reserve(count);
    for (uint8_t i = 0; i < count && reader.ok(); ++i) request.operations.push_back(GetOperation(reader));
  }
  if (reader.left_bytes() > 0) request.padded_bytes = datagram_bytes;
  if (!reader.AreZeros()) return std::nullopt;
  return request;
}

// What of an answer's optional fields its kind and status have.
bool HasHint(const HkvAnswer& answer) {
  const HkvStatusRow* const row = FindHkvStatus(static_cast<uint8_t>(answer.status));
  return row != nullptr && row->hint != HkvHint::kPushback;
}
bool Has(const HkvAnswer& answer, HkvOutcome outcome) {
  const HkvRequestRow* const row = FindHkvRequest(static_cast<uint8_t>(answer.kind));
  return answer.status == HkvStatus::kOk && row != nullptr && row->outcome == outcome;
}

// What Encode writes; more than a datagram if it cannot be written.
size_t Size_bytes(const HkvAnswer& answer) {
  size_t size = kHkvAnswerHeader_bytes;
  if (answer.status == HkvStatus::kDenied) size += 2 + answer.denied_key.size();
  if (Has(answer, HkvOutcome::kSession)) size += sizeof(kv::SessionName);
  if (Has(answer, HkvOutcome::kValue)) size += 2 + answer.value.size();
  if (Has(answer, HkvOutcome::kValues)) {
    if (answer.values.size() > kv::kOperationsMax) return kHkvMax_bytes + 1;
    size += 1;
    for (const std::string& value : answer.values) size += 2 + value.size();
  }
  return size;
}

}  // namespace

HkvParse ParseHkvRequest(std::string_view datagram) {
  if (datagram.size() < 2) return {.drop = HkvDrop::kTooShort};
  ByteReader reader(datagram);
  if (reader.Get<uint8_t>() != kHkvMagic) return {.drop = HkvDrop::kMagic};
  // In whatever version: an answer to an answer may be answered again.
  if (datagram.size() > kKindOffset && (static_cast<uint8_t>(datagram[kKindOffset]) & kAnswerBit) != 0) {
    return {.drop = HkvDrop::kAnAnswer};
  }
  if (reader.Get<uint8_t>() != kHkvVersion) return Refuse(datagram, HkvStatus::kUnknownVersion, kHkvVersion);
  if (datagram.size() > kHkvMax_bytes) return Refuse(datagram, HkvStatus::kMalformed, 0);
  if (HasHkvTrailer(datagram)) {
    const std::optional<HkvTrailer> trailer = FindHkvTrailer(datagram);
    if (!trailer.has_value()) return Refuse(datagram, HkvStatus::kMalformed, 0);
    reader = ByteReader(datagram.substr(0, datagram.size() - trailer->size_bytes()));
    reader.Get<uint16_t>();  // magic and version
  }
  HkvParse parse{.request = GetRequest(reader, datagram.size())};
  if (!parse.request.has_value()) return Refuse(datagram, HkvStatus::kMalformed, 0);
  return parse;
}

std::optional<HkvAnswer> ParseHkvAnswer(std::string_view datagram) {
  if (datagram.size() > kHkvMax_bytes) return std::nullopt;
  const bool tagged = HasHkvTrailer(datagram);
  if (tagged && datagram.size() < kHkvAnswerHeader_bytes + kHkvTag_bytes) return std::nullopt;
  ByteReader reader(tagged ? datagram.substr(0, datagram.size() - kHkvTag_bytes) : datagram);
  HkvAnswer answer;
  if (reader.Get<uint8_t>() != kHkvMagic) return std::nullopt;
  answer.version = reader.Get<uint8_t>();
  const auto kind = reader.Get<uint8_t>();
  const HkvRequestRow* const row = FindHkvRequest(kind & ~kAnswerBit);
  if ((kind & kAnswerBit) == 0 || row == nullptr) return std::nullopt;
  answer.kind = row->kind;
  const HkvStatusRow* const status = FindHkvStatus(reader.Get<uint8_t>());
  if (status == nullptr) return std::nullopt;
  answer.status = status->status;
  if (answer.version != kHkvVersion && answer.status != HkvStatus::kUnknownVersion) return std::nullopt;
  (HasHint(answer) ? answer.hint : answer.pushback) = reader.Get<uint32_t>();
  answer.client_id = reader.Get<uint64_t>();
  answer.seq = reader.Get<uint64_t>();
  // Flags, and what is reserved: its first byte is the lowest.
  if ((reader.Get<uint64_t>() & ~uint64_t{kHkvAuthenticated}) != 0) return std::nullopt;
  if (answer.status == HkvStatus::kDenied) {
    answer.denial = static_cast<HkvDenial>(reader.Get<uint8_t>());
    answer.denied_key = reader.GetText<uint8_t>(kv::kKeyMax_bytes);
  }
  if (Has(answer, HkvOutcome::kSession)) {
    answer.session = reader.Get<uint64_t>();
    answer.token = reader.Get<uint64_t>();
  }
  if (Has(answer, HkvOutcome::kValue)) answer.value = reader.GetText<uint16_t>(kHkvMax_bytes);
  if (Has(answer, HkvOutcome::kValues)) {
    const auto count = reader.Get<uint8_t>();
    if (count > kv::kOperationsMax) return std::nullopt;
    answer.values.reserve(count);
    for (uint8_t i = 0; i < count && reader.ok(); ++i) {
      answer.values.emplace_back(reader.GetText<uint16_t>(kHkvMax_bytes));
    }
  }
  if (!reader.done()) return std::nullopt;
  return answer;
}

std::string Encode(const HkvRequest& request) {
  const size_t size = std::max(Size_bytes(request), request.padded_bytes);
  if (size > kHkvMax_bytes) return {};
  const HkvRequestRow& row = RowOf(request.kind);
  ByteWriter writer(size);
  writer.Put(kHkvMagic);
  writer.Put(kHkvVersion);
  writer.Put(static_cast<uint8_t>(request.kind));
  writer.Put(uint8_t{0});  // flags
  writer.Put(request.timeout_us);
  writer.Put(row.client_id == HkvClientId::kZero ? uint64_t{0} : request.client_id);
  writer.Put(request.seq);
  writer.Put(IsInSession(request) ? request.lowest_unanswered : uint64_t{0});
  writer.Put(IsInSession(request) ? request.token : uint64_t{0});
  if (row.body == HkvBody::kKey) writer.PutText<uint8_t>(request.key);
  if (row.body == HkvBody::kOperations) {
    writer.Put(static_cast<uint8_t>(request.operations.size()));
    for (const kv::Operation& operation : request.operations) PutOperation(writer, operation);
  }
  if (request.padded_bytes > writer.view().size()) writer.PutZeros(request.padded_bytes - writer.view().size());
  return writer.Take();
}

std::string Encode(const HkvAnswer& answer, size_t reserved_bytes) {
  size_t size = Size_bytes(answer);
  const bool fits = size + reserved_bytes <= kHkvMax_bytes;
  if (!fits) size = kHkvAnswerHeader_bytes;
  ByteWriter writer(size);
  writer.Put(kHkvMagic);
  writer.Put(answer.version);
  writer.Put(static_cast<uint8_t>(static_cast<uint8_t>(answer.kind) | kAnswerBit));
  writer.Put(static_cast<uint8_t>(fits ? answer.status : HkvStatus::kTooLarge));
  writer.Put(HasHint(answer) ? answer.hint : answer.pushback);
  writer.Put(answer.client_id);
  writer.Put(answer.seq);
  writer.Put(uint64_t{0});  // flags and what is reserved
  if (!fits) return writer.Take();
  if (answer.status == HkvStatus::kDenied) {
    writer.Put(static_cast<uint8_t>(answer.denial));
    writer.PutText<uint8_t>(answer.denied_key);
  }
  if (Has(answer, HkvOutcome::kSession)) {
    writer.Put(answer.session);
    writer.Put(answer.token);
  }
  if (Has(answer, HkvOutcome::kValue)) writer.PutText<uint16_t>(answer.value);
  if (Has(answer, HkvOutcome::kValues)) {
    writer.Put(static_cast<uint8_t>(answer.values.size()));
    for (const std::string& value : answer.values) writer.PutText<uint16_t>(value);
  }
  return writer.Take();
}

kv::Command CommandOf(HkvRequest&& request) {
  kv::Command command;
  if (request.kind == HkvKind::kOpen) {
    command.key = {.kind = kv::CommandKind::kOpen, .a = request.seq};
    return command;
  }
  command.operations = std::move(request.operations);
  command.lowest_unanswered = request.lowest_unanswered;
  command.key = request.client_id == kHkvNoSession
                    ? kv::OnceKey(request.seq, command.operations)
                    : kv::WriteKey({.id = request.client_id, .token = request.token}, request.seq, command.operations);
  if (request.kind == HkvKind::kCancel) command.key = kv::CancelKey(command.key);
  return command;
}

uint64_t Timeout_ns(const HkvRequest& request) {
  const uint32_t timeout_us = request.timeout_us == 0 ? kTimeoutDefault_us : request.timeout_us;
  return uint64_t{std::min(timeout_us, kTimeoutMax_us)} * 1000;
}

HkvStatus StatusOf(kv::ResultCode code) {
  switch (code) {
    case kv::ResultCode::kOk: return HkvStatus::kOk;
    case kv::ResultCode::kMismatch: return HkvStatus::kMismatch;
    case kv::ResultCode::kNotANumber: return HkvStatus::kNotANumber;
    case kv::ResultCode::kUnknownSession: return HkvStatus::kUnknownSession;
    case kv::ResultCode::kBelowLowest: return HkvStatus::kBelowLowest;
    case kv::ResultCode::kOverloaded: return HkvStatus::kOverloaded;
    case kv::ResultCode::kNoRoom: return HkvStatus::kNoSpace;
    case kv::ResultCode::kNotFound:
    case kv::ResultCode::kNotStored:
    case kv::ResultCode::kTooLarge:
    case kv::ResultCode::kSuperseded: break;  // memcached's commands only
  }
  return HkvStatus::kOverloaded;
}

std::string_view Name(HkvStatus status) {
  const HkvStatusRow* const row = FindHkvStatus(static_cast<uint8_t>(status));
  return row != nullptr ? row->name : "unknown";
}

std::string_view Name(HkvDenial denial) {
  const auto index = static_cast<size_t>(denial);
  return index < kDenialNames.size() ? kDenialNames[index] : "unknown";
}

std::string_view Name(HkvDrop drop) {
  const auto index = static_cast<size_t>(drop);
  return index < kDropNames.size() ? kDropNames[index] : "unknown";
}

}  // namespace hedgerow::wire
