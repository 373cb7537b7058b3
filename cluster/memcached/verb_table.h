// SPDX-License-Identifier: Apache-2.0
//
// memcached's commands that a node serves, once for all that know them: what each is called, what its line has, what
// its answer says when it is done, whether it changes an item, and whether the operator must have allowed it. The
// parser (request.cc) goes by these rows, and verb_table_test.cc compares docs/memcached.md with them.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cluster/kv/command.h"

namespace hedgerow::memcached {

// The first have the numbers of kv::ItemVerb, which has more: a set of what is too large, and flush_all's. Never
// reused.
enum class Verb : uint8_t {
  kSet = 1,
  kAdd = 2,
  kReplace = 3,
  kCas = 4,
  kAppend = 5,
  kPrepend = 6,
  kDelete = 7,
  kTouch = 8,
  kIncrement = 9,
  kDecrement = 10,
  kGet = 11,
  kGets = 12,
  kVersion = 13,
  kStats = 14,
  kFlushAll = 15,
};

// What stands behind the command's name.
enum class LineForm : uint8_t {
  kNothing,
  kKeys,
  kKey,
  kKeyTime,      // key exptime
  kKeyDelta,     // key delta
  kStore,        // key flags exptime bytes, and the block in the next line
  kStoreUnique,  // the same with the unique number that is to be replaced
  kDelay,        // nothing, or in how many seconds
};

struct VerbRow {
  Verb verb;
  std::string_view name;
  LineForm line;
  std::string_view answers;  // when it is done, or is known to change nothing
  bool changes;              // goes through the log
  bool needs_consent;        // what comes twice would do twice, but for the window: memcached.once_in_window
};
constexpr std::array kVerbRows = {
    VerbRow{Verb::kSet, "set", LineForm::kStore, "STORED", true, false},
    VerbRow{Verb::kAdd, "add", LineForm::kStore, "STORED, NOT_STORED", true, false},
    VerbRow{Verb::kReplace, "replace", LineForm::kStore, "STORED, NOT_STORED", true, false},
    VerbRow{Verb::kCas, "cas", LineForm::kStoreUnique, "STORED, EXISTS, NOT_FOUND", true, false},
    VerbRow{Verb::kAppend, "append", LineForm::kStore, "STORED, NOT_STORED", true, true},
    VerbRow{Verb::kPrepend, "prepend", LineForm::kStore, "STORED, NOT_STORED", true, true},
    VerbRow{Verb::kDelete, "delete", LineForm::kKey, "DELETED, NOT_FOUND", true, false},
    VerbRow{Verb::kTouch, "touch", LineForm::kKeyTime, "TOUCHED, NOT_FOUND", true, false},
    VerbRow{Verb::kIncrement, "incr", LineForm::kKeyDelta, "the number, NOT_FOUND", true, true},
    VerbRow{Verb::kDecrement, "decr", LineForm::kKeyDelta, "the number, NOT_FOUND", true, true},
    VerbRow{Verb::kGet, "get", LineForm::kKeys, "VALUE for each item that is there, END", false, false},
    VerbRow{Verb::kGets, "gets", LineForm::kKeys, "the same with the unique numbers", false, false},
    VerbRow{Verb::kVersion, "version", LineForm::kNothing, "VERSION", false, false},
    VerbRow{Verb::kStats, "stats", LineForm::kNothing, "STAT lines, END", false, false},
    VerbRow{Verb::kFlushAll, "flush_all", LineForm::kDelay, "OK", true, false},
};
constexpr size_t kVerbs = kVerbRows.size() + 1;  // with 0, which is none

inline const VerbRow& RowOf(Verb verb) { return kVerbRows[static_cast<size_t>(verb) - 1]; }
inline bool Changes(Verb verb) { return RowOf(verb).changes; }
// Null: it is none of them.
inline const VerbRow* FindVerb(std::string_view name) {
  const auto found =
      std::find_if(kVerbRows.begin(), kVerbRows.end(), [name](const VerbRow& row) { return row.name == name; });
  return found == kVerbRows.end() ? nullptr : &*found;
}

static_assert([] {
  for (size_t i = 0; i < kVerbRows.size(); ++i)
    if (static_cast<size_t>(kVerbRows[i].verb) != i + 1) return false;
  return static_cast<int>(Verb::kDecrement) == static_cast<int>(kv::ItemVerb::kDecrement);
}());

}  // namespace hedgerow::memcached
