// SPDX-License-Identifier: Apache-2.0
//
// What a client may make this node do (ADR 40): an address before it has proved anything, a named client by its name.
// Any host can write a victim's address
// into a datagram, so an answer is never much longer than its request, the bytes that leave for one prefix are bounded,
// and so are the sessions that one address opens. Networks that the operator calls trusted may have answers of any
// length: there a source address cannot be forged. Of both front ends; on the loop's thread.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>

#include "cluster/kv/keyed_hash.h"
#include "cluster/kv/request_router.h"
#include "cluster/kv/settings.h"
#include "cluster/node/config/config.h"
#include "cluster/node/net/udp_socket.h"

namespace hedgerow::node {

// Of IP packets: 28 bytes of headers are in both, 48 with IPv6. RFC 9000 section 8.1 and RFC 7873 take the same bound.
constexpr size_t kAmplificationMax = 3;
// A prefix is what one site has: /24 of IPv4, /56 of IPv6 (RFC 6177).
constexpr size_t kSourcesMax = 65'536;

class SourceLimits {
 public:
  struct Counters {
    uint64_t bytes_over = 0;   // answers that passed a prefix's rate: dropped in silence
    uint64_t opens_over = 0;   // OPENs that passed an address's or its prefix's: the same
    uint64_t window_over = 0;  // writes without a session that passed an address's or its prefix's part of the window
    uint64_t reads_over = 0;   // reads that passed an address's or its prefix's part of those that may wait
    uint64_t table_full = 0;   // decisions on a source that had no place of its own, and shared one with others
  };

  explicit SourceLimits(SourcesConfig config) : config_(std::move(config)) {}

  void TurnBegins(uint64_t now_ns) { now_ns_ = now_ns; }
  // Of the writes without a session that the cluster remembers, the first half is there for all alike. In the second
  // each member lets an address have a sixteenth of its part, so that one client that fills the window leaves others
  // theirs.
  void FollowWindow(size_t known, const kv::WindowLimits& window, size_t members) {
    window_cost_ns_ = 2 * known < window.requests_max
                          ? 0
                          : window.window_ns / std::max<uint64_t>(1, window.requests_max / members / 32);
  }

  // Loopback, this host itself, and the networks of `sources.trusted`.
  bool IsTrusted(const Datagram& datagram) const;
  // Of the payloads of all datagrams of an answer: so many bytes may they be, with their headers. 0: any number.
  size_t AnswerRoom_bytes(const Datagram& request) const;
  // A datagram with so much payload leaves; false: it must not. `room_bytes`: AnswerRoom_bytes of its request.
  bool MaySend(const NetAddress& to, size_t payload_bytes, size_t room_bytes);
  // `client` has proved the request (ClientAccess::ClientOf): what it uses is its own, whatever comes under its
  // address. 0: none has.
  bool MayOpen(const Datagram& datagram, uint64_t client);
  bool MayTakePlaceInWindow(const Datagram& datagram, uint64_t client);
  // The same of the reads that wait here. They are counted, at these places: one may wait a microsecond or a minute.
  std::array<uint16_t, 2> PlacesOf(const NetAddress& from, uint64_t client) const;
  bool MayRead(const kv::WaitingReads& reads, size_t reads_max, const std::array<uint16_t, 2>& places);

  const Counters& counters() const { return counters_; }

 private:
  // What is counted, the address or prefix with zeros behind it, and the client. A client has its name for a prefix.
  enum class Kind : uint64_t {
    kBytesOfPrefix,
    kOpensOfPrefix,
    kWritesOfPrefix,
    kReadsOfPrefix,
    kOpensOfAddress,
    kWritesOfAddress,
    kReadsOfAddress,
    kRest
  };
  struct Source {
    Kind kind;
    std::array<uint64_t, 2> bits;
    uint64_t client = 0;
    bool operator==(const Source&) const = default;
  };
  struct Hash {
    Hash() : secret(kv::TheHashSecret()) {}
    kv::HashSecret secret;
    size_t operator()(const Source& source) const {
      uint64_t hash = static_cast<uint64_t>(source.kind) ^ source.client;
      for (const uint64_t word : source.bits) hash = kv::KeyedHash(secret, hash) ^ word;
      return kv::KeyedHash(secret, hash);
    }
  };

  bool TakeOfBoth(Kind address, Kind prefix, const NetAddress& from, uint64_t client, uint64_t cost_ns);
  static Source Of(Kind kind, const NetAddress& address, uint64_t client = 0);
  bool Take(const Source& source, uint64_t cost_ns, uint64_t burst_ns);
  void Forget();

  SourcesConfig config_;
  uint64_t now_ns_ = 0;
  uint64_t window_cost_ns_ = 0;  // 0: there is room for all
  // The virtual scheduling algorithm (ITU-T I.371): until when what came from the source is paid for.
  std::unordered_map<Source, uint64_t, Hash> paid_until_ns_;
  std::deque<Source> order_;  // each of them once
  Counters counters_;
};

// With headers: what an answer with so many datagrams and so much payload takes on the wire.
size_t OnTheWire_bytes(const NetAddress& client, size_t datagrams, size_t payload_bytes);
// How long a request must be for an answer with one datagram of so much payload.
size_t RequestFor_bytes(const NetAddress& client, size_t answer_payload_bytes);

// Ports from which servers answer: an error to what came from one may be answered by another error, without end. RFC
// 862 to 868, DNS and others below 1024, and the well-known ones above.
bool IsServerPort(uint16_t port);

}  // namespace hedgerow::node
