// SPDX-License-Identifier: Apache-2.0
#include "proxy/profiles/profile.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "operate/hex.h"
#include "proxy/config/built_in_profiles.h"

namespace hedgerow {
namespace {

using Matches = google::protobuf::RepeatedPtrField<v1::Match>;

// Bytes as the word that a little-endian machine loads from them, as the kernel programs do (both supported
// architectures are).
uint64_t Word(absl::string_view bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof(word)));
  return word;
}

std::string Ones(size_t count) { return std::string(count, '\xff'); }

// `mask`: as many bytes as the field has, as hexadecimal digits; empty: every bit counts.
hr_field MakeField(uint32_t offset, uint32_t length, const std::string& mask = "") {
  hr_field field{};
  field.offset = static_cast<uint16_t>(offset);
  field.length = static_cast<uint16_t>(length);
  std::string full = mask.empty() ? Ones(length) : operate::BytesOfHex(mask);
  full.resize(HR_CORRELATION_BYTES, '\0');
  std::memcpy(field.mask, full.data(), sizeof(field.mask));
  return field;
}

// One-way first: a configuration may get it beside what it says itself (Complete in config/check.h).
hr_pairing PairingOf(const v1::Profile& words) {
  if (words.one_way()) return HR_PAIR_ONE_WAY;
  if (words.flow()) return HR_PAIR_FLOW;
  if (words.by_socket()) return HR_PAIR_SOCKET;
  if (words.path_size() > 0) return HR_PAIR_PATH;
  return words.tokens_size() > 0 ? HR_PAIR_TOKENS : HR_PAIR_BYTES;
}

hr_path MakePath(const google::protobuf::RepeatedPtrField<v1::Step>& steps) {
  hr_path path{};
  for (const v1::Step& words : steps) {
    hr_step& step = path.steps[path.count++];
    step.bytes = static_cast<uint8_t>(words.length() > 0 ? words.length() : words.skip());
    step.kind = words.length() > 0             ? HR_STEP_LENGTH
                : words.ber() == v1::BER_SKIP  ? HR_STEP_BER_SKIP
                : words.ber() == v1::BER_ENTER ? HR_STEP_BER_ENTER
                : words.ber() == v1::BER_VALUE ? HR_STEP_BER_VALUE
                                               : HR_STEP_SKIP;
    step.little_endian = words.little_endian() ? 1 : 0;
    step.add = static_cast<int16_t>(words.add());
  }
  return path;
}

hr_token MakeToken(const v1::Token& words) {
  const std::string name = absl::AsciiStrToLower(words.header());
  const std::string parameter = absl::AsciiStrToLower(words.parameter());
  hr_token token{};
  token.name[0] = Word(name);
  if (name.size() > sizeof(uint64_t)) token.name[1] = Word(absl::string_view(name).substr(sizeof(uint64_t)));
  token.name_bytes = static_cast<uint8_t>(name.size());
  token.parameter = Word(parameter);
  token.parameter_bytes = static_cast<uint8_t>(parameter.size());
  if (!words.short_().empty()) token.short_name = static_cast<uint8_t>(words.short_()[0]);
  return token;
}

// How many steps stand before the place that matches with `after` count from.
void NoteMark(const Matches& matches, hr_path& path) {
  for (const v1::Match& match : matches)
    if (match.after() > 0) path.mark = static_cast<uint8_t>(match.after());
}

// Where the correlation bytes have no fixed place.
void AddPlaces(const v1::Profile& words, hr_profile& profile) {
  profile.request_path = MakePath(words.path());
  profile.reply_path = MakePath(words.reply_path_size() > 0 ? words.reply_path() : words.path());
  NoteMark(words.requests(), profile.request_path);
  for (const v1::Operation& operation : words.operations()) NoteMark(operation.match(), profile.request_path);
  NoteMark(words.replies(), profile.reply_path);
  for (const v1::NegativeReply& reply : words.negative_replies()) NoteMark(reply.match(), profile.reply_path);
  for (const v1::Token& token : words.tokens()) profile.tokens[profile.token_count++] = MakeToken(token);
  // What is located has a length of its own, and a trace shows all of it.
  if (profile.request_correlation.pairing >= HR_PAIR_PATH && words.request_length() == 0)
    profile.request_correlation.length = profile.reply_correlation.length = HR_CORRELATION_BYTES;
}

hr_match MakeMatch(const v1::Match& words) {
  const std::string bytes = words.text().empty() ? operate::BytesOfHex(words.bytes()) : words.text();
  hr_match match{};
  match.offset = static_cast<uint16_t>(words.offset());
  match.bytes = static_cast<uint8_t>(bytes.size());
  match.mask = Word(words.mask().empty() ? Ones(bytes.size()) : operate::BytesOfHex(words.mask()));
  match.value = Word(bytes) & match.mask;
  match.flags = static_cast<uint8_t>((words.negated() ? HR_MATCH_NOT : 0) | (words.after() > 0 ? HR_MATCH_AT_MARK : 0));
  return match;
}

// An alternative of a list, all of whose matches must hold. Returns the last of them. The configuration was
// checked for this room: a list that overflows would duplicate what the operator did not allow.
hr_match& AddAlternative(hr_match* list, uint8_t& count, int room, const Matches& matches) {
  if (matches.empty() || count + matches.size() > room) {
    std::fprintf(stderr, "broken invariant: a profile's list has no room for its matches\n");
    std::abort();
  }
  for (const v1::Match& match : matches) {
    list[count] = MakeMatch(match);
    list[count].flags |= HR_MATCH_AND_NEXT;
    ++count;
  }
  list[count - 1].flags &= static_cast<uint8_t>(~HR_MATCH_AND_NEXT);
  return list[count - 1];
}

static_assert(v1::SHAPE_LINE - v1::SHAPE_ANY == HR_SHAPE_LINE && v1::SHAPE_BLOCK - v1::SHAPE_ANY == HR_SHAPE_BLOCK &&
              v1::SHAPE_BLOCK_BEFORE_LAST - v1::SHAPE_ANY == HR_SHAPE_BLOCK_BEFORE_LAST && HR_SHAPE_ANY == 0);

void AddOperations(const v1::Service& service, const v1::Profile& words, hr_profile& profile) {
  const auto& listed = service.duplicate();
  for (const v1::Operation& operation : words.operations()) {
    const bool named = !operation.name().empty();
    if (named && std::find(listed.begin(), listed.end(), operation.name()) == listed.end()) continue;
    hr_match& last = AddAlternative(profile.operation_matches, profile.operation_match_count, HR_OPERATION_MATCHES,
                                    operation.match());
    last.shape = static_cast<uint8_t>(std::max<int>(operation.shape() - v1::SHAPE_ANY, 0));
  }
  if (words.operations_size() == 0 || profile.operation_match_count > 0) return;
  // All have names, and none is listed. An empty list would allow everything: this one match never holds.
  profile.operation_matches[0].bytes = 1;
  profile.operation_matches[0].value = 1;
  profile.operation_match_count = 1;
}

void AddNegativeReplies(const v1::Service& service, const v1::Profile& words, hr_profile& profile) {
  const auto& counted = service.negative_replies();
  if (std::find(counted.begin(), counted.end(), config::kNoNegativeReply) != counted.end()) return;
  for (const v1::NegativeReply& reply : words.negative_replies()) {
    const bool chosen = std::find(counted.begin(), counted.end(), reply.name()) != counted.end();
    if (!counted.empty() && !reply.name().empty() && !chosen) continue;
    const hr_match& match =
        AddAlternative(profile.nack_matches, profile.nack_match_count, HR_NACK_MATCHES, reply.match());
    if (reply.leader_offset() == 0) continue;
    profile.hint_rule = {match.offset, static_cast<uint8_t>(match.mask), static_cast<uint8_t>(match.value)};
    profile.hint_offset = static_cast<uint16_t>(reply.leader_offset());
    profile.hint_bytes = 4;
  }
}

}  // namespace

hr_profile ProfileOf(const v1::Service& service) {
  const v1::Profile* effective = config::EffectiveProfile(service);
  // The record of another build names one that this build lacks: no packet is paired by the profile that is all zeros.
  if (effective == nullptr) return {};
  const v1::Profile& words = *effective;
  hr_profile profile{};
  const hr_pairing pairing = PairingOf(words);
  profile.request_correlation = MakeField(words.request_offset(), words.request_length(), words.mask());
  profile.reply_correlation = MakeField(words.reply_offset(), words.reply_length(), words.mask());
  profile.request_correlation.pairing = profile.reply_correlation.pairing = pairing;
  AddPlaces(words, profile);
  profile.request_min_bytes =
      static_cast<uint16_t>(std::max(words.min_bytes(), words.request_offset() + words.request_length()));
  profile.reply_min_bytes =
      static_cast<uint16_t>(std::max(words.min_bytes(), words.reply_offset() + words.reply_length()));
  for (int i = 0; i < words.requests_size(); ++i) profile.request_matches[i] = MakeMatch(words.requests(i));
  for (int i = 0; i < words.replies_size(); ++i) profile.reply_matches[i] = MakeMatch(words.replies(i));
  AddOperations(service, words, profile);
  AddNegativeReplies(service, words, profile);
  profile.pushback_offset = static_cast<uint16_t>(words.pushback_offset());
  if (words.has_load()) {
    profile.load_offset = static_cast<uint16_t>(words.load().offset());
    profile.load_bytes = static_cast<uint8_t>(words.load().length());
  }
  profile.one_datagram = words.one_datagram() ? 1 : 0;
  if (words.echo_dns_question()) profile.echo = HR_ECHO_DNS_QUESTION;
  if (words.has_echo()) {
    profile.echo = HR_ECHO_BYTES;
    profile.echo_request = MakeField(words.echo().request_offset(), words.echo().length());
    profile.echo_reply = MakeField(words.echo().reply_offset(), words.echo().length());
  }
  if (words.has_numbers()) {
    profile.numbered = 1;
    profile.sequence_offset = static_cast<uint16_t>(words.numbers().sequence_offset());
    profile.total_offset = static_cast<uint16_t>(words.numbers().total_offset());
  }
  profile.line_offset = static_cast<uint16_t>(words.line().offset());
  // The word stands at the end of 8 bytes.
  const std::string& one_way = words.line().one_way();
  const std::string lead(sizeof(uint64_t) - one_way.size(), '\0');
  profile.one_way_value = Word(lead + one_way);
  profile.one_way_mask = Word(lead + Ones(one_way.size()));
  return profile;
}

}  // namespace hedgerow
