// SPDX-License-Identifier: Apache-2.0
//
// Golden scripts: a text of commands, each followed by what came of it, indented. Running a script gives the
// same text with the outcomes of today. testdata/README.md lists the commands.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::raft {

// InvalidArgument names the line that makes no sense.
absl::StatusOr<std::string> RunScript(absl::string_view text);

}  // namespace hedgerow::raft
