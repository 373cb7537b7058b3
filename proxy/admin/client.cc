// SPDX-License-Identifier: Apache-2.0
#include "proxy/admin/client.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "operate/admin_socket.h"

namespace hedgerow {

absl::StatusOr<AdminClient> AdminClient::Connect(const std::string& socket_path) {
  // Where there is a unit, a daemon of `up` would be unconfined, and in the unit's way.
  const bool unit = access("/lib/systemd/system/hedgerowd.service", F_OK) == 0;
  const auto channel = operate::OpenAdminChannel(
      socket_path, {.program = "hedgerowd",
                    .who_may = "the daemon's own user and root may, and the group of a monitoring socket",
                    .hint = absl::StrCat("Start it with `", unit ? "systemctl start hedgerowd" : "hedgerow up",
                                         "`, or name another socket with --socket")});
  if (!channel.ok()) return channel.status();
  return AdminClient(v1::Admin::NewStub(*channel));
}

}  // namespace hedgerow
