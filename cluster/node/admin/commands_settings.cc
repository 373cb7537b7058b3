// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node settings: the limits that hold on all nodes, and changes of them. A change is asked for at the
// leader's socket and waited for; the cluster goes on with it whether anybody waits or not.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/admin/commands.h"
#include "cluster/node/host/deadline.h"
#include "cluster/node/config/setting_text.h"
#include "cluster/node/status/status_text.h"

namespace hedgerow::node {
namespace {

v1::SettingsReport ReportOf(const v1::NodeStatus& status) {
  v1::SettingsReport report;
  *report.mutable_settings() = status.settings();
  report.set_version(status.settings_version());
  return report;
}

// "sessions.timeout=2h". Values are written as the status writes them, so that the two can be compared.
absl::Status Add(const std::string& word, v1::ChangeSettingsRequest& request) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const std::string text = equals == std::string::npos ? "" : word.substr(equals + 1);
  const absl::StatusOr<kv::SettingValue> value = ParseNamedSetting(name, text);
  if (!value.ok())
    return absl::InvalidArgumentError(value.status().message());  // a usage error, whatever is wrong with it
  for (const v1::ChangeSettingsRequest::Change& change : request.changes()) {
    if (change.name() == name) return absl::InvalidArgumentError(absl::StrCat(name, " is named twice"));
  }
  v1::ChangeSettingsRequest::Change& change = *request.add_changes();
  change.set_name(name);
  change.set_value(FormatSetting(kv::InfoOf(value->setting), value->value));
  return absl::OkStatus();
}

bool Holds(const v1::NodeStatus& status, const v1::ChangeSettingsRequest& request) {
  return std::all_of(request.changes().begin(), request.changes().end(), [&status](const auto& change) {
    return std::any_of(status.settings().begin(), status.settings().end(), [&change](const v1::Setting& setting) {
      return setting.name() == change.name() && setting.value() == change.value();
    });
  });
}

// "sessions.max is 7 and not 5": of those that were asked for and do not hold.
std::string Differences(const v1::NodeStatus& now, const v1::ChangeSettingsRequest& request) {
  std::vector<std::string> words;
  for (const v1::ChangeSettingsRequest::Change& change : request.changes())
    for (const v1::Setting& setting : now.settings())
      if (setting.name() == change.name() && setting.value() != change.value())
        words.push_back(absl::StrCat(change.name(), " is ", setting.value(), " and not ", change.value()));
  return absl::StrJoin(words, ", ");
}

// The node has applied all that its log had when the change was proposed, and the values do not hold.
absl::Status Without(const v1::NodeStatus& now, const v1::ChangeSettingsRequest& request,
                     const v1::ChangeSettingsReply& asked) {
  const std::string differences = Differences(now, request);
  if (now.term() != asked.term()) {
    return absl::AbortedError(absl::StrCat(
        differences, ": this node has lost leadership meanwhile, and the next leader has dropped or overwritten the ",
        "change. `hedgerow-node settings` at the leader shows what holds; ask there again"));
  }
  const bool names_window = std::any_of(request.changes().begin(), request.changes().end(), [](const auto& change) {
    return change.name() == "requests.window" || change.name() == "memcached.window";
  });
  constexpr char kRefused[] =
      "the change was refused, because a window was made longer too often within one window. Ask again once that has passed";
  if (names_window && now.settings_version() == asked.version())
    return absl::FailedPreconditionError(absl::StrCat(differences, ": ", kRefused));
  return absl::AbortedError(
      absl::StrCat(differences, ": another change has overwritten this one, and its settings hold, version ",
                   now.settings_version(), ". The log of the leader's node has each change and its user (`audit:`)",
                   names_window ? absl::StrCat(". Or ", kRefused) : ""));
}

absl::StatusOr<v1::NodeStatus> Change(const AdminClient& client, const v1::ChangeSettingsRequest& request,
                                      absl::Duration timeout) {
  const absl::StatusOr<v1::ChangeSettingsReply> asked = client.Ask(&AdminClient::Stub::ChangeSettings, request);
  if (!asked.ok()) return asked.status();
  return client.Await(
      Deadline(timeout),
      [&](const v1::NodeStatus& now) -> absl::StatusOr<bool> {
        const bool decided = asked->index() != 0 && now.applied() >= asked->index();
        if (Holds(now, request) && (decided || now.settings_version() > asked->version())) return true;
        return decided ? absl::StatusOr<bool>(Without(now, request, *asked)) : false;
      },
      absl::StrCat(
          "the change was not applied within ", absl::FormatDuration(timeout),
          ": no majority answers, another leader has dropped it, or another change has undone it. `hedgerow-node "
          "settings` at the leader shows what holds; a change may be asked for again"));
}

}  // namespace

int RunSettings(const Call& call) { return RunSettings(call, kSettingsTimeout); }

int RunSettings(const Call& call, absl::Duration timeout) {
  const std::vector<std::string>& words = call.arguments.words;
  const bool changes = words.size() > 1;
  if (changes && (words[1] != "set" || words.size() < 3)) {
    return call.UsageError("settings wants nothing, or set NAME=VALUE ...");
  }
  v1::ChangeSettingsRequest request;
  for (size_t i = 2; i < words.size(); ++i) {
    if (const absl::Status added = Add(words[i], request); !added.ok()) return call.Fail(added);
  }
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const absl::StatusOr<v1::NodeStatus> status =
      changes ? Change(*client, request, timeout) : client->GetStatusOfStarted();
  if (!status.ok()) return call.Fail(status.status());
  return call.Print(ReportOf(*status), SettingsText(*status));
}

}  // namespace hedgerow::node
