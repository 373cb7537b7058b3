// SPDX-License-Identifier: Apache-2.0
//
// Writes a second into the log, one entry of 100 bytes each, by how many wait at a time and whether they are
// synced:
//
//   TMPDIR=/a/folder/on/the/disk build/release/bin/hr-storage-bench --benchmark_format=json
//
// The disk decides the synced figures; `syncs` says how many of them there were a second.

#include <benchmark/benchmark.h>
#include <poll.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cluster/raft/check.h"
#include "cluster/storage/log_storage.h"

namespace hedgerow::storage {
namespace {

void BM_Write(benchmark::State& state) {
  const auto in_flight = static_cast<uint64_t>(state.range(0));
  const char* parent = getenv("TMPDIR");
  std::string folder = std::string(parent != nullptr ? parent : "/tmp") + "/hr-storage-bench.XXXXXX";
  HEDGEROW_CHECK(mkdtemp(folder.data()) != nullptr);
  {
    StorageOptions options;
    options.path = folder + "/log";
    options.sync = state.range(1) != 0;
    absl::StatusOr<std::unique_ptr<LogStorage>> opened =
        LogStorage::Open(options, {.cluster_id = 1, .node = raft::NodeId(1)});
    HEDGEROW_CHECK(opened.ok());
    LogStorage& storage = **opened;

    const raft::Payload payload(std::string(100, 'x'));
    uint64_t written = 0;
    const auto write = [&](std::optional<raft::HardState> hard_state) {
      ++written;
      storage.Write({.sequence = written,
                     .hard_state = hard_state,
                     .entries = {{.term = raft::Term(1), .index = raft::LogIndex(written), .payload = payload}}});
    };
    const auto wait_for = [&storage](uint64_t sequence) {
      while (storage.TakeDurable() < sequence) {
        pollfd event = {.fd = storage.event_fd(), .events = POLLIN, .revents = 0};
        (void)poll(&event, 1, 1000);
        storage.ReadEvent();
      }
    };
    write(raft::HardState{.term = raft::Term(1)});
    wait_for(1);

    const StorageStatistics before = storage.statistics();
    for (auto iteration : state) {
      (void)iteration;
      write(std::nullopt);
      if (written >= in_flight) wait_for(written - in_flight + 1);
    }
    wait_for(written);
    const StorageStatistics after = storage.statistics();
    state.SetItemsProcessed(static_cast<int64_t>(after.writes - before.writes));
    const auto batches = static_cast<double>(after.batches - before.batches);
    state.counters["syncs"] = benchmark::Counter(options.sync ? batches : 0, benchmark::Counter::kIsRate);
    state.counters["writes_per_batch"] = static_cast<double>(after.writes - before.writes) / batches;
  }
  std::filesystem::remove_all(folder);
}
BENCHMARK(BM_Write)->ArgNames({"in_flight", "sync"})->ArgsProduct({{1, 64}, {1, 0}})->UseRealTime();

}  // namespace
}  // namespace hedgerow::storage

BENCHMARK_MAIN();
