// SPDX-License-Identifier: Apache-2.0
#include "steer/gateway_field.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "config/decode.h"
#include "config/diagnostics.h"
#include "proxy/config/check_profile.h"
#include "proxy/profiles/profile.h"

namespace hedgerow::steer {
namespace {

constexpr char kOption[] = "--gateway-field";
constexpr uint32_t kMostOffset = 1400, kMostBytes = 16;

// The words of a profile that name bytes of a request.
bool NamesBytes(const std::string& key) {
  return key == "request_offset" || key == "request_length" || key == "mask" || key == "path" || key == "tokens";
}

absl::Status ReadLocated(const std::string& text, hr_steer_located& located) {
  v1::Profile words;
  config::Locations locations;
  config::Diagnostics errors(kOption);
  if (!config::Decode(text, words, locations, errors) || !errors.empty()) return errors.ToStatus();
  std::vector<const google::protobuf::FieldDescriptor*> set;
  words.GetReflection()->ListFields(words, &set);
  for (const auto* field : set) {
    if (NamesBytes(field->name())) continue;
    return absl::InvalidArgumentError(absl::StrCat(kOption, ": got ", field->name(), ", expected request_offset, request_length, mask, path or tokens"));
  }
  // The checks are for pairs of requests and replies; a gateway has no replies.
  words.set_reply_offset(words.request_offset());
  words.set_reply_length(words.request_length());
  config::CheckProfile(words, locations, errors);
  if (!errors.empty()) return errors.ToStatus();
  v1::Service service;
  service.set_profile("raw");
  *service.mutable_raw() = words;
  const hr_profile profile = ProfileOf(service);
  located.field = profile.request_correlation;
  located.path = profile.request_path;
  std::copy(std::begin(profile.tokens), std::end(profile.tokens), located.tokens);
  located.token_count = profile.token_count;
  // Fixed bytes under a mask are a path without steps.
  if (located.field.pairing == HR_PAIR_BYTES) located.field.pairing = HR_PAIR_PATH;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGatewayField(const std::string& text, Settings& settings) {
  const bool has_gateway = std::any_of(settings.devices.begin(), settings.devices.end(), [](const Device& each) { return each.device.is_gateway; });
  if (!has_gateway) return absl::InvalidArgumentError(absl::StrCat(kOption, ": no line of --devices says gateway"));
  if (text.find('{') != std::string::npos) return ReadLocated(text, settings.located);
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &settings.field_offset) && absl::SimpleAtoi(parts[1], &settings.field_bytes) &&
      settings.field_bytes >= 1 && settings.field_bytes <= kMostBytes && settings.field_offset <= kMostOffset) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(kOption, ": got \"", text, "\", expected OFFSET:BYTES in the payload, at most ", kMostOffset, " and 1 to ",
                                                 kMostBytes, ": 12:4; or a profile's words: '{path: [{skip: 2}, {length: 1}], request_length: 4}'"));
}

}  // namespace hedgerow::steer
