// SPDX-License-Identifier: Apache-2.0
//
// How a node's log is kept, whose log it is, and what the log counts. Plain data: cluster/node fills the first
// two from its configuration and shows the third in its status and metrics.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "cluster/raft/types.h"
#include "cluster/storage/load_progress.h"
#include "cluster/storage/watermark.h"
#include "operate/durations.h"

namespace hedgerow::storage {

// Which recovery generation of its cluster a log belongs to (docs/adr/0019). All 0: it was never recovered or
// restored.
struct RecoveryGeneration {
  uint64_t epoch = 0;  // grows with each recovery; announcements carry it
  uint64_t nonce = 0;  // drawn at random, so that two recoveries to one epoch are not one cluster

  bool operator==(const RecoveryGeneration&) const = default;
};

struct StorageOptions {
  // The folder; it is made if its parent exists. It holds what README.md says, and belongs to one process.
  std::string path;
  // True: durable means fdatasync'ed. False (memory mode): durable means in the page cache, which survives the
  // death of the process and not that of the host.
  bool sync = true;
  // With sync: a write that its owner may wait for is committed on the owner's thread while syncs take less than this.
  uint64_t quick_sync_ns = 0;
  // What the cluster begins with, as the configuration file says: recorded by a log that begins now.
  raft::Configuration begins_with;

  // Of one file of the log, in whole pages. A single larger write gets a larger file.
  size_t segment_bytes = 8 * 1024 * 1024;
  // One batch takes no more than this, but for a single larger write.
  size_t batch_max_bytes = 4 * 1024 * 1024;
  // The core's own bounds (raft::Options: uncommitted and in-flight bytes) keep far below it; a write that comes
  // nevertheless is taken and counted, because the core has already built on it.
  size_t queue_max_bytes = 64 * 1024 * 1024;
  // While the disk is full.
  absl::Duration retry_interval = absl::Milliseconds(250);
  // Names the host's present run; empty: it cannot be known.
  std::string boot_id = KernelBootId();
  // What a log says of itself that is made anew. One that is there keeps its own.
  RecoveryGeneration generation{};
  // Where the opening of the log says how far it is; it must outlive that. Null: nowhere.
  LoadProgress* progress = nullptr;
};

// A log that is not this one's is refused.
struct StoredIdentity {
  uint64_t cluster_id = 0;
  raft::NodeId node{};

  bool operator==(const StoredIdentity&) const = default;
};

struct StorageStatistics {
  uint64_t writes = 0;        // Persists that are durable
  uint64_t batches = 0;       // what they were gathered in: one sync each
  uint64_t batches_here = 0;  // of them, committed on the owner's thread with sync
  uint64_t entries = 0;       // log entries that are durable
  uint64_t bytes = 0;         // of them, with their headers
  uint64_t hard_states = 0;   // terms and votes
  uint64_t truncations = 0;
  uint64_t new_starts = 0;
  uint64_t largest_batch = 0;  // Persists in one batch

  operate::Durations syncs;  // how long batches took, write and sync together

  uint64_t queue_length = 0;  // Persists taken and not durable yet
  uint64_t queue_bytes = 0;
  uint64_t queue_over_bound = 0;  // Persists taken beyond queue_max_bytes
  uint64_t full_disk_retries = 0;
};

}  // namespace hedgerow::storage
