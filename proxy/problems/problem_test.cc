// SPDX-License-Identifier: Apache-2.0
#include "proxy/problems/problem.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace hedgerow {
namespace {

TEST(ProblemTest, EveryCodeStandsOnceAndSaysWhatToDo) {
  std::set<std::string> codes;
  for (const ProblemRow& row : kProblems) {
    EXPECT_TRUE(codes.insert(std::string(row.code)).second) << row.code << " stands twice";
    EXPECT_FALSE(row.when.empty()) << row.code;
    EXPECT_FALSE(row.remedy.empty()) << row.code;
  }
}

TEST(ProblemTest, StatusShowsTheCodeBeforeTheText) {
  EXPECT_EQ((Problem{ProblemCode::kNoRoute, "service dns: no route to backend a"}).ToString(),
            "no_route: service dns: no route to backend a");
}

TEST(ProblemTest, ProblemsAreJoinedInTheirOrder) {
  EXPECT_EQ(JoinProblems({{ProblemCode::kUplinkDown, "eth0"}, {ProblemCode::kVrf, "b"}}, "; "),
            "uplink_down: eth0; vrf: b");
  EXPECT_EQ(JoinProblems({}, "; "), "");
}

}  // namespace
}  // namespace hedgerow
