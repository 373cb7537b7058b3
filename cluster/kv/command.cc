// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/command.h"

#include "cluster/kv/bytes.h"

namespace hedgerow::kv {
namespace {

constexpr uint8_t kVersion = 1;

Operation GetOperation(ByteReader& reader) {
  Operation operation;
  const uint8_t kind = reader.Get<uint8_t>();
  if (kind < 1 || kind > 4) reader.Fail();
  operation.kind = static_cast<OperationKind>(kind);
  operation.key = reader.GetText<uint32_t>(kKeyMax_bytes);
  operation.value = reader.GetText<uint32_t>(kValueMax_bytes);
  if (reader.GetBool()) operation.expected = reader.GetText<uint32_t>(kValueMax_bytes);
  operation.delta = reader.Get<int64_t>();
  return operation;
}

// What Encode writes, so that it takes its memory once.
size_t Size_bytes(const Command& command) {
  size_t size = 3 + 5 * sizeof(uint64_t);
  for (const Operation& operation : command.operations) {
    size += 2 + 2 * sizeof(uint32_t) + sizeof(int64_t) + operation.key.size() + operation.value.size();
    if (operation.expected.has_value()) size += sizeof(uint32_t) + operation.expected->size();
  }
  return size;
}

}  // namespace

std::string Encode(const Command& command) {
  ByteWriter writer(Size_bytes(command));
  writer.Put(kVersion);
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
  return writer.Take();
}

std::optional<Command> Decode(std::string_view bytes) {
  ByteReader reader(bytes);
  Command command;
  if (reader.Get<uint8_t>() != kVersion) return std::nullopt;
  const uint8_t kind = reader.Get<uint8_t>();
  if (kind < 1 || kind > 3) return std::nullopt;
  command.key.kind = static_cast<CommandKind>(kind);
  command.key.a = reader.Get<uint64_t>();
  command.key.b = reader.Get<uint64_t>();
  command.key.c = reader.Get<uint64_t>();
  command.lowest_unanswered = reader.Get<uint64_t>();
  command.elapsed_ns = reader.Get<uint64_t>();
  const uint8_t count = reader.Get<uint8_t>();
  if (count > kOperationsMax) return std::nullopt;
  command.operations.reserve(count);
  for (uint8_t i = 0; i < count && reader.ok(); ++i) command.operations.push_back(GetOperation(reader));
  if (!reader.done()) return std::nullopt;
  return command;
}

}  // namespace hedgerow::kv
