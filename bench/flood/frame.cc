// SPDX-License-Identifier: Apache-2.0
#include "bench/flood/frame.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::bench {
namespace {

constexpr uint8_t kUdp = 17;
constexpr uint16_t kFirstPort = 1024;

void Put16(std::span<uint8_t> at, uint16_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

void Put32(std::span<uint8_t> at, uint32_t value) {
  Put16(at, static_cast<uint16_t>(value >> 16));
  Put16(at.subspan(2), static_cast<uint16_t>(value));
}

uint16_t Fold(uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

absl::StatusOr<Mac> ParseMac(const std::string& text) {
  Mac mac{};
  int end = 0;
  if (std::sscanf(text.c_str(), "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx%n", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5],
                  &end) != 6 ||
      static_cast<size_t>(end) != text.size())
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no hardware address like 02:00:00:00:00:01"));
  return mac;
}

absl::StatusOr<uint32_t> ParseIpv4(const std::string& text) {
  in_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) != 1)
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no IPv4 address"));
  return ntohl(address.s_addr);
}

uint32_t InternetSum(std::span<const uint8_t> bytes, uint32_t sum) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) sum += static_cast<uint32_t>(bytes[i] << 8 | bytes[i + 1]);
  if (bytes.size() % 2 != 0) sum += static_cast<uint32_t>(bytes.back() << 8);
  return sum;
}

FrameMaker::FrameMaker(FrameSpec spec, uint64_t seed) : spec_(std::move(spec)), state_(seed | 1) {}

// xorshift64* (Vigna 2016): a cache line for none of it, and no two frames alike for longer than any run.
uint64_t FrameMaker::Random() {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return state_ * 0x2545f4914f6cdd1dull;
}

void FrameMaker::Make(std::span<uint8_t> frame) {
  const uint64_t random = Random();
  const auto any_port = [](uint64_t bits) { return static_cast<uint16_t>(kFirstPort + bits % (65536u - kFirstPort)); };
  const uint32_t source = spec_.source + static_cast<uint32_t>((random >> 32) % spec_.sources);
  const uint16_t from = spec_.source_port != 0 ? spec_.source_port : any_port(random & 0xffff);
  const uint16_t to = spec_.destination_port != 0 ? spec_.destination_port : any_port((random >> 16) & 0xffff);
  const auto udp_bytes = static_cast<uint16_t>(8 + spec_.payload.size());

  std::copy(spec_.destination_mac.begin(), spec_.destination_mac.end(), frame.begin());
  std::copy(spec_.source_mac.begin(), spec_.source_mac.end(), frame.begin() + 6);
  Put16(frame.subspan(12), 0x0800);
  const std::span<uint8_t> ip = frame.subspan(14, 20), udp = frame.subspan(34, udp_bytes);
  const uint8_t fixed[] = {0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, kUdp, 0, 0};
  std::copy(std::begin(fixed), std::end(fixed), ip.begin());
  Put16(ip.subspan(2), static_cast<uint16_t>(20 + udp_bytes));
  Put32(ip.subspan(12), source);
  Put32(ip.subspan(16), spec_.destination);
  Put16(ip.subspan(10), Fold(InternetSum(ip)));

  Put16(udp, from);
  Put16(udp.subspan(2), to);
  Put16(udp.subspan(4), udp_bytes);
  Put16(udp.subspan(6), 0);
  std::copy(spec_.payload.begin(), spec_.payload.end(), udp.begin() + 8);
  for (size_t done = 0; done < spec_.vary_bytes;) {
    const uint64_t more = Random();
    const size_t count = std::min(sizeof(more), spec_.vary_bytes - done);
    std::memcpy(udp.data() + 8 + spec_.vary_offset + done, &more, count);
    done += count;
  }
  const uint32_t pseudo = InternetSum(ip.subspan(12, 8), kUdp + udp_bytes);
  const uint16_t check = Fold(InternetSum(udp, pseudo));
  Put16(udp.subspan(6), check != 0 ? check : 0xffff);
}

}  // namespace hedgerow::bench
