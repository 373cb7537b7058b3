// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/source_limits.h"

#include <algorithm>
#include <cstring>

#include "cluster/node/config/config_check.h"

namespace hedgerow::node {
namespace {

constexpr uint64_t kSecond_ns = 1'000'000'000;
constexpr size_t kHeaders4_bytes = 20 + 8;
constexpr size_t kHeaders6_bytes = 40 + 8;
// What may come at once, in time at the rate.
constexpr uint64_t kBytesBurst_ns = kSecond_ns / 4;
constexpr uint64_t kOpensBurst_ns = 8 * kSecond_ns;
// A prefix has so many times what one of its addresses has.
constexpr uint64_t kAddressesOfPrefix = 8;

size_t Headers_bytes(const NetAddress& client) { return client.is_v4() ? kHeaders4_bytes : kHeaders6_bytes; }

}  // namespace

size_t OnTheWire_bytes(const NetAddress& client, size_t datagrams, size_t payload_bytes) {
  return datagrams * Headers_bytes(client) + payload_bytes;
}

size_t RequestFor_bytes(const NetAddress& client, size_t answer_payload_bytes) {
  const size_t whole = OnTheWire_bytes(client, 1, answer_payload_bytes);
  const size_t least = (whole + kAmplificationMax - 1) / kAmplificationMax;
  return least - std::min(least, Headers_bytes(client));
}

bool IsServerPort(uint16_t port) {
  constexpr uint16_t kOthers[] = {1434, 1645, 1646, 1701, 1812, 1813, 1900, 3478,
                                  4500, 4801, 4802, 4803, 5060, 5353, 5683, 11211};
  return port < 1024 || std::find(std::begin(kOthers), std::end(kOthers), port) != std::end(kOthers);
}

bool SourceLimits::IsTrusted(const Datagram& datagram) const {
  // The kernel drops what comes from outside with an address of this host (Documentation/networking/ip-sysctl,
  // martians).
  return IsLoopback(datagram.from) || (!datagram.to.is_unspecified() && datagram.from.bytes == datagram.to.bytes) ||
         config_.trusted.Contains(datagram.from.bytes);
}

size_t SourceLimits::AnswerRoom_bytes(const Datagram& request) const {
  if (IsTrusted(request)) return 0;
  return kAmplificationMax * OnTheWire_bytes(request.from, 1, request.bytes.size());
}

bool SourceLimits::MaySend(const NetAddress& to, size_t payload_bytes, size_t room_bytes) {
  if (room_bytes == 0) return true;
  const uint64_t bytes = OnTheWire_bytes(to, 1, payload_bytes);
  if (Take(Of(Kind::kBytesOfPrefix, to), bytes * kSecond_ns / config_.answer_bytes_per_s, kBytesBurst_ns)) return true;
  ++counters_.bytes_over;
  return false;
}

bool SourceLimits::MayOpen(const Datagram& datagram, uint64_t client) {
  if (IsLoopback(datagram.from)) return true;
  if (TakeOfBoth(Kind::kOpensOfAddress, Kind::kOpensOfPrefix, datagram.from, client, kSecond_ns / config_.opens_per_s))
    return true;
  ++counters_.opens_over;
  return false;
}

bool SourceLimits::MayTakePlaceInWindow(const Datagram& datagram, uint64_t client) {
  if (window_cost_ns_ == 0 ||
      TakeOfBoth(Kind::kWritesOfAddress, Kind::kWritesOfPrefix, datagram.from, client, window_cost_ns_))
    return true;
  ++counters_.window_over;
  return false;
}

// On loopback a socket is a client: a local user has many.
std::array<uint16_t, 2> SourceLimits::PlacesOf(const NetAddress& from, uint64_t client) const {
  if (client == 0 && IsLoopback(from)) client = UINT64_MAX - from.port;
  const Hash hash = paid_until_ns_.hash_function();
  return {static_cast<uint16_t>(hash(Of(Kind::kReadsOfAddress, from, client))),
          static_cast<uint16_t>(hash(Of(Kind::kReadsOfPrefix, from, client)))};
}

bool SourceLimits::MayRead(const kv::WaitingReads& reads, size_t reads_max, const std::array<uint16_t, 2>& places) {
  const size_t part = std::max<size_t>(1, reads_max / 32);
  if (2 * reads.all < reads_max || (reads.at[places[0]] < part && reads.at[places[1]] < kAddressesOfPrefix * part))
    return true;
  ++counters_.reads_over;
  return false;
}

// The address first: one that floods takes nothing of its prefix's.
bool SourceLimits::TakeOfBoth(Kind address, Kind prefix, const NetAddress& from, uint64_t client, uint64_t cost_ns) {
  return Take(Of(address, from, client), cost_ns, kOpensBurst_ns) &&
         Take(Of(prefix, from, client), cost_ns / kAddressesOfPrefix, kOpensBurst_ns);
}

SourceLimits::Source SourceLimits::Of(Kind kind, const NetAddress& address, uint64_t client) {
  std::array<uint8_t, 16> bytes = address.bytes;
  const size_t kept = kind >= Kind::kOpensOfAddress ? (address.is_v4() ? 16 : 8) : (address.is_v4() ? 15 : 7);
  std::fill(bytes.begin() + static_cast<ptrdiff_t>(kept), bytes.end(), 0);
  Source source{.kind = kind, .bits = {}, .client = client};
  const bool named = client != 0 && kind < Kind::kOpensOfAddress;
  if (!named) std::memcpy(source.bits.data(), bytes.data(), bytes.size());
  return source;
}

bool SourceLimits::Take(const Source& source, uint64_t cost_ns, uint64_t burst_ns) {
  Forget();
  auto known = paid_until_ns_.find(source);
  if (known == paid_until_ns_.end() && paid_until_ns_.size() >= kSourcesMax) {
    // Those that find no place share one, so a flood from many addresses takes theirs and not that of those that are
    // known.
    ++counters_.table_full;
    const Source rest{.kind = Kind::kRest, .bits = {static_cast<uint64_t>(source.kind), 0}};
    known = paid_until_ns_.find(rest);
    if (known == paid_until_ns_.end()) known = paid_until_ns_.emplace(rest, now_ns_).first;
  } else if (known == paid_until_ns_.end()) {
    known = paid_until_ns_.emplace(source, now_ns_).first;
    order_.push_back(source);
  }
  uint64_t& paid_until_ns = known->second;
  if (paid_until_ns > now_ns_ + burst_ns) return false;
  paid_until_ns = std::max(paid_until_ns, now_ns_) + cost_ns;
  return true;
}

// Two for each that comes: the queue is gone through before it can double. One that has used less than it may is like
// one that was never seen.
void SourceLimits::Forget() {
  for (int i = 0; i < 2 && !order_.empty(); ++i) {
    const Source oldest = order_.front();
    order_.pop_front();
    const auto known = paid_until_ns_.find(oldest);
    if (known->second <= now_ns_) {
      paid_until_ns_.erase(known);
    } else {
      order_.push_back(oldest);
    }
  }
}

}  // namespace hedgerow::node
