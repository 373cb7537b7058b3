// SPDX-License-Identifier: Apache-2.0
//
// memcached's text protocol over UDP (doc/protocol.txt of memcached 1.6), from a client's datagram to a
// request: a frame header of 8 bytes, then one command. Any bytes may arrive, so what is no request is
// either answered with what is wrong, in memcached's own words where it has some, or dropped, by rules that
// never let a server answer a server. Pure; called by the node's front end
// (cluster/node/front_end/memcached_front_end).

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/kv/command.h"
#include "cluster/memcached/verb_table.h"

namespace hedgerow::memcached {

constexpr size_t kFrame_bytes = 8;
constexpr size_t kKeysMax = 100;  // in one get
constexpr uint64_t kFrameIds = 65'536;

std::string_view Name(Verb verb);  // for metrics: "set", "incr"

struct Request {
  uint16_t id = 0;  // of the frame
  Verb verb = Verb::kGet;
  bool no_reply = false;
  std::vector<std::string> keys{};  // get, gets
  kv::ItemOperation operation{};    // what changes something; its life is not set
  int64_t exptime = 0;              // as the client wrote it: LifeOf_s
};

// Why a request is answered without being done. The numbers are never reused.
enum class Refusal : uint8_t {
  kNone = 0,
  kUnknownCommand = 1,
  kBadFormat = 2,
  kBadChunk = 3,
  kTooLarge = 4,
  kSeveralDatagrams = 5,
  kSeveralCommands = 6,
  kTooManyKeys = 7,
  kNotServed = 8,  // gat, meta commands
  kNoConsent = 9,  // incr, decr, append, prepend without the operator's word
  kBinary = 10,
  kTooFast = 11,         // said by the front end: more requests than its rate allows this client
  kTooManyClients = 12,  // said by the front end
};
constexpr size_t kRefusals = 13;
std::string_view Name(Refusal refusal);

// Why a datagram gets no answer. The numbers are never reused.
enum class Drop : uint8_t {
  kNone = 0,
  kTooShort = 1,    // shorter than a frame header: there is no id to answer under
  kAnAnswer = 2,    // two servers would send each other errors for ever
  kSource = 3,      // from none of the networks that the node serves (`memcached.clients`)
  kServerPort = 4,  // an error to a port from which servers answer: two would answer each other for ever
  kTooLong = 5,     // said by the front end: an answer that is longer than three times its request
  kBytes = 6,       // said by the front end: a datagram beyond what may leave for a prefix
};
constexpr size_t kDrops = 7;
std::string_view Name(Drop drop);

struct Limits {
  size_t value_max_bytes = 32 * 1024;
  // The operator knows that what comes twice is done once within the window only, and wants incr, decr, append
  // and prepend all the same.
  bool once_in_window = false;
};

// Exactly one of the three: a request; or a refusal with the datagram that says it; or a reason to say nothing.
struct Parse {
  std::optional<Request> request{};
  Refusal refusal = Refusal::kNone;
  std::string answer{};
  Drop drop = Drop::kNone;
};
Parse ParseRequest(std::string_view datagram, const Limits& limits);

// One datagram with this line and its end.
std::string AnswerLine(uint16_t id, std::string_view line);

// What makes two datagrams the same request: client, frame id, and a fingerprint of the command's bytes.
kv::RequestKey KeyOf(const std::array<uint8_t, 16>& address, uint16_t port, std::string_view datagram);

// memcached's exptime as a life in seconds (kv::ItemOperation::life_s): up to 30 days it is one, beyond it is a
// Unix time, of which what is left on this host's wall clock counts.
int64_t LifeOf_s(int64_t exptime, int64_t unix_now_s);

}  // namespace hedgerow::memcached
