// SPDX-License-Identifier: Apache-2.0
#include "proxy/admin/client.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "operate/admin_socket.h"
#include "operate/unit.h"

namespace hedgerow {

absl::StatusOr<AdminClient> AdminClient::Connect(const std::string& socket_path) {
  const bool unit = access(operate::kProxyUnit, F_OK) == 0;
  const auto channel = operate::OpenAdminChannel(
      socket_path, {.program = "hedgerowd",
                    .who_may = "the daemon's own user and root may, and the group of a monitoring socket",
                    .hint = absl::StrCat("Start it with `", unit ? "systemctl start hedgerowd" : "hedgerow up",
                                         "`, or name another socket with --socket")});
  if (!channel.ok()) return channel.status();
  return AdminClient(*channel,
                     "hedgerowd has the socket and does not answer in time: its process is stopped, or the host is "
                     "overloaded. The kernel part works on meanwhile");
}

}  // namespace hedgerow
