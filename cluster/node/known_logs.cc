// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/known_logs.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/records.h"

namespace hedgerow::node {
namespace {

constexpr char kTitle[] = "hedgerow known logs 1";
constexpr char kMark[] = "unknown-log";

std::string MarkOf(const std::string& data_dir) { return absl::StrCat(data_dir, "/", kMark); }

// Nothing: it is not there.
std::optional<std::string> Read(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The old file or the new one, whatever happens in between.
absl::Status Replace(const std::string& path, const std::string& text) {
  const std::string unfinished = absl::StrCat(path, ".unfinished");
  if (absl::Status status = storage::WriteSynced(unfinished, text); !status.ok()) return status;
  if (rename(unfinished.c_str(), path.c_str()) != 0) return storage::FromErrno(path, "write", errno);
  return storage::SyncParent(path);
}

std::string FirstLine(uint64_t log_id) { return absl::StrFormat("own %016x\n", log_id); }

std::string LastLine(const std::string& lines) {
  return absl::StrFormat("crc32 %08x\n", storage::Checksum(kTitle, lines));
}

bool ParseOwn(const std::string& line, uint64_t& own) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  return words.size() == 2 && words[0] == "own" && absl::SimpleHexAtoi(words[1], &own) && own != 0;
}

// "NODE LOG", both decimal and hexadecimal.
bool ParseLine(const std::string& line, std::map<raft::NodeId, uint64_t>& logs) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  uint64_t node = 0;
  uint64_t log_id = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &node) || !absl::SimpleHexAtoi(words[1], &log_id))
    return false;
  return node != 0 && log_id != 0 && logs.emplace(raft::NodeId(node), log_id).second;
}

// "own LOG", whose file it is, stands before the others. Without it (the first programs that had such files did
// not write it) it is of whatever log is there.
bool Parse(const std::string& text, uint64_t& own, std::map<raft::NodeId, uint64_t>& logs) {
  const std::string title = absl::StrCat(kTitle, "\n");
  if (text.compare(0, title.size(), title) != 0) return false;
  const size_t end = text.rfind("crc32 ");
  if (end == std::string::npos || end < title.size()) return false;
  const std::string lines = text.substr(title.size(), end - title.size());
  if (text.substr(end) != LastLine(lines)) return false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(lines, '\n', absl::SkipEmpty()))) {
    if (own == 0 && logs.empty() && ParseOwn(line, own)) continue;
    if (!ParseLine(line, logs)) return false;
  }
  return true;
}

// "NODE LOG\n". Whatever else stands there is of this log, too: nobody is believed for a mark that is damaged.
bool IsOfAnother(const std::string& mark, uint64_t log_id) {
  std::map<raft::NodeId, uint64_t> marked;
  const size_t end = mark.find('\n');
  if (end == std::string::npos || end + 1 != mark.size() || !ParseLine(mark.substr(0, end), marked))
    return false;
  return marked.begin()->second != log_id;
}

}  // namespace

absl::StatusOr<KnownLogs> KnownLogs::Open(const std::string& data_dir, uint64_t log_id) {
  KnownLogs known(absl::StrCat(data_dir, "/known-logs"), log_id);
  const std::optional<std::string> text = Read(known.path_);
  uint64_t own = 0;
  if (text.has_value() && !Parse(*text, own, known.logs_)) {
    return storage::DamagedError(
        data_dir,
        absl::StrCat("the file ", known.path_, ", which says what logs the other members have, is none"));
  }
  if (own != 0 && own != log_id) known.logs_.clear();
  return known;
}

uint64_t KnownLogs::Of(raft::NodeId node) const {
  const auto found = logs_.find(node);
  return found == logs_.end() ? 0 : found->second;
}

absl::Status KnownLogs::Record(raft::NodeId node, uint64_t log_id) {
  if (Of(node) == log_id) return absl::OkStatus();
  std::map<raft::NodeId, uint64_t> logs = logs_;
  logs[node] = log_id;
  if (absl::Status status = Write(logs); !status.ok()) return status;
  logs_ = std::move(logs);
  return absl::OkStatus();
}

absl::Status KnownLogs::KeepOnly(const std::vector<raft::NodeId>& members) {
  std::map<raft::NodeId, uint64_t> logs = logs_;
  std::erase_if(logs, [&members](const auto& log) {
    return std::find(members.begin(), members.end(), log.first) == members.end();
  });
  if (logs.size() == logs_.size()) return absl::OkStatus();
  if (absl::Status status = Write(logs); !status.ok()) return status;
  logs_ = std::move(logs);
  return absl::OkStatus();
}

absl::Status KnownLogs::Write(const std::map<raft::NodeId, uint64_t>& logs) const {
  std::string lines = FirstLine(log_id_);
  for (const auto& [node, log_id] : logs) absl::StrAppendFormat(&lines, "%d %016x\n", node.value(), log_id);
  return Replace(path_, absl::StrCat(kTitle, "\n", lines, LastLine(lines)));
}

absl::Status MarkUnknown(const std::string& data_dir, uint64_t log_id, raft::NodeId by) {
  return Replace(MarkOf(data_dir), absl::StrFormat("%d %016x\n", by.value(), log_id));
}

absl::Status CheckKnown(const std::string& data_dir, uint64_t log_id) {
  const std::optional<std::string> mark = Read(MarkOf(data_dir));
  if (!mark.has_value()) return absl::OkStatus();
  if (IsOfAnother(*mark, log_id)) {
    (void)unlink(MarkOf(data_dir).c_str());  // or the next start does it
    return absl::OkStatus();
  }
  return storage::AsLost(absl::FailedPreconditionError(absl::StrCat(
      "the log in ", data_dir, " is not the one that this member had: node ",
      mark->substr(0, mark->find_first_of(" \n")),
      " has recorded another. Somebody has emptied the folder, or it is another disk's, so what this node "
      "voted for "
      "and acknowledged is forgotten, and it must not go on under its id. If the folder of before is there "
      "still, "
      "stop the node and put it back. Otherwise let it come back under an id that was never used "
      "(`hedgerow cluster members rejoin` at the leader); the others go on while they are a majority")));
}

}  // namespace hedgerow::node
