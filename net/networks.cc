// SPDX-License-Identifier: Apache-2.0
#include "net/networks.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::net {
namespace {

constexpr int kMappedPrefix_bits = 96;

// `bits` of 16 bytes set, from the first on.
std::array<uint8_t, 16> MaskOf(int bits) {
  std::array<uint8_t, 16> mask{};
  for (int i = 0; i < bits; ++i) mask[i / 8] |= static_cast<uint8_t>(0x80 >> (i % 8));
  return mask;
}

IpAddress FirstOf(const Network& network) {
  const std::array<uint8_t, 16> mask = network.mask();
  std::array<uint8_t, 16> first = network.address.mapped();
  for (size_t i = 0; i < first.size(); ++i) first[i] &= mask[i];
  return *IpAddress::FromBytes(first);
}

}  // namespace

absl::StatusOr<Network> Network::Parse(absl::string_view text) {
  const size_t slash = text.find('/');
  const absl::StatusOr<IpAddress> address = IpAddress::Parse(text.substr(0, slash));
  if (!address.ok()) return address.status();
  Network network{.address = *address, .bits = address->prefix_bits()};
  if (slash == absl::string_view::npos) return network;
  const absl::string_view digits = text.substr(slash + 1);
  const bool plain =
      !digits.empty() && digits.size() <= 3 && digits.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!plain || !absl::SimpleAtoi(digits, &network.bits) || network.bits > address->prefix_bits()) {
    return absl::InvalidArgumentError(absl::StrCat("a prefix of ", address->is_v4() ? "IPv4" : "IPv6", " has 0 to ",
                                                   address->prefix_bits(), " bits"));
  }
  // An IPv6 prefix that ends before the mapped ones' would begin in another family.
  const Network first{.address = FirstOf(network), .bits = network.bits};
  if (first.address != network.address) {
    return absl::InvalidArgumentError(
        absl::StrCat("bits beyond the prefix are set; did you mean ", first.ToString(), "?"));
  }
  return network;
}

std::array<uint8_t, 16> Network::mask() const { return MaskOf(address.is_v4() ? kMappedPrefix_bits + bits : bits); }

bool Network::Contains(const IpAddress& other) const {
  const std::array<uint8_t, 16> kept = mask();
  for (size_t i = 0; i < kept.size(); ++i)
    if (((other.mapped()[i] ^ address.mapped()[i]) & kept[i]) != 0) return false;
  return other.is_v4() == address.is_v4();
}

IpAddress Network::Host() const {
  if (bits == address.prefix_bits()) return address;
  std::array<uint8_t, 16> bytes = address.mapped();
  bytes.back() |= 1;
  return IpAddress::FromBytes(bytes).value_or(address);
}

std::string Network::ToString() const { return absl::StrCat(address.ToString(), "/", bits); }

Networks::Networks(std::vector<Network> networks) : networks_(std::move(networks)) {
  for (const Network& network : networks_) {
    Rule& rule = rules_.emplace_back();
    const std::array<uint8_t, 16> mask = network.mask();
    std::memcpy(rule.mask, mask.data(), mask.size());
    std::memcpy(rule.value, network.address.mapped().data(), mask.size());
    rule.v4 = network.address.is_v4();
  }
}

bool Networks::Contains(const std::array<uint8_t, 16>& address) const {
  uint64_t words[2];
  std::memcpy(words, address.data(), address.size());
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool v4 = std::memcmp(address.data(), kMapped.data(), kMapped.size()) == 0;
  for (const Rule& rule : rules_) {
    if (rule.v4 == v4 && (words[0] & rule.mask[0]) == rule.value[0] && (words[1] & rule.mask[1]) == rule.value[1])
      return true;
  }
  return false;
}

const Networks& PrivateNetworks() {
  static const Networks& networks = *new Networks([] {
    std::vector<Network> list;
    for (const char* text : {"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
                             "::1/128", "fc00::/7", "fe80::/10"}) {
      list.push_back(*Network::Parse(text));
    }
    return list;
  }());
  return networks;
}

}  // namespace hedgerow::net
