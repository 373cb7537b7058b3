// SPDX-License-Identifier: Apache-2.0
//
// For the tests of the log: a folder that goes away, a story of what a core could ask to persist (drawn from a
// seed, so that two processes tell the same one), the plain model of what a disk must then hold, and waiting.

#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"
#include "cluster/storage/log_reader.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/segment_file.h"

namespace hedgerow::storage {

class TestFolder {
 public:
  TestFolder();  // in TMPDIR, or /tmp
  explicit TestFolder(std::string path) : path_(std::move(path)), kept_(true) {}
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string log() const { return path_ + "/log"; }  // where the storage is
  std::string segments() const { return SegmentFolderOf(log()); }

 private:
  std::string path_;
  bool kept_ = false;
};

// Whether the log in the folder can be read to its end.
bool IsWhole(const TestFolder& folder);
// The files that the log in the folder stands in. Ends the test if it is none.
std::vector<FoundSegment> FilesOf(const TestFolder& folder);

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);

// The simulator's disk, without its faults.
void ApplyToModel(raft::RestoredState& state, const raft::Persist& persist);
bool Same(const raft::RestoredState& a, const raft::RestoredState& b);
// Short, for messages.
std::string Describe(const raft::RestoredState& state);

// Terms and votes, entries of 0 to 300 bytes and some of 50 KB, truncations followed by another term's entries,
// and truncations alone; with snapshots, new starts as well, of both kinds.
class Story {
 public:
  Story(uint64_t seed, raft::RestoredState start, bool with_snapshots = false)
      : random_(seed), state_(std::move(start)), with_snapshots_(with_snapshots) {}
  raft::Persist Next();
  const raft::RestoredState& state() const { return state_; }  // after the last one

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  void NewTerm(raft::Persist& persist);
  void Append(raft::Persist& persist, uint64_t count);
  void Start(raft::Persist& persist);
  uint64_t LastIndex() const { return state_.start.index.value() + state_.entries.size(); }

  std::mt19937_64 random_;
  raft::RestoredState state_;
  bool with_snapshots_;
  uint64_t sequence_ = 0;
};

inline constexpr uint64_t kTestCluster = 7;
inline constexpr raft::NodeId kTestNode = raft::NodeId(2);

// Some chunks that depend on `last`, published.
void TakeTestSnapshot(const SnapshotFolder& folder, const raft::EntryId& last);
// The persist's snapshot first, if it has one: what the core's users see to.
void WriteWithSnapshot(LogStorage& storage, raft::Persist persist);

StorageOptions TestOptions(const TestFolder& folder, bool sync);
// Ends the test if it fails.
std::unique_ptr<LogStorage> OpenOrDie(const StorageOptions& options);
// False: not in time.
bool AwaitDurable(LogStorage& storage, uint64_t sequence, absl::Duration timeout = absl::Seconds(30));

raft::Entry TestEntry(uint64_t index, uint64_t term, std::string payload);

}  // namespace hedgerow::storage
