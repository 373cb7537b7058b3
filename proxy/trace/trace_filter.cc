// SPDX-License-Identifier: Apache-2.0
#include "proxy/trace/trace_filter.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/scalar.h"
#include "config/suggest.h"
#include "operate/hex.h"
#include "proxy/data_plane/endpoint.h"

namespace hedgerow {
namespace {

constexpr int kAddressBits = 128;
constexpr int kMappedBits = 96;  // before an IPv4 address that is mapped into IPv6

// The services and backends that are in question: a mask for each service.
absl::Status FillBackends(const v1::Config& config, const v1::TraceRequest& request, hr_trace_filter& filter) {
  std::set<std::string> services, backends;
  bool found_service = false, found_backend = false;
  for (int i = 0; i < config.services_size() && i < HR_MAX_SERVICES; ++i) {
    const v1::Service& service = config.services(i);
    services.insert(service.name());
    if (!request.service().empty() && service.name() != request.service()) continue;
    found_service = true;
    for (int b = 0; b < service.backends_size() && b < HR_MAX_BACKENDS_PER_SERVICE; ++b) {
      backends.insert(service.backends(b).name());
      if (!request.backend().empty() && service.backends(b).name() != request.backend()) continue;
      found_backend = true;
      filter.backends[i] = static_cast<uint8_t>(filter.backends[i] | 1u << b);
    }
  }
  if (!found_service) return config::NoSuch("service", request.service(), {services.begin(), services.end()});
  if (!found_backend) return config::NoSuch("backend", request.backend(), {backends.begin(), backends.end()});
  return absl::OkStatus();
}

absl::Status NoPrefix(const std::string& text) {
  return absl::InvalidArgumentError(
      absl::StrCat("client: got \"", text, "\", expected an address or a prefix such as 10.77.0.0/24 or fd77::/64"));
}

absl::Status FillClient(const std::string& text, hr_trace_filter& filter) {
  if (text.empty()) return absl::OkStatus();
  const size_t slash = text.find('/');
  const std::string name = text.substr(0, slash);
  const auto address = ParseAddress(name);
  if (!address.ok()) return NoPrefix(text);
  const bool ipv4 = !absl::StrContains(name, ':');
  int bits = kAddressBits;
  if (slash != std::string::npos) {
    const std::optional<int64_t> length = config::ParseWhole(text.substr(slash + 1));
    if (!length.has_value() || *length < 0 || *length > (ipv4 ? kAddressBits - kMappedBits : kAddressBits))
      return NoPrefix(text);
    bits = static_cast<int>(*length) + (ipv4 ? kMappedBits : 0);
  }
  for (int i = 0; i < kAddressBits; ++i) {
    const auto bit = static_cast<uint8_t>(0x80 >> (i % 8));
    if (i < bits) filter.client_mask.bytes[i / 8] |= bit;
  }
  for (size_t i = 0; i < sizeof(filter.client.bytes); ++i)
    filter.client.bytes[i] = address->bytes[i] & filter.client_mask.bytes[i];
  return absl::OkStatus();
}

absl::Status FillKey(const std::string& digits, hr_trace_filter& filter) {
  if (digits.empty()) return absl::OkStatus();
  const bool plain = std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit);
  if (!plain || digits.size() % 2 != 0 || digits.size() > 2 * HR_CORRELATION_BYTES) {
    return absl::InvalidArgumentError(absl::StrCat("key: got \"", digits, "\", expected 1 to ", HR_CORRELATION_BYTES,
                                                   " bytes as two hexadecimal digits each"));
  }
  const std::string bytes = operate::BytesOfHex(digits);
  memcpy(filter.key, bytes.data(), bytes.size());
  memset(filter.key_mask, 0xff, bytes.size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<hr_trace_filter> MakeTraceFilter(const v1::Config& config, const v1::TraceRequest& request) {
  hr_trace_filter filter{};
  absl::Status status = FillBackends(config, request, filter);
  if (status.ok()) status = FillClient(request.client(), filter);
  if (status.ok()) status = FillKey(request.key(), filter);
  if (!status.ok()) return status;
  if (request.client_port() > UINT16_MAX)
    return absl::InvalidArgumentError(absl::StrCat("port: got ", request.client_port(), ", expected 1 to 65535"));
  if (request.slower_than_ns() < 0) return absl::InvalidArgumentError("slower-than: expected no negative duration");
  if (request.rate() > kMaxTraceRate)
    return absl::InvalidArgumentError(absl::StrCat("rate: got ", request.rate(), ", expected 1 to ", kMaxTraceRate));
  filter.client_port_be = htons(static_cast<uint16_t>(request.client_port()));
  filter.only_hedged = request.hedged() ? 1 : 0;
  filter.slower_ns = static_cast<uint64_t>(request.slower_than_ns());
  filter.rate = request.rate() == 0 ? kDefaultTraceRate : request.rate();
  return filter;
}

}  // namespace hedgerow
