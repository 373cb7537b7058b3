// SPDX-License-Identifier: Apache-2.0
//
// An incremental snapshot is the state machine as it was at one moment, written little by little while commands are
// applied (ADR 0012), without a fork. Each table walks over its entries; an entry that is to change before the walk
// reaches it is written first, as it was. So a snapshot costs a change one more entry to write, and never stops the
// loop.
//
// It makes chunks of bytes in this format, of which the first has the version. cluster/storage adds checksums. In each
// chunk, one after the other:
//
//   1  value      key, value
//   2  session    id, token, nonce, lowest unanswered, last active, wrote, answers: (seq, fingerprint, result)
//                 before version 5 without token, wrote and fingerprints: no client knows such a session, and it is
//                 passed over
//   3  windowed   time, key, result
//   4  state      version, committed time, content          first, and alone
//                 from version 3 on: settings' version and values, steps of both windows
//                 from version 4 on: the log's UUID; before, the content was another hash, which nothing reads
//                 from version 5 on: which of memcached's items are flushed, and when the others will be
//   5  end        how many values, sessions, windowed, items and seen    last
//   6  item       key, value, flags, unique, end             from version 2 on
//   7  seen       time, memcached's key, result              from version 2 on; from version 3 on the origin after the
//   time

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/raft/bytes.h"
#include "cluster/kv/command.h"
#include "cluster/kv/settings.h"

namespace hedgerow::kv {

// Raised with every change of the format; what was written before is read for ever.
inline constexpr uint32_t kSnapshotVersion = 6;
// A chunk is closed once it has as much as was asked for, so it is larger by one record at most.
inline constexpr size_t kSnapshotChunk_bytes = 64 * 1024;

enum class SnapshotRecord : uint8_t {
  kValue = 1,
  kSession = 2,
  kWindowed = 3,
  kState = 4,
  kEnd = 5,
  kItem = 6,
  kSeen = 7,
};

// From when on (in committed time) requests are recorded that are known for so long. See DedupeWindow.
struct WindowStep {
  uint64_t from_ns = 0;
  uint64_t window_ns = 0;

  bool operator==(const WindowStep&) const = default;
};
using WindowSteps = std::vector<WindowStep>;

// What is not a record of a table.
struct SnapshotHeader {
  uint64_t committed_ns = 0;
  uint64_t content = 0;  // the sum of the records' hashes (content_hash.h)
  Settings settings{};
  WindowSteps window_steps{};
  WindowSteps memcached_window_steps{};
  uint64_t log_uuid = 0;
  uint64_t items_flushed_before = 0;  // ItemStore
  uint64_t items_flush_at_ns = 0;
  uint32_t features = 0;  // StateMachine::features; 0 is written as format 5, for members that know no other
};

// When a request was stamped, and when it had reached the cluster, in committed time. See DedupeWindow.
struct SeenTimes {
  uint64_t time_ns = 0;
  uint64_t origin_ns = 0;
};

// What one session is, wherever it is kept.
struct SessionRecord {
  SessionName name{};
  uint64_t nonce = 0;
  uint64_t lowest_unanswered = 0;
  uint64_t active_ns = 0;
  bool wrote = false;  // a write with operations was applied in it
};

// What was said to a write, and to which.
struct SessionAnswer {
  uint64_t fingerprint = 0;
  Result result{};
};
using SessionAnswers = std::map<uint64_t, SessionAnswer>;  // by seq

// One of memcached's items, wherever it is kept.
struct Item {
  std::string value{};
  uint32_t flags = 0;
  uint64_t unique = 0;  // the log index of its last change
  uint64_t end_ns = 0;  // committed time; 0: none

  bool operator==(const Item&) const = default;
};

class SnapshotWriter {
 public:
  SnapshotWriter(const SnapshotHeader& header, size_t chunk_bytes);

  void Value(std::string_view key, std::string_view value);
  void Session(const SessionRecord& session, const SessionAnswers& answers);
  // A request of a window, in the record of its kind.
  void Windowed(const SeenTimes& times, const RequestKey& key, const Result& result);
  void KeptItem(std::string_view key, const Item& item);
  void End();

  // Of all records so far, as they were written down.
  uint64_t content() const { return content_; }
  // Of all chunks so far.
  uint64_t written_bytes() const { return closed_bytes_ + open_.view().size(); }
  // Of what was not taken yet: copies of what changed since, for the most part.
  uint64_t held_bytes() const { return written_bytes() - taken_bytes_; }
  // What is ready, in order.
  std::vector<std::string> TakeChunks();

 private:
  void Close();

  void RecordEnds();

  size_t chunk_bytes_;
  ByteWriter open_;
  std::vector<std::string> closed_;
  uint64_t closed_bytes_ = 0;
  uint64_t taken_bytes_ = 0;
  uint64_t content_ = 0;
  uint64_t values_ = 0;
  uint64_t sessions_ = 0;
  uint64_t windowed_ = 0;
  uint64_t items_ = 0;
  uint64_t seen_ = 0;
};

void PutResult(ByteWriter& writer, const Result& result);
Result GetResult(ByteReader& reader);
// What stands behind the version of a snapshot. One from before version 3 has no settings, and one from before version
// 4 no content.
void GetSnapshotHeader(ByteReader& reader, uint32_t version, SnapshotHeader& header);

}  // namespace hedgerow::kv
