// SPDX-License-Identifier: Apache-2.0
//
// For tests: hr-unsynced-fs as a process, on a folder that goes away with it.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "net/unique_fd.h"

namespace hedgerow::unsynced {

// Why nothing can be mounted here, as in a container that must not; empty: it can.
std::string WhyNoFuse();

class Mounted {
 public:
  // Mounted when it returns, or the test ends. `flags` are the program's.
  explicit Mounted(std::vector<std::string> flags = {});
  ~Mounted();
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;

  std::string path() const { return folder_ + "/mount"; }
  std::string backing() const { return folder_ + "/disk"; }
  // What it answers, when it is done.
  std::string Cut() { return Ask("cut\n"); }
  std::string Cut(uint64_t seed) { return Ask("cut " + std::to_string(seed) + "\n"); }
  // The end of its input. Its exit status.
  int End();

 private:
  std::string Ask(const std::string& command);

  std::string folder_;
  pid_t pid_ = -1;
  net::UniqueFd input_, output_;
};

bool IsMounted(const std::string& path);

}  // namespace hedgerow::unsynced
