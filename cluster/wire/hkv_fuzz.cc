// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target for the clients' protocol: any bytes are refused or parsed, what is parsed encodes to the
// same bytes, trailer included, and what a node says to what it cannot understand is short and is itself never
// answered.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cluster/wire/hkv.h"
#include "cluster/wire/hkv_trailer.h"

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
  if (parse.request.has_value()) {
    std::string encoded = Encode(*parse.request);
    const hedgerow::wire::Key key{.bytes = {1, 2, 3}};
    if (hedgerow::wire::HasHkvTrailer(bytes)) {
      const auto trailer = hedgerow::wire::FindHkvTrailer(bytes);
      Require(trailer.has_value());
      encoded = hedgerow::wire::SealHkvRequest(encoded, trailer->client, trailer->sent_ms, key);
      Require(hedgerow::wire::IsHkvTagRight(encoded, key));
      // A tag of the fuzzer's making is right only if it is the one under this key.
      Require(hedgerow::wire::IsHkvTagRight(bytes, key) == (encoded == bytes));
      encoded.replace(encoded.size() - hedgerow::wire::kHkvTag_bytes, std::string::npos,
                      bytes.substr(bytes.size() - hedgerow::wire::kHkvTag_bytes));
    }
    Require(encoded == bytes);
  }
  if (parse.answer.has_value()) {
    const std::string answer = Encode(*parse.answer);
    Require(answer.size() == hedgerow::wire::kHkvAnswerHeader_bytes);
    Require(hedgerow::wire::ParseHkvRequest(answer).drop == hedgerow::wire::HkvDrop::kAnAnswer);
  }
  if (const auto answer = hedgerow::wire::ParseHkvAnswer(bytes)) {
    std::string untagged(bytes);
    if (hedgerow::wire::HasHkvTrailer(bytes)) {
      untagged.resize(bytes.size() - hedgerow::wire::kHkvTag_bytes);
      untagged[hedgerow::wire::kHkvAnswerFlagsOffset] = 0;
    }
    Require(Encode(*answer) == untagged);
  }
  return 0;
}
