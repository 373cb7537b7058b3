// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target for the commands in the log: any bytes are refused or decoded, and what is decoded encodes
// to the same bytes and may be applied.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cluster/kv/command.h"
#include "cluster/kv/state_machine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto command = hedgerow::kv::Decode(bytes);
  if (!command.has_value()) return 0;
  if (hedgerow::kv::Encode(*command) != bytes) abort();
  hedgerow::kv::StateMachine state;
  state.Apply(1, {.key = {.kind = hedgerow::kv::CommandKind::kOpen, .a = 1}, .session = {.id = 1}});
  state.Apply(2, *command);
  state.Apply(3, *command);
  return 0;
}
