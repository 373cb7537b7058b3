// SPDX-License-Identifier: Apache-2.0
//
// Which node leads, as the nodes' own kernel parts have it: the state of rule R0 is a pinned map, and reading it wakes
// no process, where asking a node would change what happens next. Used by hr-dst-driver to find a fault's target.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hedgerow::dst {

struct Standing {
  bool leads = false;
  uint64_t term = 0;
};

// Where that node's kernel part is pinned.
std::string PinsOf(uint32_t node, const std::string& data_dir);

// Of the node with that id, whose log is in `data_dir`. Nothing where its kernel part is off, or not made yet.
std::optional<Standing> StandingOf(uint32_t node, const std::string& data_dir);

}  // namespace hedgerow::dst
