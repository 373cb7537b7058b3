// SPDX-License-Identifier: Apache-2.0
#include "proxy/profiles/query.h"

#include <sys/random.h>

#include <algorithm>
#include <array>

#include "operate/hex.h"

namespace hedgerow {
namespace {

using Matches = google::protobuf::RepeatedPtrField<v1::Match>;

bool Masked(absl::string_view left, absl::string_view right, const std::string& mask) {
  const std::string bits = operate::BytesOfHex(mask);
  for (size_t i = 0; i < left.size(); ++i) {
    const auto wanted = static_cast<uint8_t>(i < bits.size() ? bits[i] : '\xff');
    if (((static_cast<uint8_t>(left[i]) ^ static_cast<uint8_t>(right[i])) & wanted) != 0) return false;
  }
  return true;
}

// A payload that ends before the bytes do does not match.
bool Holds(const v1::Match& match, absl::string_view payload) {
  const std::string bytes = match.text().empty() ? operate::BytesOfHex(match.bytes()) : match.text();
  const bool there = payload.size() >= match.offset() + bytes.size() &&
                     Masked(bytes, payload.substr(match.offset(), bytes.size()), match.mask());
  return there != match.negated();
}

// A match behind steps of a path is taken for `located`.
bool AllHold(const Matches& matches, absl::string_view payload, bool located) {
  return std::all_of(matches.begin(), matches.end(),
                     [&](const v1::Match& match) { return match.after() > 0 ? located : Holds(match, payload); });
}

// Do the correlation bytes stand at fixed places?
bool HasFixedPlaces(const v1::Profile& profile) { return profile.request_length() > 0 && profile.path_size() == 0; }

bool Paired(const v1::Profile& profile, absl::string_view query, absl::string_view reply) {
  const size_t length = profile.request_length();
  if (!HasFixedPlaces(profile) || query.size() < profile.request_offset() + length) return true;
  return reply.size() >= profile.reply_offset() + length &&
         Masked(query.substr(profile.request_offset(), length), reply.substr(profile.reply_offset(), length),
                profile.mask());
}

template <typename Names>
bool Lists(const Names& names, const std::string& name) {
  return !name.empty() && std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::optional<std::string> QueryOf(const v1::Profile& profile, absl::string_view random) {
  if (!profile.has_check()) return std::nullopt;
  std::string query = operate::BytesOfHex(profile.check().bytes());
  const size_t end = profile.request_offset() + profile.request_length();
  query.resize(std::max({query.size(), size_t{profile.min_bytes()}, HasFixedPlaces(profile) ? end : 0}), '\0');
  if (!HasFixedPlaces(profile)) return query;
  const std::string mask = operate::BytesOfHex(profile.mask());
  for (size_t i = 0; i < std::min<size_t>(profile.request_length(), random.size()); ++i) {
    const char bits = i < mask.size() ? mask[i] : '\xff';
    char& byte = query[profile.request_offset() + i];
    byte = static_cast<char>((byte & ~bits) | (random[i] & bits));
  }
  return query;
}

std::optional<std::string> NewQueryOf(const v1::Profile& profile) {
  std::array<char, kQueryRandomBytes> random{};
  [[maybe_unused]] const ssize_t got = getrandom(random.data(), random.size(), 0);  // so few are never cut short
  return QueryOf(profile, {random.data(), random.size()});
}

JudgedReply JudgeReply(const v1::Profile& profile, absl::string_view query, absl::string_view reply) {
  if (reply.size() < profile.min_bytes() || !Paired(profile, query, reply) || !AllHold(profile.replies(), reply, true))
    return {.kind = ReplyKind::kNoReply};
  for (const v1::NegativeReply& negative : profile.negative_replies()) {
    if (!AllHold(negative.match(), reply, false)) continue;
    const bool well = Lists(profile.check().negative_ok(), negative.name());
    return {.kind = well                           ? ReplyKind::kNegativeOk
                    : negative.leader_offset() > 0 ? ReplyKind::kNamesTheLeader
                                                   : ReplyKind::kNegative,
            .name = negative.name()};
  }
  return {};
}

bool IsHedged(const v1::Profile& profile, absl::string_view datagram) {
  if (profile.one_way() || profile.flow() || !AllHold(profile.requests(), datagram, true)) return false;
  return profile.operations_size() == 0 ||
         std::any_of(profile.operations().begin(), profile.operations().end(),
                     [&](const v1::Operation& operation) { return AllHold(operation.match(), datagram, true); });
}

}  // namespace hedgerow
