// SPDX-License-Identifier: Apache-2.0
//
// The fixture of the folder's tests: every test body runs on a thread of its own in a fresh network namespace.
// Without the privilege to make one the test is skipped and says so.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/network_namespace.h"

namespace hedgerow::net {

MATCHER(IsOk, "is OK") {
  *result_listener << "which is " << arg.ToString();
  return arg.ok();
}
MATCHER_P2(FailsWith, code, text, "fails with the code and text") {
  *result_listener << "which is " << arg.ToString();
  return arg.code() == code && std::string(arg.message()).find(text) != std::string::npos;
}

class NamespaceTest : public ::testing::Test {
 protected:
  // Runs `body` in a new namespace. gtest assertions inside it work as usual: they are thread-safe on Linux.
  void InNamespace(const std::function<void()>& body) {
    const absl::Status status = RunInNewNetworkNamespace([&]() -> absl::Status {
      // Mounts made by a test that dies go with it, too.
      if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return absl::ErrnoToStatus(errno, "make a mount namespace");
      }
      body();
      return absl::OkStatus();
    });
    if (absl::IsPermissionDenied(status)) GTEST_SKIP() << "needs root: " << status;
    ASSERT_THAT(status, IsOk());
  }

  // A command of the system's own tools, in the calling thread's namespace: an independent witness and a
  // foreign actor.
  static int Shell(const std::string& command) { return std::system(command.c_str()); }

  // Waits until `command` succeeds, at most five seconds. The kernel finishes IPv6 addresses and link states in
  // workers of its own, some time after the command that asked for them.
  static bool WaitFor(const std::string& command) {
    for (int attempt = 0; attempt < 250; ++attempt) {
      if (Shell(command) == 0) return true;
      usleep(20'000);
    }
    return false;
  }
};

}  // namespace hedgerow::net
