// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/keyed_hash.h"

#include <optional>
#include <random>

#include "cluster/raft/check.h"

namespace hedgerow::kv {
namespace {

HashSecret Draw() {
  std::random_device device;
  const auto word = [&device] { return uint64_t{device()} << 32 | device(); };
  return {.first = word(), .second = word()};
}

thread_local std::optional<HashSecret> of_this_thread;

}  // namespace

HashSecret TheHashSecret() {
  if (of_this_thread.has_value()) return *of_this_thread;
  static const HashSecret of_this_process = Draw();
  return of_this_process;
}

ScopedHashSecret::ScopedHashSecret(const HashSecret& secret) {
  HEDGEROW_CHECK(!of_this_thread.has_value());
  of_this_thread = secret;
}

ScopedHashSecret::~ScopedHashSecret() { of_this_thread.reset(); }

}  // namespace hedgerow::kv
