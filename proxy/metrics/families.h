// SPDX-License-Identifier: Apache-2.0
//
// A data plane snapshot as Prometheus metric families. Pure; the exporter calls it for every scrape. One table lists
// every family: the counters of bpf/abi/counters_abi.h, and what families.cc adds to them. docs/metrics.md is
// rewritten from it (docs_test.cc).

#pragma once

#include <functional>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "proxy/admin/status.h"
#include "proxy/api/config.pb.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

struct Scrape {
  const v1::Config& config;
  const DaemonFacts& facts;
  const Snapshot& snapshot;
};

struct Metric {
  std::string section;  // the heading in docs/metrics.md
  prometheus::MetricType type;
  std::string name;                                                    // whole
  std::string help;                                                    // HELP, and Markdown of docs/metrics.md
  std::function<void(const Scrape&, prometheus::MetricFamily&)> fill;  // adds the samples
};

const std::vector<Metric>& Metrics();

std::vector<prometheus::MetricFamily> BuildFamilies(const v1::Config& config, const DaemonFacts& facts,
                                                    const Snapshot& snapshot);

// The kernel's 432 buckets merged into two an octave from 16 us to 34 s. The bounds are edges of the kernel's
// own buckets, so that no count is split by guessing.
prometheus::ClientMetric::Histogram ToPrometheus(const Histogram& histogram);

}  // namespace hedgerow
