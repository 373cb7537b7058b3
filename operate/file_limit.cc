// SPDX-License-Identifier: Apache-2.0
#include "operate/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hedgerow::operate {

absl::Status EnsureFileLimit(uint64_t needed) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return absl::OkStatus();
  const rlimit raised = {.rlim_cur = std::min<rlim_t>(limit.rlim_max, needed), .rlim_max = limit.rlim_max};
  if (raised.rlim_cur >= needed && setrlimit(RLIMIT_NOFILE, &raised) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("only ", limit.rlim_max, " files may be open in this process, and it needs ", needed,
                   ": raise the limit (`ulimit -n ", needed, "`, or LimitNOFILE= of the unit)"));
}

}  // namespace hedgerow::operate
