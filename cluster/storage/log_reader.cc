// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/log_reader.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"

namespace hedgerow::storage {
namespace {

absl::Status OlderFormatError(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat("the log in ", path, " is of a format before ", kFormatVersion,
                   ", which is the one that this program reads; nothing was changed. Either stop all nodes, start the "
                   "former "
                   "version of the program, take a backup with it (`hedgerow-node backup`), move all folders away and "
                   "restore it with this version (`hedgerow-node restore`). Or go on with the former version on this "
                   "node "
                   "(docs/cluster.md, \"Versions\")"));
}

// What is wrong with `entry` behind one of `last`; empty if nothing.
std::string Misfit(const raft::Entry& entry, const raft::EntryId& last, const StateRecord& state) {
  if (entry.term >= last.term && entry.term <= state.hard_state.term) return "";
  return absl::StrCat("entry ", entry.index.value(), " is of term ", entry.term.value(), ", which is not between term ",
                      last.term.value(), " of the entry before and the node's term ", state.hard_state.term.value());
}

// A log that records are laid on, from the first one of a file on. It may begin with an entry in its midst;
// whether that is late enough is known at its end.
class Replay {
 public:
  // What is wrong with it, or nothing.
  std::string Take(BatchRecord batch) {
    if (batch.entries.size() > batch.state.last_index.value()) return "it has an entry before the first one";
    const raft::LogIndex first = batch.first();
    const raft::EntryId before = {.index = first.Previous(), .term = batch.term_before};
    if (batch.state.batch == 1) known_ = raft::EntryId();
    // What stood up to the start means nothing, and neither does what stood behind the batch's first entry.
    if (!known_.has_value() || first <= known_->index || before.index <= batch.state.start.index) {
      entries_.clear();
      known_ = before;
    }
    if (first > End().index.Next())
      return absl::StrCat("entry ", End().index.value() + 1, " is missing before entry ", first.value());
    while (End().index >= first) entries_.pop_back();
    if (End().term != before.term) {
      return absl::StrCat("entry ", first.value(), " follows an entry of term ", before.term.value(), ", but entry ",
                          before.index.value(), " is of term ", End().term.value());
    }
    for (raft::Entry& entry : batch.entries) {
      std::string misfit = Misfit(entry, End(), batch.state);
      if (!misfit.empty()) return misfit;
      entries_.push_back(std::move(entry));
    }
    state_ = batch.state;
    if (End().term != state_.last_term) return "its last entry is not of the term that it says";
    while (!entries_.empty() && entries_.front().index <= state_.start.index) {
      known_ = raft::EntryId{.index = entries_.front().index, .term = entries_.front().term};
      entries_.pop_front();
    }
    if (known_->index == state_.start.index && known_->term != state_.start.term) {
      return absl::StrCat("it begins after entry ", known_->index.value(), " of term ", state_.start.term.value(),
                          ", but that entry is of term ", known_->term.value());
    }
    return "";
  }

  std::string Finish(ReadLog& log) {
    if (known_->index > state_.start.index) {
      return absl::StrCat("entry ", state_.start.index.value() + 1, " is missing before entry ",
                          known_->index.value() + 1);
    }
    log.state = state_;
    log.raft.hard_state = state_.hard_state;
    log.raft.start = state_.start;
    log.raft.entries.assign(std::make_move_iterator(entries_.begin()), std::make_move_iterator(entries_.end()));
    return "";
  }

 private:
  raft::EntryId End() const {
    if (entries_.empty()) return *known_;
    return {.index = entries_.back().index, .term = entries_.back().term};
  }

  StateRecord state_;
  std::optional<raft::EntryId> known_;  // what the entries follow; nothing before the first record
  std::deque<raft::Entry> entries_;
};

// One range of records in a file.
struct Piece {
  const FoundSegment* file;
  RecordRange records;
};
using Run = std::vector<Piece>;  // without a gap between them

absl::StatusOr<std::string> ReadRun(const Run& run, ReadLog& log, LoadProgress* progress) {
  Replay replay;
  uint64_t total_bytes = 0;
  for (const Piece& piece : run) total_bytes += piece.file->bytes;
  if (progress != nullptr) progress->Begin(LoadProgress::Stage::kReplaying, total_bytes);
  for (const Piece& piece : run) {
    const absl::StatusOr<std::string> bytes = ReadSegment(piece.file->path);
    if (!bytes.ok()) return bytes.status();
    std::string_view rest = std::string_view(*bytes).substr(piece.records.begin);
    for (uint64_t number = piece.records.first_batch; number <= piece.records.last_batch; ++number) {
      const size_t size = RecordSize(rest, piece.file->salt, number);
      if (size == 0) return absl::InternalError(absl::StrCat(piece.file->path, " changed while it was read"));
      std::optional<BatchRecord> batch = ParseBatch(rest.substr(0, size));
      std::string wrong = batch.has_value() ? replay.Take(*std::move(batch)) : "it is no batch";
      if (!wrong.empty()) return absl::StrCat("batch ", number, ": ", wrong);
      rest.remove_prefix(size);
    }
    if (progress != nullptr) progress->Add(bytes->size());
  }
  return replay.Finish(log);
}

// Of the files in a folder; what cannot be asked counts nothing.
uint64_t BytesIn(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder, error)) {
    const uint64_t size = entry.file_size(error);
    if (!error) bytes += size;
  }
  return bytes;
}

std::vector<Run> RunsOf(std::vector<Piece> pieces) {
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.records.first_batch < b.records.first_batch; });
  std::vector<Run> runs;
  for (const Piece& piece : pieces) {
    if (runs.empty() || runs.back().back().records.last_batch + 1 != piece.records.first_batch) runs.emplace_back();
    runs.back().push_back(piece);
  }
  return runs;
}

}  // namespace

std::string LogHeaderOf(const std::string& log_path) { return log_path + "/log-header"; }

absl::StatusOr<std::optional<LogHeader>> ReadLogHeader(const std::string& log_path, const StoredIdentity& expected) {
  const std::string path = LogHeaderOf(log_path);
  const absl::StatusOr<std::optional<std::string>> bytes = ReadIfThere(path);
  if (!bytes.ok()) return bytes.status();
  if (!bytes->has_value()) {
    if (access((log_path + "/rocksdb").c_str(), F_OK) == 0) return OlderFormatError(log_path);
    return std::nullopt;
  }
  std::optional<LogHeader> header = ParseLogHeader(**bytes);
  if (!header.has_value()) {
    return DamagedError(log_path,
                        "the file `log-header`, which says whose log it is and which, is not what was written to it");
  }
  if (header->format_version > kFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the log in ", log_path, " has format ", header->format_version,
                                                      ", and this program reads format ", kFormatVersion,
                                                      ": start the version of the program that wrote it"));
  }
  if (header->format_version < kFormatVersion) return OlderFormatError(log_path);
  if (header->identity != expected) {
    return absl::FailedPreconditionError(
        absl::StrCat("the log in ", log_path, " belongs to node ", header->identity.node.value(), " of cluster ",
                     header->identity.cluster_id, ", and this is node ", expected.node.value(), " of cluster ",
                     expected.cluster_id, ": correct data_dir, node or cluster_id in the configuration"));
  }
  return header;
}

// The newest records hold if the log is whole with nothing but what stands in the files that they follow each
// other in: then what is missing before them is what a snapshot has made superfluous. Where a file has
// something broken in its midst they do not begin with a file.
absl::StatusOr<ReadLog> ReadSegments(const std::string& log_path, uint64_t copy_id, LoadProgress* progress) {
  const std::string folder = SegmentFolderOf(log_path);
  std::deque<FoundSegment> files;
  std::vector<Piece> pieces;
  ReadLog log;
  if (progress != nullptr) progress->Begin(LoadProgress::Stage::kChecking, BytesIn(folder));
  std::error_code error;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder, error)) {
    const absl::StatusOr<std::string> bytes = ReadSegment(entry.path().native());
    if (!bytes.ok()) return bytes.status();
    const SegmentContents contents = LookInto(*bytes, copy_id);
    if (progress != nullptr) progress->Add(bytes->size());
    const FoundSegment& file =
        files.emplace_back(FoundSegment{.path = entry.path().native(), .bytes = bytes->size(), .salt = contents.salt});
    for (const RecordRange& range : contents.ranges) {
      pieces.push_back({.file = &file, .records = range});
      log.last_batch_seen = std::max(log.last_batch_seen, range.last_batch);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) return FromErrno(folder, "read", error.value());

  std::vector<Run> runs = RunsOf(std::move(pieces));
  std::vector<Run>::const_reverse_iterator chosen = runs.rbegin();
  for (; chosen != runs.rend(); ++chosen) {
    const RecordRange& first = chosen->front().records;
    absl::StatusOr<std::string> wrong =
        absl::StrCat("what stands before batch ", first.first_batch, " in its file is not what was written there");
    if (first.begins_file()) wrong = ReadRun(*chosen, log, progress);
    if (!wrong.ok()) return wrong.status();
    if (wrong->empty()) break;
    if (!log.damage.empty()) continue;
    const uint64_t before = std::next(chosen) == runs.rend() ? 0 : std::next(chosen)->back().records.last_batch;
    log.damage = first.first_batch == before + 1
                     ? *wrong
                     : absl::StrCat("it holds batch ", first.first_batch, " right after batch ", before,
                                    "; what stood between them is gone (", *wrong, ")");
  }
  if (chosen != runs.rend()) {
    for (const Piece& piece : *chosen) {
      FoundSegment file = *piece.file;
      file.records = piece.records;
      log.files.push_back(std::move(file));
    }
  }
  for (const FoundSegment& file : files) {
    const bool needed = std::any_of(log.files.begin(), log.files.end(),
                                    [&file](const FoundSegment& each) { return each.path == file.path; });
    if (!needed) log.others.push_back(file.path);
  }
  return log;
}

}  // namespace hedgerow::storage
