// SPDX-License-Identifier: Apache-2.0
#include "proxy/page/steer_groups.h"

#include <utility>

#include "absl/time/time.h"
#include "steer/admin_client.h"

namespace hedgerow {
namespace {

using steer::AdminClient;

constexpr absl::Duration kPatience = absl::Seconds(1);

absl::StatusOr<steer::v1::Group> Ask(const steer::Places& places) {
  auto client = AdminClient::ConnectToMonitor(places);
  // The socket is absent where the host does not have its group.
  if (!client.ok()) {
    auto owner = AdminClient::Connect(places);
    if (owner.ok() || absl::IsUnavailable(client.status())) client = std::move(owner);
  }
  if (!client.ok()) return client.status();
  return client->Ask(&AdminClient::Stub::Show, {}, kPatience);
}

}  // namespace

v1::SteerData ReadSteerGroups(const std::string& run_dir, absl::Time now) {
  v1::SteerData data;
  data.set_version(1);
  data.set_now_ms(absl::ToUnixMillis(now));
  for (const std::string& name : steer::ListGroups(run_dir)) {
    auto group = Ask({.run_dir = run_dir, .name = name});
    if (group.ok()) {
      *data.add_groups() = *std::move(group);
    } else {
      v1::SilentGroup& silent = *data.add_silent();
      silent.set_name(name);
      silent.set_reason(std::string(group.status().message()));
    }
  }
  return data;
}

}  // namespace hedgerow
