// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/running_daemon.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "proxy/admin/client.h"

namespace hedgerow::cli {

std::optional<RunningDaemon> FindRunningDaemon(const v1::Config& config, const std::string& file) {
  const auto client = AdminClient::Connect(config.admin().socket());
  if (!client.ok()) return std::nullopt;
  auto status = client->Ask(&AdminClient::Stub::GetStatus);
  if (!status.ok() || status->instance() != config.instance()) return std::nullopt;
  std::error_code error;
  v1::ReloadRequest request;
  request.set_dry_run(true);
  request.set_file(std::filesystem::absolute(file, error).string());
  auto reply = client->Ask(&AdminClient::Stub::Reload, request);
  if (!reply.ok()) return std::nullopt;
  return RunningDaemon{*std::move(status), *std::move(reply)};
}

}  // namespace hedgerow::cli
