// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/refused_lately.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Why = RefusedLately::Why;

constexpr uint64_t kSecond_ns = 1'000'000'000;

class RefusedLatelyTest : public testing::Test {
 protected:
  void Report(uint64_t now_ns) {
    notes_.clear();
    problems_.clear();
    refused_.Report(now_ns, notes_, problems_);
  }

  RefusedLately refused_{"memcached.clients"};
  const NetAddress first_ = *NetAddress::Parse("10.0.0.7:4000");
  const NetAddress second_ = *NetAddress::Parse("10.0.0.8:5000");
  std::vector<std::string> notes_;
  std::vector<std::string> problems_;
};

TEST_F(RefusedLatelyTest, SaysHowManyAndOfWhomAndWhatToDo) {
  Report(kSecond_ns);
  EXPECT_THAT(notes_, IsEmpty());
  refused_.Note(Why::kNotListed, first_, 100 * kSecond_ns);
  refused_.Note(Why::kNotListed, second_, 103 * kSecond_ns);
  refused_.Note(Why::kOpens, first_, 104 * kSecond_ns);
  Report(105 * kSecond_ns);
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("2 datagrams were dropped"), HasSubstr("`memcached.clients`"),
                                        HasSubstr("since 5s"), HasSubstr("the last of 10.0.0.8:5000")),
                                  AllOf(HasSubstr("1 OPENs were dropped"), HasSubstr("`sources.open_rate`"))));
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(RefusedLatelyTest, ForgetsAfterAMinute) {
  refused_.Note(Why::kBytes, first_, 100 * kSecond_ns);
  Report(100 * kSecond_ns + RefusedLately::kLately_ns);
  EXPECT_EQ(notes_.size(), 1u);
  Report(100 * kSecond_ns + RefusedLately::kLately_ns + 1);
  EXPECT_THAT(notes_, IsEmpty());
  refused_.Note(Why::kBytes, first_, 300 * kSecond_ns);
  Report(300 * kSecond_ns);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("1 answers")));
}

TEST_F(RefusedLatelyTest, AClockByWhichNoClientIsAcceptedIsAProblem) {
  refused_.NoteAccepted();
  refused_.Note(wire::HkvDenial::kClock, first_, 100 * kSecond_ns);
  refused_.Note(wire::HkvDenial::kUnproven, first_, 100 * kSecond_ns);
  refused_.Note(wire::HkvDenial::kWrite, first_, 100 * kSecond_ns);
  Report(101 * kSecond_ns);
  EXPECT_THAT(problems_, ElementsAre(HasSubstr("differ by more than 20 s")));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("no client of their name and key")));
  refused_.NoteAccepted();
  Report(101 * kSecond_ns);
  EXPECT_THAT(problems_, IsEmpty()) << "one client's clock is its own affair";
  EXPECT_EQ(notes_.size(), 2u);
}

}  // namespace
}  // namespace hedgerow::node
