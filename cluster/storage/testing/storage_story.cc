// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/testing/storage_story.h"

#include <poll.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cluster/raft/check.h"

namespace hedgerow::storage {

TestFolder::TestFolder() {
  const char* parent = getenv("TMPDIR");
  std::string name = absl::StrCat(parent != nullptr ? parent : "/tmp", "/hr-storage-test.XXXXXX");
  HEDGEROW_CHECK(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TestFolder::~TestFolder() {
  if (!kept_) std::filesystem::remove_all(path_);
}

namespace {

absl::StatusOr<ReadLog> SegmentsOf(const TestFolder& folder) {
  const auto header = ReadLogHeader(folder.log(), {.cluster_id = kTestCluster, .node = kTestNode});
  HEDGEROW_CHECK(header.ok() && header->has_value());
  return ReadSegments(folder.log(), (*header)->copy_id);
}

}  // namespace

bool IsWhole(const TestFolder& folder) {
  const absl::StatusOr<ReadLog> log = SegmentsOf(folder);
  return log.ok() && log->damage.empty();
}

std::vector<FoundSegment> FilesOf(const TestFolder& folder) {
  absl::StatusOr<ReadLog> log = SegmentsOf(folder);
  HEDGEROW_CHECK(log.ok() && log->damage.empty());
  return std::move(log->files);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  HEDGEROW_CHECK(file.is_open());
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  HEDGEROW_CHECK(file.flush().good());
}

void ApplyToModel(raft::RestoredState& state, const raft::Persist& persist) {
  if (persist.hard_state.has_value()) state.hard_state = *persist.hard_state;
  if (persist.new_start.has_value()) {
    const raft::NewStart& start = *persist.new_start;
    std::erase_if(state.entries,
                  [&start](const raft::Entry& entry) { return start.empties || entry.index <= start.after.index; });
    state.start = start.after;
    state.snapshot.last = start.snapshot;
  }
  if (persist.truncate_from.has_value()) {
    const uint64_t kept = persist.truncate_from->value() - state.start.index.value() - 1;
    state.entries.resize(std::min<size_t>(state.entries.size(), kept));
  }
  state.entries.insert(state.entries.end(), persist.entries.begin(), persist.entries.end());
}

bool Same(const raft::RestoredState& a, const raft::RestoredState& b) {
  return a.hard_state == b.hard_state && a.start == b.start && a.entries == b.entries;
}

std::string Describe(const raft::RestoredState& state) {
  return absl::StrCat("term ", state.hard_state.term.value(), ", vote ", state.hard_state.voted_for.value(), ", ",
                      state.entries.size(), " entries after ", state.start.index.value(), "/", state.start.term.value(),
                      ", the last of term ", state.entries.empty() ? 0 : state.entries.back().term.value());
}

raft::Persist Story::Next() {
  raft::Persist persist;
  persist.sequence = ++sequence_;
  const uint64_t what = Below(100);
  if (what < 5 || state_.hard_state.term == raft::Term()) {
    NewTerm(persist);
    if (Below(2) == 0) Append(persist, 1);
  } else if (with_snapshots_ && what >= 97) {
    Start(persist);
  } else if (const uint64_t loose = LastIndex() - std::max(state_.start.index, state_.snapshot.last.index).value();
             what < 10 && loose > 0) {
    const uint64_t gone = 1 + Below(std::min<uint64_t>(loose, 20));
    persist.truncate_from = raft::LogIndex(LastIndex() - gone + 1);
    state_.entries.resize(state_.entries.size() - gone);
    NewTerm(persist);
    Append(persist, Below(2 * gone));
  } else {
    Append(persist, 1 + Below(4));
  }
  return persist;
}

void Story::NewTerm(raft::Persist& persist) {
  state_.hard_state = {.term = state_.hard_state.term.Next(), .voted_for = raft::NodeId(Below(4))};
  persist.hard_state = state_.hard_state;
}

void Story::Append(raft::Persist& persist, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bytes = Below(100) == 0 ? 50'000 : Below(300);
    std::string payload;
    while (payload.size() < bytes) absl::StrAppend(&payload, random_(), " ");
    payload.resize(bytes);
    raft::Entry entry = TestEntry(LastIndex() + 1, state_.hard_state.term.value(), std::move(payload));
    if (Below(20) == 0) entry.kind = raft::EntryKind::kNoOp;
    persist.entries.push_back(entry);
    state_.entries.push_back(std::move(entry));
  }
}

// A leader's snapshot, beyond the log, or one of this node's own.
void Story::Start(raft::Persist& persist) {
  raft::NewStart start;
  const uint64_t first = std::max(state_.start.index, state_.snapshot.last.index).value();
  if (Below(4) == 0) {
    start.after = {.index = raft::LogIndex(LastIndex() + Below(50)), .term = state_.hard_state.term};
    start.snapshot = start.after;
    start.empties = true;
  } else {
    const auto at = [this](uint64_t index) {
      const uint64_t place = index - state_.start.index.value();
      return raft::EntryId{.index = raft::LogIndex(index),
                           .term = place == 0 ? state_.start.term : state_.entries[place - 1].term};
    };
    start.snapshot = at(first + Below(LastIndex() - first + 1));
    start.after = at(state_.start.index.value() + Below(start.snapshot.index.value() - state_.start.index.value() + 1));
  }
  persist.new_start = start;
  ApplyToModel(state_, persist);
}

void TakeTestSnapshot(const SnapshotFolder& folder, const raft::EntryId& last) {
  absl::StatusOr<SnapshotFileWriter> writer =
      folder.Begin({.cluster_id = kTestCluster,
                    .snapshot = {.last = last, .configuration = raft::Configuration::OfVoters({kTestNode})}},
                   "taking");
  HEDGEROW_CHECK(writer.ok());
  for (uint64_t chunk = 0; chunk < last.index.value() % 4; ++chunk) {
    const std::string bytes(1 + last.index.value() * 7919 % 50'000, static_cast<char>('a' + chunk));
    HEDGEROW_CHECK(writer->Append(bytes).ok());
  }
  HEDGEROW_CHECK(writer->Finish().ok() && folder.Publish(writer->path(), last).ok());
}

void WriteWithSnapshot(LogStorage& storage, raft::Persist persist) {
  if (persist.new_start.has_value()) TakeTestSnapshot(storage.snapshots(), persist.new_start->snapshot);
  storage.Write(std::move(persist));
}

StorageOptions TestOptions(const TestFolder& folder, bool sync) {
  StorageOptions options;
  options.path = folder.log();
  options.sync = sync;
  options.segment_bytes = 256 * 1024;  // so that there are several
  options.retry_interval = absl::Milliseconds(20);
  return options;
}

std::unique_ptr<LogStorage> OpenOrDie(const StorageOptions& options) {
  absl::StatusOr<std::unique_ptr<LogStorage>> storage =
      LogStorage::Open(options, {.cluster_id = kTestCluster, .node = kTestNode});
  if (!storage.ok()) std::fprintf(stderr, "%s\n", storage.status().ToString().c_str());
  HEDGEROW_CHECK(storage.ok());
  return *std::move(storage);
}

bool AwaitDurable(LogStorage& storage, uint64_t sequence, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (storage.TakeDurable() < sequence) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0) return false;
    pollfd event = {.fd = storage.event_fd(), .events = POLLIN, .revents = 0};
    (void)poll(&event, 1, static_cast<int>(left_ms));
    storage.ReadEvent();
  }
  return true;
}

raft::Entry TestEntry(uint64_t index, uint64_t term, std::string payload) {
  return {.term = raft::Term(term),
          .index = raft::LogIndex(index),
          .kind = raft::EntryKind::kCommand,
          .payload = payload.empty() ? raft::Payload() : raft::Payload(std::move(payload))};
}

}  // namespace hedgerow::storage
