// SPDX-License-Identifier: Apache-2.0
//
// How far the opening of a log is. The thread that opens it writes; any thread reads, for an operator who asks
// meanwhile. cluster/node shows it while a node starts.

#pragma once

#include <atomic>
#include <cstdint>

namespace hedgerow::storage {

class LoadProgress {
 public:
  // In the order in which they come.
  enum class Stage : uint8_t {
    kFolder,     // opens the folder, and reads whose it is
    kChecking,   // reads every file of the log
    kReplaying,  // reads those that the log stands in once more, record by record
    kSyncing,    // sees to it that they are on the disk
    kSnapshot,   // reads the snapshot into the state
    kOpened,     // the log is open
  };

  // `total_bytes`: of the stage; 0: not known.
  void Begin(Stage stage, uint64_t total_bytes = 0) {
    done_bytes_.store(0, std::memory_order_relaxed);
    total_bytes_.store(total_bytes, std::memory_order_relaxed);
    stage_.store(stage, std::memory_order_release);
  }
  void Add(uint64_t bytes) { done_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  Stage stage() const { return stage_.load(std::memory_order_acquire); }
  uint64_t done_bytes() const { return done_bytes_.load(std::memory_order_relaxed); }
  uint64_t total_bytes() const { return total_bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Stage> stage_ = Stage::kFolder;
  std::atomic<uint64_t> done_bytes_ = 0;
  std::atomic<uint64_t> total_bytes_ = 0;
};

}  // namespace hedgerow::storage
