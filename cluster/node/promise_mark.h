// SPDX-License-Identifier: Apache-2.0
//
// A file beside the log that says: the kernel may hold promises of this node, made in this run of the host,
// that its log does not hold yet. It is there from before the kernel may promise anything until the node has
// stopped in order. A node that finds it and not the kernel's maps has lost what it has acknowledged, and must
// not come back as itself (rule R3 and the memory mode of docs/SAFETY.md). Not synced: after the host's end
// memory mode's log is worth nothing either.

#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"

namespace hedgerow::node {

class PromiseMark {
 public:
  // `data_dir` is the node's; it exists once the storage is open. `boot_id` empty: the kernel's.
  explicit PromiseMark(const std::string& data_dir, std::string boot_id = "");

  // Whether it stands, of this run of the host.
  bool Stands() const;
  // An error: it cannot be written, so nothing may be promised.
  absl::Status Set() const;
  // What it stood for is gone, or the log that it goes with. From now on it stands in every run of the host:
  // the log, which is closed in order when the node gives up, would look whole to the next one.
  absl::Status SetLost() const;
  bool Lost() const;
  void Remove() const;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string boot_id_;
};

}  // namespace hedgerow::node
