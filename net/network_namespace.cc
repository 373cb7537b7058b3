// SPDX-License-Identifier: Apache-2.0
//
// Namespaces by thread: unshare and setns act on the calling thread only, so a thread that ends takes its
// membership with it and nothing has to be switched back.
#include "net/network_namespace.h"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <thread>

#include "net/netlink/link.h"

namespace hedgerow::net {

absl::StatusOr<UniqueFd> NewNetworkNamespace() {
  absl::Status status;
  UniqueFd handle;
  std::thread([&] {
    if (unshare(CLONE_NEWNET) != 0) {
      status = absl::ErrnoToStatus(errno, "make a network namespace (needs CAP_SYS_ADMIN)");
      return;
    }
    handle = UniqueFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!handle.valid()) status = absl::ErrnoToStatus(errno, "open /proc/thread-self/ns/net");
    if (status.ok()) status = SetLinkUp("lo");
  }).join();
  if (!status.ok()) return status;
  return handle;
}

absl::Status RunInNetworkNamespace(int handle, const std::function<absl::Status()>& body) {
  absl::Status status;
  std::thread([&] {
    if (setns(handle, CLONE_NEWNET) != 0) {
      status = absl::ErrnoToStatus(errno, "enter a network namespace");
      return;
    }
    status = body();
  }).join();
  return status;
}

absl::Status RunInNewNetworkNamespace(const std::function<absl::Status()>& body) {
  auto handle = NewNetworkNamespace();
  if (!handle.ok()) return handle.status();
  return RunInNetworkNamespace(handle->get(), body);
}

}  // namespace hedgerow::net
