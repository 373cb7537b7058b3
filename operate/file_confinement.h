// SPDX-License-Identifier: Apache-2.0
//
// Landlock (landlock(7), Linux 5.13): a daemon takes from itself what it does not need of the file system, before it
// reads the first byte that others sent. What a fault in a parser then reaches are the program's own folders. It works
// without systemd, beside the unit's own limits. Called by both daemons once their configuration is read.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hedgerow::operate {

struct FileAccess {
  enum class Kind {
    kRead,
    kWrite,  // everything but to run a program: make, rename, remove
  };
  std::string path;  // of a folder with all below it, or of a file; one that is not there grants nothing
  Kind kind = Kind::kRead;
};

// From here on this thread, and every thread and process that it starts, opens the files that are listed here and no
// others, and runs no program. To be called before there are other threads, which would keep all rights. There is no
// way back. In any case it may list the names in folders, and read what dynamic libraries need, /proc and /sys. Sets
// no_new_privs. Files below the folders that are read are opened by OpenToRead() (file_opener.h) also once such a
// folder has been exchanged, by a process that this starts. Unimplemented: this kernel has no Landlock, or has it
// switched off, or has one from before 5.19, which cannot rename between folders; nothing has changed then. Other
// errors: Landlock refuses, and nothing has changed but no_new_privs.
absl::Status ConfineFiles(const std::vector<FileAccess>& allowed);

// Adds the folder that `file` stands in, and the one where it leads to if it is a symbolic link: a later version of the
// file takes its place there.
void AllowReading(const std::string& file, std::vector<FileAccess>& allowed);
// Adds the folder of `file`, which is made (mode 0755 less the umask) where it is missing, because afterwards it could
// not be.
void AllowMaking(const std::string& file, std::vector<FileAccess>& allowed);

}  // namespace hedgerow::operate
