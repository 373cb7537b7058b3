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

constexpr char kTitle[] = "hedgerow known logs 2";
constexpr char kFormerTitle[] = "hedgerow known logs 1";  // it counts no starts
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

std::string FirstLine(const OwnLog& own) { return absl::StrFormat("own %016x %d\n", own.log_id, own.starts); }

std::string LastLine(const char* title, const std::string& lines) {
  return absl::StrFormat("crc32 %08x\n", storage::Checksum(title, lines));
}

// "own LOG STARTS", the latter not in the former files.
bool ParseOwn(const std::string& line, OwnLog& own) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() != 2 && words.size() != 3) return false;
  if (words.size() == 3 && !absl::SimpleAtoi(words[2], &own.starts)) return false;
  return words[0] == "own" && absl::SimpleHexAtoi(words[1], &own.log_id) && own.log_id != 0;
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

// The line of the own log stands before the others. Without it (the first programs that had such files did not
// write it) the file is of whatever log is there.
bool Parse(const std::string& text, OwnLog& own, std::map<raft::NodeId, uint64_t>& logs) {
  const char* const title = text.starts_with(absl::StrCat(kFormerTitle, "\n")) ? kFormerTitle : kTitle;
  const std::string first = absl::StrCat(title, "\n");
  if (!text.starts_with(first)) return false;
  const size_t end = text.rfind("crc32 ");
  if (end == std::string::npos || end < first.size()) return false;
  const std::string lines = text.substr(first.size(), end - first.size());
  if (text.substr(end) != LastLine(title, lines)) return false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(lines, '\n', absl::SkipEmpty()))) {
    if (own.log_id == 0 && logs.empty() && ParseOwn(line, own)) continue;
    if (!ParseLine(line, logs)) return false;
  }
  return true;
}

struct Mark {
  uint64_t by = 0;  // 0: the host
  OwnLog of;        // starts 0: of whatever state of it
};

// "BY LOG STARTS\n", the last not in marks of former programs. Nothing: it is damaged.
std::optional<Mark> ParseMark(const std::string& text) {
  if (text.empty() || text.back() != '\n') return std::nullopt;
  const std::vector<std::string> words = absl::StrSplit(text.substr(0, text.size() - 1), ' ');
  Mark mark;
  if ((words.size() != 2 && words.size() != 3) || !absl::SimpleAtoi(words[0], &mark.by) ||
      !absl::SimpleHexAtoi(words[1], &mark.of.log_id) || mark.of.log_id == 0)
    return std::nullopt;
  if (words.size() == 3 && !absl::SimpleAtoi(words[2], &mark.of.starts)) return std::nullopt;
  return mark;
}

// A damaged mark counts as a mark of this log, so it stands and the node stays LOST.
bool IsOfAnother(const std::string& text, const OwnLog& own) {
  const std::optional<Mark> mark = ParseMark(text);
  if (!mark.has_value()) return false;
  return mark->of.log_id != own.log_id || (mark->of.starts != 0 && mark->of.starts < own.starts);
}

}  // namespace

absl::StatusOr<KnownLogs> KnownLogs::Open(const std::string& data_dir, uint64_t log_id) {
  KnownLogs known(absl::StrCat(data_dir, "/known-logs"), log_id);
  const std::optional<std::string> text = Read(known.path_);
  OwnLog own;
  if (text.has_value() && !Parse(*text, own, known.logs_)) {
    return storage::DamagedError(
        data_dir,
        absl::StrCat("the file ", known.path_, ", which says what logs the other members have, is none"));
  }
  if (own.log_id == 0 || own.log_id == log_id) {
    known.own_.starts = own.starts;
  } else {
    known.logs_.clear();
  }
  return known;
}

absl::Status KnownLogs::CountStart() {
  const OwnLog counted{.log_id = own_.log_id, .starts = own_.starts + 1};
  if (absl::Status status = Write(counted, logs_); !status.ok()) return status;
  own_ = counted;
  return absl::OkStatus();
}

uint64_t KnownLogs::Of(raft::NodeId node) const {
  const auto found = logs_.find(node);
  return found == logs_.end() ? 0 : found->second;
}

absl::Status KnownLogs::Record(raft::NodeId node, uint64_t log_id) {
  if (Of(node) == log_id) return absl::OkStatus();
  std::map<raft::NodeId, uint64_t> logs = logs_;
  logs[node] = log_id;
  if (absl::Status status = Write(own_, logs); !status.ok()) return status;
  logs_ = std::move(logs);
  return absl::OkStatus();
}

absl::Status KnownLogs::KeepOnly(const std::vector<raft::NodeId>& members) {
  std::map<raft::NodeId, uint64_t> logs = logs_;
  std::erase_if(logs, [&members](const auto& log) {
    return std::find(members.begin(), members.end(), log.first) == members.end();
  });
  if (logs.size() == logs_.size()) return absl::OkStatus();
  if (absl::Status status = Write(own_, logs); !status.ok()) return status;
  logs_ = std::move(logs);
  return absl::OkStatus();
}

absl::Status KnownLogs::Write(const OwnLog& own, const std::map<raft::NodeId, uint64_t>& logs) const {
  std::string lines = FirstLine(own);
  for (const auto& [node, log_id] : logs) absl::StrAppendFormat(&lines, "%d %016x\n", node.value(), log_id);
  return Replace(path_, absl::StrCat(kTitle, "\n", lines, LastLine(kTitle, lines)));
}

absl::Status MarkUnknown(const std::string& data_dir, const OwnLog& own, raft::NodeId by) {
  return Replace(MarkOf(data_dir), absl::StrFormat("%d %016x %d\n", by.value(), own.log_id, own.starts));
}

absl::Status CheckKnown(const std::string& data_dir, const OwnLog& own) {
  const std::optional<std::string> text = Read(MarkOf(data_dir));
  if (!text.has_value()) return absl::OkStatus();
  if (IsOfAnother(*text, own)) {
    (void)unlink(MarkOf(data_dir).c_str());  // or the next start does it
    return absl::OkStatus();
  }
  const std::optional<Mark> mark = ParseMark(*text);
  const std::string why =
      mark.has_value() && mark->by == 0
          ? "this host remembers a later start of the node on it. Somebody has put back an older copy of the folder"
          : absl::StrCat("node ", text->substr(0, text->find_first_of(" \n")),
                         " has recorded another, or a later state of it. Somebody has emptied the folder or put back "
                         "an older copy of it");
  return storage::AsLost(absl::FailedPreconditionError(absl::StrCat(
      "the log in ", data_dir, " is not the one that this member had: ", why,
      " (a snapshot of its volume, a backup), or it is another disk's, so what this node voted for and acknowledged "
      "is forgotten, and it must not go on under its id. If the folder of before is there still, stop the node and "
      "put it back. Otherwise let it come back under an id that was never used (`hedgerow cluster members rejoin` at "
      "the leader); the others go on while they are a majority")));
}

}  // namespace hedgerow::node
