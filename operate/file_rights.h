// SPDX-License-Identifier: Apache-2.0
//
// What a file's owner and mode must be before a program does as the file says. A file of another user, or one that
// others can change, is their word and not the administrator's; a key that others can read is no key. Called by the
// readers of key files (key_file.h) and of configurations (config/source.h). Pure, any thread.

#pragma once

#include <string>

#include <sys/stat.h>

namespace hedgerow::operate {

// What becomes of a file's content.
enum class Reader {
  kShows,   // a command shows something of it: its owner does not matter
  kServes,  // a daemon does as it says
};

// Why a daemon of user `self` does not follow the file, with the command that mends it ("belongs to user 1000,
// expected root or the user that reads it (0): run `chown root FILE`"), or empty. `path` is for the command only.
std::string WhyNotFollowed(const struct stat& info, const std::string& path, uid_t self);

// Why the file may hold no secret ("can be read by everybody (mode 0644), expected mode 0600 or 0640: run `chmod
// g-w,o-rwx FILE`"), or empty. Others have no right to it, and the group may only read: so a service's user need not
// own the file, and cannot exchange the key.
std::string WhyNotSecret(const struct stat& info, const std::string& path);

}  // namespace hedgerow::operate
