// SPDX-License-Identifier: Apache-2.0
//
// What a client of the chaos experiment asks for next: increments of counters that all clients share, else puts
// and gets on registers. The same for every system under test: same seed, same sequence. Used by the loads.

#pragma once

#include <cstdint>
#include <random>

#include "chaos/load/history_file.h"

namespace hedgerow::chaos {

struct MixOptions {
  uint64_t seed = 1;
  uint32_t counters = 8;
  uint32_t registers = 16;
  uint32_t increments_percent = 30;
  uint32_t puts_percent = 35;  // the rest are gets
};

class OperationMix {
 public:
  OperationMix(const MixOptions& options, uint32_t client)
      : options_(options), client_(client), random_(options.seed * 1'000'003 + client) {}

  // Client, kind, key, and a put's value are set. No two puts of a run have the same value, and none has 0.
  Record Next() {
    Record record{.client = client_};
    const uint64_t percent = random_() % 100;
    if (percent < options_.increments_percent) {
      record.kind = Kind::kIncrement;
      record.key = static_cast<uint32_t>(random_() % options_.counters);
      return record;
    }
    record.key = static_cast<uint32_t>(random_() % options_.registers);
    if (percent < options_.increments_percent + options_.puts_percent) {
      record.kind = Kind::kPut;
      record.value = (uint64_t{client_} + 1) << 32 | ++puts_;
    }
    return record;
  }

 private:
  MixOptions options_;
  uint32_t client_;
  std::mt19937_64 random_;
  uint64_t puts_ = 0;
};

}  // namespace hedgerow::chaos
