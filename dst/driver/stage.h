// SPDX-License-Identifier: Apache-2.0
//
// One run from its beginning to its end: proxy, nodes and load are raised, the plan's faults are done at their
// virtual times, everything is mended, the store is read, and what is to be judged is left in a folder. Used by
// main.cc. Errors say that there was no experiment; what must not have happened is in the diary.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "dst/driver/cast.h"
#include "dst/driver/plan.h"

namespace hedgerow::dst {

class Stage {
 public:
  Stage(Plan plan, std::string out);
  ~Stage();

  absl::Status Run();
  bool sound() const { return diary_.sound(); }

 private:
  struct Turn {
    uint64_t at_ns;  // since the load has begun
    size_t fault;    // place in the plan
    bool begins;
  };

  absl::Status Raise();
  absl::Status RaiseLoad();
  void Play();
  void Close();
  std::vector<Turn> Turns() const;
  void Begin(size_t place);
  void End(size_t place);
  void BeginAt(const Fault& fault, uint32_t node);
  void EndAt(const Fault& fault, uint32_t node);
  void NetworkFaultEverywhere(const std::string& words);
  std::vector<uint32_t> Choose(const Fault& fault) const;
  uint32_t Leader() const;
  void WaitUntil(uint64_t at_ns);
  void EndLoad();
  void ReadFinalState();
  void KeepStatus();

  Plan plan_;
  std::string out_;
  Diary diary_;
  Cast cast_;
  uint64_t begun_ns_ = 0;
  pid_t load_ = -1;
  pid_t hog_ = -1;
  std::map<size_t, std::vector<uint32_t>> chosen_{};  // by fault in progress: its nodes
};

}  // namespace hedgerow::dst
