// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/storage_story.h"

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

std::string TestFolder::Newest(const std::string& extension) const {
  std::string newest;
  for (const auto& file : std::filesystem::directory_iterator(rocksdb())) {
    if (file.path().extension() == extension) newest = std::max(newest, file.path().string());
  }
  return newest;
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
  if (persist.truncate_from.has_value()) {
    state.entries.resize(std::min<size_t>(state.entries.size(), persist.truncate_from->value() - 1));
  }
  state.entries.insert(state.entries.end(), persist.entries.begin(), persist.entries.end());
}

bool Same(const raft::RestoredState& a, const raft::RestoredState& b) {
  return a.hard_state == b.hard_state && a.entries == b.entries;
}

std::string Describe(const raft::RestoredState& state) {
  return absl::StrCat("term ", state.hard_state.term.value(), ", vote ", state.hard_state.voted_for.value(),
                      ", ", state.entries.size(), " entries, the last of term ",
                      state.entries.empty() ? 0 : state.entries.back().term.value());
}

raft::Persist Story::Next() {
  raft::Persist persist;
  persist.sequence = ++sequence_;
  const uint64_t what = Below(100);
  if (what < 5 || state_.hard_state.term == raft::Term()) {
    NewTerm(persist);
    if (Below(2) == 0) Append(persist, 1);
  } else if (what < 10 && !state_.entries.empty()) {
    const uint64_t gone = 1 + Below(std::min<uint64_t>(state_.entries.size(), 20));
    persist.truncate_from = raft::LogIndex(state_.entries.size() - gone + 1);
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
    raft::Entry entry =
        TestEntry(state_.entries.size() + 1, state_.hard_state.term.value(), std::move(payload));
    if (Below(20) == 0) entry.kind = raft::EntryKind::kNoOp;
    persist.entries.push_back(entry);
    state_.entries.push_back(std::move(entry));
  }
}

StorageOptions TestOptions(const TestFolder& folder, bool sync) {
  StorageOptions options;
  options.path = folder.log();
  options.sync = sync;
  options.write_buffer_bytes = 256 * 1024;  // so that tables are written, too
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
