// SPDX-License-Identifier: Apache-2.0
//
// Little-endian numbers into and out of a string, for the records on disk. A reader that has run out of bytes
// stays failed and gives zeros, so that a parser asks once at its end.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace hedgerow::storage {

// The lowest `bytes` of them, at most 8.
inline void AppendNumber(std::string& out, uint64_t value, size_t bytes) {
  char buffer[sizeof(value)];
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(buffer, &value, sizeof(value));
  } else {
    for (size_t i = 0; i < sizeof(value); ++i) buffer[i] = static_cast<char>(value >> (8 * i) & 0xff);
  }
  out.append(buffer, bytes);
}

class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) : bytes_(bytes) {}

  uint64_t Number(size_t bytes) {
    if (bytes_.size() < bytes) failed_ = true;
    if (failed_) return 0;
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
    bytes_.remove_prefix(bytes);
    return value;
  }
  std::string_view Bytes(size_t bytes) {
    if (bytes_.size() < bytes) failed_ = true;
    if (failed_) return {};
    const std::string_view taken = bytes_.substr(0, bytes);
    bytes_.remove_prefix(bytes);
    return taken;
  }
  std::string_view Rest() {
    const std::string_view rest = bytes_;
    bytes_ = {};
    return failed_ ? std::string_view() : rest;
  }

  // Everything was there and nothing is left.
  bool Complete() const { return !failed_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool failed_ = false;
};

}  // namespace hedgerow::storage
