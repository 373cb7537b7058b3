// SPDX-License-Identifier: Apache-2.0
//
// The keeper: a process that holds a second reference to each socket of a group. Sockets and their queues therefore survive the
// supervisor, and the next supervisor takes them (SCM_RIGHTS over a unix socket of the same user). The keeper has no capabilities. The
// supervisor starts it and talks to it by KeeperClient.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "steer/kernel_group.h"
#include "steer/process.h"

namespace hedgerow::steer {

struct KeptSocket {
  Transport transport = Transport::kUdp;
  int slot = 0;
  net::UniqueFd socket{};
};

class KeeperClient {
 public:
  // Starts a keeper that listens on `path`, and connects to it.
  static absl::StatusOr<KeeperClient> Start(const std::string& path);
  // Unavailable: there is none.
  static absl::StatusOr<KeeperClient> Connect(const std::string& path);
  KeeperClient(KeeperClient&&) = default;
  KeeperClient& operator=(KeeperClient&&) = default;

  // A socket of the same transport and slot is replaced.
  absl::Status Put(Transport transport, int slot, int socket);
  absl::Status Drop(Transport transport, int slot);
  absl::StatusOr<std::vector<KeptSocket>> Take();  // copies; the keeper keeps its own
  // It closes all and ends.
  absl::Status End();

  // Readable when the keeper has ended.
  int fd() const { return fd_.get(); }
  pid_t pid() const { return pid_; }  // of a keeper that Start() made, a child of this process; otherwise 0

 private:
  KeeperClient() = default;
  absl::Status Ask(uint8_t operation, Transport transport, int slot, int socket);

  net::UniqueFd fd_{};
  pid_t pid_ = 0;
};

// Whether a process is one, by its name.
bool IsKeeper(pid_t pid);

}  // namespace hedgerow::steer
