// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node members: lists the members, and changes the membership. A change is asked for at the leader's
// socket and waited for; the cluster goes on with it whether anybody waits or not.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/admin/commands.h"
#include "cluster/node/host/deadline.h"
#include "cluster/node/net/net_address.h"
#include "cluster/node/status/status_text.h"

namespace hedgerow::node {
namespace {

constexpr char kUsage[] =
    "members wants nothing, add ID PEER-ADDRESS, promote ID, remove ID, replace OLD NEW, rejoin LOST NEW or "
    "move ID PEER-ADDRESS";

v1::MembersReport ReportOf(const v1::NodeStatus& status) {
  v1::MembersReport report;
  *report.mutable_members() = status.members();
  report.set_epoch(status.config_epoch());
  report.set_committed_epoch(status.committed_epoch());
  report.set_joint(status.joint());
  return report;
}

bool IsId(const std::string& word, uint64_t& id) { return absl::SimpleAtoi(word, &id) && id != 0; }

bool Add(v1::ChangeMembersRequest& request, v1::MemberChange::Kind kind, const std::string& id,
         const std::string& address = "") {
  uint64_t node = 0;
  if (!IsId(id, node)) return false;
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

const v1::Member* Find(const v1::NodeStatus& status, uint64_t id) {
  for (const v1::Member& member : status.members()) {
    if (member.id() == id && member.role() != "left") return &member;
  }
  return nullptr;
}

bool SameAddress(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a == b;  // nowhere
  const absl::StatusOr<NetAddress> one = NetAddress::Parse(a);
  const absl::StatusOr<NetAddress> other = NetAddress::Parse(b);
  return one.ok() && other.ok() && *one == *other;
}

// An epoch is a number: where a leader ends before its change was committed, the next one may give the same to
// another change.
bool IsDone(const v1::NodeStatus& status, const v1::MemberChange& change) {
  const v1::Member* const member = Find(status, change.node());
  switch (change.kind()) {
    case v1::MemberChange::ADD: return member != nullptr;
    case v1::MemberChange::PROMOTE:
      return member != nullptr && (member->role() == "voter" || member->role() == "joining");
    case v1::MemberChange::REMOVE: return member == nullptr || member->role() == "leaving";
    case v1::MemberChange::MOVE: return member != nullptr && SameAddress(member->address(), change.address());
    default: return true;
  }
}

bool IsDone(const v1::NodeStatus& status, const v1::ChangeMembersRequest& request) {
  return std::all_of(request.changes().begin(), request.changes().end(),
                     [&status](const v1::MemberChange& change) { return IsDone(status, change); });
}

// Begins a change, and waits until it is committed. The status by then.
absl::StatusOr<v1::NodeStatus> Change(const AdminClient& client, const v1::ChangeMembersRequest& request,
                                      absl::Duration timeout) {
  const auto change = client.Ask(&AdminClient::Stub::ChangeMembers, request);
  if (!change.ok()) return change.status();
  const uint32_t epoch = change->epoch();
  return client.Await(
      Deadline(timeout),
      [&](const v1::NodeStatus& now) -> absl::StatusOr<bool> {
        if (now.committed_epoch() < epoch) return false;
        if (IsDone(now, request)) return true;
        return absl::AbortedError(
            absl::StrFormat("configuration %d is committed, and is not what was asked for: the leader changed, "
                            "and the next one has made another change, or this one was undone since. `members` "
                            "at the leader shows what there is",
                            epoch));
      },
      // Another leader may have dropped it; or this node has left, and is told no more.
      absl::StrFormat("configuration %d was not committed within %s; `members` at the leader shows "
                      "what has become of it",
                      epoch, absl::FormatDuration(timeout)));
}

// Where a member that says that it is LOST can be reached. Of any other one this would take its address away.
absl::StatusOr<std::string> AddressOfLost(const v1::NodeStatus& status, uint64_t id) {
  if (Find(status, id) == nullptr) return absl::InvalidArgumentError(absl::StrCat("node ", id, " is no member"));
  for (const v1::Peer& peer : status.peers()) {
    if (peer.id() == id && peer.lost()) return peer.address();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("node ", id,
                   " has not said within the last seconds that it is LOST: start it, and look at its "
                   "status. One whose host is gone is replaced by `add` and `replace`"));
}

// The lost member's address becomes the new one's; the node there sees that, and comes back as that one.
absl::StatusOr<v1::NodeStatus> AddAtItsAddress(const AdminClient& client, const v1::NodeStatus& status, uint64_t was,
                                               uint64_t as, absl::Duration timeout) {
  const absl::StatusOr<std::string> address = AddressOfLost(status, was);
  if (!address.ok()) return address.status();
  v1::ChangeMembersRequest request;
  (void)Add(request, v1::MemberChange::MOVE, absl::StrCat(was));
  (void)Add(request, v1::MemberChange::ADD, absl::StrCat(as), *address);
  return Change(client, request, timeout);
}

// Three changes that belong together. It can be asked for again, from wherever it was cut short.
absl::StatusOr<v1::NodeStatus> Rejoin(const AdminClient& client, uint64_t was, uint64_t as, absl::Duration timeout) {
  absl::StatusOr<v1::NodeStatus> status = client.GetStatusOfStarted();
  if (status.ok() && Find(*status, as) == nullptr) status = AddAtItsAddress(client, *status, was, as, timeout);
  if (!status.ok()) return status;
  const absl::Duration catches_up = std::max(timeout, kRejoinTimeout);
  v1::ChangeMembersRequest request;
  status = client.Await(
      Deadline(catches_up),
      [&](const v1::NodeStatus& now) -> absl::StatusOr<bool> {
        const v1::Member* const before = Find(now, was);
        const v1::Member* const after = Find(now, as);
        if (before == nullptr) return true;  // done before
        if (after == nullptr) return absl::AbortedError(absl::StrCat("node ", as, " is no member any more"));
        // The first change leaves the lost member no address. A member that was added for another place must not
        // take its place.
        if (!before->address().empty()) {
          return absl::FailedPreconditionError(absl::StrCat("node ", as,
                                                            " is a member already, and not in the place of node ", was,
                                                            ": take an id that was never used"));
        }
        if (now.leader() != now.node()) {
          return absl::FailedPreconditionError(now.leader() == 0
                                                   ? std::string("no node leads now; ask again")
                                                   : absl::StrCat("node ", now.leader(), " leads; ask again there"));
        }
        const bool votes = before->role() == "voter";
        if (votes && !after->caught_up()) return false;
        if (votes && after->role() == "learner") (void)Add(request, v1::MemberChange::PROMOTE, absl::StrCat(as));
        (void)Add(request, v1::MemberChange::REMOVE, absl::StrCat(was));
        return true;
      },
      absl::StrCat("node ", as, " has not caught up within ", absl::FormatDuration(catches_up),
                   ". It is a learner by now; ask again at the leader"));
  return status.ok() && request.changes_size() > 0 ? Change(client, request, timeout) : status;
}

}  // namespace

int RunMembers(const Call& call) { return RunMembers(call, kMembersTimeout); }

int RunMembers(const Call& call, absl::Duration timeout) {
  const std::vector<std::string>& words = call.arguments.words;
  const bool changes = words.size() > 1;
  const bool rejoins = changes && words[1] == "rejoin";
  uint64_t was = 0;
  uint64_t as = 0;
  v1::ChangeMembersRequest request;
  const bool makes_sense =
      !changes ||
      (rejoins ? words.size() == 4 && IsId(words[2], was) && IsId(words[3], as) && was != as : Read(words, request));
  if (!makes_sense) return call.UsageError(kUsage);
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const absl::StatusOr<v1::NodeStatus> status = rejoins   ? Rejoin(*client, was, as, timeout)
                                                : changes ? Change(*client, request, timeout)
                                                          : client->GetStatusOfStarted();
  if (!status.ok()) return call.Fail(status.status());
  return call.Print(ReportOf(*status), MembersText(*status));
}

}  // namespace hedgerow::node
