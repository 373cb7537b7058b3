// SPDX-License-Identifier: Apache-2.0
#include "operate/file_rights.h"

#include "absl/strings/str_format.h"

namespace hedgerow::operate {

std::string WhyNotFollowed(const struct stat& info, const std::string& path, uid_t self) {
  if (info.st_uid != 0 && info.st_uid != self) {
    return absl::StrFormat("belongs to user %u, expected root or the user that reads it (%u): run `chown root %s`",
                           info.st_uid, self, path);
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return "";
  return absl::StrFormat("can be changed by others than its owner (mode %04o): run `chmod go-w %s`",
                         info.st_mode & 07777, path);
}

std::string WhyNotSecret(const struct stat& info, const std::string& path) {
  const char* problem = nullptr;
  if ((info.st_mode & S_IROTH) != 0) {
    problem = "can be read by everybody";
  } else if ((info.st_mode & (S_IWOTH | S_IWGRP)) != 0) {
    problem = "can be changed by others than its owner";
  } else if ((info.st_mode & S_IRWXO) != 0) {
    problem = "is open to everybody";
  } else {
    return "";
  }
  return absl::StrFormat("%s (mode %04o), expected mode 0600 or 0640: run `chmod g-w,o-rwx %s`", problem,
                         info.st_mode & 07777, path);
}

}  // namespace hedgerow::operate
