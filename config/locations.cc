// SPDX-License-Identifier: Apache-2.0
//
// Paths to places; see the header.

#include "config/locations.h"

namespace hedgerow::config {

Mark Locations::Find(absl::string_view path) const {
  while (true) {
    const auto found = marks_.find(path);
    if (found != marks_.end()) return found->second;
    const size_t cut = path.find_last_of(".[");
    if (cut == absl::string_view::npos) break;
    path = path.substr(0, cut);
  }
  const auto root = marks_.find("");
  return root == marks_.end() ? Mark{} : root->second;
}

}  // namespace hedgerow::config
