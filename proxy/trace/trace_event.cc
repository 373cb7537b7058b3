// SPDX-License-Identifier: Apache-2.0
#include "proxy/trace/trace_event.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "net/ip_address.h"
#include "proxy/data_plane/names.h"

namespace hedgerow {
namespace {

// In the order of hr_trace_kind, from 1.
constexpr std::array<absl::string_view, HR_TRACE_KINDS> kKinds = {"",      "split",    "passed",  "copy",     "due",
                                                                  "hedge", "no_hedge", "release", "handover", "answer",
                                                                  "nack",  "dropped",  "expired"};
static_assert(kKinds[HR_TRACE_NO_HEDGE] == "no_hedge" && kKinds[HR_TRACE_EXPIRED] == "expired");

absl::string_view StateName(int state) {
  switch (state) {
    case HR_STATE_PENDING:
    case HR_STATE_CLAIMING: return "pending";
    case HR_STATE_ANSWERED: return "answered";
    case HR_STATE_NACKED: return "nacked";
    case HR_STATE_EXPIRED: return "expired";
    default: return "untracked";
  }
}

std::string AddressText(const hr_address& address) {
  const auto parsed = net::IpAddress::FromBytes(address.bytes);
  return parsed.ok() ? parsed->ToString() : "";
}

// The correlation bytes without the zeros behind those that the service's key has.
std::string KeyDigits(const hr_request_key& key) {
  const size_t length = std::min<size_t>(key.pad, HR_CORRELATION_BYTES);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(key.correlation), length));
}

std::string BackendName(const v1::Service* service, int index) {
  return service != nullptr && index < service->backends_size() ? service->backends(index).name() : "";
}

int64_t Since(uint64_t time_ns, uint64_t start_ns) {
  return time_ns < start_ns ? 0 : static_cast<int64_t>(time_ns - start_ns);
}

}  // namespace

absl::string_view TraceKindName(int kind) { return kind > 0 && kind < HR_TRACE_KINDS ? kKinds[kind] : ""; }

v1::TraceEvent DescribeTraceEvent(const v1::Config& config, const hr_trace_event& event) {
  const v1::Service* service =
      event.key.service < config.services_size() ? &config.services(event.key.service) : nullptr;
  v1::TraceEvent out;
  out.set_kind(std::string(TraceKindName(event.kind)));
  out.set_time_ns(static_cast<int64_t>(event.time_ns));
  out.set_since_ns(Since(event.time_ns, event.sent_ns));
  if (event.request != 0) {
    out.set_request(absl::StrCat(static_cast<uint32_t>(event.request), ".", event.request >> 32));
  }
  if (service != nullptr) out.set_service(service->name());
  out.set_client(AddressText(event.key.client));
  out.set_client_port(ntohs(event.key.client_port_be));
  out.set_key(KeyDigits(event.key));
  out.set_backend(BackendName(service, event.backend));
  out.set_reason(std::string(ReasonName(event.reason)));
  out.set_state(std::string(event.request == 0 ? "untracked" : StateName(event.state)));
  if (event.state == HR_STATE_ANSWERED || event.state == HR_STATE_NACKED || event.state == HR_STATE_EXPIRED)
    out.set_winner(BackendName(service, event.winner));
  out.set_first(BackendName(service, event.first));
  for (int i = 0; i < HR_MAX_BACKENDS_PER_SERVICE; ++i) {
    if (HR_SENT_MASK(event.masks) & (1u << i)) out.add_sent_to(BackendName(service, i));
    if (HR_ANSWERED_MASK(event.masks) & (1u << i)) out.add_answered(BackendName(service, i));
  }
  out.set_due_ns(Since(event.due_ns, event.sent_ns));
  out.set_fire_ns(Since(event.fire_ns, event.sent_ns));
  out.set_attempts(event.attempts);
  out.set_bytes(event.bytes);
  const bool reached_so =
      event.backend < HR_MAX_BACKENDS_PER_SERVICE && (HR_FAILOVER_MASK(event.masks) >> event.backend & 1);
  out.set_failover((event.flags & HR_TRACE_FAILOVER) != 0 || reached_so);
  out.set_idle((event.flags & HR_TRACE_IDLE) != 0);
  out.set_hinted((event.flags & HR_TRACE_HINTED) != 0);
  out.set_released((event.flags & HR_TRACE_RELEASED) != 0);
  out.set_icmp((event.flags & HR_TRACE_ICMP) != 0);
  out.set_number(event.sequence);
  return out;
}

void DescribeServices(const v1::Config& config, v1::TraceReply& reply) {
  for (const v1::Service& service : config.services()) {
    v1::TraceService& out = *reply.add_services();
    out.set_name(service.name());
    out.set_delay_ns(service.delay_ns());
    out.set_deadline_ns(service.deadline_ns());
    out.set_retention_ns(service.retention_ns());
    for (const v1::Backend& backend : service.backends()) out.add_backends(backend.name());
  }
}

}  // namespace hedgerow
