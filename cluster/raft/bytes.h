// SPDX-License-Identifier: Apache-2.0
//
// Numbers and texts as bytes: little-endian on every host, a text behind its length. Configurations, the commands of
// the log, the records on disk and every datagram are written and read with it. The reader never passes the end: it
// remembers that something did not fit and gives zeros, so that a decoder checks once, at its end. Texts are views into
// what is read.

#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cluster/raft/check.h"

namespace hedgerow {

class ByteWriter {
 public:
  // `size_bytes` is what will be written, so that the memory is taken once.
  explicit ByteWriter(size_t size_bytes) : bytes_(size_bytes, '\0') {}

  template <typename Number>
  void Put(Number number) {
    Store(Room(sizeof(Number)), number);
  }
  void PutBytes(std::string_view bytes) {
    char* const to = Room(bytes.size());
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  }
  void PutZeros(size_t count) { std::fill_n(Room(count), count, '\0'); }
  // The caller knows that the length fits a `Length`.
  template <typename Length>
  void PutText(std::string_view text) {
    Put(static_cast<Length>(text.size()));
    PutBytes(text);
  }
  // Over bytes that were written already.
  template <typename Number>
  void PutAt(size_t offset, Number number) {
    HEDGEROW_CHECK(offset + sizeof(Number) <= used_);
    Store(bytes_.data() + offset, number);
  }

  std::string_view view() const { return {bytes_.data(), used_}; }
  std::string Take() {
    bytes_.resize(used_);
    used_ = 0;
    return std::move(bytes_);
  }

 private:
  // For so many bytes more, which count as written.
  char* Room(size_t count) {
    const size_t at = used_;
    used_ += count;
    if (used_ > bytes_.size()) bytes_.resize(std::max(used_, 2 * bytes_.size()));
    return bytes_.data() + at;
  }

  template <typename Number>
  static void Store(char* to, Number number) {
    static_assert(std::is_integral_v<Number> && !std::is_same_v<Number, bool>, "say how wide it is on the wire");
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(to, &number, sizeof(number));
    } else {
      const uint64_t bits = static_cast<std::make_unsigned_t<Number>>(number);
      for (size_t i = 0; i < sizeof(Number); ++i) to[i] = static_cast<char>(bits >> (8 * i) & 0xff);
    }
  }

  std::string bytes_;
  size_t used_ = 0;
};

// For bytes that are put together without a known size.
template <typename Number>
void AppendNumber(std::string& out, Number number) {
  ByteWriter writer(sizeof(number));
  writer.Put(number);
  out += writer.view();
}

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  // 0 and not ok() if the bytes end.
  template <typename Number>
  Number Get() {
    if (!ok_ || bytes_.size() < sizeof(Number)) {
      ok_ = false;
      return 0;
    }
    const char* const from = bytes_.data();
    bytes_.remove_prefix(sizeof(Number));
    if constexpr (std::endian::native == std::endian::little) {
      Number number;
      std::memcpy(&number, from, sizeof(number));
      return number;
    } else {
      uint64_t bits = 0;
      for (size_t i = 0; i < sizeof(Number); ++i) {
        bits |= uint64_t{static_cast<uint8_t>(from[i])} << (8 * i);
      }
      return static_cast<Number>(bits);
    }
  }
  // A byte that is 0 or 1, and nothing else: two encodings of one thing would be one too many.
  bool GetBool() {
    const auto byte = Get<uint8_t>();
    if (byte > 1) ok_ = false;
    return byte == 1;
  }
  // Lives as long as what is read, like a text below.
  std::string_view GetBytes(size_t size) {
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view bytes = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return bytes;
  }
  template <typename Length>
  std::string_view GetText(size_t max_bytes) {
    const size_t size = Get<Length>();
    if (!ok_ || size > max_bytes || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return text;
  }
  std::string_view GetRest() { return GetBytes(bytes_.size()); }
  // Whatever is left; that is read.
  bool AreZeros() {
    const bool zeros = bytes_.find_first_not_of('\0') == std::string_view::npos;
    bytes_ = {};
    return ok_ && zeros;
  }
  void Fail() { ok_ = false; }

  size_t left_bytes() const { return bytes_.size(); }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace hedgerow
