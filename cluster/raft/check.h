// SPDX-License-Identifier: Apache-2.0
//
// HEDGEROW_CHECK: a broken invariant ends the process, in release builds too; a node that goes on after its own
// state has become impossible can only spread the damage. Bad input is never checked with it. The simulator
// installs a handler, so that it can name the seed.

#pragma once

namespace hedgerow {

// Does not return to its caller: it throws or ends the process.
using CheckFailureHandler = void (*)(const char* file, int line, const char* condition);

// For this thread; null is the default, which prints and aborts.
void SetCheckFailureHandler(CheckFailureHandler handler);

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace hedgerow

#define HEDGEROW_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::hedgerow::CheckFailed(__FILE__, __LINE__, #condition))
