// SPDX-License-Identifier: Apache-2.0
#include "proxy/page/events.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace hedgerow {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

class Comparison {
 public:
  Comparison(const Moment& earlier, const Moment& later) : earlier_(earlier), later_(later) {}

  std::vector<v1::PageEvent> Run() {
    for (const ServiceSnapshot& now : later_.snapshot.services) {
      const ServiceSnapshot* before = FindByName(earlier_.snapshot.services, now.name);
      if (before == nullptr) continue;
      Leader(*before, now);
      Health(*before, now);
      if (before->bypass != now.bypass) {
        Add("bypass", now.name, absl::StrCat("bypass switched ", now.bypass ? "on: no hedging" : "off"));
      }
      if (before->dry_run != now.dry_run) {
        Add("dry_run", now.name, absl::StrCat("dry run ", now.dry_run ? "begins: nothing is sent twice" : "ends"));
      }
      Drained(*before, now);
    }
    Host();
    return std::move(events_);
  }

 private:
  v1::PageEvent& Add(const char* kind, const std::string& service, std::string text) {
    v1::PageEvent event;
    event.set_at_ms(later_.wall_ms);
    event.set_kind(kind);
    event.set_service(service);
    event.set_text(std::move(text));
    events_.push_back(std::move(event));
    return events_.back();
  }

  static std::string LeaderName(const ServiceSnapshot& service) {
    const size_t index = service.leader.leader;
    return index < service.backends.size() ? service.backends[index].name : "?";
  }

  // When the entry was written, on the wall clock; never before the earlier moment.
  int64_t WrittenMs(const ServiceSnapshot& now) const {
    const uint64_t taken_ns = later_.snapshot.taken_ns;
    if (now.leader.updated_ns == 0 || now.leader.updated_ns > taken_ns) return later_.wall_ms;
    const auto age_ms = static_cast<int64_t>((taken_ns - now.leader.updated_ns) / kNsPerMs);
    return std::max(later_.wall_ms - age_ms, std::min(earlier_.wall_ms, later_.wall_ms));
  }

  void Leader(const ServiceSnapshot& before, const ServiceSnapshot& now) {
    const std::string from = LeaderName(before);
    const std::string to = LeaderName(now);
    const uint64_t announced =
        now.stats.counters[HR_LEADER_CHANGES] -
        std::min(now.stats.counters[HR_LEADER_CHANGES], before.stats.counters[HR_LEADER_CHANGES]);
    const bool moved = from != to;
    // There and back again within the second, or several times.
    const bool returned = !moved && announced > 0;
    const bool elected_again = !moved && !returned && now.leader.term != before.leader.term;
    const bool pinned = now.leader.pinned != 0;
    if (!moved && pinned != (before.leader.pinned != 0)) {
      Add("pin", now.name, absl::StrCat(to, pinned ? " is pinned by an administrator" : " is no longer pinned"));
    }
    if (!moved && !returned && !elected_again) return;
    std::string text = moved      ? absl::StrCat(to, " leads, after ", from)
                       : returned ? absl::StrCat(to, " leads again after ", announced, " changes")
                                  : absl::StrCat(to, " was elected again");
    if (moved && pinned) {
      absl::StrAppend(&text, ": pinned by an administrator");
    } else if (moved && before.leader.pinned != 0) {
      absl::StrAppend(&text, ": no longer pinned");
    } else if (now.leader.announced_ns != 0) {
      absl::StrAppend(&text, ": announced in term ", now.leader.term,
                      moved && announced > 1 ? absl::StrCat(", ", announced, " changes in this second") : "");
    }
    v1::PageEvent& event = Add(elected_again ? "term" : "leader", now.name, std::move(text));
    event.set_at_ms(WrittenMs(now));
    event.set_from(from);
    event.set_to(to);
    event.set_term(now.leader.term);
  }

  void Drained(const ServiceSnapshot& before, const ServiceSnapshot& now) {
    for (const BackendSnapshot& backend : now.backends) {
      const BackendSnapshot* old = FindByName(before.backends, backend.name);
      if (old == nullptr || old->drained == backend.drained) continue;
      Add("drain", now.name,
          absl::StrCat(backend.name, backend.drained ? " is drained: it gets nothing new" : " serves again"))
          .set_backend(backend.name);
    }
  }

  void Health(const ServiceSnapshot& before, const ServiceSnapshot& now) {
    bool changed = false;
    for (const BackendSnapshot& backend : now.backends) {
      const BackendSnapshot* old = FindByName(before.backends, backend.name);
      if (old == nullptr || old->health == backend.health) continue;
      changed = true;
      const char* words = backend.health == HR_HEALTHY    ? " answers again"
                          : backend.health == HR_IMPAIRED ? " fails at what another backend answers"
                          : now.dry_run                   ? " is silent: dry run, no other backend is asked"
                          : backend.health == HR_SUSPECT  ? " is suspect: requests go to it and to a standby"
                                                          : " is down: requests go to a standby";
      v1::PageEvent& event = Add("health", now.name, absl::StrCat(backend.name, words));
      event.set_backend(backend.name);
      event.set_from(HealthWord(old->health));
      event.set_to(HealthWord(backend.health));
    }
    const uint64_t was = before.stats.counters[HR_SUSPECTED];
    const uint64_t is = now.stats.counters[HR_SUSPECTED];
    if (changed || is <= was) return;
    v1::PageEvent& event = Add(
        "health", now.name,
        absl::StrCat("a backend was suspect for a moment", is - was > 1 ? absl::StrCat(", ", is - was, " times") : ""));
    event.set_from(HealthWord(HR_HEALTHY));
    event.set_to(HealthWord(HR_HEALTHY));
  }

  void Host() {
    const auto has = [](const std::vector<Problem>& list, const Problem& item) {
      return std::find(list.begin(), list.end(), item) != list.end();
    };
    for (const Problem& problem : later_.facts.problems) {
      if (!has(earlier_.facts.problems, problem)) Add("problem", "", problem.ToString());
    }
    for (const Problem& problem : earlier_.facts.problems) {
      if (!has(later_.facts.problems, problem)) Add("solved", "", absl::StrCat("no longer: ", problem.ToString()));
    }
    const uint64_t routes = later_.facts.routes_restored - earlier_.facts.routes_restored;
    const uint64_t links = later_.facts.links_restored - earlier_.facts.links_restored;
    if (routes + links > 0) {
      Add("restored", "",
          absl::StrCat("put back what was removed from outside: ", routes, " routes, ", links, " links"));
    }
  }

  const Moment& earlier_;
  const Moment& later_;
  std::vector<v1::PageEvent> events_;
};

}  // namespace

std::vector<v1::PageEvent> EventsBetween(const Moment& earlier, const Moment& later) {
  return Comparison(earlier, later).Run();
}

}  // namespace hedgerow
