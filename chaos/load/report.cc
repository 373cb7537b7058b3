// SPDX-License-Identifier: Apache-2.0
#include "chaos/load/report.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::chaos {

absl::Status WriteReport(const std::string& path, const std::string& mode, const LoadCounters& counters) {
  const std::string errors = absl::StrJoin(counters.errors, ",", [](std::string* out, const auto& error) {
    absl::StrAppend(out, "\"", error.first, "\":", error.second);
  });
  const std::pair<const char*, uint64_t> counts[] = {
      {"opens", counters.opens},
      {"sent", counters.sent},
      {"ok", counters.ok},
      {"timed_out", counters.timed_out},
      {"hedges", counters.hedges},
      {"followed", counters.followed},
      {"retries", counters.retries},
      {"duplicates", counters.duplicates},
      {"losers", counters.losers},
      {"late", counters.late},
      {"stray", counters.stray},
      {"send_failed", counters.send_failed},
      {"send_lag_max_ns", counters.send_lag_max_ns},
  };
  std::ofstream file(path);
  file << "{\"mode\":\"" << mode << "\",\"errors\":{" << errors << "}";
  for (const auto& [name, value] : counts) file << ",\"" << name << "\":" << value;
  file << "}\n" << std::flush;
  return file ? absl::OkStatus() : absl::DataLossError(absl::StrCat("cannot write '", path, "'"));
}

}  // namespace hedgerow::chaos
