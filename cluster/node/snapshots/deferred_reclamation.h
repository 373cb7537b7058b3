// SPDX-License-Identifier: Apache-2.0
//
// Frees state machines in a thread of its own: to free one of ten million entries takes seconds, in which a
// leader would be given up. Used by a node's loop.

#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cluster/kv/state_machine.h"

namespace hedgerow::node {

class DeferredReclamation {
 public:
  DeferredReclamation() : thread_([this] { Run(); }) {}
  ~DeferredReclamation() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }
  DeferredReclamation(const DeferredReclamation&) = delete;
  DeferredReclamation& operator=(const DeferredReclamation&) = delete;

  // Never waits.
  void Take(std::unique_ptr<kv::StateMachine> state) {
    if (state == nullptr) return;
    absl::MutexLock lock(&mutex_);
    states_.push_back(std::move(state));
  }

 private:
  void Run() {
    while (true) {
      std::vector<std::unique_ptr<kv::StateMachine>> states;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &DeferredReclamation::SomethingToDo));
        if (states_.empty()) return;
        states.swap(states_);
      }
    }
  }
  bool SomethingToDo() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !states_.empty(); }

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<kv::StateMachine>> states_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace hedgerow::node
