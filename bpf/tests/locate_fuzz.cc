// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// libFuzzer target for correlation bytes without a fixed place: the kernel's code (bpf/proxy/locate.h), compiled for
// this side, against a reference that reads the payload in another way. Paths and tokens are part of the input.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bpf/tests/locate_reference.h"

namespace {

using namespace hedgerow::packets;

constexpr size_t kPathBytes = 2 + 4 * HR_PATH_STEPS + 2;

hr_path PathOf(const uint8_t *bytes) {
  hr_path path{};
  path.count = bytes[0] % (HR_PATH_STEPS + 1);
  path.mark = bytes[1] % (HR_PATH_STEPS + 1);
  for (int i = 0; i < HR_PATH_STEPS; ++i) {
    const uint8_t *step = bytes + 2 + 4 * i;
    path.steps[i].kind = step[0] % (HR_STEP_BER_VALUE + 1);
    path.steps[i].bytes = path.steps[i].kind == HR_STEP_LENGTH ? uint8_t(1u << step[1] % 3) : step[1];
    path.steps[i].little_endian = step[2] & 1;
    path.steps[i].add = path.steps[i].kind == HR_STEP_LENGTH ? int16_t(int8_t(step[3])) : int16_t(0);
  }
  return path;
}

hr_token TokenOf(const char *name, char short_name, const char *parameter) {
  hr_token token{};
  token.name_bytes = static_cast<uint8_t>(std::strlen(name));
  std::memcpy(token.name, name, token.name_bytes);
  token.parameter_bytes = static_cast<uint8_t>(std::strlen(parameter));
  std::memcpy(&token.parameter, parameter, token.parameter_bytes);
  token.short_name = static_cast<uint8_t>(short_name);
  return token;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  const bool is_path = (data[0] & 1) != 0;
  const uint8_t variant = data[0] >> 1;
  ++data, --size;
  if (is_path) {
    if (size < kPathBytes) return 0;
    const hr_path path = PathOf(data);
    hr_field field{};
    field.offset = data[kPathBytes - 2];
    field.length = 1 + data[kPathBytes - 1] % HR_CORRELATION_BYTES;
    std::memset(field.mask, 0xff, field.length);
    const std::string payload(reinterpret_cast<const char *>(data + kPathBytes),
                              std::min<size_t>(size - kPathBytes, 1472));
    const auto wanted = FollowedPath(payload, path, field);
    if (NativePath(payload, path, field, 0) != wanted) abort();
    if (NativePath(payload, path, field, 0x02) != wanted) abort();  // what is behind the payload counts for nothing
    return 0;
  }
  const hr_token tokens[2] = {variant & 1 ? TokenOf("via", 'v', "branch") : TokenOf("call-id", 'i', ""),
                              variant & 2 ? TokenOf("cseq", 0, "") : TokenOf("x", 0, "ab")};
  const std::string payload(reinterpret_cast<const char *>(data), std::min<size_t>(size, 1472));
  for (const int count : {1, 2})
    if (NativeTokens(payload, tokens, count) != FoundTokens(payload, tokens, count)) abort();
  return 0;
}
