// SPDX-License-Identifier: Apache-2.0
//
// Whatever comes over a connection: it is waited for, refused with an answer, or understood, and what is understood
// obeys the rules that the handlers rely on.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "operate/http_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hedgerow::operate::ParsedHead;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ParsedHead parsed = hedgerow::operate::ParseHead(bytes);
  const auto must = [](bool truth) {
    if (!truth) __builtin_trap();
  };
  if (parsed.state == ParsedHead::State::kIncomplete) {
    must(size <= hedgerow::operate::kMaxHeadBytes || absl::StrContains(bytes, "\r\n\r\n"));
  } else if (parsed.state == ParsedHead::State::kRefused) {
    must(parsed.refusal.status >= 400 && !parsed.refusal.body.empty());
  } else {
    must(parsed.request.method == "GET" || parsed.request.method == "HEAD");
    must(absl::StartsWith(parsed.request.path, "/") && !absl::StrContains(parsed.request.path, '?'));
    for (const char c : parsed.request.path + parsed.request.query) must(c > 0x20 && c < 0x7f);
    must(parsed.request.Parameter("after").size() <= parsed.request.query.size());
  }
  // What is complete stays what it is, whatever follows it.
  if (parsed.state == ParsedHead::State::kComplete) {
    const ParsedHead longer = hedgerow::operate::ParseHead(std::string(bytes) + "GET / HTTP/1.1\r\n\r\n");
    must(longer.state == parsed.state && longer.request.path == parsed.request.path);
  }
  return 0;
}
