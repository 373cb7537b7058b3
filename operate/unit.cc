// SPDX-License-Identifier: Apache-2.0
#include "operate/unit.h"

#include <grp.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace hedgerow::operate {

std::vector<std::string> WhyNotReadBy(const std::string& user, const std::vector<std::string>& files) {
  std::vector<std::string> why;
  const passwd* const unit = getpwnam(user.c_str());
  if (geteuid() != 0 || unit == nullptr) return why;
  for (const std::string& file : files) {
    const pid_t pid = fork();
    if (pid == 0) {
      const bool became =
          initgroups(unit->pw_name, unit->pw_gid) == 0 && setgid(unit->pw_gid) == 0 && setuid(unit->pw_uid) == 0;
      _exit(became && access(file.c_str(), R_OK) != 0 && errno == EACCES ? 1 : 0);
    }
    int state = 0;
    if (waitpid(pid, &state, 0) != pid || !WIFEXITED(state) || WEXITSTATUS(state) == 0) continue;
    why.push_back(absl::StrCat("the unit's user ", user, " cannot read ", file,
                               " (or enter a folder above it): run `chgrp ", user, " ", file, " && chmod 0640 ", file,
                               "`"));
  }
  return why;
}

std::string MonitorSocketBeside(const std::string& admin) {
  absl::string_view folder = admin;
  return absl::ConsumeSuffix(&folder, "/admin.sock") ? absl::StrCat(folder, "/monitor.sock") : "";
}

std::string MonitorSocketOr(const std::string& configured, const std::string& admin, const std::string& group) {
  gid_t number = 0;
  const bool known = absl::SimpleAtoi(group, &number) || getgrnam(group.c_str()) != nullptr;
  return configured.empty() && known ? MonitorSocketBeside(admin) : configured;
}

}  // namespace hedgerow::operate
