// SPDX-License-Identifier: Apache-2.0
//
// Landlock's rules are for folders as they were when a daemon confined itself. A configuration's folder is exchanged
// later: a link that leads to the next release, a folder that is renamed into place. So a small process beside the
// daemon keeps the right to read, and opens files below these folders by their names. It can do nothing else
// (file_confinement.h), and ends with the daemon. All that reads configurations, keys and certificates opens them here.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hedgerow::operate {

// As open(2) with O_RDONLY, O_CLOEXEC and O_NONBLOCK, so that a FIFO cannot hang it: the descriptor, or -1 with errno.
// Where that is refused (EACCES) the opener is asked, if there is one. Any thread.
int OpenToRead(const std::string& path);

struct FileText {
  struct stat info {};
  std::string text;
};
// Of a regular file, up to one byte more than `max_bytes`. InvalidArgument begins without the file's name ("cannot be
// opened: ..."). Any thread.
absl::StatusOr<FileText> ReadText(const std::string& path, size_t max_bytes);

// `folders`: from / on. `confine` is called in the new process; false: it ends, and OpenToRead() does without. Before
// there are other threads, once.
void StartFileOpener(const std::vector<std::string>& folders, const std::function<bool()>& confine);

}  // namespace hedgerow::operate
