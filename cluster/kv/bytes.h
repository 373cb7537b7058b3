// SPDX-License-Identifier: Apache-2.0
//
// Numbers and texts as bytes: little-endian on every host, a text behind its length. The commands of the log
// and every datagram are written and read with it. The reader never passes the end: it remembers that something
// did not fit and gives zeros, so that a decoder checks once, at its end. Texts are views into what is read.

#ifndef HEDGEROW_CLUSTER_KV_BYTES_H_
#define HEDGEROW_CLUSTER_KV_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cluster/raft/check.h"

namespace hedgerow {

class ByteWriter {
 public:
  // `size_bytes` is what will be written, so that the memory is taken once.
  explicit ByteWriter(size_t size_bytes) { bytes_.reserve(size_bytes); }

  template <typename Number>
  void Put(Number number) {
    char buffer[sizeof(Number)];
    Store(buffer, number);
    bytes_.append(buffer, sizeof(Number));
  }
  void PutBytes(std::string_view bytes) { bytes_.append(bytes); }
  void PutZeros(size_t count) { bytes_.append(count, '\0'); }
  // The caller knows that the length fits a `Length`.
  template <typename Length>
  void PutText(std::string_view text) {
    Put(static_cast<Length>(text.size()));
    bytes_.append(text);
  }
  // Over bytes that were written already.
  template <typename Number>
  void PutAt(size_t offset, Number number) {
    HEDGEROW_CHECK(offset + sizeof(Number) <= bytes_.size());
    Store(bytes_.data() + offset, number);
  }

  std::string_view view() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  template <typename Number>
  static void Store(char* to, Number number) {
    static_assert(std::is_integral_v<Number> && !std::is_same_v<Number, bool>,
                  "say how wide it is on the wire");
    const uint64_t bits = static_cast<std::make_unsigned_t<Number>>(number);
    for (size_t i = 0; i < sizeof(Number); ++i) to[i] = static_cast<char>(bits >> (8 * i) & 0xff);
  }

  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

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
  // A byte that is 0 or 1, and nothing else: two encodings of one thing would be one too many.
  bool GetBool() {
    const auto byte = Get<uint8_t>();
    if (byte > 1) ok_ = false;
    return byte == 1;
  }
  // Lives as long as what is read.
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
  void Fail() { ok_ = false; }

  size_t left_bytes() const { return bytes_.size(); }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace hedgerow

#endif  // HEDGEROW_CLUSTER_KV_BYTES_H_
