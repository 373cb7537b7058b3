// SPDX-License-Identifier: Apache-2.0
//
// What the host remembers of a node's starts, outside the node's folder: a file beside the administration socket,
// one for each log, which says how often the node has started on that log. A folder that says less is an older
// copy that somebody has put back, and the node has forgotten what it promised since. It is as long there as the
// socket's folder is, as a rule until the host starts anew, and after that the host remembers nothing; the other
// members may (wire/peer_lives.h). Asked by Node::Create.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cluster/node/known_logs.h"

namespace hedgerow::node {

class HostMemory {
 public:
  // There is none where the socket stands in `data_dir` itself, which would be put back with the rest, or in no
  // folder that is there.
  HostMemory(const std::string& admin_socket, const std::string& data_dir, uint64_t log_id);

  uint64_t starts() const;  // 0: it remembers none
  // The node's folder says so already, durably. Not synced: a memory that is lost is no harm.
  absl::Status Remember(uint64_t starts) const;

 private:
  std::string path_;  // empty: there is none
};

// Counts a start of the node, in its folder and then on the host. To be called before anything is promised: what is
// promised from then on is of a start that both know of. An error that storage::IsLost knows: the node was found out
// before, or the host remembers a later start than the folder, which is marked then.
absl::Status CountStart(const std::string& admin_socket, const std::string& data_dir, KnownLogs& known);

}  // namespace hedgerow::node
