// SPDX-License-Identifier: Apache-2.0
//
// What repeats the table of operations repeats it rightly: docs/WIRE_FORMAT.md, the client in Python, and the
// server in Go that the benchmarks compare with. A row more or less on either side is an error, too.

#include "cluster/wire/hkv_table.h"

#include <fstream>
#include <regex>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "build_paths.h"

namespace hedgerow::wire {
namespace {

using testing::HasSubstr;

std::string TextOf(absl::string_view path) {
  std::ifstream file(absl::StrCat(HEDGEROW_SOURCE_DIR, "/", path));
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Capitals(std::string_view name) {
  return absl::AsciiStrToUpper(absl::string_view(name.data(), name.size()));
}

// A whole table of a page: its head, these rows and no other.
std::string Table(absl::string_view head, const std::vector<std::string>& rows) {
  std::string line = "|";
  for (const char c : head.substr(1)) {
    if (c == '|') line += "---|";
  }
  return absl::StrCat("\n", head, "\n", line, "\n", absl::StrJoin(rows, "\n"), "\n\n");
}

std::string ClientIdText(HkvClientId client_id) {
  switch (client_id) {
    case HkvClientId::kZero: return "0";
    case HkvClientId::kSessionOrZero: return "the session, or 0: without one";
    case HkvClientId::kRandom: return "64 random bits of the client";
  }
  return "";
}

std::string BodyText(HkvBody body) {
  switch (body) {
    case HkvBody::kEmpty: return "nothing";
    case HkvBody::kKey: return "key_bytes (1), key";
    case HkvBody::kOperations:
      return absl::StrCat("count (1, at most ", kv::kOperationsMax, "), then that many operations, all done or none");
  }
  return "";
}

std::string OutcomeText(HkvOutcome outcome) {
  switch (outcome) {
    case HkvOutcome::kSession: return "session (8), token (8)";
    case HkvOutcome::kValue: return "value_bytes (2), value";
    case HkvOutcome::kValues: return "count (1), then for each operation of the write value_bytes (2), value";
  }
  return "";
}

std::string FieldText(HkvField field) {
  switch (field) {
    case HkvField::kNone: return "";
    case HkvField::kValue: return "value_bytes (2), value";
    case HkvField::kCondition: return "has_expected (1: 0 the key must not exist, or 1)";
    case HkvField::kExpected: return "with has_expected 1 expected_bytes (2), expected";
    case HkvField::kDelta: return "delta (8, signed); a key that does not exist counts as 0";
  }
  return "";
}

TEST(HkvTable, ThePageHasEveryRequest) {
  std::vector<std::string> rows;
  for (const HkvRequestRow& row : kHkvRequests) {
    rows.push_back(absl::StrCat("| ", static_cast<int>(row.kind), " | ", std::string(row.name), " | ",
                                ClientIdText(row.client_id), " | ", BodyText(row.body), " | ", OutcomeText(row.outcome),
                                " | ", row.writes ? "yes" : "no", " |"));
  }
  EXPECT_THAT(TextOf("docs/WIRE_FORMAT.md"),
              HasSubstr(Table("| kind | request | client_id | body | answer with OK | goes through the log |", rows)));
}

TEST(HkvTable, ThePageHasEveryOperation) {
  std::vector<std::string> rows;
  for (const HkvOperationRow& row : kHkvOperations) {
    std::vector<std::string> fields;
    for (const HkvField field : row.fields) {
      if (field != HkvField::kNone) fields.push_back(FieldText(field));
    }
    rows.push_back(absl::StrCat("| ", static_cast<int>(row.kind), " | ", std::string(row.name), " | ",
                                fields.empty() ? "nothing" : absl::StrJoin(fields, ", "), " | ",
                                row.answers_number ? "the sum as decimal text" : "empty", " |"));
  }
  EXPECT_THAT(TextOf("docs/WIRE_FORMAT.md"),
              HasSubstr(Table("| number | operation | behind the key | its value in the answer |", rows)));
}

TEST(HkvTable, ThePageHasEveryStatus) {
  std::vector<std::string> rows;
  for (const HkvStatusRow& row : kHkvStatusRows) {
    rows.push_back(absl::StrCat("| ", static_cast<int>(row.status), " | ", Capitals(row.name), " | ",
                                std::string(row.meaning), " |"));
  }
  EXPECT_THAT(TextOf("docs/WIRE_FORMAT.md"), HasSubstr(Table("| status | name | meaning |", rows)));
}

// "OPEN, WRITE = 1, 2".
template <typename Rows, typename Number>
std::string PythonLine(const Rows& rows, Number number) {
  std::vector<std::string> names, numbers;
  for (const auto& row : rows) {
    names.push_back(Capitals(row.name));
    numbers.push_back(absl::StrCat(static_cast<int>(number(row))));
  }
  return absl::StrCat("\n", absl::StrJoin(names, ", "), " = ", absl::StrJoin(numbers, ", "), "\n");
}

TEST(HkvTable, TheClientInPythonHasEveryRow) {
  const std::string client = TextOf("cluster/client/hkv.py");
  EXPECT_THAT(client, HasSubstr(PythonLine(kHkvRequests, [](const auto& row) { return row.kind; })));
  EXPECT_THAT(client, HasSubstr(PythonLine(kHkvOperations, [](const auto& row) { return row.kind; })));
  std::vector<std::string> names;
  for (const HkvStatusRow& row : kHkvStatusRows) names.push_back(absl::StrCat("\"", Capitals(row.name), "\""));
  const std::string in_one_line = absl::StrReplaceAll(client, {{"\n            ", " "}});
  EXPECT_THAT(in_one_line, HasSubstr(absl::StrCat("\nSTATUSES = (", absl::StrJoin(names, ", "), ")\n")));
}

// It speaks a part of the protocol, so it has a part of the rows.
TEST(HkvTable, TheServerInGoHasNoOtherRow) {
  const std::string server = TextOf("bench/baselines/hashicorp_raft/hkv.go");
  std::vector<std::string> known;
  for (const HkvRequestRow& row : kHkvRequests)
    known.push_back(absl::StrCat("kind ", absl::AsciiStrToLower(Capitals(row.name)), " ", static_cast<int>(row.kind)));
  for (const HkvOperationRow& row : kHkvOperations)
    known.push_back(absl::StrCat("operation ", std::string(row.name), " ", static_cast<int>(row.kind)));
  for (const HkvStatusRow& row : kHkvStatusRows)
    known.push_back(absl::StrCat("status ", absl::StrReplaceAll(std::string(row.name), {{"_", ""}}), " ",
                                 static_cast<int>(row.status)));
  const std::regex constant("\t(kind|status|operation)([A-Z]\\w*) += (\\d+)\n");
  int found = 0;
  for (std::sregex_iterator at(server.begin(), server.end(), constant), end; at != end; ++at, ++found) {
    EXPECT_THAT(known, testing::Contains(absl::StrCat((*at)[1].str(), " ", absl::AsciiStrToLower((*at)[2].str()), " ",
                                                      (*at)[3].str())));
  }
  EXPECT_EQ(found, 10);
}

}  // namespace
}  // namespace hedgerow::wire
