// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow check`: does a service work, from here? The profile's harmless request goes to each backend directly and to
// the VIP, as a client's does. Services are the running daemon's, else the configuration's; the profile is read from
// its configuration.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/address.h"
#include "config/format.h"
#include "config/scalar.h"
#include "operate/hex.h"
#include "proxy/admin/client.h"
#include "proxy/cli/check_report.h"
#include "proxy/cli/command.h"
#include "proxy/config/built_in_profiles.h"
#include "proxy/config/load.h"

namespace hedgerow::cli {
namespace {

struct Wanted {
  std::string word;  // empty: every service
  std::optional<std::string> payload;
  absl::Duration timeout = absl::Seconds(1);
};

absl::StatusOr<Wanted> ParseWanted(const Arguments& arguments) {
  Wanted wanted;
  if (arguments.words.size() > 2) return absl::InvalidArgumentError("check takes one service, or VIP[:PORT]");
  if (arguments.words.size() == 2) wanted.word = arguments.words[1];
  if (arguments.Has("payload")) {
    const auto digits = config::Canonical(config::FORMAT_PAYLOAD, arguments.Get("payload"));
    if (!digits.has_value())
      return absl::InvalidArgumentError(absl::StrCat("--payload: got \"", arguments.Get("payload"),
                                                     "\", expected 1 to ", config::kMaxPayloadBytes,
                                                     " bytes, as two hexadecimal digits each"));
    wanted.payload = operate::BytesOfHex(*digits);
  }
  if (arguments.Has("timeout")) {
    const auto ns = config::ParseDurationNs(arguments.Get("timeout"));
    if (!ns.has_value() || *ns < 1'000'000 || *ns > 60'000'000'000)
      return absl::InvalidArgumentError(
          absl::StrCat("--timeout: got \"", arguments.Get("timeout"), "\", expected a duration of 1ms to 60s"));
    wanted.timeout = absl::Nanoseconds(*ns);
  }
  return wanted;
}

bool IsMeant(const std::string& word, const v1::CheckedService& service) {
  if (word.empty() || word == service.service()) return true;
  const auto endpoint = config::ParseEndpoint(word);
  if (endpoint.has_value()) return endpoint->address.ToString() == service.vip() && endpoint->port == service.port();
  const auto address = net::IpAddress::Parse(word);
  return address.ok() && address->ToString() == service.vip();
}

// A service and what it is asked.
struct Checked {
  v1::CheckedService report;
  v1::Profile profile;
  bool has_profile = false;
  std::vector<std::string> also_at;  // with its port
};

// `service`: as it is configured, or as the daemon reports it.
template <typename Service>
Checked Of(const Service& service) {
  Checked checked;
  checked.report.set_service(service.name());
  checked.report.set_vip(service.vip());
  checked.report.set_port(service.port());
  checked.report.set_profile(service.profile());
  for (const std::string& each : service.also_at())
    checked.also_at.push_back(config::FormatEndpoint(each, service.port()));
  for (const auto& backend : service.backends()) {
    v1::CheckedBackend& out = *checked.report.add_backends();
    out.set_name(backend.name());
    out.set_address(backend.address());
    out.set_port(backend.port());
  }
  return checked;
}

Checked OfStatus(const v1::Status& status, const v1::ServiceStatus& service) {
  Checked checked = Of(service);
  for (int i = 0; i < service.backends_size(); ++i) {
    v1::CheckedBackend& out = *checked.report.mutable_backends(i);
    out.set_role(service.backends(i).role());
    out.set_health(service.backends(i).health());
    out.set_last_answer_age_ns(service.backends(i).last_answer_age_ns());
  }
  for (const std::string& problem : status.problems())
    if (problem.find(absl::StrCat(": ", service.name(), ": ")) != std::string::npos)
      checked.report.add_problems(problem);
  if (service.bypass())
    checked.report.set_no_hedge(absl::StrCat("the service is bypassed: `hedgerow bypass ", service.name(), " off`"));
  if (service.dry_run()) checked.report.set_no_hedge("in a dry run no request is sent twice");
  if (service.backends_size() < 2) checked.report.set_no_hedge("the service has one backend");
  return checked;
}

// By the configuration, and without it (another user's file) by the name, which is enough for a built-in one.
void FindProfile(const std::optional<v1::Config>& config, Checked& checked) {
  v1::Service named;
  named.set_profile(checked.report.profile());
  if (config.has_value())
    for (const v1::Service& service : config->services())
      if (service.name() == checked.report.service()) named = service;
  const bool own = named.profile() == config::kOwnProfile;
  checked.has_profile = (!own || named.has_raw()) && config::EffectiveProfile(named) != nullptr;
  if (checked.has_profile) checked.profile = config::CheckedProfile(named);
}

// What to send, or why there is nothing.
std::optional<std::string> Query(const Wanted& wanted, Checked& checked) {
  std::optional<std::string> query = wanted.payload.has_value() ? wanted.payload : NewQueryOf(checked.profile);
  if (!query.has_value()) {
    const std::string payload = "`--payload HEX` gives one";
    checked.report.set_unchecked(
        !checked.has_profile
            ? absl::StrCat(
                  "its profile stands in a configuration that this user cannot read, and so does its harmless request; ",
                  payload)
        : checked.profile.one_way() || checked.profile.flow()
            ? absl::StrCat("the profile ", checked.report.profile(), " has no harmless request of its own; ", payload)
            : absl::StrCat("the profile ", checked.report.profile(),
                           " names no harmless request; its key `check` can, and ", payload));
    return std::nullopt;
  }
  checked.report.set_hedged(IsHedged(checked.profile, *query));
  return query;
}

absl::StatusOr<v1::Status> AskDaemon(const std::string& socket) {
  const auto client = AdminClient::Connect(socket);
  if (!client.ok()) return client.status();
  return client->Ask(&AdminClient::Stub::GetStatus);
}

// The VIP first, then the backends.
std::vector<ProbeTarget> TargetsOf(const v1::CheckedService& service, const std::string& query,
                                   const std::set<std::string>& translated = {}) {
  std::vector<ProbeTarget> targets;
  const auto add = [&](const std::string& address, uint32_t port) {
    targets.push_back({.address = net::IpAddress::Parse(address).value_or(net::IpAddress()),
                       .port = static_cast<uint16_t>(port),
                       .payload = query,
                       .past_translation = translated.contains(config::FormatEndpoint(address, port))});
  };
  add(service.vip(), service.port());
  for (const v1::CheckedBackend& backend : service.backends()) add(backend.address(), backend.port());
  return targets;
}

void Probe(const Wanted& wanted, const std::set<std::string>& translated, std::vector<Checked>& services) {
  std::vector<ProbeTarget> targets;
  std::vector<size_t> first(services.size());  // each service's VIP among the targets
  for (size_t i = 0; i < services.size(); ++i) {
    first[i] = targets.size();
    const std::optional<std::string> query = Query(wanted, services[i]);
    if (!query.has_value()) continue;
    for (ProbeTarget& target : TargetsOf(services[i].report, *query, translated)) targets.push_back(std::move(target));
  }
  const std::vector<ProbeResult> results = ProbeAll(targets, wanted.timeout);
  for (size_t i = 0; i < services.size(); ++i) {
    v1::CheckedService& report = services[i].report;
    if (!report.unchecked().empty()) continue;
    const auto judge = [&](ProbedPlace place, size_t at) {
      return JudgeProbe(place, services[i].profile, targets[at].payload, results[at]);
    };
    *report.mutable_proxied() = judge(ProbedPlace::kVip, first[i]);
    for (int j = 0; j < report.backends_size(); ++j)
      *report.mutable_backends(j)->mutable_direct() =
          judge(ProbedPlace::kBackend, first[i] + 1 + static_cast<size_t>(j));
  }
}

uint64_t TestsTaken(const v1::Status& status, const std::string& service) {
  for (const v1::ServiceStatus& each : status.services()) {
    if (each.name() != service) continue;
    const auto found = each.reasons().find("hedge_test");
    return found == each.reasons().end() ? 0 : found->second;
  }
  return 0;
}

// A hedge is worth a test where the leader works and a standby does: else there is a failover at work, or nothing to
// hedge to.
bool CanHedge(v1::CheckedService& report) {
  if (!report.unchecked().empty() || !report.hedged() || !report.proxied().ok() || !report.no_hedge().empty())
    return false;
  bool leader = false, standby = false;
  for (const v1::CheckedBackend& backend : report.backends()) {
    if (backend.direct().ok()) (backend.role() == "leader" ? leader : standby) = true;
  }
  if (!leader) report.set_no_hedge("the leader fails, so that requests go to a standby anyway");
  if (leader && !standby) report.set_no_hedge("no standby answers");
  return leader && standby;
}

// A request whose first datagram the proxy drops on purpose: only a hedge can answer it. Of services that work so far.
void TestHedges(const Wanted& wanted, const std::string& socket, const v1::Status& before,
                std::vector<Checked>& services) {
  const auto client = AdminClient::Connect(socket);
  if (!client.ok()) return;
  std::vector<ProbeTarget> targets;
  std::vector<Checked*> tested;
  for (Checked& service : services) {
    v1::CheckedService& report = service.report;
    if (!CanHedge(report)) continue;
    const std::optional<std::string> query = Query(wanted, service);
    if (!query.has_value()) continue;
    ProbeTarget target = TargetsOf(report, *query).front();
    target.prepare = [&client, &report](const net::IpAddress& own, uint16_t port) {
      v1::TestHedgeRequest request;
      request.set_service(report.service());
      request.set_client(own.ToString());
      request.set_port(port);
      const auto reply = client->Ask(&AdminClient::Stub::TestHedge, request);
      if (!reply.ok()) report.set_no_hedge(std::string(reply.status().message()));
      return reply.ok();
    };
    targets.push_back(std::move(target));
    tested.push_back(&service);
  }
  const std::vector<ProbeResult> results = ProbeAll(targets, wanted.timeout);
  const absl::StatusOr<v1::Status> after = AskDaemon(socket);
  for (size_t i = 0; i < tested.size(); ++i) {
    v1::CheckedService& report = tested[i]->report;
    if (!report.no_hedge().empty()) continue;
    if (after.ok() && TestsTaken(*after, report.service()) == TestsTaken(before, report.service()))
      report.set_no_hedge("the proxy forwarded the request once: `reasons` of `hedgerow status --json` says why");
    else
      *report.mutable_hedge() = JudgeProbe(ProbedPlace::kVip, tested[i]->profile, targets[i].payload, results[i]);
  }
}

}  // namespace

int RunCheck(const Call& call) {
  const absl::StatusOr<Wanted> wanted = ParseWanted(call.arguments);
  if (!wanted.ok()) return call.UsageError(std::string(wanted.status().message()));
  std::optional<v1::Config> config;
  if (call.arguments.Has("config")) {
    absl::StatusOr<v1::Config> read = RequireConfig(call.arguments);
    if (!read.ok()) return call.Fail(read.status());
    config = *std::move(read);
  }
  const absl::StatusOr<std::string> socket = SocketPath(call.arguments);
  if (!socket.ok()) return call.Fail(socket.status());
  const absl::StatusOr<v1::Status> status = AskDaemon(*socket);
  if (!status.ok() && !config.has_value()) {
    return call.Fail(
        operate::ExitCodeOf(status.status()),
        absl::StrCat(status.status().message(), "\nWithout the daemon `--config FILE` names the services to check"));
  }
  if (status.ok() && !config.has_value()) {
    if (absl::StatusOr<v1::Config> read = config::LoadFile(status->config_file()); read.ok()) config = *std::move(read);
  }
  std::vector<Checked> services;
  if (status.ok()) {
    for (const v1::ServiceStatus& service : status->services()) services.push_back(OfStatus(*status, service));
  } else {
    for (const v1::Service& service : config->services()) services.push_back(Of(service));
  }
  std::vector<std::string> names;
  std::set<std::string> translated;
  for (const Checked& each : services) {
    names.push_back(each.report.service());
    translated.insert(each.also_at.begin(), each.also_at.end());
  }
  std::erase_if(services, [&](const Checked& each) { return !IsMeant(wanted->word, each.report); });
  if (services.empty()) {
    return call.Fail(kExitFailure, absl::StrCat("no service is named \"", wanted->word,
                                                "\" or has this VIP; there are: ", absl::StrJoin(names, ", ")));
  }
  for (Checked& each : services) FindProfile(config, each);
  Probe(*wanted, translated, services);
  if (status.ok()) TestHedges(*wanted, *socket, *status, services);
  if (services.size() == 1 && !services[0].report.unchecked().empty())
    return call.UsageError(absl::StrCat(services[0].report.service(), ": ", services[0].report.unchecked()));
  v1::CheckReport report;
  for (Checked& each : services) *report.add_services() = std::move(each.report);
  if (!status.ok()) report.set_daemon(std::string(status.status().message()));
  const bool runs = status.ok() || absl::IsPermissionDenied(status.status());
  Conclude(runs, report);
  return call.Print(report, CheckText(report), report.ok() ? kExitOk : kExitFailure);
}

}  // namespace hedgerow::cli
