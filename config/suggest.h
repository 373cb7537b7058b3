// SPDX-License-Identifier: Apache-2.0
//
// "did you mean ...?" for misspelt keys, names, commands and options. Used by
// the decoders of configurations and by the command lines.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hedgerow::config {

// The candidate that `word` is probably a misspelling of, or empty.
std::string Suggest(absl::string_view word, const std::vector<std::string>& candidates);

// NotFound: `no service "dnss", did you mean "dns"? (there are: dns, echo)`.
absl::Status NoSuch(absl::string_view kind, absl::string_view name, const std::vector<std::string>& known);

}  // namespace hedgerow::config
