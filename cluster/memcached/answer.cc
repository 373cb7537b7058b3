// SPDX-License-Identifier: Apache-2.0
#include "cluster/memcached/answer.h"

#include <algorithm>
#include <array>

namespace hedgerow::memcached {
namespace {

// By number.
constexpr std::array<std::string_view, kOutcomes> kOutcomeNames = {
    "none",   "values",       "miss",    "stored",    "not_stored", "exists",    "not_found", "deleted", "touched",
    "number", "not_a_number", "no_room", "too_large", "overloaded", "no_leader", "other",     "flushed", "unproven"};

Reply Line(Outcome outcome, std::string_view line) { return {.outcome = outcome, .text = std::string(line) + "\r\n"}; }

Reply TooLarge(Verb verb) {
  return Line(Outcome::kTooLarge, Changes(verb)
                                      ? "SERVER_ERROR object too large for cache"
                                      : "SERVER_ERROR the answer is too large for datagrams; ask for fewer keys");
}

Reply Done(Verb verb, const kv::Result& result) {
  switch (verb) {
    case Verb::kDelete: return Line(Outcome::kDeleted, "DELETED");
    case Verb::kTouch: return Line(Outcome::kTouched, "TOUCHED");
    case Verb::kFlushAll: return Line(Outcome::kFlushed, "OK");
    case Verb::kIncrement:
    case Verb::kDecrement: return Line(Outcome::kNumber, result.values.empty() ? "0" : result.values[0]);
    default: return Line(Outcome::kStored, "STORED");
  }
}

}  // namespace

std::string_view Name(Outcome outcome) {
  const auto index = static_cast<size_t>(outcome);
  return index < kOutcomeNames.size() ? kOutcomeNames[index] : "unknown";
}

Reply ResultReply(Verb verb, const kv::Result& result) {
  switch (result.code) {
    case kv::ResultCode::kOk: return Done(verb, result);
    case kv::ResultCode::kMismatch: return Line(Outcome::kExists, "EXISTS");
    case kv::ResultCode::kNotFound: return Line(Outcome::kNotFound, "NOT_FOUND");
    case kv::ResultCode::kNotStored: return Line(Outcome::kNotStored, "NOT_STORED");
    case kv::ResultCode::kNotANumber:
      return Line(Outcome::kNotANumber, "CLIENT_ERROR cannot increment or decrement non-numeric value");
    case kv::ResultCode::kNoRoom: return Line(Outcome::kNoRoom, "SERVER_ERROR out of memory storing object");
    case kv::ResultCode::kTooLarge: return TooLarge(verb);
    case kv::ResultCode::kOverloaded:
    case kv::ResultCode::kUnknownSession:  // of sessions, which no such client has
    case kv::ResultCode::kBelowLowest:
    case kv::ResultCode::kSuperseded:  // no node answers it
      break;
  }
  return OverloadedReply();
}

Reply ItemsReply(Verb verb, size_t asked, const std::vector<std::pair<std::string, kv::Item>>& items) {
  Reply reply{.outcome = items.size() == asked ? Outcome::kValues : Outcome::kMiss};
  for (const auto& [key, item] : items) {
    reply.text += "VALUE " + key + " " + std::to_string(item.flags) + " " + std::to_string(item.value.size());
    if (verb == Verb::kGets) reply.text += " " + std::to_string(item.unique);
    reply.text += "\r\n" + item.value + "\r\n";
    if (reply.text.size() > kAnswerMax_bytes) return TooLarge(verb);
  }
  reply.text += "END\r\n";
  return reply;
}

Reply OverloadedReply() { return Line(Outcome::kOverloaded, "SERVER_ERROR overloaded"); }

Reply UnprovenReply() { return Line(Outcome::kUnproven, "CLIENT_ERROR the answer is too long: sources.trusted"); }

Reply NoLeaderReply() { return Line(Outcome::kNoLeader, "SERVER_ERROR no leader"); }

std::vector<std::string> Datagrams(uint16_t id, std::string_view text) {
  constexpr size_t kRoom_bytes = kAnswerDatagram_bytes - kFrame_bytes;
  const size_t count = std::max<size_t>(1, (text.size() + kRoom_bytes - 1) / kRoom_bytes);
  std::vector<std::string> datagrams;
  datagrams.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const char frame[kFrame_bytes] = {static_cast<char>(id >> 8),
                                      static_cast<char>(id),
                                      static_cast<char>(i >> 8),
                                      static_cast<char>(i),
                                      static_cast<char>(count >> 8),
                                      static_cast<char>(count),
                                      0,
                                      0};
    std::string datagram(frame, sizeof(frame));
    datagram.append(text.substr(i * kRoom_bytes, kRoom_bytes));
    datagrams.push_back(std::move(datagram));
  }
  return datagrams;
}

}  // namespace hedgerow::memcached
