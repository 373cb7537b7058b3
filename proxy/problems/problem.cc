// SPDX-License-Identifier: Apache-2.0
#include "proxy/problems/problem.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow {

std::string Problem::ToString() const { return absl::StrCat(CodeText(code), ": ", text); }

std::string JoinProblems(const std::vector<Problem>& problems, absl::string_view separator) {
  return absl::StrJoin(problems, separator,
                       [](std::string* out, const Problem& problem) { absl::StrAppend(out, problem.ToString()); });
}

}  // namespace hedgerow
