// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node members: who the members are, and changes of membership. A change is asked for at the leader's
// socket and waited for; the cluster goes on with it whether anybody waits or not.
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/commands.h"
#include "cluster/node/status_text.h"

namespace hedgerow::node {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr char kUsage[] =
    "members wants nothing, add ID PEER-ADDRESS, promote ID, remove ID, replace OLD NEW or move ID "
    "PEER-ADDRESS";

v1::MembersReport ReportOf(const v1::NodeStatus& status) {
  v1::MembersReport report;
  *report.mutable_members() = status.members();
  report.set_epoch(status.config_epoch());
  report.set_committed_epoch(status.committed_epoch());
  report.set_joint(status.joint());
  return report;
}

bool Add(v1::ChangeMembersRequest& request, v1::MemberChange::Kind kind, const std::string& id,
         const std::string& address = "") {
  uint64_t node = 0;
  if (!absl::SimpleAtoi(id, &node) || node == 0) return false;
  v1::MemberChange& change = *request.add_changes();
  change.set_kind(kind);
  change.set_node(node);
  change.set_address(address);
  return true;
}

// False: the words make no sense.
bool Read(const std::vector<std::string>& words, v1::ChangeMembersRequest& request) {
  const std::string& verb = words[1];
  if (verb == "add" && words.size() == 4) return Add(request, v1::MemberChange::ADD, words[2], words[3]);
  if (verb == "move" && words.size() == 4) return Add(request, v1::MemberChange::MOVE, words[2], words[3]);
  if (verb == "promote" && words.size() == 3) return Add(request, v1::MemberChange::PROMOTE, words[2]);
  if (verb == "remove" && words.size() == 3) return Add(request, v1::MemberChange::REMOVE, words[2]);
  return verb == "replace" && words.size() == 4 && Add(request, v1::MemberChange::PROMOTE, words[3]) &&
         Add(request, v1::MemberChange::REMOVE, words[2]);
}

}  // namespace

int RunMembers(const Call& call) { return RunMembers(call, kMembersPatience); }

int RunMembers(const Call& call, absl::Duration patience) {
  v1::ChangeMembersRequest request;
  const bool changes = call.arguments.words.size() > 1;
  if (changes && !Read(call.arguments.words, request)) return call.UsageError(kUsage);
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  uint32_t epoch = 0;
  if (changes) {
    const absl::StatusOr<uint32_t> begun = (*client)->ChangeMembers(request);
    if (!begun.ok()) return call.Fail(begun.status());
    epoch = *begun;
  }
  const absl::Time until = absl::Now() + patience;
  while (true) {
    const auto status = (*client)->GetStatus();
    if (!status.ok()) return call.Fail(status.status());
    if (!changes || status->committed_epoch() >= epoch)
      return call.Print(ReportOf(*status), MembersText(*status));
    // Another leader may have dropped it; or this node has left, and is told no more.
    if (absl::Now() >= until) {
      return call.Fail(
          kExitFailure,
          absl::StrFormat("configuration %d was not committed within %s; `members` at the leader shows "
                          "what has become of it",
                          epoch, absl::FormatDuration(patience)));
    }
    absl::SleepFor(kPoll);
  }
}

}  // namespace hedgerow::node
