// SPDX-License-Identifier: Apache-2.0
#include "operate/file_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

namespace hedgerow::operate {
namespace {

rlimit Limit() {
  rlimit limit{};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit;
}

void Set(rlim_t soft, rlim_t hard) {
  const rlimit limit = {.rlim_cur = soft, .rlim_max = hard};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(EnsureFileLimit, RaisesTheSoftLimitToWhatIsNeededAndNoFurther) {
  const rlimit before = Limit();
  Set(20, before.rlim_max);
  EXPECT_TRUE(EnsureFileLimit(40).ok());
  EXPECT_EQ(Limit().rlim_cur, 40u);
  EXPECT_TRUE(EnsureFileLimit(30).ok());
  EXPECT_EQ(Limit().rlim_cur, 40u);
  Set(before.rlim_cur, before.rlim_max);
}

// In a process of its own: a hard limit that was lowered stays so.
TEST(EnsureFileLimit, SaysWhatToDoWhereTheHardLimitIsLower) {
  EXPECT_EXIT(
      {
        Set(20, 30);
        const absl::Status status = EnsureFileLimit(40);
        fprintf(stderr, "%s\n", std::string(status.message()).c_str());
        _exit(absl::IsFailedPrecondition(status) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "only 30 files may be open in this process, and it needs 40: raise the limit");
}

}  // namespace
}  // namespace hedgerow::operate
