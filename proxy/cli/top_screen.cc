// SPDX-License-Identifier: Apache-2.0
//
// Laying out `hedgerow top`; see the header. What is wrong is marked, what is dull is
// quiet, and every figure keeps its place from one second to the next.

#include "proxy/cli/top_screen.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "config/scalar.h"
#include "config/address.h"

namespace hedgerow::cli {
namespace {

constexpr int kWide = 120;
constexpr int kServicesWidth = 80;
constexpr int kBarWidth = 14;
// A second's hedges may have been saved up for.
constexpr double kBeyondBudget = 0.01;

std::string Duration(int64_t ns) { return ns == 0 ? "-" : config::RoundedDurationNs(ns); }

std::string Percent(double share) { return absl::StrFormat("%.2f%%", 100 * share); }

Mark MarkOf(const std::string& state) {
  if (state == "suspect") return Mark::kWarning;
  return state == "healthy" ? Mark::kPlain : Mark::kAlarm;
}

std::string LeaderState(const std::string& state) {
  if (state == "suspect") return "SUSPECT: requests go to both";
  if (state == "impaired") return "IMPAIRED: requests go to a standby";
  if (state == "down") return "DOWN: requests go to a standby";
  return state;
}

// "[#####     |    ]": how much of the budget is spent; twice the budget is a full bar.
std::string Bar(double share, double budget) {
  if (budget <= 0) return "";
  const double filled = std::clamp(share / (2 * budget), 0.0, 1.0) * kBarWidth;
  std::string bar(kBarWidth, ' ');
  std::fill_n(bar.begin(), static_cast<int>(std::lround(filled)), '#');
  if (bar[kBarWidth / 2] == ' ') bar[kBarWidth / 2] = '|';
  return absl::StrCat("[", bar, "]");
}

// "reasons  no_budget 1.0, retransmission 3.2": as many lines as it takes.
template <typename Map>
void Reasons(const std::string& title, const Map& rates, int width, std::vector<Line>& out) {
  const std::map<std::string, double> sorted(rates.begin(), rates.end());
  std::string text;
  std::string lead = absl::StrFormat("  %-10s", title);
  for (const auto& [name, rate] : sorted) {
    const std::string word = absl::StrCat(text.empty() ? "" : ", ", name, " ", RateText(rate), "/s");
    if (!text.empty() && static_cast<int>(lead.size() + text.size() + word.size()) > width - 1) {
      out.push_back({{lead, Mark::kQuiet}, {text + ","}});
      lead = std::string(12, ' ');
      text = word.substr(2);
    } else {
      text += word;
    }
  }
  if (!text.empty()) out.push_back({{lead, Mark::kQuiet}, {text}});
}

void Service(const v1::TopService& service, int width, std::vector<Line>& out) {
  const std::string source =
      service.leader_source() == "configured" ? "" : absl::StrCat(" (", service.leader_source(), ")");
  out.push_back(
      {{service.name(), Mark::kTitle},
       {absl::StrCat("  ", config::FormatEndpoint(service.vip(), service.port()), "  leader ", service.leader(), source,
                     ", ")},
       {LeaderState(service.state()), MarkOf(service.state())},
       {absl::StrContains(service.requests_to(), ' ') ? absl::StrCat("; requests to ", service.requests_to()) : ""},
       {service.bypass() ? "  BYPASSED: no hedging" : "", Mark::kWarning}});
  out.push_back(
      {{absl::StrFormat("  requests  %8s/s   p50 %8s   p99 %8s   in flight %d", RateText(service.requests_per_s()),
                        Duration(service.p50_ns()), Duration(service.p99_ns()), service.in_flight())}});
  const bool over = service.budget() > 0 && service.hedge_share() > service.budget();
  out.push_back({{absl::StrFormat("  hedges    %8s/s   ", RateText(service.hedges_per_s()))},
                 {absl::StrFormat("%6s", Percent(service.hedge_share())), over ? Mark::kWarning : Mark::kPlain},
                 {absl::StrFormat(" of %s allowed  ", Percent(service.budget()))},
                 {Bar(service.hedge_share(), service.budget()), Mark::kQuiet},
                 {absl::StrFormat(" %.0f saved", service.budget_tokens()), Mark::kQuiet}});
  const bool doubles = service.extra_sends_share() > service.budget() + kBeyondBudget;
  out.push_back(
      {{absl::StrFormat("  extra     %8s/s   ", RateText(service.extra_sends_per_s()))},
       {absl::StrFormat("%6s", Percent(service.extra_sends_share())), doubles ? Mark::kWarning : Mark::kPlain},
       {" more datagrams than requests, hedges included"}});
  out.push_back(
      {{absl::StrFormat("  hedged   %8s/s   failover %s/s   losers dropped %s/s", RateText(service.hedges_won_per_s()),
                        RateText(service.failovers_won_per_s()), RateText(service.losers_dropped_per_s()))}});
  const bool bad = service.unanswered_per_s() > 0 || service.nacked_per_s() > 0;
  out.push_back({{"  lost      "},
                 {absl::StrFormat("%8s/s unanswered   %s/s negative replies", RateText(service.unanswered_per_s()),
                                  RateText(service.nacked_per_s())),
                  bad ? Mark::kAlarm : Mark::kPlain},
                 {absl::StrFormat("   unhedged %s/s", RateText(service.passed_through_per_s()))}});
  Reasons("reasons", service.reasons_per_s(), width, out);
  out.push_back({{absl::StrFormat("  %-16s %-8s %-8s %9s %9s %9s %9s", "backend", "role", "state", "sent/s", "won/s",
                                  "p50", "p99"),
                  Mark::kQuiet}});
  for (const v1::TopBackend& backend : service.backends()) {
    out.push_back({{absl::StrFormat("  %-16s %-8s ", backend.name(), backend.role())},
                   {absl::StrFormat("%-8s", backend.health()), MarkOf(backend.health())},
                   {absl::StrFormat(" %9s %9s %9s %9s", RateText(backend.sent_per_s()), RateText(backend.won_per_s()),
                                    Duration(backend.p50_ns()), Duration(backend.p99_ns()))}});
    if (!backend.one_client_health().empty())
      out.push_back(
          {{absl::StrFormat("  %-16s %s to one client, which waits there in vain", "", backend.one_client_health()),
            Mark::kWarning}});
  }
}

std::vector<Line> Programs(const v1::TopReport& report) {
  std::vector<Line> out;
  out.push_back({{absl::StrFormat("%-12s %9s %8s %7s", "program", "runs/s", "ns/run", "CPU"), Mark::kQuiet}});
  for (const v1::TopProgram& program : report.programs()) {
    const bool ran = program.runs_per_s() > 0;
    out.push_back({{absl::StrFormat(
        "%-12s %9s %8s %7s", absl::StripPrefix(program.name(), "hr_"), ran ? RateText(program.runs_per_s()) : "-",
        ran ? absl::StrFormat("%.0f", program.ns_per_run()) : "-", ran ? Percent(program.cpu_share()) : "-")}});
  }
  if (!report.programs_unknown().empty()) out.push_back({{report.programs_unknown(), Mark::kWarning}});
  return out;
}

size_t LengthOf(const Line& line) {
  size_t length = 0;
  for (const Span& span : line) length += span.text.size();
  return length;
}

// The right column beside the left one, each line of which is filled up to `width`.
void PutBeside(std::vector<Line>& left, const std::vector<Line>& right, size_t from, int width) {
  if (left.size() < from + right.size()) left.resize(from + right.size());
  for (size_t i = 0; i < right.size(); ++i) {
    Line& line = left[from + i];
    const size_t length = LengthOf(line);
    const auto wanted = static_cast<size_t>(width);
    if (length < wanted) line.push_back({std::string(wanted - length, ' ')});
    line.insert(line.end(), right[i].begin(), right[i].end());
  }
}

}  // namespace

std::string RateText(double per_second) {
  if (per_second <= 0) return "0";
  if (per_second < 10) return absl::StrFormat("%.1f", per_second);
  if (per_second < 100'000) return absl::StrFormat("%.0f", per_second);
  if (per_second < 1'000'000) return absl::StrFormat("%.0fk", per_second / 1e3);
  return absl::StrFormat("%.2fM", per_second / 1e6);
}

std::vector<Line> LayOutTop(const v1::TopReport& report, int width) {
  const bool wide = width >= kWide;
  const int services_width = wide ? kServicesWidth : width;
  std::vector<Line> out;
  out.push_back({{absl::StrCat("hedgerow ", report.instance()), Mark::kTitle},
                 {"  "},
                 {report.state(), report.state() == "running" ? Mark::kPlain : Mark::kAlarm},
                 {absl::StrCat("  ", report.time()), Mark::kQuiet}});
  for (const std::string& problem : report.problems())
    out.push_back({{absl::StrCat("PROBLEM: ", problem), Mark::kAlarm}});
  const size_t below_head = out.size() + 1;
  for (const v1::TopService& service : report.services()) {
    out.emplace_back();
    Service(service, services_width, out);
  }
  if (!report.host_reasons_per_s().empty()) {
    out.emplace_back();
    Reasons("no service", report.host_reasons_per_s(), services_width, out);
  }
  if (wide) {
    PutBeside(out, Programs(report), below_head, kServicesWidth + 2);
  } else {
    out.emplace_back();
    const std::vector<Line> programs = Programs(report);
    out.insert(out.end(), programs.begin(), programs.end());
  }
  return out;
}

}  // namespace hedgerow::cli
