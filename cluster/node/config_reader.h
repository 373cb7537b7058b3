// SPDX-License-Identifier: Apache-2.0
//
// Reads a YAML tree by a table of its keys: unknown and repeated keys, missing ones, wrong types, ranges and
// formats are found here, each with its place. The proxy's decoder does the same by reflection over a protobuf
// schema; a node has few enough keys for a table. Called by config.cc.

#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/diagnostics.h"
#include "config/locations.h"
#include "config/tree.h"

namespace hedgerow::node {

// One key of a map. Exactly one of `read`, `block` and `item` is there.
struct ConfigKey {
  std::string name;
  bool required = false;
  std::string expected{};  // "a whole number between 1 and 7"
  bool secret = false;     // errors do not repeat the value

  // A scalar: takes it, or returns false where it is not what is expected.
  std::function<bool(const config::Tree&)> read{};
  // A map with these keys.
  std::vector<ConfigKey> block{};
  // A list: makes room for one more entry, a map, and returns its keys. The place in the list is given.
  std::function<std::vector<ConfigKey>(size_t)> item{};
  size_t items_min = 0;
  size_t items_max = 0;
};

class ConfigReader {
 public:
  ConfigReader(config::Locations& locations, config::Diagnostics& errors)
      : locations_(locations), errors_(errors) {}

  // `path` is empty for the file's own map.
  void Map(const config::Tree& tree, const std::string& path, const std::vector<ConfigKey>& keys);

 private:
  void Value(const config::Tree& tree, const std::string& path, const ConfigKey& key);
  void List(const config::Tree& tree, const std::string& path, const ConfigKey& key);

  config::Locations& locations_;
  config::Diagnostics& errors_;
};

// "services" below "", "peer" below "members[0]".
std::string JoinPath(absl::string_view path, absl::string_view key);

}  // namespace hedgerow::node
