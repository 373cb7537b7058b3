// SPDX-License-Identifier: Apache-2.0
//
// Which log each other member has, as this node has recorded it: a file beside its own log. A member that comes
// back with another one has lost what it promised (somebody has emptied its folder), and must not be believed
// under its old id. The file also counts how often the node has started on its own log, by which others can tell
// an older copy of the folder that was put back. And the mark of a node that was found out so itself. Asked by
// Peers and Node, in the loop's thread; docs/SAFETY.md argues for it, docs/adr/0021 says why so.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/raft/types.h"

namespace hedgerow::node {

// A node's own log, as its folder has it.
struct OwnLog {
  uint64_t log_id = 0;
  uint64_t starts = 0;  // of the node on this log, this one included once it is counted
};

// What Peers asks; a file (KnownLogs), or the simulator's.
class LogRegister {
 public:
  virtual ~LogRegister() = default;
  virtual const OwnLog& own() const = 0;
  virtual uint64_t Of(raft::NodeId node) const = 0;  // 0: none is recorded
  // Durable when it returns without an error; after one nothing has changed.
  virtual absl::Status Record(raft::NodeId node, uint64_t log_id) = 0;
  // Whoever else was recorded is no member any more, and may come back with another log. After an error nothing
  // has changed.
  virtual absl::Status KeepOnly(const std::vector<raft::NodeId>& members) = 0;
};

class KnownLogs final : public LogRegister {
 public:
  // `data_dir` exists, and the log in it is `log_id`. A file that is not there says that none is known, and so
  // does one of another log, over which this one's folder was copied; one that is damaged is an error, since
  // what it said must not be learned anew.
  static absl::StatusOr<KnownLogs> Open(const std::string& data_dir, uint64_t log_id);

  const OwnLog& own() const override { return own_; }
  // This start is one more. To be called before anything is promised; durable when it returns without an error.
  absl::Status CountStart();
  uint64_t Of(raft::NodeId node) const override;
  absl::Status Record(raft::NodeId node, uint64_t log_id) override;
  absl::Status KeepOnly(const std::vector<raft::NodeId>& members) override;

  const std::string& path() const { return path_; }

 private:
  KnownLogs(std::string path, uint64_t log_id) : path_(std::move(path)), own_{.log_id = log_id} {}
  absl::Status Write(const OwnLog& own, const std::map<raft::NodeId, uint64_t>& logs) const;

  std::string path_;
  OwnLog own_;
  std::map<raft::NodeId, uint64_t> logs_;
};

// `by` says that this log is not the one that was recorded of the node, or not its latest state; `by` not set: the
// host says so (host_memory.h). From now on the node is LOST, at every start; CheckKnown then says so, and what to
// do. Once the folder has another log, or a later state of this one, since it was put back over this one, the mark
// is of nothing that is there, and goes.
absl::Status MarkUnknown(const std::string& data_dir, const OwnLog& own, raft::NodeId by);
absl::Status CheckKnown(const std::string& data_dir, const OwnLog& own);

}  // namespace hedgerow::node
