// SPDX-License-Identifier: Apache-2.0
//
// What the clients saw, and whether a store that does one thing at a time could have shown it to them
// (linearizability, Herlihy and Wing). Exact checks for the two kinds of keys whose values name the write that
// made them: counters that only grow by one, and registers whose values are all different. An operation without
// an answer stays open: it may take effect at any later time, or never.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hedgerow::sim {

// A closed interval of time in which the operation took effect; open at the end while unanswered.
struct Span {
  uint64_t invoked_ns = 0;
  uint64_t answered_ns = UINT64_MAX;
};

struct CounterOperation {
  Span span;
  bool increment = false;           // by one; else a read
  std::optional<int64_t> observed;  // the value after it
};

struct RegisterOperation {
  Span span;
  bool write = false;
  // What was written or read; no two writes of a key write the same. 0: what a read finds before any write.
  uint64_t value = 0;
};

// What is wrong with a counter in numbers: acknowledged increments that are missing from it, and steps that no
// increment of a client explains, one for each: something was applied twice.
struct CounterFaults {
  uint64_t lost = 0;
  uint64_t doubled = 0;
};
CounterFaults CountFaults(const std::vector<CounterOperation>& operations, int64_t final_value);

// Empty if the history is linearizable, else why not. `final_value` is what the replicas hold at the end.
std::string CheckCounter(std::vector<CounterOperation> operations, int64_t final_value);
std::string CheckRegister(const std::vector<RegisterOperation>& operations);

class History {
 public:
  size_t InvokeCounter(const std::string& key, uint64_t now_ns, bool increment);
  size_t InvokeRegister(const std::string& key, uint64_t now_ns, bool write, uint64_t value);
  void AnswerCounter(const std::string& key, size_t operation, uint64_t now_ns, int64_t observed);
  void AnswerRegister(const std::string& key, size_t operation, uint64_t now_ns, uint64_t value);

  // A compare-and-set that succeeded replaced `expected`. Two cannot have replaced the same value.
  void Replaced(const std::string& key, uint64_t expected);
  const std::string& violation() const { return violation_; }

  template <typename FinalValue>
  std::string Check(FinalValue final_value) const {
    if (!violation_.empty()) return violation_;
    for (const auto& [key, operations] : counters_) {
      if (std::string why = CheckCounter(operations, final_value(key)); !why.empty()) return key + ": " + why;
    }
    for (const auto& [key, operations] : registers_) {
      if (std::string why = CheckRegister(operations); !why.empty()) return key + ": " + why;
    }
    return {};
  }

 private:
  std::map<std::string, std::vector<CounterOperation>> counters_;
  std::map<std::string, std::vector<RegisterOperation>> registers_;
  std::map<std::string, std::map<uint64_t, int>> replaced_;
  std::string violation_;
};

}  // namespace hedgerow::sim
