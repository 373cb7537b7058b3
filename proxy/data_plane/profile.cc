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

hr_profile RawProfile(uint16_t request_offset, uint16_t request_length, uint16_t reply_offset, uint16_t reply_length) {
  hr_profile profile{};
  profile.request_correlation = {request_offset, request_length};
  profile.reply_correlation = {reply_offset, reply_length};
  profile.request_min_bytes = static_cast<uint16_t>(request_offset + request_length);
  profile.reply_min_bytes = static_cast<uint16_t>(reply_offset + reply_length);
  return profile;
}

}  // namespace hedgerow
