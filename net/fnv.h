// SPDX-License-Identifier: Apache-2.0
//
// FNV-1a: turns an instance's name into the numbers the kernel lets us mark our objects with (interface groups,
// filter handles). Stable across versions, since clean must recognise what an older daemon left.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace hedgerow::net {

constexpr uint32_t Fnv1a(absl::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

}  // namespace hedgerow::net
