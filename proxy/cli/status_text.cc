// SPDX-License-Identifier: Apache-2.0
//
// Laying out the status; see the header. What is wrong comes first, what is
// zero and dull is left out.

#include "proxy/cli/status_text.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "config/scalar.h"
#include "config/address.h"
#include "operate/http_access.h"

namespace hedgerow::cli {
namespace {

std::string Duration(int64_t ns) { return config::RoundedDurationNs(ns); }

std::string P50P99(const v1::Quantiles& quantiles) {
  if (quantiles.count() == 0) return "none yet";
  return absl::StrCat("p50 ", Duration(quantiles.p50()), ", p99 ", Duration(quantiles.p99()), ", max ",
                      Duration(quantiles.max()));
}

// "no_budget 12, retransmission 3", sorted by name.
template <typename Map>
std::string Reasons(const Map& reasons) {
  const std::map<std::string, uint64_t> sorted(reasons.begin(), reasons.end());
  std::vector<std::string> words;
  for (const auto& [name, count] : sorted) words.push_back(absl::StrCat(name, " ", count));
  return absl::StrJoin(words, ", ");
}

// Only what happened: a line of zeros tells a tired person nothing.
std::string Outcomes(const v1::Accounting& accounting, const v1::ServiceStatus& service) {
  std::vector<std::string> words;
  const auto add = [&words](absl::string_view name, uint64_t count) {
    if (count > 0) words.push_back(absl::StrCat(name, " ", count));
  };
  for (const std::string& outcome : accounting.outcomes()) {
    const auto count = service.counters().find(outcome);
    if (count == service.counters().end()) continue;
    add(absl::StrReplaceAll(absl::StripPrefix(outcome, "won_by_"), {{"_", " "}}), count->second);
  }
  add("in flight", service.in_flight());
  return absl::StrJoin(words, ", ");
}

std::string LeaderState(const v1::ServiceStatus& service) {
  const std::string& state = service.state();
  if (state == "suspect") return service.dry_run() ? "SUSPECT (silent)" : "SUSPECT (silent; requests go to both)";
  if (state == "impaired" && !service.dry_run()) return "IMPAIRED (fails at what a standby answers; requests go there)";
  if (state == "down") return service.dry_run() ? "DOWN (silent)" : "DOWN (requests go to a standby)";
  return state;
}

// Empty for the configured primary, which leads unless a pin or an announcement names another.
std::string LeaderSource(const v1::ServiceStatus& service) {
  if (service.pinned()) return " (pinned)";
  return service.leader_source() == "announced" ? " (announced)" : "";
}

// Why a backend other than the leader gets the requests. The live page says it in the same words (tables.js).
std::string Why(const v1::ServiceStatus& service) {
  if (absl::StrContains(service.requests_to(), ' ')) return "";  // shares
  for (const v1::BackendStatus& backend : service.backends()) {
    if (backend.name() != service.leader()) continue;
    if (backend.drained()) return ", while the leader is drained";
    if (backend.uplink().empty()) return ", while this host has no route to the leader";
    if (backend.health() != "healthy") return absl::StrCat(", while the leader is ", backend.health());
  }
  return ", which answers faster";
}

// "a after 5.00ms, b after 30.0ms of silence (5.00ms to 1.00s)"
std::string SuspectAfter(const v1::ServiceStatus& service) {
  std::vector<std::string> words;
  for (const v1::BackendStatus& backend : service.backends())
    words.push_back(absl::StrCat(backend.name(), " after ", Duration(backend.suspect_after_ns())));
  return absl::StrCat(absl::StrJoin(words, ", "), " of silence (", Duration(service.suspect_min_ns()), " to ",
                      Duration(service.suspect_max_ns()), ")");
}

// "from 10.77.0.1 by hr0; a and b by eth0", or with next hops "a by eth0 via 10.77.0.254, b by eth1"
std::string Paths(const v1::ServiceStatus& service) {
  std::vector<std::pair<std::string, std::vector<std::string>>> ways;
  for (const v1::BackendStatus& backend : service.backends()) {
    const std::string way =
        backend.uplink().empty()
            ? " by no interface"
            : absl::StrCat(" by ", backend.uplink(), backend.next_hop().empty() ? "" : " via ", backend.next_hop());
    const auto known = std::find_if(ways.begin(), ways.end(), [&](const auto& each) { return each.first == way; });
    (known == ways.end() ? ways.emplace_back(way, std::vector<std::string>()) : *known)
        .second.push_back(backend.name());
  }
  std::vector<std::string> words;
  for (const auto& [way, names] : ways) words.push_back(absl::StrCat(absl::StrJoin(names, " and "), way));
  return absl::StrCat("from ", service.source(), " by ", service.vip_route(), "; ", absl::StrJoin(words, ", "));
}

// "two at once up to a load of 30%: a 12% (3 in flight, slow from 26), b 0% (0 in flight)"
std::string Loads(const v1::ServiceStatus& service) {
  std::vector<std::string> words;
  for (const v1::BackendStatus& backend : service.backends())
    words.push_back(absl::StrFormat("%s %.0f%% (%d in flight%s)", backend.name(), 100 * backend.load(),
                                    backend.in_flight(),
                                    backend.slow_at() > 0 ? absl::StrCat(", slow from ", backend.slow_at()) : ""));
  return absl::StrFormat("two at once up to a load of %.0f%%: %s", 100 * service.idle_share(),
                         absl::StrJoin(words, ", "));
}

// "a is suspect to one client, which waits there for 812ms; healthy to all others": no problem of the backend's, as far
// as is known.
std::string OneClients(const v1::ServiceStatus& service) {
  std::vector<std::string> words;
  for (const v1::BackendStatus& backend : service.backends())
    if (!backend.one_client_health().empty())
      words.push_back(absl::StrCat(backend.name(), " is ", backend.one_client_health(),
                                   " to one client, which waits there for ", Duration(backend.one_client_waits_ns()),
                                   "; ", backend.health() == "down" ? "suspect" : "healthy", " to all others"));
  return absl::StrJoin(words, "; ");
}

void Backends(const v1::ServiceStatus& service, std::string& out) {
  absl::StrAppendFormat(&out, "  %-12s %-24s %-8s %-8s %10s %10s %9s %9s\n", "backend", "address", "role", "state",
                        "sent", "won", "p50", "p99");
  for (const v1::BackendStatus& backend : service.backends()) {
    const bool seen = backend.answer_ns().count() > 0;
    // Nothing speaks against it, and nothing for it. The live page says it in the same word (tables.js).
    const bool untested = !seen && backend.sent() == 0 && backend.health() == "healthy";
    absl::StrAppendFormat(&out, "  %-12s %-24s %-8s %-8s %10d %10d %9s %9s\n", backend.name(),
                          config::FormatEndpoint(backend.address(), backend.port()), backend.role(),
                          backend.drained() ? "drained"
                          : untested        ? "untested"
                                            : backend.health(),
                          backend.sent(), backend.won(), seen ? Duration(backend.answer_ns().p50()) : "-",
                          seen ? Duration(backend.answer_ns().p99()) : "-");
  }
}

void Service(const v1::Accounting& accounting, const v1::ServiceStatus& service, std::string& out) {
  absl::StrAppend(&out, "\n", service.name(), "  ", config::FormatEndpoint(service.vip(), service.port()),
                  service.also_at_size() > 0 ? absl::StrCat(", at ", absl::StrJoin(service.also_at(), ", ")) : "", "  ",
                  service.profile(), "  leader ", service.leader(), LeaderSource(service), ", ", LeaderState(service),
                  service.bypass() ? ", BYPASSED: no hedging" : "",
                  service.dry_run() ? ", DRY RUN: nothing is sent twice" : "", "\n");
  if (service.requests_to() != service.leader())
    absl::StrAppend(&out, "  requests to  ", service.requests_to(), Why(service), "\n");
  absl::StrAppend(&out, "  requests     ", service.requests());
  if (service.requests() > 0) absl::StrAppend(&out, ": ", Outcomes(accounting, service));
  if (!service.identity_ok()) absl::StrAppend(&out, "  (not all accounted for; exact only at rest)");
  absl::StrAppend(&out, "\n");
  absl::StrAppendFormat(&out, "  hedges       %d, %.2f%% extra load, %.1f tokens left\n", service.hedges(),
                        100 * service.extra_load(), service.budget_tokens());
  if (service.extra_sends() > 0) {
    absl::StrAppendFormat(&out, "  extra        %d datagrams beyond the first of each request, %.2f%%\n",
                          service.extra_sends(), 100 * service.extra_sends_share());
  }
  if (service.idle_share() > 0)
    absl::StrAppend(&out, "  copies       ", service.idle_copies(), ", ", Loads(service), "\n");
  if (service.would_hedge() + service.would_fail_over() + service.would_copy() > 0) {
    absl::StrAppend(&out, "  dry runs     would have hedged ", service.would_hedge(), ", failed over ",
                    service.would_fail_over(), ", sent two copies at once of ", service.would_copy(), "\n");
  }
  absl::StrAppend(&out, "  delay        ", Duration(service.delay_ns()), service.adaptive() ? ", adaptive" : "",
                  service.pushed_back() ? "; A BACKEND ASKS for later hedges, or none" : "", "\n");
  if (!service.source().empty()) absl::StrAppend(&out, "  reached      ", Paths(service), "\n");
  absl::StrAppend(&out, "  suspicion    ", SuspectAfter(service), "\n");
  if (const std::string one = OneClients(service); !one.empty()) absl::StrAppend(&out, "  one client   ", one, "\n");
  absl::StrAppend(&out, "  latency      ", P50P99(service.latency_ns()), "\n");
  absl::StrAppend(&out, "  fire error   ", P50P99(service.fire_error_ns()), "\n");
  if (!service.reasons().empty()) absl::StrAppend(&out, "  reasons      ", Reasons(service.reasons()), "\n");
  Backends(service, out);
}

// Nothing where nothing was tried.
void Reloads(const v1::Reloads& reloads, std::string& out) {
  if (reloads.last_result().empty()) return;
  absl::StrAppend(&out, "  last reload  ", reloads.last_result(), " ", config::AgeText(reloads.last_age_ns()),
                  " ago\n");
  for (const std::string& problem : reloads.last_problems()) absl::StrAppend(&out, "    ", problem, "\n");
}

std::string Quoted(const std::string& text) { return text.empty() ? "\"\"" : text; }

// As a diff is read: what comes, what goes, and what changes.
std::string ChangeText(const v1::ConfigChange& change) {
  if (change.kind() == "changed")
    return absl::StrCat("  ", change.path(), ": ", Quoted(change.from()), " -> ", Quoted(change.to()), "\n");
  const std::string& what = change.kind() == "added" ? change.to() : change.from();
  return absl::StrCat(change.kind() == "added" ? "+ " : "- ", change.path(), what.empty() ? "" : ": ", what, "\n");
}

}  // namespace

std::string DrainText(const v1::DrainReply& reply) {
  std::string out;
  for (const v1::Drained& drained : reply.backends()) {
    absl::StrAppend(&out, drained.service(), ": ", drained.backend(),
                    drained.drained() ? " is drained" : " serves again", "; requests go to ", drained.requests_to());
    if (drained.drained() && (drained.without_effect() || drained.requests_to() == drained.backend()))
      absl::StrAppend(&out, drained.requests_to() == drained.backend() ? "" : ", which is drained too",
                      ": no other backend is available, so draining has no effect");
    absl::StrAppend(&out, "\n");
    if (drained.drained() && drained.leads()) {
      absl::StrAppend(&out,
                      "  It leads its cluster, and the others send its writes on to it. `hedgerow-node transfer` "
                      "there hands leadership over.\n");
    }
  }
  return out;
}

std::string ReloadText(const v1::ReloadReply& reply, bool dry_run) {
  std::string out;
  for (const v1::ConfigChange& change : reply.changes()) out += ChangeText(change);
  if (reply.problems_size() > 0) {
    absl::StrAppend(&out,
                    dry_run
                        ? "a reload would be refused; nothing has changed. Because:\n  "
                        : absl::StrCat("refused as a whole; nothing of ", reply.file(), " was applied. Because:\n  "),
                    absl::StrJoin(reply.problems(), "\n  "), "\n");
  } else if (reply.applied()) {
    absl::StrAppend(&out, reply.file(), " is in force\n");
  } else if (reply.changes_size() == 0) {
    absl::StrAppend(&out, reply.file(), ": nothing to change\n");
  } else if (dry_run) {
    absl::StrAppend(&out, "a reload would apply all of this\n");
  }
  return out;
}

std::string LeaderText(const v1::Leader& leader) {
  std::string out =
      absl::StrFormat("%-16s %-12s %-8s %s", leader.service(), leader.leader(), leader.state(), leader.source());
  if (!leader.announced().empty()) {
    if (leader.source() != "announced") absl::StrAppend(&out, "; announced is ", leader.announced());
    absl::StrAppend(&out, ": cluster epoch ", leader.cluster_epoch(), ", term ", leader.term(), ", sequence ",
                    leader.sequence(), ", ", Duration(leader.announced_age_ns()), " ago",
                    leader.resigning() ? ", RESIGNING" : "");
  }
  return out + "\n";
}

std::string StatusText(const v1::Status& status) {
  std::string out = absl::StrCat("hedgerow ", status.version(), "  instance ", status.instance(), "  ", status.state(),
                                 "  pid ", status.pid(), "  up ", config::AgeText(status.uptime_ns()), "\n");
  for (const std::string& problem : status.problems()) absl::StrAppend(&out, "  PROBLEM: ", problem, "\n");
  std::vector<std::string> uplinks;
  for (const v1::Uplink& uplink : status.uplinks()) {
    const std::string before =
        uplink.before().empty() ? "" : absl::StrCat(", behind ", absl::StrJoin(uplink.before(), ", "));
    uplinks.push_back(absl::StrCat(uplink.name(), " (", uplink.attach(), uplink.up() ? "" : ", DOWN", before, ")"));
  }
  absl::StrAppend(&out, "  interface    ", status.interface(), ", uplinks ", absl::StrJoin(uplinks, ", "), "\n");
  const v1::Clock& clock = status.clock();
  absl::StrAppend(&out, "  clock        ", clock.kind(), ", ", clock.running() ? "running" : "at rest", ", ",
                  clock.laps(), " laps, ", clock.restarts(), " restarts, off by ", Duration(clock.measured_error_ns()),
                  " at start\n");
  absl::StrAppend(&out, "  fire error   ", P50P99(status.fire_error_ns()), "\n");
  if (!status.metrics().empty())
    absl::StrAppend(&out, "  metrics      ", operate::PageText(status.metrics(), "/metrics"), "\n");
  if (!status.page().empty()) absl::StrAppend(&out, "  page         ", operate::PageText(status.page(), "/"), "\n");
  if (status.adoption().adoptions() > 0) {
    const v1::Adoption& adoption = status.adoption();
    absl::StrAppend(&out, "  kernel part  ", adoption.how(), ", at work for ",
                    config::AgeText(adoption.kernel_uptime_ns()), ", taken over ", adoption.adoptions(), " times");
    if (adoption.hedging_stopped_ns() > 0) {
      absl::StrAppend(&out, "; no daemon looked after it for ", config::AgeText(adoption.unattended_ns()),
                      ", hedging was stopped for ", config::AgeText(adoption.hedging_stopped_ns()), " of it");
    }
    absl::StrAppend(&out, "\n");
  }
  Reloads(status.reloads(), out);
  if (status.routes_restored() + status.links_restored() > 0) {
    absl::StrAppend(&out, "  restored     ", status.routes_restored(), " routes, ", status.links_restored(),
                    " links that were removed from outside\n");
  }
  if (!status.reasons().empty()) absl::StrAppend(&out, "  other packets: ", Reasons(status.reasons()), "\n");
  for (const v1::ServiceStatus& service : status.services()) Service(status.accounting(), service, out);
  return out;
}

}  // namespace hedgerow::cli
