// SPDX-License-Identifier: Apache-2.0
//
// What was made, and how to unmake it, in reverse order. Every step of the
// daemon's start pushes its undoing here as soon as it succeeded, so that a
// failure at any later step, an orderly end and an early return all leave the
// machine as it was. What shall outlive the daemon is forgotten instead.

#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow {

class UndoStack {
 public:
  UndoStack() = default;
  UndoStack(const UndoStack&) = delete;
  UndoStack& operator=(const UndoStack&) = delete;
  ~UndoStack() { Unwind(); }

  void Push(std::string what, std::function<absl::Status()> undo) {
    steps_.emplace_back(std::move(what), std::move(undo));
  }

  // What was undone in another way: the last step of this name is not kept, nor what it holds. A reload makes
  // and unmakes things for as long as the daemon lives.
  void Drop(const std::string& what) {
    const auto found =
        std::find_if(steps_.rbegin(), steps_.rend(), [&what](const auto& step) { return step.first == what; });
    if (found != steps_.rend()) steps_.erase(std::next(found).base());
  }

  size_t size() const { return steps_.size(); }

  // Undoes nothing: what was made stays.
  void Forget() { steps_.clear(); }

  // Runs every step, last made first, whether or not another fails; returns what failed twice, one line each.
  std::vector<std::string> Unwind() {
    std::vector<std::string> problems;
    while (!steps_.empty()) {
      const auto [what, undo] = std::move(steps_.back());
      steps_.pop_back();
      const absl::Status status = undo();
      // Once more: what was done, and the answer to it lost, is done then. The first error says why.
      if (!status.ok() && !undo().ok()) problems.push_back(absl::StrCat(what, ": ", std::string(status.message())));
    }
    return problems;
  }

 private:
  std::vector<std::pair<std::string, std::function<absl::Status()>>> steps_;
};

}  // namespace hedgerow
