// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow reload`: the daemon reads its configuration again and goes over to
// it while it runs; or, with --dry-run, says what that would change.

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proxy/admin/client.h"
#include "proxy/cli/command.h"
#include "proxy/cli/reload_text.h"

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

int RunReload(const Call& call) {
  if (call.arguments.words.size() > 1) return call.UsageError("reload takes no words");
  const absl::StatusOr<std::string> socket = SocketPath(call.arguments);
  if (!socket.ok()) return call.Fail(socket.status());
  const auto client = AdminClient::Connect(*socket);
  if (!client.ok()) return call.Fail(client.status());
  const bool dry_run = call.arguments.Has("dry-run") || call.arguments.Has("preview");
  std::string file = call.arguments.Get("config");
  std::error_code error;
  if (!file.empty()) file = std::filesystem::absolute(file, error).string();
  const auto reply = (*client)->Reload(dry_run, file);
  if (!reply.ok()) return call.Fail(reply.status());
  const int code = reply->problems_size() > 0 ? kExitFailure : kExitOk;
  if (code != kExitOk && !call.arguments.json()) return call.Fail(code, ReloadText(*reply, dry_run));
  return call.Print(*reply, ReloadText(*reply, dry_run), code);
}

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
