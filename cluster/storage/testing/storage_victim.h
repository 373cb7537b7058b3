// SPDX-License-Identifier: Apache-2.0
//
// For tests that kill a writer: a process of its own that begins as a copy of the test's, which must have no other
// thread by then, and lives until it is killed or has done its part.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "net/unique_fd.h"

namespace hedgerow::storage {

// Does `life` in a process of its own, which ends without the test's own end.
pid_t Fork(const std::function<void()>& life);
// How it ended, as waitpid says it.
int Await(pid_t process);

// Writes a story to a log as fast as it can, and says what is durable, until it is killed.
class Victim {
 public:
  // The log is in `folder` as TestFolder has it; the story is the seed's.
  Victim(const std::string& folder, bool sync, uint64_t seed);
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // Waits until it has reported something, so that it is killed at work and not at its start.
  void AwaitFirstReport() { ReadReport(); }
  // The last sequence that it reported as durable.
  uint64_t Kill();
  // False: it had ended by itself.
  bool killed() const { return killed_; }

 private:
  bool ReadReport();

  pid_t pid_ = -1;
  net::UniqueFd out_;
  uint64_t reported_ = 0;
  bool killed_ = false;
};

}  // namespace hedgerow::storage
