// SPDX-License-Identifier: Apache-2.0
#include "chaos/load/history_file.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace hedgerow::chaos {
namespace {

constexpr absl::string_view kHeader = "client,kind,key,value,intended_ns,sent_ns,ended_ns,ending,attempts";
constexpr std::array<absl::string_view, 4> kEndings = {"pending", "ok", "timed_out", "error"};

std::optional<Record> ParseLine(absl::string_view line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  Record record;
  if (fields.size() != 9 || fields[1].size() != 1) return std::nullopt;
  record.kind = static_cast<Kind>(fields[1][0]);
  if (!IsCounter(record.kind) && record.kind != Kind::kPut && record.kind != Kind::kGet) return std::nullopt;
  const bool numbers = absl::SimpleAtoi(fields[0], &record.client) && absl::SimpleAtoi(fields[2], &record.key) &&
                       absl::SimpleAtoi(fields[3], &record.value) && absl::SimpleAtoi(fields[4], &record.intended_ns) &&
                       absl::SimpleAtoi(fields[5], &record.sent_ns) && absl::SimpleAtoi(fields[6], &record.ended_ns) &&
                       absl::SimpleAtoi(fields[8], &record.attempts);
  if (!numbers) return std::nullopt;
  for (size_t i = 0; i < kEndings.size(); ++i) {
    if (fields[7] != kEndings[i]) continue;
    record.ending = static_cast<Ending>(i);
    return record;
  }
  return std::nullopt;
}

}  // namespace

std::string KeyName(Kind kind, uint32_t key) { return absl::StrCat(IsCounter(kind) ? "counter" : "register", key); }

std::vector<Record> ReadsOfAllKeys(const std::vector<Record>& records) {
  std::set<std::pair<bool, uint32_t>> keys;
  for (const Record& record : records) keys.emplace(IsCounter(record.kind), record.key);
  std::vector<Record> reads;
  for (const auto& [counter, key] : keys) {
    reads.push_back({.kind = counter ? Kind::kReadCounter : Kind::kGet, .key = key});
  }
  return reads;
}

absl::Status WriteHistory(const std::string& path, const std::vector<Record>& records) {
  // Under its name only when it is whole: half a history proves nothing.
  const std::string partial = path + ".partial";
  std::ofstream file(partial);
  file << kHeader << '\n';
  std::string line;
  for (const Record& record : records) {
    const char kind[] = {static_cast<char>(record.kind), '\0'};
    line.clear();
    absl::StrAppend(&line, record.client, ",", kind, ",", record.key, ",", record.value, ",");
    absl::StrAppend(&line, record.intended_ns, ",", record.sent_ns, ",", record.ended_ns, ",");
    absl::StrAppend(&line, kEndings[static_cast<size_t>(record.ending)], ",", record.attempts, "\n");
    file << line;
  }
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    return absl::DataLossError(absl::StrCat("cannot write '", path, "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Record>> ReadHistory(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read '", path, "'"));
  std::string line;
  if (!std::getline(file, line) || line != kHeader) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' does not begin with the line ", kHeader));
  }
  std::vector<Record> records;
  while (std::getline(file, line)) {
    const std::optional<Record> record = ParseLine(line);
    if (!record.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", path, "', line ", records.size() + 2, ": '", line, "' is no record"));
    }
    records.push_back(*record);
  }
  if (!file.eof()) return absl::DataLossError(absl::StrCat("cannot read '", path, "' to its end"));
  return records;
}

}  // namespace hedgerow::chaos
