// SPDX-License-Identifier: Apache-2.0
#include "chaos/check/verdict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/sim/history.h"

namespace hedgerow::chaos {
namespace {

struct Key {
  std::vector<sim::CounterOperation> counter{};
  std::vector<sim::RegisterOperation> writes_and_reads{};
  std::optional<Record> last_read{};  // of the final ones
};

sim::Span SpanOf(const Record& record) {
  return {.invoked_ns = record.sent_ns, .answered_ns = record.ending == Ending::kOk ? record.ended_ns : UINT64_MAX};
}

void Add(const Record& record, Key& key) {
  const bool answered = record.ending == Ending::kOk;
  if (!answered && !IsWrite(record.kind)) return;  // a read that told nothing
  if (!IsCounter(record.kind)) {
    key.writes_and_reads.push_back({.span = SpanOf(record), .write = record.kind == Kind::kPut, .value = record.value});
    return;
  }
  std::optional<int64_t> observed;
  if (answered) observed = static_cast<int64_t>(record.value);
  key.counter.push_back({.span = SpanOf(record), .increment = record.kind == Kind::kIncrement, .observed = observed});
}

// Acknowledged writes that began after the write whose value is there in the end had been answered: nothing but
// their loss lets that value be the last.
uint64_t LostWrites(const std::vector<sim::RegisterOperation>& operations, uint64_t last_value) {
  uint64_t answered_ns = last_value == 0 ? 0 : UINT64_MAX;
  for (const sim::RegisterOperation& operation : operations) {
    if (operation.write && operation.value == last_value) answered_ns = operation.span.answered_ns;
  }
  return static_cast<uint64_t>(std::count_if(operations.begin(), operations.end(), [&](const auto& operation) {
    return operation.write && operation.span.answered_ns != UINT64_MAX && operation.span.invoked_ns > answered_ns;
  }));
}

void JudgeKey(const std::string& name, const Key& key, Verdict& verdict) {
  std::string why;
  if (!key.counter.empty()) {
    const auto last = static_cast<int64_t>(key.last_read->value);
    const sim::CounterFaults faults = sim::CountFaults(key.counter, last);
    verdict.acked_lost += faults.lost;
    verdict.double_applied += faults.doubled;
    why = sim::CheckCounter(key.counter, last);
  } else {
    verdict.acked_lost += LostWrites(key.writes_and_reads, key.last_read->value);
    why = sim::CheckRegister(key.writes_and_reads);
  }
  if (why.empty()) return;
  verdict.linearizable = false;
  verdict.violations.push_back(absl::StrCat(name, ": ", why));
}

}  // namespace

absl::StatusOr<Verdict> Judge(const std::vector<Record>& history, const std::vector<Record>& final_reads) {
  Verdict verdict;
  std::map<std::pair<bool, uint32_t>, Key> keys;
  for (const Record& record : history) {
    if (record.ending == Ending::kPending) {
      return absl::InvalidArgumentError("an operation has not ended: the run was cut off");
    }
    ++verdict.operations;
    if (record.ending == Ending::kOk) {
      ++verdict.answered;
    } else if (IsWrite(record.kind)) {
      ++verdict.unknown;
    }
    Key& key = keys[{IsCounter(record.kind), record.key}];
    Add(record, key);
  }
  for (const Record& record : final_reads) {
    if (record.ending != Ending::kOk || IsWrite(record.kind)) {
      return absl::InvalidArgumentError("a final read is none, or has no answer");
    }
    Key& key = keys[{IsCounter(record.kind), record.key}];
    Add(record, key);
    if (!key.last_read.has_value() || key.last_read->ended_ns < record.ended_ns) key.last_read = record;
  }
  for (const auto& [id, key] : keys) {
    const std::string name = KeyName(id.first ? Kind::kIncrement : Kind::kPut, id.second);
    if (!key.last_read.has_value()) return absl::InvalidArgumentError(absl::StrCat(name, " was not read in the end"));
    ++verdict.keys;
    JudgeKey(name, key, verdict);
  }
  return verdict;
}

std::string ToJson(const Verdict& verdict) {
  // The texts are ours and hold nothing that JSON would want escaped.
  const std::string violations = absl::StrJoin(
      verdict.violations, ",",
      [](std::string* out, const std::string& violation) { absl::StrAppend(out, "\"", violation, "\""); });
  return absl::StrCat("{\"operations\":", verdict.operations, ",\"answered\":", verdict.answered,
                      ",\"unknown\":", verdict.unknown, ",\"keys\":", verdict.keys,
                      ",\"acked_lost\":", verdict.acked_lost, ",\"double_applied\":", verdict.double_applied,
                      ",\"linearizable\":", verdict.linearizable ? "true" : "false", ",\"violations\":[", violations,
                      "]}\n");
}

}  // namespace hedgerow::chaos
