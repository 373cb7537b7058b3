// SPDX-License-Identifier: Apache-2.0
#include "steer/metrics.h"

#include <algorithm>
#include <utility>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operate/metric_family.h"

namespace hedgerow::steer {
namespace {

using operate::Labels;
using prometheus::MetricType;

// A field of v1::Slot, or of v1::Group, as a series. Counters end in _total.
struct Row {
  const char* name;
  const char* field;
  const char* transport;  // a label, where it is not empty; rows of one name stand together
  const char* help;
};

constexpr Row kOfSlots[] = {
    {"hedgerow_steer_selected_total", "selected_udp", "udp",
     "datagrams and connections that were given to the slot, by `transport`"},
    {"hedgerow_steer_selected_total", "selected_tcp", "tcp", ""},
    {"hedgerow_steer_empty_total", "empty_udp", "udp",
     "packets of the slot's sources that came while it was empty, by `transport`: what happened to them, `--empty` "
     "says"},
    {"hedgerow_steer_empty_total", "empty_tcp", "tcp", ""},
    {"hedgerow_steer_migrated_total", "migrated", "",
     "connections that came to the slot because their listener closed before it accepted them"},
    {"hedgerow_steer_socket_drops_total", "udp_dropped", "",
     "datagrams that the full queue of the slot's socket dropped"},
    {"hedgerow_steer_udp_queued_bytes", "udp_queued_bytes", "",
     "memory of the datagrams that wait in the slot's socket"},
    {"hedgerow_steer_tcp_backlog", "tcp_backlog", "", "connections of the slot that wait to be accepted"},
    {"hedgerow_steer_worker_restarts_total", "restarts", "", "workers of the slot that were started again"},
    {"hedgerow_steer_slot_buckets", "buckets", "", "buckets of the slot, of 1,024"},
};

constexpr Row kOfGroup[] = {
    {"hedgerow_steer_pinned_sources", "pinned_sources", "",
     "sources that stay with a slot because of an open connection, while their bucket has moved"},
    {"hedgerow_steer_pinned_total", "pinned", "", "datagrams and connections of such sources"},
    {"hedgerow_steer_pins_full_total", "pins_full", "",
     "sources with open connections whose UDP packets do not stay with these, because 16,384 others' do"},
    {"hedgerow_steer_sessions_total", "sessions_opened", "", "first datagrams of sessions (`--sessions`)"},
    {"hedgerow_steer_sessions_kept_total", "sessions_kept", "",
     "datagrams given to their session's worker, not by the table"},
    {"hedgerow_steer_unreadable_total", "unreadable", "", "packets whose source could not be read: rejected"},
    {"hedgerow_steer_problems", "problems", "", "problems that `hedgerow steer show` lists"},
};

double ValueOf(const google::protobuf::Message& message, const char* name) {
  const auto* const field = message.GetDescriptor()->FindFieldByName(name);
  const auto* const reflection = message.GetReflection();
  if (field->is_repeated()) return reflection->FieldSize(message, field);
  return field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT64
             ? static_cast<double>(reflection->GetUInt64(message, field))
             : reflection->GetUInt32(message, field);
}

void Add(operate::MetricFamilies& families, const Row& row, const google::protobuf::Message& message, Labels labels) {
  const bool counts = absl::EndsWith(row.name, "_total");
  if (families.empty() || families.back().name != row.name)
    families.push_back(operate::MakeFamily(row.name, row.help, counts ? MetricType::Counter : MetricType::Gauge));
  if (row.transport[0] != '\0') labels.push_back({"transport", row.transport});
  prometheus::ClientMetric& metric = operate::AddSample(families.back(), std::move(labels));
  (counts ? metric.counter.value : metric.gauge.value) = ValueOf(message, row.field);
}

}  // namespace

operate::MetricFamilies FamiliesOf(const v1::Group& group, const LoopTurns& turns) {
  operate::MetricFamilies families;
  const Labels of_group = {{"group", group.name()}};
  const auto labels_of = [&group](const v1::Slot& slot) {
    return Labels{{"group", group.name()}, {"slot", absl::StrCat(slot.slot())}};
  };
  for (const Row& row : kOfSlots) {
    for (const v1::Slot& slot : group.slots()) Add(families, row, slot, labels_of(slot));
  }
  families.push_back(operate::MakeFamily("hedgerow_steer_slot_up", "1 while the slot has a worker that is not silent",
                                         MetricType::Gauge));
  for (const v1::Slot& slot : group.slots())
    operate::AddGauge(families.back(), labels_of(slot), slot.pid() != 0 && slot.state() != "silent");
  for (const Row& row : kOfGroup) Add(families, row, group, of_group);
  families.push_back(operate::MakeFamily(
      "hedgerow_steer_taken_over", "1 while a foreign program chooses the sockets of the group", MetricType::Gauge));
  operate::AddGauge(families.back(), of_group,
                    std::any_of(group.problems().begin(), group.problems().end(),
                                [](const std::string& each) { return absl::StartsWith(each, "takeover:"); }));
  families.push_back(
      operate::MakeFamily("hedgerow_steer_loop_turns_total", operate::kLoopTurnsHelp, MetricType::Counter));
  operate::AddLoopTurns(families.back(), of_group, turns);
  return families;
}

absl::StatusOr<std::unique_ptr<operate::HttpServer>> ServeMetrics(const std::string& listen,
                                                                  const operate::HttpAccess& access, EventLoop& loop,
                                                                  Control& control) {
  const auto collect = [&loop, &control]() -> absl::StatusOr<operate::MetricFamilies> {
    using Families = operate::MetricFamilies;
    return loop.Call<Families>(absl::Seconds(5), [&loop, &control]() -> absl::StatusOr<Families> {
      const auto group = control.Show();
      if (!group.ok()) return group.status();
      return FamiliesOf(*group, loop.turns());
    });
  };
  return operate::ServeMetricsPage(listen, "--metrics", collect, {}, access);
}

}  // namespace hedgerow::steer
