// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/command.h"

#include <cstring>
#include <type_traits>

namespace hedgerow::kv {
namespace {

constexpr uint8_t kVersion = 1;

class Writer {
 public:
  template <typename Number>
  void Put(Number number) {
    // Little-endian on every host.
    auto bits = static_cast<std::make_unsigned_t<Number>>(number);
    for (size_t i = 0; i < sizeof(Number); ++i) {
      bytes_.push_back(static_cast<char>(bits & 0xff));
      bits = static_cast<decltype(bits)>(uint64_t{bits} >> 8);
    }
  }
  void PutText(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  // 0 and not ok() if the bytes end.
  template <typename Number>
  Number Get() {
    if (bytes_.size() < sizeof(Number)) {
      ok_ = false;
      return 0;
    }
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(Number); ++i) {
      bits |= uint64_t{static_cast<uint8_t>(bytes_[i])} << (8 * i);
    }
    bytes_.remove_prefix(sizeof(Number));
    return static_cast<Number>(bits);
  }
  std::string GetText(size_t max_bytes) {
    const size_t size = Get<uint32_t>();
    if (!ok_ || size > max_bytes || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  void Fail() { ok_ = false; }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

Operation GetOperation(Reader& reader) {
  Operation operation;
  const uint8_t kind = reader.Get<uint8_t>();
  if (kind < 1 || kind > 4) reader.Fail();
  operation.kind = static_cast<OperationKind>(kind);
  operation.key = reader.GetText(kKeyMax_bytes);
  operation.value = reader.GetText(kValueMax_bytes);
  if (const uint8_t present = reader.Get<uint8_t>(); present == 1) {
    operation.expected = reader.GetText(kValueMax_bytes);
  } else if (present != 0) {
    reader.Fail();
  }
  operation.delta = reader.Get<int64_t>();
  return operation;
}

}  // namespace

std::string Encode(const Command& command) {
  Writer writer;
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
    writer.PutText(operation.key);
    writer.PutText(operation.value);
    writer.Put(static_cast<uint8_t>(operation.expected.has_value()));
    if (operation.expected.has_value()) writer.PutText(*operation.expected);
    writer.Put(operation.delta);
  }
  return writer.Take();
}

std::optional<Command> Decode(std::string_view bytes) {
  Reader reader(bytes);
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
  for (uint8_t i = 0; i < count && reader.ok(); ++i) command.operations.push_back(GetOperation(reader));
  if (!reader.done()) return std::nullopt;
  return command;
}

}  // namespace hedgerow::kv
