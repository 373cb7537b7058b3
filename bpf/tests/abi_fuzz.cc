// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// libFuzzer target for what bpf/abi computes: histogram buckets, a request's word and the scoreboard's
// references. They compile natively and for BPF alike; whatever goes in, they must be inverse to each other and
// stay in bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "bpf/abi/request_abi.h"
#include "bpf/abi/stats_abi.h"

namespace {

void Require(bool condition) {
  if (!condition) abort();
}

void CheckHistogram(uint64_t duration_ns) {
  const uint32_t bucket = hr_histogram_bucket(duration_ns);
  Require(bucket < HR_HISTOGRAM_BUCKETS);
  const uint64_t lower_ns = hr_histogram_lower_ns(bucket);
  Require(lower_ns <= duration_ns);
  Require(hr_histogram_bucket(lower_ns) == bucket);
  if (bucket + 1 < HR_HISTOGRAM_BUCKETS) {
    const uint64_t next_ns = hr_histogram_lower_ns(bucket + 1);
    Require(duration_ns < next_ns);
    // A bucket is at most 1/16 of its lower edge wide (and never less than the unit).
    Require(next_ns - lower_ns <= (1u << HR_HISTOGRAM_UNIT_SHIFT) || (next_ns - lower_ns) * 16 <= lower_ns);
  }
}

void CheckWord(uint32_t generation, uint8_t winner, uint8_t state, bool detached) {
  const uint64_t word = HR_WORD(generation, winner, detached ? HR_WORD_DETACHED : 0, state);
  Require(HR_WORD_GENERATION(word) == generation);
  Require(HR_WORD_WINNER(word) == winner);
  Require(HR_WORD_STATE(word) == state);
  Require(((word & HR_WORD_DETACHED) != 0) == detached);
}

void CheckReference(uint32_t generation, uint32_t tag, uint32_t request) {
  const uint64_t reference = HR_REFERENCE(generation, tag, request);
  Require(HR_REFERENCE_GENERATION(reference) == generation);
  Require(HR_REFERENCE_TAG(reference) == (tag & 0xfff));
  Require(HR_REFERENCE_REQUEST(reference) == (request & (HR_MAX_REQUESTS - 1)));
}

void CheckMasks(uint8_t sent, uint8_t answered, uint8_t not_awaited, uint8_t failover) {
  const uint32_t masks = HR_MASKS_SENT(sent) | HR_MASKS_ANSWERED(answered) | HR_MASKS_NOT_AWAITED(not_awaited) |
                         HR_MASKS_FAILOVER(failover);
  Require(HR_SENT_MASK(masks) == sent && HR_ANSWERED_MASK(masks) == answered);
  Require(HR_NOT_AWAITED_MASK(masks) == not_awaited && HR_FAILOVER_MASK(masks) == failover);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t words[2] = {};
  memcpy(words, data, size < sizeof(words) ? size : sizeof(words));
  const auto low = static_cast<uint32_t>(words[1]);
  const auto high = static_cast<uint32_t>(words[1] >> 32);
  CheckHistogram(words[0]);
  CheckHistogram(words[0] >> (words[1] & 63));
  CheckWord(low, static_cast<uint8_t>(high), static_cast<uint8_t>(high >> 8), (high >> 16) & 1);
  CheckReference(low, high, high >> 4);
  CheckMasks(static_cast<uint8_t>(low), static_cast<uint8_t>(low >> 8), static_cast<uint8_t>(low >> 16),
             static_cast<uint8_t>(low >> 24));
  return 0;
}
