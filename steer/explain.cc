// SPDX-License-Identifier: Apache-2.0
//
// The kernel's choice, computed natively by the same functions (bpf/steer/). group_choice_test.cc compares it with
// the kernel's.
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bpf/steer/bucket.h"
#include "steer/kernel_group.h"

namespace hedgerow::steer {
namespace {

// Family and network: the first `bits` of the address.
std::array<uint64_t, 3> NetworkKey(uint32_t family, const __u64 (&words)[2], uint32_t bits) {
  __u64 cut[2] = {words[0], words[1]};
  hr_steer_cut(cut, bits);
  return {family, cut[0], cut[1]};
}

hr_steer_source SourceOf(const hr_steer_config& config, const DeviceIndex& devices, uint32_t family,
                         const uint64_t (&words)[2], absl::Span<const uint8_t> payload) {
  hr_steer_source source{};
  const hr_steer_device* const device = devices.Find(family, words);
  if (device == nullptr) {
    const __u64 address[2] = {words[0], words[1]};
    hr_steer_address(&config, family, address, &source);
  } else if (device->is_gateway != 0 && config.field_bytes != 0 && payload.size() >= config.field_offset &&
             payload.size() - config.field_offset >= config.field_bytes) {
    source.kind = HR_STEER_FIELD;
    memcpy(source.words, payload.data() + config.field_offset, config.field_bytes);
  } else {
    hr_steer_device_source(device, &source);
  }
  return source;
}

}  // namespace

DeviceIndex::DeviceIndex(const std::vector<Device>& devices) {
  for (const Device& each : devices) {
    const __u64 words[2] = {each.network.words[0], each.network.words[1]};
    by_length_[each.network.prefix_bits][NetworkKey(each.network.family, words, each.network.prefix_bits - 32)] =
        each.device;
  }
}

const hr_steer_device* DeviceIndex::Find(uint32_t family, const uint64_t (&words)[2]) const {
  const __u64 address[2] = {words[0], words[1]};
  for (const auto& [prefix_bits, networks] : by_length_) {
    const auto found = networks.find(NetworkKey(family, address, prefix_bits - 32));
    if (found != networks.end()) return &found->second;
  }
  return nullptr;
}

absl::StatusOr<hr_steer_config> NewConfig() {
  hr_steer_config config{};
  config.layout = HR_STEER_LAYOUT;
  config.ipv6_prefix = 128;
  if (getrandom(&config.seed, sizeof(config.seed), 0) != sizeof(config.seed))
    return absl::ErrnoToStatus(errno, "drawing a seed");
  return config;
}

Choice Explain(const hr_steer_config& config, const DeviceIndex& devices,
               absl::Span<const std::pair<hr_steer_source, uint8_t>> pins,
               const std::array<hr_steer_entry, HR_STEER_BUCKETS>& table, const net::IpAddress& address,
               absl::Span<const uint8_t> payload) {
  uint64_t words[2] = {};
  memcpy(words, address.wire().data(), address.wire().size());
  Choice choice;
  choice.source = SourceOf(config, devices, address.is_v4() ? 4 : 6, words, payload);
  choice.bucket = hr_steer_bucket(&config, &choice.source);
  choice.entry = table[choice.bucket];
  choice.slot = choice.entry.is_vacant != 0 && (choice.entry.empty & HR_STEER_OTHER) != 0 ? choice.entry.other_slot
                                                                                          : choice.entry.slot;
  const auto pin = std::find_if(pins.begin(), pins.end(), [&](const auto& pinned) {
    return memcmp(&pinned.first, &choice.source, sizeof(choice.source)) == 0;
  });
  if (pin != pins.end()) {
    choice.pinned = true;
    choice.slot = pin->second;
  }
  return choice;
}

}  // namespace hedgerow::steer
