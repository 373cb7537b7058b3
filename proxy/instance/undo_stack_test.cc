// SPDX-License-Identifier: Apache-2.0
//
// Steps are undone last made first, whether or not one fails; and what was undone in another way leaves nothing
// behind, however often.

#include "proxy/instance/undo_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hedgerow {
namespace {

using testing::ElementsAre;

TEST(UndoStack, UndoesTheLastFirstAndGoesOnAfterAFailure) {
  std::vector<std::string> undone;
  UndoStack stack;
  stack.Push("a", [&] {
    undone.push_back("a");
    return absl::OkStatus();
  });
  stack.Push("b", [] { return absl::InternalError("no"); });
  stack.Push("c", [&] {
    undone.push_back("c");
    return absl::OkStatus();
  });
  EXPECT_THAT(stack.Unwind(), ElementsAre("b: no"));
  EXPECT_THAT(undone, ElementsAre("c", "a"));
}

// As when the kernel's answer to a removal is lost.
TEST(UndoStack, AStepThatFailedIsTriedOnceMore) {
  int tries = 0;
  UndoStack stack;
  stack.Push("a", [&] { return ++tries == 1 ? absl::ResourceExhaustedError("no answer") : absl::OkStatus(); });
  EXPECT_TRUE(stack.Unwind().empty());
  EXPECT_EQ(tries, 2);
}

// As of an uplink that reloads add and remove: its attachment holds a file descriptor.
TEST(UndoStack, WhatIsDroppedIsNotHeldAndNotUndone) {
  std::vector<std::string> undone;
  UndoStack stack;
  const auto push = [&](const std::string& what, std::shared_ptr<int> held) {
    stack.Push(what, [&undone, what, held] {
      undone.push_back(what);
      return absl::OkStatus();
    });
  };
  push("one", nullptr);
  for (int i = 0; i < 1000; ++i) {
    const auto made = std::make_shared<int>(i);
    push("uplink", made);
    stack.Drop("uplink");
    EXPECT_EQ(made.use_count(), 1);
  }
  push("two", nullptr);
  stack.Drop("nothing of the kind");
  EXPECT_EQ(stack.size(), 2u);
  EXPECT_TRUE(stack.Unwind().empty());
  EXPECT_THAT(undone, ElementsAre("two", "one"));
}

}  // namespace
}  // namespace hedgerow
