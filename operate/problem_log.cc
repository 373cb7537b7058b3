// SPDX-License-Identifier: Apache-2.0
#include "operate/problem_log.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "operate/log.h"

namespace hedgerow::operate {
namespace {

// Without its measures ("79.4s", "12 entries"), which grow while the problem lasts. Addresses, "node 3" and
// "slot 3" name the thing.
std::string KeyOf(const std::string& text) {
  std::string key;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    while (!word.empty() && absl::ascii_ispunct(static_cast<unsigned char>(word.back()))) word.remove_suffix(1);
    const size_t first = word.find_first_of("0123456789");
    const bool measure = first < 2 && std::count(word.begin(), word.end(), '.') < 2 && !absl::StrContains(word, ':');
    if (!measure || absl::EndsWith(key, " node") || absl::EndsWith(key, " slot")) absl::StrAppend(&key, " ", word);
  }
  return key;
}

}  // namespace

void ProblemLog::Update(const std::vector<std::string>& problems, absl::Time now) {
  for (const std::string& text : problems) {
    const auto [found, is_new] = open_.try_emplace(KeyOf(text), Open{text, now, now});
    Open& open = found->second;
    if (is_new) LogError(text);
    if (now - open.seen > absl::Milliseconds(1500)) ++open.times;
    open.seen = now;
  }
  for (auto each = open_.begin(); each != open_.end();) {
    const Open& open = each->second;
    if (now - open.seen < kOverAfter) {
      ++each;
      continue;
    }
    LogInfo("over, after ", absl::FormatDuration(absl::Trunc(open.seen - open.since, absl::Milliseconds(100))),
            open.times > 1 ? absl::StrCat(" and ", open.times, " times") : "", ": ", open.text);
    each = open_.erase(each);
  }
}

}  // namespace hedgerow::operate
