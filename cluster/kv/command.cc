// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/command.h"

#include "cluster/kv/bytes.h"

namespace hedgerow::kv {
namespace {

constexpr uint8_t kVersion = 1;
// Of a memcached client's command with its age. Programs from before refuse such an entry: they would do something else
// at it than the others.
constexpr uint8_t kVersionWithAge = 2;

void GetOperation(ByteReader& reader, Operation& operation) {
  const uint8_t kind = reader.Get<uint8_t>();
  if (kind < 1 || kind > 4) reader.Fail();
  operation.kind = static_cast<OperationKind>(kind);
  operation.key = reader.GetText<uint32_t>(kKeyMax_bytes);
  operation.value = reader.GetText<uint32_t>(kValueMax_bytes);
  operation.expected.reset();
  if (reader.GetBool()) operation.expected = reader.GetText<uint32_t>(kValueMax_bytes);
  operation.delta = reader.Get<int64_t>();
}

// Behind the operations, of which such a command has none.
constexpr size_t kItemFixed_bytes = 1 + 2 * sizeof(uint32_t) + sizeof(uint32_t) + 4 * sizeof(uint64_t);

void PutItem(ByteWriter& writer, const Command& command) {
  const ItemOperation& item = command.item;
  writer.Put(command.key.d);
  writer.Put(static_cast<uint8_t>(item.verb));
  writer.PutText<uint32_t>(item.key);
  writer.PutText<uint32_t>(item.value);
  writer.Put(item.flags);
  writer.Put(item.life_s);
  writer.Put(item.unique);
  writer.Put(item.delta);
}

void GetItem(ByteReader& reader, Command& command) {
  ItemOperation& item = command.item;
  command.key.d = reader.Get<uint64_t>();
  const uint8_t verb = reader.Get<uint8_t>();
  if (verb < 1 || verb > static_cast<uint8_t>(ItemVerb::kDiscard)) reader.Fail();
  item.verb = static_cast<ItemVerb>(verb);
  item.key = reader.GetText<uint32_t>(kKeyMax_bytes);
  item.value = reader.GetText<uint32_t>(kItemMax_bytes);
  item.flags = reader.Get<uint32_t>();
  item.life_s = reader.Get<int64_t>();
  item.unique = reader.Get<uint64_t>();
  item.delta = reader.Get<uint64_t>();
}

// What Encode writes, so that it takes its memory once.
size_t Size_bytes(const Command& command) {
  size_t size = 3 + 5 * sizeof(uint64_t);
  if (command.key.kind == CommandKind::kMemcached)
    size += kItemFixed_bytes + command.item.key.size() + command.item.value.size() + sizeof(uint64_t);
  for (const Operation& operation : command.operations) {
    size += 2 + 2 * sizeof(uint32_t) + sizeof(int64_t) + operation.key.size() + operation.value.size();
    if (operation.expected.has_value()) size += sizeof(uint32_t) + operation.expected->size();
  }
  if (command.key.kind == CommandKind::kSettings)
    size += 1 + command.settings.size() * (1 + sizeof(uint64_t));
  return size;
}

}  // namespace

std::string Encode(const Command& command) {
  ByteWriter writer(Size_bytes(command));
  const bool memcached = command.key.kind == CommandKind::kMemcached;
  writer.Put(memcached && command.age_ns.has_value() ? kVersionWithAge : kVersion);
  writer.Put(static_cast<uint8_t>(command.key.kind));
  writer.Put(command.key.a);
  writer.Put(command.key.b);
  writer.Put(command.key.c);
  writer.Put(command.lowest_unanswered);
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
  if (memcached) PutItem(writer, command);
  if (memcached && command.age_ns.has_value()) writer.Put(*command.age_ns);
  if (command.key.kind == CommandKind::kSettings) PutSettingValues(writer, command.settings);
  return writer.Take();
}

std::optional<RequestKey> KeyUsedOnceIn(std::string_view bytes) {
  ByteReader reader(bytes);
  RequestKey key;
  if (reader.Get<uint8_t>() != kVersion) return std::nullopt;
  key.kind = static_cast<CommandKind>(reader.Get<uint8_t>());
  if (!IsUsedOnce(key)) return std::nullopt;
  key.a = reader.Get<uint64_t>();
  key.b = reader.Get<uint64_t>();
  key.c = reader.Get<uint64_t>();
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
  if (version != kVersion && version != kVersionWithAge) return false;
  const uint8_t kind = reader.Get<uint8_t>();
  if (kind < 1 || kind > static_cast<uint8_t>(CommandKind::kCheck)) return false;
  const bool memcached = kind == static_cast<uint8_t>(CommandKind::kMemcached);
  if (version == kVersionWithAge && !memcached) return false;
  command.key.kind = static_cast<CommandKind>(kind);
  command.key.a = reader.Get<uint64_t>();
  command.key.b = reader.Get<uint64_t>();
  command.key.c = reader.Get<uint64_t>();
  command.key.d = 0;
  command.lowest_unanswered = reader.Get<uint64_t>();
  command.elapsed_ns = reader.Get<uint64_t>();
  const uint8_t count = reader.Get<uint8_t>();
  if (count > kOperationsMax) return false;
  command.operations.resize(count);
  for (uint8_t i = 0; i < count && reader.ok(); ++i) GetOperation(reader, command.operations[i]);
  command.item = {};
  command.age_ns.reset();
  if (memcached) {
    if (count != 0) return false;
    GetItem(reader, command);
    if (version == kVersionWithAge) command.age_ns = reader.Get<uint64_t>();
  }
  command.settings.clear();
  if (command.key.kind == CommandKind::kSettings) {
    if (count != 0 || command.key.a > kSeed) return false;
    GetSettingValues(reader, command.settings);
  }
  return reader.done();
}

}  // namespace hedgerow::kv
