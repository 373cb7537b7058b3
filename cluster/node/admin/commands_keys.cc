// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node keys: which keys the members have, by their ids, and the steps of a change. Each step but the reload
// edits the key file that --config names and has the node read it; if the node refuses, the file is as it was.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/admin/commands.h"
#include "cluster/node/config/config.h"
#include "cluster/node/host/deadline.h"
#include "operate/key_file.h"

namespace hedgerow::node {
namespace {

// A member is asked for its keys twice a second while they are changed.
constexpr absl::Duration kPoll = absl::Milliseconds(200);

std::string Or(const std::string& text, absl::string_view otherwise) {
  return text.empty() ? std::string(otherwise) : text;
}

v1::KeysReport ReportOf(const v1::NodeStatus& status) {
  v1::KeysReport report;
  report.set_node(status.node());
  v1::KeysReport::Member& own = *report.add_members();
  own.set_id(status.node());
  *own.mutable_keys() = status.keys();
  for (const v1::Peer& peer : status.peers()) {
    v1::KeysReport::Member& member = *report.add_members();
    member.set_id(peer.id());
    member.mutable_keys()->set_cluster_seals(peer.sealing_key());
    member.mutable_keys()->set_cluster_other(peer.other_key());
  }
  return report;
}

std::string TextOf(const v1::KeysReport& report) {
  std::string text = absl::StrFormat("%-8s %-18s %s\n", "node", "seals with", "opens as well");
  for (const v1::KeysReport::Member& member : report.members()) {
    absl::StrAppendFormat(&text, "%-8d %-18s %s\n", member.id(), Or(member.keys().cluster_seals(), "has not told"),
                          Or(member.keys().cluster_other(), "-"));
  }
  const v1::Keys& own = report.members(0).keys();
  if (!own.announce_seals().empty())
    absl::StrAppendFormat(&text, "announces with %s; the other announce key: %s\n", own.announce_seals(),
                          Or(own.announce_other(), "-"));
  return text;
}

// The node asks the members; those that are down do not tell.
int Show(const Call& call, const AdminClient& client, absl::Duration timeout) {
  const Deadline deadline(std::min(timeout, absl::Seconds(1)));
  v1::GetStatusRequest request;
  request.set_ask_for_keys(true);
  absl::StatusOr<v1::NodeStatus> status = client.GetStatusOfStarted(request);
  const auto has_told = [](const v1::Peer& peer) { return !peer.sealing_key().empty(); };
  while (status.ok() && !std::all_of(status->peers().begin(), status->peers().end(), has_told) && !deadline.passed()) {
    absl::SleepFor(absl::Milliseconds(20));
    status = client.GetStatusOfStarted(request);
  }
  if (!status.ok()) return call.Fail(status.status());
  const v1::KeysReport report = ReportOf(*status);
  return call.Print(report, TextOf(report));
}

// What a member told may be a moment old, so a refusal is not the last word before `timeout` is over.
absl::Status Reload(const AdminClient& client, bool force, absl::Duration timeout) {
  const Deadline deadline(timeout);
  v1::ReloadKeysRequest request;
  request.set_force(force);
  while (true) {
    const absl::Status done = client.Ask(&AdminClient::Stub::ReloadKeys, request).status();
    if (!absl::IsFailedPrecondition(done) || deadline.passed()) return done;
    absl::SleepFor(kPoll);
  }
}

// The keys of the file after a step; InvalidArgument says which step comes first.
absl::StatusOr<std::vector<std::string>> After(const std::string& step, std::vector<std::string> keys,
                                               const std::string& from) {
  if (step == "add") {
    if (keys.size() != 1)
      return absl::InvalidArgumentError("there are two keys already: remove the former one first (`keys remove`)");
    absl::StatusOr<std::string> added = operate::ReadKeyFile(from, operate::Reader::kShows);
    if (!added.ok())
      return absl::InvalidArgumentError(absl::StrCat("the file ", from, " ", std::string(added.status().message())));
    keys.push_back(*std::move(added));
    return keys;
  }
  if (keys.size() != 2) return absl::InvalidArgumentError("there is one key only: add the next one first (`keys add`)");
  if (step == "switch") {
    std::swap(keys[0], keys[1]);
  } else {
    keys.pop_back();
  }
  return keys;
}

int Change(const Call& call, const AdminClient& client, absl::Duration timeout) {
  const std::string& step = call.arguments.words[1];
  const std::string& which = call.arguments.words[2];
  if (call.arguments.Get("config").empty()) return call.UsageError("--config FILE is missing: it names the key file");
  const absl::StatusOr<NodeConfig> config = LoadNodeConfig(call.arguments.Get("config"));
  if (!config.ok()) return call.Fail(config.status());
  const std::string& path = which == "cluster" ? config->cluster_key_file : config->announce_key_file;
  if (path.empty())
    return call.Fail(kExitFailure, absl::StrCat("the configuration has no ", which,
                                                "_key_file: a key inside it cannot be changed while the node runs"));
  const absl::StatusOr<std::vector<std::string>> before = operate::ReadKeyRing(path, operate::Reader::kShows);
  if (!before.ok()) return call.Fail(before.status());
  const absl::StatusOr<std::vector<std::string>> after = After(step, *before, call.arguments.Get("from"));
  if (!after.ok()) return call.Fail(after.status());
  if (absl::Status written = operate::WriteKeyRing(path, *after); !written.ok()) return call.Fail(written);
  const absl::Status done = Reload(client, call.arguments.Has("force"), timeout);
  if (!done.ok()) {
    if (absl::Status back = operate::WriteKeyRing(path, *before); !back.ok())
      return call.Fail(kExitFailure, absl::StrCat(std::string(done.message()), "; and ", path,
                                                  " could not be put back: ", std::string(back.message())));
    return call.Fail(done);
  }
  return Show(call, client, timeout);
}

}  // namespace

int RunKeys(const Call& call) { return RunKeys(call, kKeysTimeout); }

int RunKeys(const Call& call, absl::Duration timeout) {
  const std::vector<std::string>& words = call.arguments.words;
  const std::string step = words.size() > 1 ? words[1] : "";
  const bool changes = words.size() == 3 && (step == "add" || step == "switch" || step == "remove") &&
                       (words[2] == "cluster" || words[2] == "announce");
  if (!changes && words.size() != 1 && !(words.size() == 2 && step == "reload"))
    return call.UsageError("keys wants nothing, reload, or add, switch or remove with cluster or announce");
  if ((step == "add") != call.arguments.Has("from"))
    return call.UsageError("--from FILE goes with add, and names the file that holds the new key");
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  if (changes) return Change(call, *client, timeout);
  if (step == "reload") {
    if (absl::Status done = Reload(*client, call.arguments.Has("force"), timeout); !done.ok()) return call.Fail(done);
  }
  return Show(call, *client, timeout);
}

}  // namespace hedgerow::node
