// SPDX-License-Identifier: Apache-2.0
//
// The built-in profiles as data for the kernel programs, and the parts of the user's own; see the header.
#include "proxy/data_plane/profile.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace hedgerow {
namespace {

// Bytes as the word that a little-endian machine loads from them, as the kernel programs do (both supported
// architectures are).
uint64_t Word(absl::string_view bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof(word)));
  return word;
}

std::string Ones(size_t count) { return std::string(count, '\xff'); }

// The configuration was checked for this room. A list that overflows would duplicate what the operator did not allow.
void AddAlternative(hr_match* list, uint8_t& count, size_t room, const std::vector<hr_match>& matches) {
  if (matches.empty() || count + matches.size() > room) {
    std::fprintf(stderr, "broken invariant: %zu matches more than the %zu that a profile's list has room for\n",
                 count + matches.size(), room);
    std::abort();
  }
  for (const hr_match& match : matches) {
    list[count] = match;
    list[count].flags |= HR_MATCH_AND_NEXT;
    ++count;
  }
  list[count - 1].flags &= static_cast<uint8_t>(~HR_MATCH_AND_NEXT);
}

// Strings with zero bytes in them.
template <size_t N>
absl::string_view Bytes(const char (&text)[N]) {
  return absl::string_view(text, N - 1);
}

}  // namespace

hr_field MakeField(uint16_t offset, uint16_t length, absl::string_view mask) {
  hr_field field{};
  field.offset = offset;
  field.length = length;
  std::string full(mask.empty() ? Ones(length) : std::string(mask));
  full.resize(HR_CORRELATION_BYTES, '\0');
  std::memcpy(field.mask, full.data(), sizeof(field.mask));
  return field;
}

hr_match MakeMatch(uint16_t offset, absl::string_view bytes, absl::string_view mask, bool negated) {
  hr_match match{};
  match.offset = offset;
  match.bytes = static_cast<uint8_t>(bytes.size());
  match.mask = Word(mask.empty() ? Ones(bytes.size()) : std::string(mask));
  match.value = Word(bytes) & match.mask;
  match.flags = negated ? HR_MATCH_NOT : 0;
  return match;
}

void AddNack(hr_profile& profile, const std::vector<hr_match>& matches) {
  AddAlternative(profile.nack_matches, profile.nack_match_count, HR_NACK_MATCHES, matches);
}

void AddOperation(hr_profile& profile, const std::vector<hr_match>& matches, hr_shape shape) {
  AddAlternative(profile.operation_matches, profile.operation_match_count, HR_OPERATION_MATCHES, matches);
  profile.operation_matches[profile.operation_match_count - 1].shape = static_cast<uint8_t>(shape);
}

void SetOneWay(hr_profile& profile, absl::string_view word) {
  const std::string lead(sizeof(uint64_t) - word.size(), '\0');
  profile.one_way_value = Word(absl::StrCat(lead, word));
  profile.one_way_mask = Word(lead + Ones(word.size()));
}

// RFC 1035 section 4.1.1: id at 0; QR, opcode at byte 2; RCODE in the low half of byte 3.
hr_profile DnsProfile() {
  hr_profile profile{};
  profile.request_correlation = MakeField(0, 2);
  profile.reply_correlation = MakeField(0, 2);
  // A query (QR 0) with opcode QUERY: the one operation that is safe to duplicate. UPDATE and NOTIFY are not.
  profile.request_matches[0] = MakeMatch(2, Bytes("\x00"), Bytes("\xf8"));
  profile.reply_matches[0] = MakeMatch(2, Bytes("\x80"), Bytes("\x80"));
  AddNack(profile, {MakeMatch(3, Bytes("\x02"), Bytes("\x0f"))});  // SERVFAIL
  AddNack(profile, {MakeMatch(3, Bytes("\x05"), Bytes("\x0f"))});  // REFUSED
  profile.echo = HR_ECHO_DNS_QUESTION;
  profile.one_datagram = 1;
  profile.request_min_bytes = 12;
  profile.reply_min_bytes = 12;
  return profile;
}

// docs/WIRE_FORMAT.md. OPEN, WRITE and GET are told apart by `seq` alone, which a client never uses twice in a
// session, so the pair (client_id, seq) in bytes 8 to 23 is what makes two datagrams the same request. Every
// one of them may be duplicated: a session writes once whatever comes twice, the copy of an OPEN finds the same
// session by its nonce, and a GET changes nothing.
hr_profile HkvProfile() {
  hr_profile profile{};
  profile.request_correlation = MakeField(8, 16);
  profile.reply_correlation = MakeField(8, 16);
  // Magic, version (another one may mean anything by these bytes), kinds up to 3 (the node that gets a 0 refuses it as
  // malformed).
  profile.request_matches[0] = MakeMatch(0, Bytes("\x48\x01\x00"), Bytes("\xff\xff\xfc"));
  profile.reply_matches[0] = MakeMatch(0, Bytes("\x48\x01\x80"), Bytes("\xff\xff\x80"));
  AddNack(profile, {MakeMatch(3, Bytes("\x06"))});  // OVERLOADED: nothing was done by that copy
  AddNack(profile, {MakeMatch(3, Bytes("\x07"))});  // NOT_LEADER
  profile.hint_rule = {3, 0xff, 7};
  profile.hint_offset = 4;
  profile.hint_bytes = 4;
  profile.pushback_offset = 4;  // the same four bytes, in answers that name no leader
  profile.one_datagram = 1;
  profile.request_min_bytes = 32;
  profile.reply_min_bytes = 32;
  return profile;
}

// RFC 5389 section 6: type, length, the magic cookie, a transaction id of 96 bits. Only Binding (method 1)
// requests are duplicated: they change nothing. TURN's methods make and change allocations, indications are not
// answered.
hr_profile StunProfile() {
  hr_profile profile{};
  profile.request_correlation = MakeField(8, 12);
  profile.reply_correlation = MakeField(8, 12);
  // The length is a multiple of 4.
  profile.request_matches[0] =
      MakeMatch(0, Bytes("\x00\x01\x00\x00\x21\x12\xa4\x42"), Bytes("\xff\xff\x00\x03\xff\xff\xff\xff"));
  // RFC 5780: a CHANGE-REQUEST is answered from another address or port, a RESPONSE-PORT to another port of the
  // client's: no such reply can be paired. Clients send them as the first attribute.
  profile.request_matches[1] = MakeMatch(20, Bytes("\x00\x03"), "", true);
  profile.request_matches[2] = MakeMatch(20, Bytes("\x00\x27"), "", true);
  // A success (0x0101) or an error (0x0111).
  profile.reply_matches[0] =
      MakeMatch(0, Bytes("\x01\x01\x00\x00\x21\x12\xa4\x42"), Bytes("\xff\xef\x00\x03\xff\xff\xff\xff"));
  // An error whose first attribute is an ERROR-CODE (0x0009) of class 5, the server's own.
  AddNack(profile, {MakeMatch(0, Bytes("\x01\x11")), MakeMatch(20, Bytes("\x00\x09\x00\x00\x00\x00\x05"),
                                                               Bytes("\xff\xff\x00\x00\x00\x00\x07"))});
  profile.one_datagram = 1;
  profile.request_min_bytes = 20;
  profile.reply_min_bytes = 20;
  return profile;
}

// RFC 5905: modes 3 (client) and 4 (server); the server repeats the client's transmit timestamp (40) as the
// origin timestamp (24). Stratum 0 is a kiss of death. Refused by the configuration unless forced: a hedged
// answer comes after a wait that the client takes for the network's.
hr_profile NtpProfile() {
  hr_profile profile{};
  profile.request_correlation = MakeField(40, 8);
  profile.reply_correlation = MakeField(24, 8);
  profile.request_matches[0] = MakeMatch(0, Bytes("\x03"), Bytes("\x07"));
  profile.reply_matches[0] = MakeMatch(0, Bytes("\x04"), Bytes("\x07"));
  AddNack(profile, {MakeMatch(1, Bytes("\x00"))});
  profile.one_datagram = 1;
  profile.request_min_bytes = 48;
  profile.reply_min_bytes = 48;
  return profile;
}

namespace {

// memcached's doc/protocol.txt, "UDP protocol": request id, sequence number, number of datagrams, reserved;
// each of 2 bytes, big-endian. The line begins behind them.
constexpr uint16_t kMemcachedHeaderBytes = 8;

void AddCommand(hr_profile& profile, absl::string_view word, hr_shape shape) {
  AddOperation(profile, {MakeMatch(kMemcachedHeaderBytes, word)}, shape);
}

void AddCommand(hr_profile& profile, MemcachedCommand command) {
  switch (command) {
    case MemcachedCommand::kSet:
      return AddCommand(profile, "set ", HR_SHAPE_BLOCK);
    case MemcachedCommand::kAdd:
      return AddCommand(profile, "add ", HR_SHAPE_BLOCK);
    case MemcachedCommand::kReplace:
      return AddCommand(profile, "replace ", HR_SHAPE_BLOCK);
    case MemcachedCommand::kCas:  // "cas key flags exptime bytes unique"
      return AddCommand(profile, "cas ", HR_SHAPE_BLOCK_BEFORE_LAST);
    case MemcachedCommand::kDelete:
      return AddCommand(profile, "delete ", HR_SHAPE_LINE);
    case MemcachedCommand::kTouch:
      return AddCommand(profile, "touch ", HR_SHAPE_LINE);
    case MemcachedCommand::kGat:
      AddCommand(profile, "gat ", HR_SHAPE_LINE);
      return AddCommand(profile, "gats ", HR_SHAPE_LINE);
  }
}

}  // namespace

// The text protocol. What is not listed is forwarded once: incr, decr, append and prepend count or grow twice;
// the meta commands change their meaning by flags; the binary protocol is not looked into.
hr_profile MemcachedProfile(const std::vector<MemcachedCommand>& duplicated) {
  hr_profile profile{};
  profile.request_correlation = MakeField(0, 2);
  profile.reply_correlation = MakeField(0, 2);
  // The first of one datagram: memcached takes no request of several.
  const hr_match alone = MakeMatch(2, Bytes("\x00\x00\x00\x01"));
  profile.request_matches[0] = alone;
  AddCommand(profile, "get ", HR_SHAPE_LINE);
  AddCommand(profile, "gets ", HR_SHAPE_LINE);
  for (const MemcachedCommand command : duplicated) AddCommand(profile, command);
  // Only SERVER_ERROR begins with these two letters. A later datagram of a value may hold anything.
  AddNack(profile, {alone, MakeMatch(kMemcachedHeaderBytes, "SERVER_E")});
  SetOneWay(profile, " noreply");
  profile.line_offset = kMemcachedHeaderBytes;
  profile.numbered = 1;
  profile.sequence_offset = 2;
  profile.total_offset = 4;
  profile.request_min_bytes = kMemcachedHeaderBytes;
  profile.reply_min_bytes = kMemcachedHeaderBytes;
  return profile;
}

hr_profile RawProfile(uint16_t request_offset, uint16_t request_length, uint16_t reply_offset,
                      uint16_t reply_length, absl::string_view mask) {
  hr_profile profile{};
  profile.request_correlation = MakeField(request_offset, request_length, mask);
  profile.reply_correlation = MakeField(reply_offset, reply_length, mask);
  profile.request_min_bytes = static_cast<uint16_t>(request_offset + request_length);
  profile.reply_min_bytes = static_cast<uint16_t>(reply_offset + reply_length);
  return profile;
}

}  // namespace hedgerow
