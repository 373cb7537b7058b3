// SPDX-License-Identifier: Apache-2.0
#include "proxy/trace/timeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hedgerow {
namespace {

// Events of several processors come a little out of order, and the daemon looks every 50 ms.
constexpr int64_t kSlack_ns = 250'000'000;

bool Contains(const google::protobuf::RepeatedPtrField<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Every backend that was sent it has replied: no reply is outstanding.
bool AllHaveReplied(const v1::TraceEvent& event) {
  return std::all_of(event.sent_to().begin(), event.sent_to().end(),
                     [&](const std::string& backend) { return Contains(event.answered(), backend); });
}

bool IsEarlier(const v1::TraceEvent& a, const v1::TraceEvent& b) {
  return a.request().empty() ? a.time_ns() < b.time_ns() : a.number() < b.number();
}

// The last that happened, of those that have come.
const v1::TraceEvent& Latest(const v1::TracedRequest& request) {
  return *std::max_element(request.events().begin(), request.events().end(), IsEarlier);
}

const v1::TraceEvent* FirstOf(const v1::TracedRequest& request, const std::string& kind) {
  const auto found = std::find_if(request.events().begin(), request.events().end(),
                                  [&](const v1::TraceEvent& event) { return event.kind() == kind; });
  return found == request.events().end() ? nullptr : &*found;
}

// How a request with an answer was won.
std::string WonBy(const v1::TraceEvent& answer) {
  if (answer.request().empty()) return "passed";
  if (answer.state() == "nacked") return "nacked";
  if (answer.state() == "expired") return "late";
  if (answer.failover()) return "failover";
  return answer.backend() == answer.first() ? "first" : "hedge";
}

std::string Unanswered(const v1::TracedRequest& request) {
  const v1::TraceEvent& last = Latest(request);
  if (last.kind() == "passed") return "passed";
  if (last.request().empty()) return "late";
  if (last.state() == "expired") return "unanswered";
  return "unknown";
}

bool HasAGap(const v1::TracedRequest& request) {
  for (int i = 0; i < request.events_size(); ++i) {
    if (!request.events(i).request().empty() && request.events(i).number() != static_cast<uint32_t>(i + 1)) return true;
  }
  return false;
}

}  // namespace

void Timelines::SetServices(const v1::TraceReply& reply) {
  for (const v1::TraceService& service : reply.services())
    services_[service.name()] = {.deadline_ns = service.deadline_ns(), .retention_ns = service.retention_ns()};
}

Timelines::Limits Timelines::LimitsOf(const std::string& service) const {
  const auto found = services_.find(service);
  return found == services_.end() ? Limits() : found->second;
}

// Untracked packets of one client with one key belong together: the request, and its answer.
std::string Timelines::IdOf(const v1::TraceEvent& event) {
  if (!event.request().empty()) return event.request();
  return absl::StrCat(event.service(), " ", event.client(), " ", event.client_port(), " ", event.key());
}

void Timelines::Add(const v1::TraceEvent& event) {
  auto [place, fresh] = held_.try_emplace(IdOf(event));
  Held& held = place->second;
  // The same key once more: another request.
  if (held.taken && event.request().empty()) {
    held = Held();
    fresh = true;
  }
  if (held.taken) return;
  if (fresh) {
    held.sent_ns = event.time_ns() - event.since_ns();
    held.request.set_service(event.service());
    held.request.set_client(event.client());
    held.request.set_client_port(event.client_port());
    held.request.set_key(event.key());
  }
  held.last_ns = std::max(held.last_ns, event.time_ns());
  *held.request.add_events() = event;
  if (!event.request().empty()) return;
  // An untracked answer counts from its request.
  v1::TraceEvent& added = *held.request.mutable_events(held.request.events_size() - 1);
  added.set_since_ns(event.time_ns() - held.sent_ns);
}

bool Timelines::Finished(const Held& held, int64_t now_ns) const {
  const Limits limits = LimitsOf(held.request.service());
  const v1::TraceEvent& last = Latest(held.request);
  if (now_ns > held.sent_ns + limits.deadline_ns + limits.retention_ns + kSlack_ns) return true;
  if (now_ns < held.last_ns + kSlack_ns) return false;  // what another processor saw before may still come
  if (last.request().empty()) return last.kind() != "passed" || last.reason() == "retransmission";
  if (last.state() == "answered" || last.state() == "nacked")
    return AllHaveReplied(last) || now_ns > held.last_ns + limits.retention_ns + kSlack_ns;
  return last.state() == "expired" && now_ns > held.last_ns + limits.retention_ns + kSlack_ns;
}

v1::TracedRequest Timelines::Finish(Held& held, bool complete) {
  held.taken = true;
  v1::TracedRequest request = std::exchange(held.request, {});
  auto& events = *request.mutable_events();
  std::stable_sort(events.pointer_begin(), events.pointer_end(),
                   [](const v1::TraceEvent* a, const v1::TraceEvent* b) { return IsEarlier(*a, *b); });
  const v1::TraceEvent* answer = FirstOf(request, "answer");
  const v1::TraceEvent* passed = FirstOf(request, "passed");
  if (passed != nullptr) request.set_reason(passed->reason());
  if (answer != nullptr) {
    request.set_outcome(WonBy(*answer));
    request.set_answered_by(answer->backend());
    if (!answer->request().empty() || passed != nullptr) request.set_latency_ns(answer->since_ns());
  } else {
    request.set_outcome(Unanswered(request));
  }
  request.set_complete(complete && !HasAGap(request));
  return request;
}

std::vector<v1::TracedRequest> Timelines::FinishAll(std::vector<Held*>& all, bool over) {
  std::sort(all.begin(), all.end(), [](const Held* a, const Held* b) { return a->sent_ns < b->sent_ns; });
  std::vector<v1::TracedRequest> requests;
  for (Held* held : all) requests.push_back(Finish(*held, over && Latest(held->request).state() != "pending"));
  return requests;
}

std::vector<v1::TracedRequest> Timelines::TakeFinished(int64_t now_ns) {
  std::vector<Held*> finished;
  for (auto place = held_.begin(); place != held_.end();) {
    Held& held = place->second;
    const Limits limits = LimitsOf(held.request.service());
    if (held.taken) {
      // Kept for as long as its winner's further datagrams may come.
      const bool over = now_ns > held.last_ns + limits.deadline_ns + limits.retention_ns;
      place = over ? held_.erase(place) : std::next(place);
      continue;
    }
    if (held_.size() > kMaxHeld || Finished(held, now_ns)) finished.push_back(&held);
    ++place;
  }
  return FinishAll(finished, /*over=*/true);
}

std::vector<v1::TracedRequest> Timelines::TakeAll() {
  std::vector<Held*> all;
  for (auto& [id, held] : held_) {
    if (!held.taken) all.push_back(&held);
  }
  return FinishAll(all, /*over=*/false);
}

}  // namespace hedgerow
