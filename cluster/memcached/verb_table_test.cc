// SPDX-License-Identifier: Apache-2.0
//
// docs/memcached.md has a row for every command that a node serves, and no other.

#include "cluster/memcached/verb_table.h"

#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build_paths.h"

namespace hedgerow::memcached {
namespace {

std::string LineText(LineForm line) {
  switch (line) {
    case LineForm::kNothing: return "";
    case LineForm::kKeys: return " KEY...";
    case LineForm::kKey: return " KEY";
    case LineForm::kKeyTime: return " KEY EXPTIME";
    case LineForm::kKeyDelta: return " KEY DELTA";
    case LineForm::kDelay: return " [DELAY]";
    case LineForm::kStore: return " KEY FLAGS EXPTIME BYTES";
    case LineForm::kStoreUnique: return " KEY FLAGS EXPTIME BYTES UNIQUE";
  }
  return "";
}

TEST(VerbTable, ThePageHasEveryCommand) {
  std::string table = "\n| command | answer | through the log | served |\n|---|---|---|---|\n";
  for (const VerbRow& row : kVerbRows) {
    table += "| `" + std::string(row.name) + LineText(row.line) + "` | " + std::string(row.answers) + " | " +
             (row.changes ? "yes" : "no") + " | " + (row.needs_consent ? "with `once_in_window: on`" : "always") +
             " |\n";
  }
  std::ifstream page(std::string(HEDGEROW_SOURCE_DIR) + "/docs/memcached.md");
  ASSERT_TRUE(page.good());
  std::stringstream text;
  text << page.rdbuf();
  EXPECT_THAT(text.str(), testing::HasSubstr(table + "\n"));
}

TEST(VerbTable, ANameIsFoundAsItIsWritten) {
  for (const VerbRow& row : kVerbRows) EXPECT_EQ(FindVerb(row.name), &RowOf(row.verb));
  for (const char* name : {"", "SET", "gat", "sets"}) EXPECT_EQ(FindVerb(name), nullptr) << name;
}

}  // namespace
}  // namespace hedgerow::memcached
