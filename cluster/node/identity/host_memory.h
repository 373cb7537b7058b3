// SPDX-License-Identifier: Apache-2.0
//
// What the host remembers of a node's starts, outside the node's folder: a file beside the administration
// socket, one for each log, which says how often the node has started on that log. A folder that says less is
// an older copy that was put back, and the node has forgotten what it promised since. It is as long there as
// the socket's folder is, as a rule until the host starts anew, and after that the host remembers nothing; the
// other members may (wire/peer_incarnations.h). Asked by IdentityKeeper.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace hedgerow::node {

class HostMemory {
 public:
  // There is none where the socket stands in `data_dir` itself, which would be put back with the rest, or in no
  // folder that is there.
  HostMemory(const std::string& admin_socket, const std::string& data_dir, uint64_t copy_id);

  uint64_t starts() const;  // 0: it remembers none
  // The node's folder says so already, durably. Not synced: a memory that is lost is no harm.
  absl::Status Remember(uint64_t starts) const;

 private:
  std::string path_;  // empty: there is none
};

}  // namespace hedgerow::node
