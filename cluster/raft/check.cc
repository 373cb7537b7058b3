// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/check.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace hedgerow {
namespace {

thread_local CheckFailureHandler failure_handler = nullptr;

}  // namespace

void SetCheckFailureHandler(CheckFailureHandler handler) { failure_handler = handler; }

void CheckFailed(const char* file, int line, const char* condition) {
  if (failure_handler != nullptr) failure_handler(file, line, condition);
  alarm(2);  // where no process reads stderr, the line must not keep this one from its end
  fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, condition);
  signal(SIGABRT, SIG_DFL);  // for a core, whatever the program does where a library gives up
  abort();
}

}  // namespace hedgerow
