// SPDX-License-Identifier: Apache-2.0
//
// For tests that kill a writer: hr-storage-victim (storage_victim.cc) as a process. It writes a story to the
// log in a folder and says what is durable, until it is killed.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "net/unique_fd.h"

namespace hedgerow::storage {

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
