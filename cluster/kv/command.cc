// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/command.h"

#include <array>

#include "bpf/abi/siphash_abi.h"
#include "cluster/raft/bytes.h"

namespace hedgerow::kv {
namespace {

// 1 and 2 knew neither tokens nor fingerprints of writes; a folder that holds them is refused (storage/records.h).
constexpr uint8_t kVersion = 3;

// By OperationKind, as RequestPolicy::feature. No other number is one.
constexpr std::array<uint32_t, 5> kOperationSince = {};
static_assert(static_cast<size_t>(OperationKind::kIncrement) + 1 == kOperationSince.size());

void GetOperation(ByteReader& reader, Operation& operation) {
  const uint8_t kind = reader.Get<uint8_t>();
  if (kind < 1 || kind >= kOperationSince.size()) reader.Fail();
  operation.kind = static_cast<OperationKind>(kind);
  operation.key = reader.GetText<uint32_t>(kKeyMax_bytes);
  operation.value = reader.GetText<uint32_t>(kValueMax_bytes);
  operation.expected.reset();
  if (reader.GetBool()) operation.expected = reader.GetText<uint32_t>(kValueMax_bytes);
  operation.delta = reader.Get<int64_t>();
}

// SipHash-2-4 (bpf/abi/siphash_abi.h) of words and texts, without a copy of them in one piece. The length of a text
// stands in a word before it, so that two requests are never the same words.
class RequestHash {
 public:
  RequestHash(uint64_t secret, uint64_t id) {
    const hr_siphash_key key{.k0 = secret, .k1 = id};
    hr_siphash_begin(&state_, &key);
  }
  void Word(uint64_t word) {
    hr_siphash_word(&state_, word);
    size_bytes_ += sizeof(word);
  }
  void Text(std::string_view text) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    size_t left = text.size();
    for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t), bytes += sizeof(uint64_t)) Word(hr_siphash_load(bytes));
    if (left > 0) Word(hr_siphash_load_rest(bytes, left));
  }
  uint64_t Take() { return hr_siphash_end(&state_, 0, size_bytes_); }

 private:
  hr_siphash_state state_{};
  uint64_t size_bytes_ = 0;
};

uint64_t Fingerprint(uint64_t secret, uint64_t id, const std::vector<Operation>& operations) {
  RequestHash hash(secret, id);
  hash.Word(operations.size());
  for (const Operation& operation : operations) {
    const std::string_view expected = operation.expected.has_value() ? std::string_view(*operation.expected) : "";
    hash.Word(static_cast<uint64_t>(operation.kind) | uint64_t{operation.expected.has_value()} << 8 |
              uint64_t{operation.key.size()} << 16 | uint64_t{operation.value.size()} << 32);
    hash.Word(expected.size());
    hash.Word(static_cast<uint64_t>(operation.delta));
    hash.Text(operation.key);
    hash.Text(operation.value);
    hash.Text(expected);
  }
  const uint64_t fingerprint = hash.Take();
  return fingerprint != kCancels ? fingerprint : 1;
}

// Behind the operations, of which such a command has none.
constexpr size_t kItemFixed_bytes = 1 + 2 * sizeof(uint32_t) + sizeof(uint32_t) + 3 * sizeof(uint64_t) + 1;

void PutItem(ByteWriter& writer, const Command& command) {
  const ItemOperation& item = command.item;
  writer.Put(static_cast<uint8_t>(item.verb));
  writer.PutText<uint32_t>(item.key);
  writer.PutText<uint32_t>(item.value);
  writer.Put(item.flags);
  writer.Put(item.life_s);
  writer.Put(item.unique);
  writer.Put(item.delta);
  writer.Put(static_cast<uint8_t>(command.age_ns.has_value()));
  if (command.age_ns.has_value()) writer.Put(*command.age_ns);
}

void GetItem(ByteReader& reader, Command& command) {
  ItemOperation& item = command.item;
  const uint8_t verb = reader.Get<uint8_t>();
  if (verb < 1 || verb > static_cast<uint8_t>(ItemVerb::kFlush)) reader.Fail();
  item.verb = static_cast<ItemVerb>(verb);
  item.key = reader.GetText<uint32_t>(kKeyMax_bytes);
  item.value = reader.GetText<uint32_t>(kItemMax_bytes);
  item.flags = reader.Get<uint32_t>();
  item.life_s = reader.Get<int64_t>();
  item.unique = reader.Get<uint64_t>();
  item.delta = reader.Get<uint64_t>();
  if (reader.GetBool()) command.age_ns = reader.Get<uint64_t>();
}

// What Encode writes, so that it takes its memory once.
size_t Size_bytes(const Command& command) {
  size_t size = 3 + 6 * sizeof(uint64_t);
  if (command.key.kind == CommandKind::kOpen) size += sizeof(SessionName);
  if (command.key.kind == CommandKind::kMemcached)
    size += kItemFixed_bytes + command.item.key.size() + command.item.value.size() + sizeof(uint64_t);
  for (const Operation& operation : command.operations) {
    size += 2 + 2 * sizeof(uint32_t) + sizeof(int64_t) + operation.key.size() + operation.value.size();
    if (operation.expected.has_value()) size += sizeof(uint32_t) + operation.expected->size();
  }
  if (command.key.kind == CommandKind::kSettings) size += 1 + command.settings.size() * (1 + sizeof(uint64_t));
  return size;
}

}  // namespace

const Result kAnotherRequest{.code = ResultCode::kMismatch};

RequestKey WriteKey(const SessionName& session, uint64_t seq, const std::vector<Operation>& operations) {
  return {.kind = CommandKind::kWrite,
          .a = session.id,
          .b = seq,
          .c = Fingerprint(session.token, session.id, operations),
          .d = session.token};
}

RequestKey OnceKey(uint64_t nonce, const std::vector<Operation>& operations) {
  return {.kind = CommandKind::kWindowed, .a = nonce, .c = Fingerprint(nonce, 0, operations)};
}

uint32_t FeaturesNeeded(const Command& command) {
  uint32_t needed = PolicyOf(command.key).feature;
  for (const Operation& operation : command.operations) needed |= kOperationSince[static_cast<size_t>(operation.kind)];
  return needed;
}

std::string Encode(const Command& command) {
  ByteWriter writer(Size_bytes(command));
  writer.Put(kVersion);
  writer.Put(static_cast<uint8_t>(command.key.kind));
  writer.Put(command.key.a);
  writer.Put(command.key.b);
  writer.Put(command.key.c);
  writer.Put(command.key.d);
  writer.Put(PolicyOf(command.key).no_session ? command.came_ns : command.lowest_unanswered);
  writer.Put(command.elapsed_ns);
  writer.Put(static_cast<uint8_t>(command.operations.size()));
  for (const Operation& operation : command.operations) {
    writer.Put(static_cast<uint8_t>(operation.kind));
    writer.PutText<uint32_t>(operation.key);
    writer.PutText<uint32_t>(operation.value);
    writer.Put(static_cast<uint8_t>(operation.expected.has_value()));
    if (operation.expected.has_value()) writer.PutText<uint32_t>(*operation.expected);
    writer.Put(operation.delta);
  }
  if (command.key.kind == CommandKind::kOpen) {
    writer.Put(command.session.id);
    writer.Put(command.session.token);
  }
  if (command.key.kind == CommandKind::kMemcached) PutItem(writer, command);
  if (command.key.kind == CommandKind::kSettings) PutSettingValues(writer, command.settings);
  return writer.Take();
}

std::optional<RequestKey> KeyUsedOnceIn(std::string_view bytes) {
  ByteReader reader(bytes);
  RequestKey key;
  if (reader.Get<uint8_t>() != kVersion) return std::nullopt;
  key.kind = static_cast<CommandKind>(reader.Get<uint8_t>());
  if (!PolicyOf(key).used_once) return std::nullopt;
  key.a = reader.Get<uint64_t>();
  key.b = reader.Get<uint64_t>();
  key.c = reader.Get<uint64_t>();
  key.d = reader.Get<uint64_t>();
  if (!reader.ok()) return std::nullopt;
  return key;
}

std::optional<Command> Decode(std::string_view bytes) {
  Command command;
  if (!DecodeInto(bytes, command)) return std::nullopt;
  return command;
}

bool DecodeInto(std::string_view bytes, Command& command) {
  ByteReader reader(bytes);
  const uint8_t version = reader.Get<uint8_t>();
  if (version != kVersion) return false;
  const uint8_t kind = reader.Get<uint8_t>();
  if (kind < 1 || kind >= kRequestPolicies.size()) return false;
  command.key.kind = static_cast<CommandKind>(kind);
  command.key.a = reader.Get<uint64_t>();
  command.key.b = reader.Get<uint64_t>();
  command.key.c = reader.Get<uint64_t>();
  command.key.d = reader.Get<uint64_t>();
  command.lowest_unanswered = command.came_ns = 0;
  (PolicyOf(command.key).no_session ? command.came_ns : command.lowest_unanswered) = reader.Get<uint64_t>();
  command.elapsed_ns = reader.Get<uint64_t>();
  const uint8_t count = reader.Get<uint8_t>();
  if (count > kOperationsMax) return false;
  command.operations.resize(count);
  for (uint8_t i = 0; i < count && reader.ok(); ++i) GetOperation(reader, command.operations[i]);
  command.item = {};
  command.age_ns.reset();
  command.session = {};
  if (command.key.kind == CommandKind::kOpen) {
    command.session.id = reader.Get<uint64_t>();
    command.session.token = reader.Get<uint64_t>();
  }
  if (command.key.kind == CommandKind::kMemcached) {
    if (count != 0) return false;
    GetItem(reader, command);
  }
  command.settings.clear();
  if (command.key.kind == CommandKind::kSettings) {
    if (count != 0 || command.key.a > kSeed) return false;
    GetSettingValues(reader, command.settings);
  }
  return reader.done();
}

}  // namespace hedgerow::kv
