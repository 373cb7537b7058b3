// SPDX-License-Identifier: Apache-2.0
//
// A YAML document as a small tree in which every key and value knows its line
// and column. It is built from yaml-cpp's parse events rather than its Node,
// because a Node has lost the marks of keys, merges duplicates and follows
// aliases; here aliases, anchors, tags, merge keys and second documents are
// refused, so that the tree's size is bounded by the file's.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/diagnostics.h"

namespace hedgerow::config {

// The schema is four levels deep; more than this is an attack or a mistake.
inline constexpr int kMaxDepth = 16;

struct Tree {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  Mark mark{};
  bool quoted = false;        // a scalar in quotes is never a number
  std::string scalar{};       // kScalar
  std::vector<Tree> items{};  // kList; kMap: the values
  std::vector<Tree> keys{};   // kMap: as many as items
};

// "a list", "a map", "nothing" or the quoted scalar: for error messages.
std::string Describe(const Tree& tree);

// The only document in `text`, or nothing and errors. The text has passed
// CheckText.
std::optional<Tree> ParseTree(absl::string_view text, Diagnostics& errors);

}  // namespace hedgerow::config
