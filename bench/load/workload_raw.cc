// SPDX-License-Identifier: Apache-2.0
//
// The raw workload: a 4-byte little-endian id, then a fixed pattern up to the wanted length; the answer is an
// echo.
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/load/workload.h"

namespace hedgerow::bench {
namespace {

constexpr size_t kIdBytes = 4;
constexpr uint8_t kPadding = 0xa5;

class RawWorkload final : public Workload {
 public:
  RawWorkload(uint32_t first_id, size_t request_bytes, std::optional<size_t> load_offset)
      : first_id_(first_id), request_bytes_(request_bytes), load_offset_(load_offset) {}

  size_t Encode(uint64_t seq, std::span<uint8_t, kMaxRequestBytes> out) override {
    const auto id = static_cast<uint32_t>(first_id_ + seq);
    for (size_t i = 0; i < kIdBytes; ++i) out[i] = static_cast<uint8_t>(id >> (8 * i));
    std::memset(out.data() + kIdBytes, kPadding, request_bytes_ - kIdBytes);
    return request_bytes_;
  }

  Decoded Decode(std::span<const uint8_t> datagram, uint64_t /*flow*/, uint64_t next_seq) override {
    if (datagram.size() < kIdBytes || next_seq == 0) return {};
    uint32_t id = 0;
    for (size_t i = 0; i < kIdBytes; ++i) id |= static_cast<uint32_t>(datagram[i]) << (8 * i);
    // The newest request that carries this id: ids wrap after 2^32.
    const uint64_t newest = next_seq - 1;
    const auto age = static_cast<uint32_t>(static_cast<uint32_t>(first_id_ + newest) - id);
    if (age > newest) return {};
    bool echoed = datagram.size() == request_bytes_;
    for (size_t i = kIdBytes; echoed && i < datagram.size(); ++i) {
      echoed = datagram[i] == kPadding || i == load_offset_;
    }
    if (!echoed) return {DecodeResult::kWrong, newest - age};
    return {DecodeResult::kAnswer, newest - age,
            load_offset_.has_value() ? std::optional(datagram[*load_offset_]) : std::nullopt};
  }

  uint64_t IdsPerFlow() const override { return uint64_t{1} << 32; }

 private:
  uint32_t first_id_;
  size_t request_bytes_;
  std::optional<size_t> load_offset_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> MakeRawWorkload(uint32_t first_id, size_t request_bytes,
                                                          std::optional<size_t> load_offset) {
  if (request_bytes < kIdBytes || request_bytes > kMaxRequestBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a raw request is ", kIdBytes, " to ", kMaxRequestBytes, " bytes long, not ", request_bytes));
  }
  if (load_offset.has_value() && (*load_offset < kIdBytes || *load_offset >= request_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("the load stands behind the id and within the ", request_bytes,
                                                   " bytes of an answer, not at ", *load_offset));
  }
  return std::make_unique<RawWorkload>(first_id, request_bytes, load_offset);
}

}  // namespace hedgerow::bench
