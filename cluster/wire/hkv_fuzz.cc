// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target for the clients' protocol: any bytes are refused or parsed, what is parsed encodes to the
// same bytes, and what a node says to what it cannot understand is short and is itself never answered.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cluster/wire/hkv.h"

namespace {

using hedgerow::wire::HkvParse;

void Require(bool condition) {
  if (!condition) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const HkvParse parse = hedgerow::wire::ParseHkvRequest(bytes);
  const bool dropped = parse.drop != hedgerow::wire::HkvDrop::kNone;
  Require(parse.request.has_value() + parse.answer.has_value() + dropped == 1);
  if (parse.request.has_value()) Require(Encode(*parse.request) == bytes);
  if (parse.answer.has_value()) {
    const std::string answer = Encode(*parse.answer);
    Require(answer.size() == hedgerow::wire::kHkvAnswerHeader_bytes);
    Require(hedgerow::wire::ParseHkvRequest(answer).drop == hedgerow::wire::HkvDrop::kAnAnswer);
  }
  if (const auto answer = hedgerow::wire::ParseHkvAnswer(bytes)) Require(Encode(*answer) == bytes);
  return 0;
}
