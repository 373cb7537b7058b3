// SPDX-License-Identifier: Apache-2.0
//
// The built-in profiles as data for the kernel programs.
#include <algorithm>

#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

// RFC 1035 section 4.1.1: id at 0; QR, opcode at byte 2; RCODE in the low half of byte 3.
hr_profile DnsProfile() {
  hr_profile profile{};
  profile.request_correlation = {0, 2};
  profile.reply_correlation = {0, 2};
  // A query (QR 0) with opcode QUERY: the one operation that is safe to duplicate. UPDATE and NOTIFY are not.
  profile.request_rules[0] = {2, 0xf8, 0x00};
  profile.reply_rules[0] = {2, 0x80, 0x80};
  profile.nack_rules[0] = {3, 0x0f, 2};  // SERVFAIL
  profile.nack_rules[1] = {3, 0x0f, 5};  // REFUSED
  profile.nack_rule_count = 2;
  profile.echo = HR_ECHO_DNS_QUESTION;
  profile.one_datagram = 1;
  profile.request_min_bytes = 12;
  profile.reply_min_bytes = 12;
  return profile;
}

// docs/WIRE_FORMAT.md. OPEN, WRITE and GET are told apart by `seq` alone, which a client never uses twice in a session,
// so the pair (client_id, seq) in bytes 8 to 23 is what makes two datagrams the same request. Every one of them may be
// duplicated: a session writes once whatever comes twice, the copy of an OPEN finds the same session by its nonce, and
// a GET changes nothing.
hr_profile HkvProfile() {
  hr_profile profile{};
  profile.request_correlation = {8, 16};
  profile.reply_correlation = {8, 16};
  profile.request_rules[0] = {0, 0xff, 0x48};  // magic
  profile.request_rules[1] = {1, 0xff, 1};     // version: another one may mean anything by these bytes
  profile.request_rules[2] = {2, 0xfc, 0};     // kinds up to 3 (0 is refused as malformed by whoever gets it)
  profile.reply_rules[0] = {0, 0xff, 0x48};
  profile.reply_rules[1] = {1, 0xff, 1};
  profile.reply_rules[2] = {2, 0x80, 0x80};
  profile.nack_rules[0] = {3, 0xff, 6};  // OVERLOADED: nothing was done by that copy
  profile.nack_rules[1] = {3, 0xff, 7};  // NOT_LEADER
  profile.nack_rule_count = 2;
  profile.hint_rule = {3, 0xff, 7};
  profile.hint_offset = 4;
  profile.hint_bytes = 4;
  profile.pushback_offset = 4;  // the same four bytes, in answers that name no leader
  profile.one_datagram = 1;
  profile.request_min_bytes = 32;
  profile.reply_min_bytes = 32;
  return profile;
}

hr_profile RawProfile(uint16_t request_offset, uint16_t request_length, uint16_t reply_offset, uint16_t reply_length) {
  hr_profile profile{};
  profile.request_correlation = {request_offset, request_length};
  profile.reply_correlation = {reply_offset, reply_length};
  profile.request_min_bytes = static_cast<uint16_t>(request_offset + request_length);
  profile.reply_min_bytes = static_cast<uint16_t>(reply_offset + reply_length);
  return profile;
}

}  // namespace hedgerow
