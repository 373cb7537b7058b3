// SPDX-License-Identifier: Apache-2.0
//
// Where each value of a decoded configuration was written, so that a rule that
// spans several values can still name the line. Filled by the decoders, read
// by the checks that follow them.

#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "config/diagnostics.h"

namespace hedgerow::config {

// "services[0].delay" -> line, column. Values that were not written (defaults)
// point at the map they belong to.
class Locations {
 public:
  void Record(absl::string_view path, Mark mark) { marks_.insert_or_assign(std::string(path), mark); }
  // The mark of the path, or of the nearest enclosing one that has a mark.
  Mark Find(absl::string_view path) const {
    while (true) {
      const auto found = marks_.find(path);
      if (found != marks_.end()) return found->second;
      if (path.empty()) return {};
      const size_t cut = path.find_last_of(".[");
      path = path.substr(0, cut == absl::string_view::npos ? 0 : cut);
    }
  }
  bool Has(absl::string_view path) const { return marks_.contains(path); }

  // A secret that stands in the file itself.
  void RecordSecret(absl::string_view path) { secrets_.emplace_back(path); }
  const std::vector<std::string>& secrets() const { return secrets_; }

 private:
  absl::flat_hash_map<std::string, Mark> marks_;
  std::vector<std::string> secrets_;
};

// What the checks of a configuration have in common: an error is reported where its value was written.
class Checks {
 public:
  Checks(const Locations& locations, Diagnostics& errors) : locations_(locations), errors_(errors) {}

 protected:
  void Add(const std::string& path, absl::string_view message) { errors_.Add(locations_.Find(path), path, message); }

  const Locations& locations_;
  Diagnostics& errors_;
};

}  // namespace hedgerow::config
