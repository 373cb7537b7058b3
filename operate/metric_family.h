// SPDX-License-Identifier: Apache-2.0
//
// Building what a metrics page shows, in few words. Called by the proxy's and the node's families. Pure.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>

#include "absl/strings/string_view.h"
#include "operate/loop_turns.h"

namespace hedgerow::operate {

using Labels = std::vector<prometheus::ClientMetric::Label>;

// Without a sample; `name` is the whole name.
inline prometheus::MetricFamily MakeFamily(std::string name, absl::string_view help, prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::string(help);
  family.type = type;
  return family;
}

inline prometheus::ClientMetric& AddSample(prometheus::MetricFamily& family, Labels labels) {
  family.metric.emplace_back().label = std::move(labels);
  return family.metric.back();
}

inline void AddCounter(prometheus::MetricFamily& family, Labels labels, uint64_t value) {
  AddSample(family, std::move(labels)).counter.value = static_cast<double>(value);
}

// Of a counter whose help is kLoopTurnsHelp.
inline constexpr char kLoopTurnsHelp[] =
    "turns of the event loop, by `worked`: `true`, something had come; `false`, nothing had, and a loop that turns so "
    "more than some hundred times a second takes a processor for nothing";
inline void AddLoopTurns(prometheus::MetricFamily& family, Labels labels, const LoopTurns& turns) {
  labels.push_back({"worked", "true"});
  AddCounter(family, labels, turns.worked);
  labels.back().value = "false";
  AddCounter(family, std::move(labels), turns.idle);
}

inline void AddGauge(prometheus::MetricFamily& family, Labels labels, double value) {
  AddSample(family, std::move(labels)).gauge.value = value;
}

inline void AddHistogram(prometheus::MetricFamily& family, Labels labels,
                         prometheus::ClientMetric::Histogram histogram) {
  AddSample(family, std::move(labels)).histogram = std::move(histogram);
}

}  // namespace hedgerow::operate
