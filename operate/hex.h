// SPDX-License-Identifier: Apache-2.0
//
// Bytes from hexadecimal digits that have been checked. Abseil's HexStringToBytes() is deprecated in newer versions,
// whose other form the Abseil of Debian 12 and Ubuntu 24.04 does not have.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace hedgerow::operate {

inline std::string BytesOfHex(absl::string_view digits) {
  const auto value = [](char digit) { return digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10; };
  std::string bytes;
  for (size_t at = 0; at + 1 < digits.size(); at += 2)
    bytes.push_back(static_cast<char>(value(digits[at]) << 4 | value(digits[at + 1])));
  return bytes;
}

}  // namespace hedgerow::operate
