// SPDX-License-Identifier: Apache-2.0
//
// FNV-1a: turns an instance's name into the numbers the kernel lets us mark our objects with (interface groups,
// filter handles), and tells builds and configurations apart; no protection against forgery. Stable across versions,
// since clean must recognise what an older daemon left.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace hedgerow::net {

constexpr uint32_t Fnv1a(absl::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

constexpr uint64_t Fnv1a64(absl::string_view bytes) {
  uint64_t hash = 14695981039346656037ull;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 1099511628211ull;
  return hash;
}

}  // namespace hedgerow::net
