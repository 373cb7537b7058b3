// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/running_daemon.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proxy/admin/client.h"

namespace hedgerow::cli {
namespace {

// Its socket is a path, which other network namespaces see as well.
bool IsInThisNamespace(int64_t pid) {
  struct stat ours {
  }, theirs{};
  return stat("/proc/self/ns/net", &ours) == 0 && stat(absl::StrCat("/proc/", pid, "/ns/net").c_str(), &theirs) == 0 &&
         ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

}  // namespace

std::optional<RunningDaemon> FindRunningDaemon(const v1::Config& config, const std::string& file) {
  const auto client = AdminClient::Connect(config.admin().socket());
  if (!client.ok()) return std::nullopt;
  auto status = client->Ask(&AdminClient::Stub::GetStatus);
  if (!status.ok() || status->instance() != config.instance() || !IsInThisNamespace(status->pid())) return std::nullopt;
  std::error_code error;
  v1::ReloadRequest request;
  request.set_dry_run(true);
  request.set_file(std::filesystem::absolute(file, error).string());
  auto reply = client->Ask(&AdminClient::Stub::Reload, request);
  if (!reply.ok()) return std::nullopt;
  return RunningDaemon{*std::move(status), *std::move(reply)};
}

}  // namespace hedgerow::cli
