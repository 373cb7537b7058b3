// SPDX-License-Identifier: Apache-2.0
//
// The walk over a table of keys; see the header.

#include "cluster/node/config_reader.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/suggest.h"

namespace hedgerow::node {
namespace {

using config::Tree;

std::vector<std::string> NamesOf(const std::vector<ConfigKey>& keys) {
  std::vector<std::string> names;
  for (const ConfigKey& key : keys) names.push_back(key.name);
  return names;
}

std::string ExpectedOf(const ConfigKey& key) {
  if (key.item) return absl::StrCat("a list of ", key.items_min, " to ", key.items_max, " entries");
  if (!key.block.empty()) return absl::StrCat("a map with the keys ", absl::StrJoin(NamesOf(key.block), ", "));
  return key.expected;
}

// Enough to see what is wrong with a key without showing any of it.
std::string DescribeSecret(const Tree& tree) {
  if (tree.kind != Tree::Kind::kScalar) return config::Describe(tree);
  return absl::StrCat("a value of ", tree.scalar.size(), " characters");
}

// A value where a map or a list is due is not repeated: the file may be a key file, named by mistake.
std::string DescribeNoContainer(const Tree& tree) {
  return tree.kind == Tree::Kind::kScalar ? "a single value" : config::Describe(tree);
}

}  // namespace

std::string JoinPath(absl::string_view path, absl::string_view key) {
  return path.empty() ? std::string(key) : absl::StrCat(path, ".", key);
}

void ConfigReader::Map(const Tree& tree, const std::string& path, const std::vector<ConfigKey>& keys) {
  locations_.Record(path, tree.mark);
  const std::vector<std::string> names = NamesOf(keys);
  const std::string known = absl::StrJoin(names, ", ");
  if (tree.kind != Tree::Kind::kMap) {
    errors_.Add(tree.mark, path,
                absl::StrCat("got ", DescribeNoContainer(tree), ", expected a map with the keys ", known));
    return;
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < tree.keys.size(); ++i) {
    const Tree& name = tree.keys[i];
    if (name.kind != Tree::Kind::kScalar) {
      errors_.Add(name.mark, path,
                  absl::StrCat("got ", config::Describe(name), " as a key, expected one of ", known));
      continue;
    }
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.name == name.scalar; });
    if (key == keys.end()) {
      const std::string guess = config::Suggest(name.scalar, names);
      errors_.Add(name.mark, path,
                  absl::StrCat("unknown key ", config::Quote(name.scalar),
                               guess.empty() ? absl::StrCat(", expected one of ", known)
                                             : absl::StrCat(", did you mean \"", guess, "\"?")));
    } else if (!seen.insert(key->name).second) {
      errors_.Add(name.mark, JoinPath(path, key->name), "the key is given twice, expected it once");
    } else {
      Value(tree.items[i], JoinPath(path, key->name), *key);
    }
  }
  for (const ConfigKey& key : keys) {
    if (!key.required || seen.contains(key.name)) continue;
    errors_.Add(tree.mark, JoinPath(path, key.name),
                absl::StrCat("the key is missing, expected ", ExpectedOf(key)));
  }
}

void ConfigReader::Value(const Tree& tree, const std::string& path, const ConfigKey& key) {
  locations_.Record(path, tree.mark);
  if (key.item) {
    List(tree, path, key);
  } else if (!key.block.empty()) {
    Map(tree, path, key.block);
  } else if (tree.kind != Tree::Kind::kScalar || !key.read(tree)) {
    errors_.Add(tree.mark, path,
                absl::StrCat("got ", key.secret ? DescribeSecret(tree) : config::Describe(tree), ", expected ",
                             key.expected));
  }
}

void ConfigReader::List(const Tree& tree, const std::string& path, const ConfigKey& key) {
  if (tree.kind != Tree::Kind::kList) {
    errors_.Add(tree.mark, path,
                absl::StrCat("got ", DescribeNoContainer(tree), ", expected ", ExpectedOf(key)));
    return;
  }
  if (tree.items.size() < key.items_min || tree.items.size() > key.items_max) {
    errors_.Add(tree.mark, path,
                absl::StrCat("got ", tree.items.size(), " entries, expected ", ExpectedOf(key)));
    if (tree.items.size() > key.items_max) return;
  }
  for (size_t i = 0; i < tree.items.size(); ++i) {
    Map(tree.items[i], absl::StrCat(path, "[", i, "]"), key.item(i));
  }
}

}  // namespace hedgerow::node
