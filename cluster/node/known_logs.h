// SPDX-License-Identifier: Apache-2.0
//
// Which log each other member has, as this node has recorded it: a file beside its own log. A member that comes
// back with another one has lost what it promised (somebody has emptied its folder), and must not be believed
// under its old id. And the mark of a node that was told so itself. Asked by Peers and Node, in the loop's
// thread; docs/SAFETY.md argues for it, docs/adr/0021 says why so.

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

class KnownLogs {
 public:
  // `data_dir` exists, and the log in it is `log_id`. A file that is not there says that none is known, and so
  // does one of another log, over which this one's folder was copied; one that is damaged is an error, since
  // what it said must not be learned anew.
  static absl::StatusOr<KnownLogs> Open(const std::string& data_dir, uint64_t log_id);

  uint64_t Of(raft::NodeId node) const;  // 0: none is recorded
  // Durable when it returns without an error; after one nothing has changed.
  absl::Status Record(raft::NodeId node, uint64_t log_id);
  // Whoever else was recorded is no member any more, and may come back with another log. After an error nothing
  // has changed.
  absl::Status KeepOnly(const std::vector<raft::NodeId>& members);

  const std::string& path() const { return path_; }

 private:
  KnownLogs(std::string path, uint64_t log_id) : path_(std::move(path)), log_id_(log_id) {}
  absl::Status Write(const std::map<raft::NodeId, uint64_t>& logs) const;

  std::string path_;
  uint64_t log_id_ = 0;
  std::map<raft::NodeId, uint64_t> logs_;
};

// The node has been told by `by` that its log, `log_id`, is not the one that was recorded of it. From now on it
// is LOST, at every start; CheckKnown then says so, and what to do. Once the folder has another log, whose
// folder was put back over this one, the mark is of nothing that is there, and goes.
absl::Status MarkUnknown(const std::string& data_dir, uint64_t log_id, raft::NodeId by);
absl::Status CheckKnown(const std::string& data_dir, uint64_t log_id);

}  // namespace hedgerow::node
