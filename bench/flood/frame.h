// SPDX-License-Identifier: Apache-2.0
//
// Frames that no host sent: whole Ethernet frames with UDP over IPv4, whose source is any of a range of
// addresses and ports, and whose checksums are right, so that every check that a receiver can make of them is
// one of the content. hr-flood sends them into the lab's namespaces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hedgerow::bench {

using Mac = std::array<uint8_t, 6>;

// "02:00:00:00:00:01".
absl::StatusOr<Mac> ParseMac(const std::string& text);
// Dotted; host order.
absl::StatusOr<uint32_t> ParseIpv4(const std::string& text);

struct FrameSpec {
  Mac source_mac{};
  Mac destination_mac{};
  uint32_t source = 0;            // the first address, host order
  uint32_t sources = 1;           // how many follow one another
  uint32_t destination = 0;       // host order
  uint16_t source_port = 0;       // 0: any from 1024 on
  uint16_t destination_port = 0;  // 0: any from 1024 on
  std::vector<uint8_t> payload;
  size_t vary_offset = 0;  // of the payload: bytes that are others in every frame
  size_t vary_bytes = 0;
};

class FrameMaker {
 public:
  static constexpr size_t kHeaderBytes = 14 + 20 + 8;

  // The same seed makes the same frames.
  FrameMaker(FrameSpec spec, uint64_t seed);

  size_t FrameBytes() const { return kHeaderBytes + spec_.payload.size(); }
  // `frame` is FrameBytes() long.
  void Make(std::span<uint8_t> frame);

 private:
  uint64_t Random();

  const FrameSpec spec_;
  uint64_t state_;
};

// RFC 1071, over `bytes` and what `sum` already holds; not complemented, host order.
uint32_t InternetSum(std::span<const uint8_t> bytes, uint32_t sum = 0);

}  // namespace hedgerow::bench
