// SPDX-License-Identifier: Apache-2.0
//
// What the clients of a run did and saw: one record for each operation, written as CSV when the run is over
// (during the run nothing is written: a disk that is busy with the servers' logs would hold the clients up).
// Written by the loads of chaos/, read by hr-kv-check, by chaos/unavailable.py and by the plots.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hedgerow::chaos {

enum class Kind : char {
  kIncrement = 'i',    // of a counter, by one; `value`: the number after it
  kReadCounter = 'c',  // `value`: what was read
  kPut = 'p',          // to a register; `value`: what was written, never the same twice
  kGet = 'g',          // of a register; `value`: what was read, 0 if there was no such key
};

enum class Ending : uint8_t {
  kPending,   // only while the run lasts
  kOk,        // answered, a GET also with "no such key"
  kTimedOut,  // no answer in time
  kError,     // answered with an error; what it was is counted in the report
};

// Times are CLOCK_MONOTONIC in nanoseconds: comparable with those of the faults.
struct Record {
  uint32_t client = 0;
  Kind kind = Kind::kGet;
  uint32_t key = 0;  // the number of the counter or of the register
  uint64_t value = 0;
  uint64_t intended_ns = 0;  // when it was meant to leave; waiting is counted from here
  uint64_t sent_ns = 0;      // when it left; what it may depend on is counted from here
  uint64_t ended_ns = 0;
  Ending ending = Ending::kPending;
  uint32_t attempts = 1;  // copies that the client itself sent

  bool operator==(const Record&) const = default;
};

inline bool IsCounter(Kind kind) { return kind == Kind::kIncrement || kind == Kind::kReadCounter; }
inline bool IsWrite(Kind kind) { return kind == Kind::kIncrement || kind == Kind::kPut; }

// "counter3", "register5".
std::string KeyName(Kind kind, uint32_t key);

// A read of every key that the records name, each once, yet to be made.
std::vector<Record> ReadsOfAllKeys(const std::vector<Record>& records);

absl::Status WriteHistory(const std::string& path, const std::vector<Record>& records);
absl::StatusOr<std::vector<Record>> ReadHistory(const std::string& path);

}  // namespace hedgerow::chaos
