// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/check_report.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/address.h"
#include "config/scalar.h"

namespace hedgerow::cli {
namespace {

constexpr size_t kShownBytes = 16;

std::string After(const v1::Probe& probe) { return config::RoundedDurationNs(probe.answer_ns()); }

std::string Bracketed(const std::string& text) { return text.empty() ? "" : absl::StrCat(" (", text, ")"); }

std::string ProbeText(const v1::Probe& probe, ProbedPlace place) {
  const std::string& result = probe.result();
  if (result == "answers") return absl::StrCat("answers in ", After(probe), Bracketed(probe.detail()));
  if (result == "negative")
    return absl::StrCat("answers after ", After(probe), " that it cannot serve", Bracketed(probe.detail()));
  if (result == "wrong_reply") return absl::StrCat("sends what is no reply to the request", Bracketed(probe.detail()));
  if (result == "other_address")
    return absl::StrCat("answers from ", probe.detail(),
                        ", where no answer is looked for: bind the server to the address that is asked");
  if (result == "refused")
    return absl::StrCat("refuses after ", After(probe),
                        place == ProbedPlace::kVip ? ": no backend took it, or no service has this port"
                                                   : ": the host is up, but no process has this port");
  if (result == "unreachable") return absl::StrCat("is unreachable", Bracketed(probe.detail()));
  if (result == "unsent") return absl::StrCat("cannot be sent to from this host", Bracketed(probe.detail()));
  if (result == "sent") return "was sent to, and no error came back: this profile has no replies";
  if (result == "not_asked") return "was not asked: needs root, as `also_at` lists it";
  return "is silent";
}

std::string Join(const std::vector<std::string>& words) {
  if (words.size() < 2) return absl::StrJoin(words, "");
  return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "), " and ", words.back());
}

std::string NameOf(const v1::CheckedBackend& backend) {
  return backend.role().empty() ? backend.name() : absl::StrCat("the ", backend.role(), " ", backend.name());
}

// By the daemon's word: what is asked from here may be answered all the same.
bool ServesClients(const v1::CheckedService& service) {
  return std::none_of(service.problems().begin(), service.problems().end(),
                      [](const std::string& problem) { return absl::StartsWith(problem, "clients_"); });
}

std::string Verdict(bool daemon_runs, const v1::CheckedService& service) {
  std::vector<std::string> well, ill;
  for (const v1::CheckedBackend& backend : service.backends())
    if (backend.direct().result() != "not_asked") (backend.direct().ok() ? well : ill).push_back(NameOf(backend));
  const std::string unattended = daemon_runs ? "" : "hedgerowd does not run";
  if (service.proxied().ok()) {
    std::vector<std::string> but;
    if (!ill.empty()) but.push_back(absl::StrCat(Join(ill), ill.size() == 1 ? " fails" : " fail"));
    if (service.has_hedge() && !service.hedge().ok()) but.push_back("no hedge answers");
    if (!ServesClients(service)) but.push_back("other clients get nothing");
    if (!unattended.empty()) but.push_back(unattended);
    return but.empty() ? absl::StrCat(service.service(), ": works")
                       : absl::StrCat(service.service(), ": works, but ", Join(but));
  }
  const std::string because = unattended.empty() ? "" : absl::StrCat("; ", unattended);
  if (service.proxied().result() == "negative")
    return absl::StrCat(service.service(), ": DOES NOT WORK: it answers that it cannot serve",
                        Bracketed(service.proxied().detail()), because);
  if (well.empty())
    return absl::StrCat(service.service(), ": DOES NOT WORK", ill.empty() ? "" : ": no backend answers", because);
  if (!ill.empty())
    return absl::StrCat(service.service(), ": DOES NOT WORK: the VIP fails, although ", Join(well),
                        well.size() == 1 ? " answers" : " answer", " directly; ", Join(ill),
                        ill.size() == 1 ? " fails" : " fail", because);
  return absl::StrCat(service.service(), ": DOES NOT WORK: the VIP fails, although every backend answers directly",
                      because);
}

// "; through the proxy last 3.20s ago": whether the way that a hedge takes has worked.
std::string Proxied(const v1::CheckedBackend& backend) {
  if (backend.role().empty()) return "";
  if (backend.last_answer_age_ns() == 0) return "; through the proxy nothing yet";
  return absl::StrCat("; through the proxy last ", config::AgeText(backend.last_answer_age_ns()), " ago");
}

void Row(std::string& out, const std::string& name, const std::string& endpoint, const std::string& text) {
  absl::StrAppendFormat(&out, "  %-26s %-24s %s\n", name, endpoint, text);
}

void ServiceText(const v1::CheckedService& service, std::string& out) {
  if (!service.unchecked().empty()) {
    absl::StrAppend(&out, service.service(), ": not checked: ", service.unchecked(), "\n");
    return;
  }
  absl::StrAppend(&out, service.verdict(), "\n");
  Row(out, "VIP, through the proxy", config::FormatEndpoint(service.vip(), service.port()),
      ProbeText(service.proxied(), ProbedPlace::kVip));
  if (service.has_hedge())
    Row(out, "VIP, by a hedge", config::FormatEndpoint(service.vip(), service.port()),
        absl::StrCat(ProbeText(service.hedge(), ProbedPlace::kVip),
                     ": the proxy dropped the first datagram on purpose"));
  for (const v1::CheckedBackend& backend : service.backends()) {
    std::string name = backend.name();
    if (!backend.role().empty()) absl::StrAppend(&name, ", ", backend.role());
    if (!backend.health().empty() && backend.health() != "healthy") absl::StrAppend(&name, ", ", backend.health());
    Row(out, name, config::FormatEndpoint(backend.address(), backend.port()),
        absl::StrCat(ProbeText(backend.direct(), ProbedPlace::kBackend), Proxied(backend)));
  }
  for (const std::string& problem : service.problems()) absl::StrAppend(&out, "  problem: ", problem, "\n");
  if (!service.no_hedge().empty() && service.proxied().ok())
    absl::StrAppend(&out, "  note: no hedge was tested: ", service.no_hedge(), "\n");
  if (!service.hedged())
    absl::StrAppend(&out, "  note: the profile ", service.profile(),
                    " forwards this request once, so that no standby is asked\n");
}

v1::Probe OfReply(ProbedPlace place, const v1::Profile& profile, absl::string_view query, const std::string& reply) {
  v1::Probe probe;
  const JudgedReply judged = JudgeReply(profile, query, reply);
  probe.set_detail(judged.name);
  probe.set_ok(true);
  probe.set_result("answers");
  switch (judged.kind) {
    case ReplyKind::kAnswer:
    case ReplyKind::kNegativeOk: break;
    case ReplyKind::kNamesTheLeader:
      // A standby says so at work. The proxy passes it on when no backend leads.
      probe.set_detail(place == ProbedPlace::kVip ? "no leader" : "does not lead");
      if (place == ProbedPlace::kBackend) break;
      [[fallthrough]];
    case ReplyKind::kNegative:
      probe.set_ok(false);
      probe.set_result("negative");
      break;
    case ReplyKind::kNoReply:
      probe.set_ok(false);
      probe.set_result("wrong_reply");
      probe.set_detail(absl::StrCat(reply.size(), " bytes: ", absl::BytesToHexString(reply.substr(0, kShownBytes)),
                                    reply.size() > kShownBytes ? "..." : ""));
      break;
  }
  return probe;
}

}  // namespace

v1::Probe JudgeProbe(ProbedPlace place, const v1::Profile& profile, absl::string_view query,
                     const ProbeResult& result) {
  v1::Probe probe;
  switch (result.kind) {
    case ProbeResult::Kind::kNotAsked: probe.set_result("not_asked"); break;
    case ProbeResult::Kind::kReply: probe = OfReply(place, profile, query, result.reply); break;
    case ProbeResult::Kind::kFromElsewhere:
      // Any host may send to a socket that is not connected.
      probe.set_result(JudgeReply(profile, query, result.reply).kind == ReplyKind::kNoReply ? "silent"
                                                                                            : "other_address");
      if (probe.result() == "other_address")
        probe.set_detail(config::FormatEndpoint(result.from.address.ToString(), result.from.port));
      break;
    case ProbeResult::Kind::kSilent:
      probe.set_ok(profile.one_way());
      probe.set_result(profile.one_way() ? "sent" : "silent");
      break;
    case ProbeResult::Kind::kError:
      probe.set_result(result.error == ECONNREFUSED ? "refused" : "unreachable");
      probe.set_detail(strerror(result.error));
      break;
    case ProbeResult::Kind::kUnsent:
      probe.set_result(result.error == ENETUNREACH || result.error == EHOSTUNREACH ? "unreachable" : "unsent");
      probe.set_detail(result.error == EPERM ? "a firewall rule of this host ends it" : strerror(result.error));
      break;
  }
  probe.set_answer_ns(result.elapsed_ns);
  return probe;
}

void Conclude(bool daemon_runs, v1::CheckReport& report) {
  report.set_ok(true);
  for (v1::CheckedService& service : *report.mutable_services()) {
    if (!service.unchecked().empty()) continue;
    const bool all =
        std::all_of(service.backends().begin(), service.backends().end(), [](const v1::CheckedBackend& backend) {
          return backend.direct().ok() || backend.direct().result() == "not_asked";
        });
    service.set_ok(daemon_runs && all && ServesClients(service) && service.proxied().ok() &&
                   (!service.has_hedge() || service.hedge().ok()));
    service.set_verdict(Verdict(daemon_runs, service));
    report.set_ok(report.ok() && service.ok());
  }
}

std::string CheckText(const v1::CheckReport& report) {
  std::string out;
  if (report.services_size() > 1) {
    std::vector<std::string> ill;
    int checked = 0;
    for (const v1::CheckedService& service : report.services()) {
      if (!service.unchecked().empty()) continue;
      ++checked;
      if (!service.ok()) ill.push_back(service.service());
    }
    absl::StrAppend(
        &out,
        report.ok() ? absl::StrCat("all ", checked, " services that were checked work")
                    : absl::StrCat(ill.size(), " of ", checked, " services need a look: ", absl::StrJoin(ill, ", ")),
        "\n\n");
  }
  for (const v1::CheckedService& service : report.services()) ServiceText(service, out);
  if (!report.daemon().empty()) absl::StrAppend(&out, report.daemon(), "\n");
  return out;
}

}  // namespace hedgerow::cli
