// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/reload_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::cli {
namespace {

std::string Quoted(const std::string& text) { return text.empty() ? "\"\"" : text; }

// As a diff is read: what comes, what goes, and what changes.
std::string ChangeText(const v1::ConfigChange& change) {
  if (change.kind() == "changed")
    return absl::StrCat("  ", change.path(), ": ", Quoted(change.from()), " -> ", Quoted(change.to()), "\n");
  const std::string& what = change.kind() == "added" ? change.to() : change.from();
  return absl::StrCat(change.kind() == "added" ? "+ " : "- ", change.path(), what.empty() ? "" : ": ", what,
                      "\n");
}

}  // namespace

std::string ReloadText(const v1::ReloadReply& reply, bool dry_run) {
  std::string out;
  for (const v1::ConfigChange& change : reply.changes()) out += ChangeText(change);
  if (reply.problems_size() > 0) {
    absl::StrAppend(&out, "refused as a whole; ", reply.file(), " is not in force:\n  ",
                    absl::StrJoin(reply.problems(), "\n  "), "\n");
  } else if (reply.applied()) {
    absl::StrAppend(&out, reply.file(), " is in force\n");
  } else if (reply.changes_size() == 0) {
    absl::StrAppend(&out, reply.file(), " is in force already\n");
  } else if (dry_run) {
    absl::StrAppend(&out, "a reload would apply all of this\n");
  }
  return out;
}

}  // namespace hedgerow::cli
