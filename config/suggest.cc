// SPDX-License-Identifier: Apache-2.0
#include "config/suggest.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::config {
namespace {

// The number of edits between two words: a character inserted, removed or
// exchanged, or two neighbours swapped (optimal string alignment).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      rows[i][j] =
          std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string Suggest(absl::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 40) return "";
  std::string best;
  // A word of one letter is as near to every other letter.
  size_t best_distance = word.size() < 2 ? 1 : std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(absl::AsciiStrToLower(word), candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

absl::Status NoSuch(absl::string_view kind, absl::string_view name, const std::vector<std::string>& known) {
  const std::string guess = Suggest(name, known);
  return absl::NotFoundError(absl::StrCat("no ", kind, " \"", name, "\"",
                                          guess.empty() ? "" : absl::StrCat(", did you mean \"", guess, "\"?"),
                                          " (there are: ", absl::StrJoin(known, ", "), ")"));
}

}  // namespace hedgerow::config
