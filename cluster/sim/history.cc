// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/history.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace hedgerow::sim {
namespace {

// Gibbons and Korach, Testing Shared Memories (SIAM J. Comput. 26, 1997), section 4.2: all operations on one
// value form a zone. A forward zone is one in which some operation ended before another began: the value must
// have been there in between. Otherwise there is an instant that lies in all of them, and the zone is backward.
struct Zone {
  uint64_t first_end_ns = UINT64_MAX;
  uint64_t last_begin_ns = 0;
  bool written = false;
  uint64_t write_begin_ns = 0;
  bool read = false;
  uint64_t first_read_end_ns = UINT64_MAX;

  bool forward() const { return first_end_ns < last_begin_ns; }
};

std::map<uint64_t, Zone> ZonesOf(const std::vector<RegisterOperation>& operations) {
  std::map<uint64_t, Zone> zones;
  for (const RegisterOperation& operation : operations) {
    if (!operation.write && operation.span.answered_ns == UINT64_MAX) continue;  // a read that told nothing
    Zone& zone = zones[operation.value];
    zone.first_end_ns = std::min(zone.first_end_ns, operation.span.answered_ns);
    zone.last_begin_ns = std::max(zone.last_begin_ns, operation.span.invoked_ns);
    if (operation.write) {
      zone.written = true;
      zone.write_begin_ns = operation.span.invoked_ns;
    } else {
      zone.read = true;
      zone.first_read_end_ns = std::min(zone.first_read_end_ns, operation.span.answered_ns);
    }
  }
  if (const auto initial = zones.find(0); initial != zones.end()) {
    // As if written and answered before time began.
    initial->second.written = true;
    initial->second.first_end_ns = 0;
  }
  // A write without an answer that was never read may be put at the very end.
  std::erase_if(zones, [](const auto& zone) { return zone.second.first_end_ns == UINT64_MAX; });
  return zones;
}

// When an answer first said that the counter had reached `value`; UINT64_MAX: none did.
class FirstSeen {
 public:
  explicit FirstSeen(const std::vector<CounterOperation>& operations) {
    for (const CounterOperation& operation : operations) {
      if (operation.observed.has_value()) seen_.emplace_back(*operation.observed, operation.span.answered_ns);
    }
    std::sort(seen_.begin(), seen_.end());
    for (size_t i = seen_.size(); i-- > 1;) {
      seen_[i - 1].second = std::min(seen_[i - 1].second, seen_[i].second);
    }
  }
  uint64_t AsFarAs_ns(int64_t value) const {
    const auto found = std::lower_bound(seen_.begin(), seen_.end(), std::pair<int64_t, uint64_t>(value, 0));
    return found == seen_.end() ? UINT64_MAX : found->second;
  }

 private:
  std::vector<std::pair<int64_t, uint64_t>> seen_;
};

}  // namespace

// Each number up to the last was made by one increment. Those that no answer names were made by increments
// without an answer, each of which had begun when the counter was first seen to have come that far. Both lists
// are in order of time, so giving the earliest to the earliest leaves as few as possible without one.
CounterFaults CountFaults(const std::vector<CounterOperation>& operations, int64_t final_value) {
  CounterFaults faults;
  std::set<int64_t> seen;
  std::vector<uint64_t> open;
  for (const CounterOperation& operation : operations) {
    if (!operation.increment) continue;
    if (!operation.observed.has_value()) {
      open.push_back(operation.span.invoked_ns);
    } else if (!seen.insert(*operation.observed).second || *operation.observed > final_value) {
      ++faults.lost;
    }
  }
  std::sort(open.begin(), open.end());
  const FirstSeen first_seen(operations);
  size_t used = 0;
  for (int64_t value = 1; value <= final_value; ++value) {
    if (seen.contains(value)) continue;
    if (used < open.size() && open[used] <= first_seen.AsFarAs_ns(value)) {
      ++used;
    } else {
      ++faults.doubled;
    }
  }
  return faults;
}

std::string CheckCounter(std::vector<CounterOperation> operations, int64_t final_value) {
  std::set<int64_t> values;
  int64_t open = 0;
  for (const CounterOperation& operation : operations) {
    if (!operation.increment) continue;
    if (!operation.observed.has_value()) {
      ++open;
    } else if (!values.insert(*operation.observed).second) {
      return absl::StrCat("two increments were both answered ", *operation.observed);
    }
  }
  const auto answered = static_cast<int64_t>(values.size());
  if (final_value < answered || (!values.empty() && *values.rbegin() > final_value)) {
    return absl::StrCat("an acknowledged increment is lost: ", answered, " were answered, the largest ",
                        values.empty() ? 0 : *values.rbegin(), ", the counter stands at ", final_value);
  }
  if (final_value > answered + open) {
    return absl::StrCat("an increment was applied twice: ", answered, " were answered and ", open,
                        " are open, the counter stands at ", final_value);
  }
  for (const CounterOperation& operation : operations) {
    if (operation.observed.value_or(0) <= final_value) continue;
    return absl::StrCat("the counter was read as ", *operation.observed, " and stands at ", final_value);
  }
  if (CountFaults(operations, final_value).doubled > 0) {
    return absl::StrCat(
        "an increment was applied twice: the counter was seen to have come further than increments had "
        "begun by then; it stands at ",
        final_value);
  }
  // An operation that begins after another has ended sees at least as much; an increment, more.
  std::erase_if(operations, [](const CounterOperation& operation) { return !operation.observed.has_value(); });
  std::vector<CounterOperation> by_end = operations;
  std::sort(operations.begin(), operations.end(),
            [](const auto& a, const auto& b) { return a.span.invoked_ns < b.span.invoked_ns; });
  std::sort(by_end.begin(), by_end.end(),
            [](const auto& a, const auto& b) { return a.span.answered_ns < b.span.answered_ns; });
  size_t ended = 0;
  int64_t seen = 0;
  for (const CounterOperation& operation : operations) {
    for (; ended < by_end.size() && by_end[ended].span.answered_ns < operation.span.invoked_ns; ++ended) {
      seen = std::max(seen, *by_end[ended].observed);
    }
    if (*operation.observed >= seen + (operation.increment ? 1 : 0)) continue;
    return absl::StrCat(operation.increment ? "an increment" : "a stale read", " at ", operation.span.invoked_ns,
                        " ns saw ", *operation.observed, " after ", seen, " had been seen");
  }
  return {};
}

std::string CheckRegister(const std::vector<RegisterOperation>& operations) {
  const std::map<uint64_t, Zone> zones = ZonesOf(operations);
  std::vector<std::pair<uint64_t, const Zone*>> forward;
  std::vector<std::pair<uint64_t, const Zone*>> backward;
  for (const auto& [value, zone] : zones) {
    if (!zone.written) return absl::StrCat("read ", value, ", which was never written");
    if (zone.read && zone.first_read_end_ns < zone.write_begin_ns) {
      return absl::StrCat("read ", value, " before it was written");
    }
    (zone.forward() ? forward : backward).emplace_back(value, &zone);
  }
  std::sort(forward.begin(), forward.end(),
            [](const auto& a, const auto& b) { return a.second->first_end_ns < b.second->first_end_ns; });
  for (size_t i = 1; i < forward.size(); ++i) {
    if (forward[i].second->first_end_ns < forward[i - 1].second->last_begin_ns) {
      return absl::StrCat("values ", forward[i - 1].first, " and ", forward[i].first,
                          " were both there at the same time: a stale read");
    }
  }
  for (const auto& [value, zone] : backward) {
    // The forward zones are apart and in order: only the last that begins before this one can enclose it.
    const auto after =
        std::upper_bound(forward.begin(), forward.end(), zone->last_begin_ns,
                         [](uint64_t begin_ns, const auto& other) { return begin_ns < other.second->first_end_ns; });
    if (after == forward.begin()) continue;
    const auto& [other_value, other] = *std::prev(after);
    if (other->first_end_ns < zone->last_begin_ns && zone->first_end_ns < other->last_begin_ns) {
      return absl::StrCat("value ", value, " came and went while ", other_value, " was there: a stale read");
    }
  }
  return {};
}

size_t History::InvokeCounter(const std::string& key, uint64_t now_ns, bool increment) {
  std::vector<CounterOperation>& operations = counters_[key];
  operations.push_back({.span = {.invoked_ns = now_ns}, .increment = increment, .observed = {}});
  return operations.size() - 1;
}

size_t History::InvokeRegister(const std::string& key, uint64_t now_ns, bool write, uint64_t value) {
  std::vector<RegisterOperation>& operations = registers_[key];
  operations.push_back({.span = {.invoked_ns = now_ns}, .write = write, .value = value});
  return operations.size() - 1;
}

void History::AnswerCounter(const std::string& key, size_t operation, uint64_t now_ns, int64_t observed) {
  CounterOperation& record = counters_.at(key).at(operation);
  record.span.answered_ns = now_ns;
  record.observed = observed;
}

void History::AnswerRegister(const std::string& key, size_t operation, uint64_t now_ns, uint64_t value) {
  RegisterOperation& record = registers_.at(key).at(operation);
  record.span.answered_ns = now_ns;
  if (!record.write) record.value = value;
}

void History::Replaced(const std::string& key, uint64_t expected) {
  if (++replaced_[key][expected] > 1 && violation_.empty()) {
    violation_ = absl::StrCat(key, ": two compare-and-sets replaced the same value ", expected);
  }
}

}  // namespace hedgerow::sim
