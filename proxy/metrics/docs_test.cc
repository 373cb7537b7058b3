// SPDX-License-Identifier: Apache-2.0
//
// The tables of docs/metrics.md, docs/reasons.md and docs/problems.md are those of the lists. With
// HEDGEROW_REWRITE=1 in the environment the pages are rewritten; their prose stays.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "build_paths.h"
#include "proxy/data_plane/names.h"
#include "proxy/metrics/families.h"
#include "proxy/problems/problem.h"

namespace hedgerow {
namespace {

// A page under test; at its end it must be what it was, or it is rewritten.
class Page {
 public:
  explicit Page(const std::string& name) : path_(absl::StrCat(HEDGEROW_SOURCE_DIR, "/docs/", name)) {
    std::ifstream file(path_);
    former_.assign(std::istreambuf_iterator<char>(file), {});
    text_ = former_;
  }
  ~Page() {
    if (getenv("HEDGEROW_REWRITE") != nullptr) {
      std::ofstream(path_) << text_;
    } else {
      EXPECT_EQ(text_, former_) << "HEDGEROW_REWRITE=1 rewrites " << path_;
    }
  }

  // Replaces the paragraph or table of the section `heading` that begins with `first`.
  void Replace(const std::string& heading, const std::string& first, const std::string& lines) {
    const size_t section = text_.find(absl::StrCat("\n## ", heading));
    ASSERT_NE(section, std::string::npos) << path_ << " has no section " << heading;
    const size_t begin = text_.find(absl::StrCat("\n", first), section);
    ASSERT_NE(begin, std::string::npos) << path_ << " has no " << first << " behind " << heading;
    text_.replace(begin + 1, std::min(text_.find("\n\n", begin + 1), text_.size() - 1) - begin, lines);
  }

 private:
  const std::string path_;
  std::string former_, text_;
};

std::string Row(const Metric& metric) {
  const std::string kind = metric.type == prometheus::MetricType::Gauge       ? "gauge: "
                           : metric.type == prometheus::MetricType::Histogram ? "histogram: "
                                                                              : "";
  return absl::StrCat("| `", metric.name, "` | ", kind, metric.help, " |\n");
}

TEST(DocsTest, MetricsHaveTheirRowsAndHelpIsTheirText) {
  Page page("metrics.md");
  std::map<std::string, std::string> tables;
  for (const Metric& metric : Metrics()) tables[metric.section] += Row(metric);
  for (const auto& [section, rows] : tables)
    page.Replace(section, "| metric |", absl::StrCat("| metric | what it counts |\n|---|---|\n", rows));
}

TEST(DocsTest, TheAccountingIdentityIsTheListsOwn) {
  std::string terms = "    requests = ";
  size_t line = 0;
  for (const CounterRow& counter : kCounters) {
    if (counter.family != "outcome") continue;
    absl::StrAppend(&terms, counter.name, " + ");
    if (terms.size() - line < 90) continue;
    terms.replace(terms.size() - 3, 3, "\n             + ");
    line = terms.size() - 16;
  }
  Page("metrics.md").Replace("Requests, per service", "    requests = ", absl::StrCat(terms, "in_flight\n"));
}

TEST(DocsTest, ReasonsHaveTheirRows) {
  Page page("reasons.md");
  std::map<std::string, std::string> tables;
  for (const ReasonRow& reason : kReasons)
    absl::StrAppend(&tables[std::string(reason.kind)], "| `", reason.name, "` | ", reason.when, " | ", reason.remedy,
                    " |\n");
  for (const auto& [kind, rows] : tables)
    page.Replace(absl::StrCat("`", kind, "`"), "| name |",
                 absl::StrCat("| name | when | what to do |\n|---|---|---|\n", rows));
}

TEST(DocsTest, ProblemsHaveTheirRows) {
  Page page("problems.md");
  std::map<std::string, std::string> tables;
  for (const ProblemRow& problem : kProblems)
    absl::StrAppend(&tables[std::string(problem.family)], "| `", problem.code, "` | ", problem.when, " | ",
                    problem.remedy, " |\n");
  for (const auto& [family, rows] : tables)
    page.Replace(absl::StrCat("`", family, "`"), "| code |",
                 absl::StrCat("| code | when | what to do |\n|---|---|---|\n", rows));
}

}  // namespace
}  // namespace hedgerow
