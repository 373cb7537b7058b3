// SPDX-License-Identifier: Apache-2.0
//
// From the configuration's words to the kernel's bytes; see the header.
#include "proxy/daemon/profile_of.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "proxy/data_plane/profile.h"

namespace hedgerow {
namespace {

std::vector<MemcachedCommand> Duplicated(const v1::Service& service) {
  std::vector<MemcachedCommand> commands;
  for (const int command : service.duplicate()) {
    switch (command) {
      case v1::COMMAND_SET:
        commands.push_back(MemcachedCommand::kSet);
        break;
      case v1::COMMAND_ADD:
        commands.push_back(MemcachedCommand::kAdd);
        break;
      case v1::COMMAND_REPLACE:
        commands.push_back(MemcachedCommand::kReplace);
        break;
      case v1::COMMAND_CAS:
        commands.push_back(MemcachedCommand::kCas);
        break;
      case v1::COMMAND_DELETE:
        commands.push_back(MemcachedCommand::kDelete);
        break;
      case v1::COMMAND_TOUCH:
        commands.push_back(MemcachedCommand::kTouch);
        break;
      case v1::COMMAND_GAT:
        commands.push_back(MemcachedCommand::kGat);
        break;
      default:
        break;  // refused by check_profile.cc
    }
  }
  return commands;
}

hr_match MatchOf(const v1::RawMatch& match) {
  const std::string bytes = match.text().empty() ? absl::HexStringToBytes(match.bytes()) : match.text();
  return MakeMatch(static_cast<uint16_t>(match.offset()), bytes, absl::HexStringToBytes(match.mask()),
                   match.negated());
}

std::vector<hr_match> MatchesOf(const google::protobuf::RepeatedPtrField<v1::RawMatch>& matches) {
  std::vector<hr_match> made;
  for (const v1::RawMatch& match : matches) made.push_back(MatchOf(match));
  return made;
}

hr_shape ShapeOf(v1::Shape shape) {
  switch (shape) {
    case v1::SHAPE_LINE:
      return HR_SHAPE_LINE;
    case v1::SHAPE_BLOCK:
      return HR_SHAPE_BLOCK;
    case v1::SHAPE_BLOCK_BEFORE_LAST:
      return HR_SHAPE_BLOCK_BEFORE_LAST;
    default:
      return HR_SHAPE_ANY;
  }
}

hr_profile OwnProfile(const v1::RawProfile& raw) {
  hr_profile profile =
      RawProfile(static_cast<uint16_t>(raw.request_offset()), static_cast<uint16_t>(raw.request_length()),
                 static_cast<uint16_t>(raw.reply_offset()), static_cast<uint16_t>(raw.reply_length()),
                 absl::HexStringToBytes(raw.mask()));
  for (int i = 0; i < raw.requests_size(); ++i) profile.request_matches[i] = MatchOf(raw.requests(i));
  for (int i = 0; i < raw.replies_size(); ++i) profile.reply_matches[i] = MatchOf(raw.replies(i));
  for (const v1::RawRefusal& refusal : raw.refusals()) AddNack(profile, MatchesOf(refusal.match()));
  for (const v1::RawOperation& operation : raw.operations())
    AddOperation(profile, MatchesOf(operation.match()), ShapeOf(operation.shape()));
  profile.one_datagram = raw.one_datagram() ? 1 : 0;
  if (raw.has_echo()) {
    const auto length = static_cast<uint16_t>(raw.echo().length());
    profile.echo = HR_ECHO_BYTES;
    profile.echo_request = MakeField(static_cast<uint16_t>(raw.echo().request_offset()), length);
    profile.echo_reply = MakeField(static_cast<uint16_t>(raw.echo().reply_offset()), length);
  }
  if (raw.has_numbers()) {
    profile.numbered = 1;
    profile.sequence_offset = static_cast<uint16_t>(raw.numbers().sequence_offset());
    profile.total_offset = static_cast<uint16_t>(raw.numbers().total_offset());
  }
  if (raw.has_line()) {
    profile.line_offset = static_cast<uint16_t>(raw.line().offset());
    if (!raw.line().one_way().empty()) SetOneWay(profile, raw.line().one_way());
  }
  return profile;
}

}  // namespace

hr_profile ProfileOf(const v1::Service& service) {
  switch (service.profile()) {
    case v1::PROFILE_DNS:
      return DnsProfile();
    case v1::PROFILE_HKV:
      return HkvProfile();
    case v1::PROFILE_MEMCACHED:
      return MemcachedProfile(Duplicated(service));
    case v1::PROFILE_STUN:
      return StunProfile();
    case v1::PROFILE_NTP:
      return NtpProfile();
    default:
      return OwnProfile(service.raw());
  }
}

}  // namespace hedgerow
