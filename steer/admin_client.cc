// SPDX-License-Identifier: Apache-2.0
#include "steer/admin_client.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "operate/admin_socket.h"

namespace hedgerow::steer {
absl::StatusOr<AdminClient> AdminClient::Open(const std::string& path, const std::string& who_may) {
  const auto channel = operate::OpenAdminChannel(
      path, {.program = "hedgerow-steer",
             .who_may = who_may,
             .hint = "Start it with `hedgerow steer run`, or name another group with --name"});
  if (!channel.ok()) return channel.status();
  return AdminClient(*channel);
}

std::vector<std::string> ListGroups(const std::string& run_dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator each(run_dir, error), end; !error && each != end; each.increment(error)) {
    if (std::filesystem::exists(each->path() / "record.json", error)) names.push_back(each->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace hedgerow::steer
