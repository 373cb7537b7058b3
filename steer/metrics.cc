// SPDX-License-Identifier: Apache-2.0
#include "steer/metrics.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operate/metric_family.h"

namespace hedgerow::steer {
namespace {

using operate::Labels;
using prometheus::MetricType;

// One value of each slot; `transport` is a label where it is not empty.
struct SlotValue {
  const char* name;
  MetricType type;
  const char* help;
  const char* transport;
  double (*value)(const v1::Slot&);
};

// Rows of one name stand together.
constexpr SlotValue kSlotValues[] = {
    {"hedgerow_steer_selected_total", MetricType::Counter,
     "datagrams and connections that were given to the slot, by `transport`", "udp",
     [](const v1::Slot& slot) { return static_cast<double>(slot.selected_udp()); }},
    {"hedgerow_steer_selected_total", MetricType::Counter, "", "tcp",
     [](const v1::Slot& slot) { return static_cast<double>(slot.selected_tcp()); }},
    {"hedgerow_steer_empty_total", MetricType::Counter,
     "packets of the slot's sources that came while it was empty, by `transport`: what happened to them, `--empty` "
     "says",
     "udp", [](const v1::Slot& slot) { return static_cast<double>(slot.empty_udp()); }},
    {"hedgerow_steer_empty_total", MetricType::Counter, "", "tcp",
     [](const v1::Slot& slot) { return static_cast<double>(slot.empty_tcp()); }},
    {"hedgerow_steer_migrated_total", MetricType::Counter,
     "connections that came to the slot because their listener closed before it accepted them", "",
     [](const v1::Slot& slot) { return static_cast<double>(slot.migrated()); }},
    {"hedgerow_steer_socket_drops_total", MetricType::Counter,
     "datagrams that the full queue of the slot's socket dropped", "",
     [](const v1::Slot& slot) { return static_cast<double>(slot.udp_dropped()); }},
    {"hedgerow_steer_udp_queued_bytes", MetricType::Gauge, "memory of the datagrams that wait in the slot's socket", "",
     [](const v1::Slot& slot) { return static_cast<double>(slot.udp_queued_bytes()); }},
    {"hedgerow_steer_tcp_backlog", MetricType::Gauge, "connections of the slot that wait to be accepted", "",
     [](const v1::Slot& slot) { return static_cast<double>(slot.tcp_backlog()); }},
    {"hedgerow_steer_worker_restarts_total", MetricType::Counter, "workers of the slot that were started again", "",
     [](const v1::Slot& slot) { return static_cast<double>(slot.restarts()); }},
    {"hedgerow_steer_slot_buckets", MetricType::Gauge, "buckets of the slot, of 1,024", "",
     [](const v1::Slot& slot) { return static_cast<double>(slot.buckets()); }},
    {"hedgerow_steer_slot_up", MetricType::Gauge, "1 while the slot has a worker that is not silent", "",
     [](const v1::Slot& slot) { return slot.pid() != 0 && slot.state() != "silent" ? 1.0 : 0.0; }},
};

// 1 where the group has a problem of the kind.
double HasProblem(const v1::Group& group, absl::string_view kind) {
  return std::any_of(group.problems().begin(), group.problems().end(),
                     [kind](const std::string& each) { return absl::StartsWith(each, kind); })
             ? 1
             : 0;
}

// Of the group.
struct GroupValue {
  const char* name;
  MetricType type;
  const char* help;
  double (*value)(const v1::Group&);
};

constexpr GroupValue kGroupValues[] = {
    {"hedgerow_steer_pinned_sources", MetricType::Gauge,
     "sources that stay with a slot because of an open connection, while their bucket has moved",
     [](const v1::Group& group) { return static_cast<double>(group.pinned_sources()); }},
    {"hedgerow_steer_pinned_total", MetricType::Counter, "datagrams and connections of such sources",
     [](const v1::Group& group) { return static_cast<double>(group.pinned()); }},
    {"hedgerow_steer_pins_full_total", MetricType::Counter,
     "sources with open connections whose UDP packets do not stay with these, because 16,384 others' do",
     [](const v1::Group& group) { return static_cast<double>(group.pins_full()); }},
    {"hedgerow_steer_sessions_total", MetricType::Counter, "first datagrams of sessions (`--sessions`)",
     [](const v1::Group& group) { return static_cast<double>(group.sessions_opened()); }},
    {"hedgerow_steer_sessions_kept_total", MetricType::Counter,
     "datagrams given to their session's worker, not by the table",
     [](const v1::Group& group) { return static_cast<double>(group.sessions_kept()); }},
    {"hedgerow_steer_unreadable_total", MetricType::Counter, "packets whose source could not be read: rejected",
     [](const v1::Group& group) { return static_cast<double>(group.unreadable()); }},
    {"hedgerow_steer_taken_over", MetricType::Gauge, "1 while a foreign program chooses the sockets of the group",
     [](const v1::Group& group) { return HasProblem(group, "takeover:"); }},
    {"hedgerow_steer_problems", MetricType::Gauge, "problems that `hedgerow steer show` lists",
     [](const v1::Group& group) { return static_cast<double>(group.problems_size()); }},
};

void Add(prometheus::MetricFamily& family, Labels labels, double value) {
  prometheus::ClientMetric& metric = operate::AddSample(family, std::move(labels));
  if (family.type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

}  // namespace

operate::MetricFamilies FamiliesOf(const v1::Group& group, const LoopTurns& turns) {
  operate::MetricFamilies families;
  for (const SlotValue& row : kSlotValues) {
    if (families.empty() || families.back().name != row.name)
      families.push_back(operate::MakeFamily(row.name, row.help, row.type));
    for (const v1::Slot& slot : group.slots()) {
      Labels labels = {{"group", group.name()}, {"slot", absl::StrCat(slot.slot())}};
      if (row.transport[0] != '\0') labels.push_back({"transport", row.transport});
      Add(families.back(), std::move(labels), row.value(slot));
    }
  }
  for (const GroupValue& row : kGroupValues) {
    families.push_back(operate::MakeFamily(row.name, row.help, row.type));
    Add(families.back(), {{"group", group.name()}}, row.value(group));
  }
  families.push_back(
      operate::MakeFamily("hedgerow_steer_loop_turns_total", operate::kLoopTurnsHelp, MetricType::Counter));
  operate::AddLoopTurns(families.back(), {{"group", group.name()}}, turns);
  return families;
}

absl::StatusOr<std::unique_ptr<operate::HttpServer>> ServeMetrics(const std::string& listen,
                                                                  const operate::HttpAccess& access, EventLoop& loop,
                                                                  Control& control) {
  const auto collect = [&loop, &control]() -> absl::StatusOr<operate::MetricFamilies> {
    using Families = operate::MetricFamilies;
    return loop.Call<Families>(absl::Seconds(5), [&loop, &control]() -> absl::StatusOr<Families> {
      const auto group = control.Show(false);
      if (!group.ok()) return group.status();
      return FamiliesOf(*group, loop.turns());
    });
  };
  return operate::ServeMetricsPage(listen, "--metrics", collect, {}, access);
}

}  // namespace hedgerow::steer
