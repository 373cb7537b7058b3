// SPDX-License-Identifier: Apache-2.0
#include "steer/admin_client.h"

#include "operate/admin_socket.h"

namespace hedgerow::steer {
namespace {

absl::StatusOr<std::unique_ptr<AdminClient::Stub>> Open(const std::string& path, const std::string& who_may) {
  const auto channel = operate::OpenAdminChannel(
      path, {.program = "hedgerow-steer",
             .who_may = who_may,
             .hint = "Start it with `hedgerow steer run`, or name another group with --name"});
  if (!channel.ok()) return channel.status();
  return v1::Steer::NewStub(*channel);
}

}  // namespace

absl::StatusOr<AdminClient> AdminClient::Connect(const Places& places) {
  auto stub = Open(places.admin(), "the supervisor's own user and root may");
  if (!stub.ok()) return stub.status();
  return AdminClient(*std::move(stub));
}

absl::StatusOr<AdminClient> AdminClient::ConnectToMonitor(const Places& places) {
  auto stub = Open(places.monitor(), "members of the group hedgerow-monitor and root may");
  if (!stub.ok()) return stub.status();
  return AdminClient(*std::move(stub));
}

}  // namespace hedgerow::steer
