// SPDX-License-Identifier: Apache-2.0
//
// Answers of memcached's text protocol over UDP: the words for what became of a request, and the datagrams that
// carry them, each behind a frame header that numbers them. Pure; called by the node's front end.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/kv/command.h"
#include "cluster/kv/incremental_snapshot.h"
#include "cluster/memcached/request.h"

namespace hedgerow::memcached {

// With the header; memcached's own size (UDP_MAX_PAYLOAD_SIZE), for which clients have room.
constexpr size_t kAnswerDatagram_bytes = 1400;
// Of an answer without its headers: 754 datagrams. More is said to be too large.
constexpr size_t kAnswerMax_bytes = size_t{1} << 20;

// What became of a request, for metrics. The numbers are never reused.
enum class Outcome : uint8_t {
  kNone = 0,
  kValues = 1,  // a get that found all of its keys
  kMiss = 2,    // a get that missed some
  kStored = 3,
  kNotStored = 4,
  kExists = 5,
  kNotFound = 6,
  kDeleted = 7,
  kTouched = 8,
  kNumber = 9,
  kNotANumber = 10,
  kNoRoom = 11,
  kTooLarge = 12,
  kOverloaded = 13,
  kNoLeader = 14,
  kOther = 15,  // version, stats
};
constexpr size_t kOutcomes = 16;
std::string_view Name(Outcome outcome);

struct Reply {
  Outcome outcome = Outcome::kNone;
  std::string text{};  // with the end of its last line
};

Reply ResultReply(Verb verb, const kv::Result& result);
// `asked`: how many keys the get named. Each item once for each time that it was named.
Reply ItemsReply(Verb verb, size_t asked, const std::vector<std::pair<std::string, kv::Item>>& items);
Reply NoLeaderReply();
Reply OverloadedReply();

// In their order; one at least.
std::vector<std::string> Datagrams(uint16_t id, std::string_view text);

}  // namespace hedgerow::memcached
