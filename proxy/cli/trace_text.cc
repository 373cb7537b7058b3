// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/trace_text.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "config/scalar.h"
#include "config/address.h"

namespace hedgerow::cli {
namespace {

std::string Duration(int64_t ns) { return ns == 0 ? "0" : config::RoundedDurationNs(ns); }

std::string Clock(int64_t unix_ns) {
  return absl::FormatTime("%H:%M:%E6S", absl::FromUnixNanos(unix_ns), absl::LocalTimeZone());
}

std::string Because(const std::string& reason) { return reason.empty() ? "" : absl::StrCat(": ", reason); }

// A first event that is no beginning: what the fields tell of what came before.
std::string Before(const v1::TraceEvent& event) {
  std::string text = absl::StrCat("0 to ", event.first());
  if (event.kind() != "hedge" && event.fire_ns() > 0 && event.sent_to_size() > 1) {
    std::vector<std::string> others;
    for (const std::string& backend : event.sent_to()) {
      if (backend != event.first() && backend != event.backend()) others.push_back(backend);
    }
    if (event.backend() != event.first() && others.empty()) others.push_back(event.backend());
    absl::StrAppend(&text, " | ", Duration(event.fire_ns()), " due, to ", absl::StrJoin(others, ", "));
  }
  return text;
}

// A beginning is told some microseconds after it was seen: noise.
int64_t Since(const v1::TraceEvent& event) {
  return event.kind() == "split" || event.kind() == "passed" ? 0 : event.since_ns();
}

bool IsBeginning(const v1::TraceEvent& event) { return event.kind() == "split" || event.request().empty(); }

std::string Refusal(const v1::TraceEvent& event) {
  return absl::StrCat(event.icmp() ? "ICMP unreachable about " : "negative reply from ", event.backend());
}

std::string Outcome(const v1::TracedRequest& request) {
  std::string text = request.outcome();
  if (text == "passed") {
    text = absl::StrCat("unhedged", Because(request.reason()));
    if (!request.answered_by().empty()) absl::StrAppend(&text, ", ", request.answered_by());
  } else if (!request.answered_by().empty()) {
    absl::StrAppend(&text, " ", request.answered_by());
  }
  return text;
}

}  // namespace

std::string StepText(const v1::TraceEvent& event) {
  const std::string& kind = event.kind();
  const std::string& backend = event.backend();
  if (kind == "split")
    return absl::StrCat("to ", backend, event.failover() ? " (around the leader)" : "", ", parked for ",
                        config::FormatDurationNs(event.due_ns()));
  if (kind == "passed") return absl::StrCat("to ", backend, ", not parked", Because(event.reason()));
  if (kind == "copy") return absl::StrCat("copy at once to ", backend, event.idle() ? " (both are idle)" : "");
  if (kind == "due") return "due, no answer yet";
  if (kind == "hedge")
    return absl::StrCat(event.failover() ? "failover to " : "hedge to ", backend, event.hinted() ? " (hinted)" : "");
  if (kind == "no_hedge") return absl::StrCat("no hedge", Because(event.reason()));
  if (kind == "release") return absl::StrCat("next attempt to ", backend, event.hinted() ? " (hinted)" : "");
  if (kind == "handover") return absl::StrCat("handed to the new leader ", backend);
  if (kind == "answer") {
    if (event.request().empty()) return absl::StrCat("answer of ", backend, ", unjudged");
    if (event.state() == "nacked") return absl::StrCat(Refusal(event), ", the last: given to the client");
    return absl::StrCat(event.state() == "expired" ? "late answer of " : "answer of ", backend);
  }
  if (kind == "nack") return absl::StrCat(Refusal(event), ", dropped");
  if (kind == "dropped")
    return absl::StrCat(event.reason() == "loser" || event.reason() == "late" ? "loser " : "", backend, " dropped",
                        event.reason() == "loser" ? "" : Because(event.reason()));
  if (kind == "expired") return "deadline, no answer";
  return kind;
}

std::string EventLine(const v1::TraceEvent& event, int64_t unix_ns) {
  return absl::StrFormat("%s  %8s  %s  %s  %s  %s\n", Clock(unix_ns),
                         Since(event) == 0 ? "0" : absl::StrCat("+", Duration(Since(event))), event.service(),
                         config::FormatEndpoint(event.client(), event.client_port()), event.key(), StepText(event));
}

std::string RequestLine(const v1::TracedRequest& request, int64_t unix_ns) {
  std::vector<std::string> steps;
  for (const v1::TraceEvent& event : request.events()) {
    if (steps.empty() && !IsBeginning(event)) steps.push_back(Before(event));
    steps.push_back(absl::StrCat(Duration(Since(event)), " ", StepText(event)));
  }
  return absl::StrCat(
      Clock(unix_ns), "  ", request.service(), "  ", config::FormatEndpoint(request.client(), request.client_port()),
      "  ", request.key(), "  ", request.latency_ns() > 0 ? absl::StrCat(Duration(request.latency_ns()), " ") : "",
      Outcome(request), request.complete() ? "" : " (incomplete)", " | ", absl::StrJoin(steps, " | "), "\n");
}

}  // namespace hedgerow::cli
