// SPDX-License-Identifier: Apache-2.0
//
// How much memory the node's process may take, and how large a store that is enough for (ADR 40). The store's limit is
// the cluster's; the memory is each node's own. Read from /proc and /sys; any thread.

#pragma once

#include <cstdint>
#include <string>

namespace hedgerow::node {

// Of the host, or less where a memory cgroup of this process, or one above it, has less (cgroups(7), both versions).
// `root`: for tests, the folder that has proc and sys. UINT64_MAX: nothing says how much.
uint64_t AvailableMemory_bytes(const std::string& root = "");
// Resident pages of this process; 0: not known.
uint64_t ResidentMemory_bytes();

// What a node may need whose store has this limit: a snapshot that is being received stands beside the state that it is
// to replace, malloc has gaps, the reserve of an eighth, and an eighth for what a snapshot that is being taken has
// copied. Beside it stand programs, buffers of sockets and requests, and what the log keeps in memory.
// tests/e2e/test_store_bounds.py measures less of nodes whose stores are full.
constexpr uint64_t kMemoryPerLimit = 3;
constexpr uint64_t kMemoryBeside_bytes = uint64_t{112} << 20;
constexpr uint64_t MemoryNeeded_bytes(uint64_t limit_bytes) {
  return kMemoryPerLimit * limit_bytes + kMemoryBeside_bytes;
}
// What a snapshot that is being taken may hold beside the state: copies of what has changed since it was begun, and
// what waits for the disk. An eighth of the store's limit, 16 MiB at least.
uint64_t SnapshotCopiesMax_bytes(uint64_t limit_bytes);
// The largest limit, up to `most_bytes`, that so much memory is enough for, in whole MiB; 16 MiB at least.
uint64_t LimitFor_bytes(uint64_t available_bytes, uint64_t most_bytes);

// A log that has grown by so much since the last snapshot is compacted: a sixteenth of the memory, 8 MiB at least.
uint64_t LogMax_bytes(uint64_t available_bytes);
// Requests that wait here may take so much: a sixteenth of the memory, within 8 and 256 MiB.
uint64_t WaitingMax_bytes(uint64_t available_bytes);

}  // namespace hedgerow::node
