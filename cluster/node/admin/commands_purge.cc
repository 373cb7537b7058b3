// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node purge: deletes the keys of hkv that begin with a prefix. The leader walks over its keys a portion at a
// time, and this command asks for one after the other, so that the node's loop never stands still for it. What a
// portion has proposed may be lost with a leader: a walk that has found something is followed by another.
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/admin/commands.h"
#include "cluster/node/host/deadline.h"

namespace hedgerow::node {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(2);
// Clients that put such keys all the time would keep it for ever.
constexpr int kWalksMax = 10;

// Aborted: earlier portions wait to be proposed, or no node leads just now. DeadlineExceeded: the node's loop was late;
// a portion that it takes after all deletes nothing else.
absl::StatusOr<v1::PurgeSomeReply> Portion(const AdminClient& client, const v1::PurgeSomeRequest& request,
                                           const Deadline& deadline) {
  while (true) {
    absl::StatusOr<v1::PurgeSomeReply> reply = client.Ask(&AdminClient::Stub::PurgeSome, request);
    const bool later = absl::IsAborted(reply.status()) || absl::IsDeadlineExceeded(reply.status());
    if (!later || deadline.passed()) return reply;
    absl::SleepFor(kPoll);
  }
}

// Until the deletes are applied, or lost with their leader: the entry may never come then, and the next portion finds
// out.
absl::Status WaitUntilApplied(const AdminClient& client, uint64_t index, const Deadline& deadline) {
  const auto applied = [index](const v1::NodeStatus& now) { return now.applied() >= index || now.role() != "leader"; };
  return client
      .Await(deadline, applied, "the deletes were not applied in time: does a majority answer? Ask again", kPoll)
      .status();
}

// How many keys a walk has found.
absl::StatusOr<uint64_t> Walk(const AdminClient& client, const std::string& prefix, absl::Duration timeout) {
  v1::PurgeSomeRequest request;
  request.set_prefix(prefix);
  uint64_t keys = 0;
  while (true) {
    const Deadline deadline(timeout);
    const absl::StatusOr<v1::PurgeSomeReply> reply = Portion(client, request, deadline);
    if (!reply.ok()) return reply.status();
    keys += reply->keys();
    if (reply->keys() > 0) {
      if (absl::Status applied = WaitUntilApplied(client, reply->index(), deadline); !applied.ok()) return applied;
    }
    if (reply->done()) return keys;
    *request.mutable_position() = reply->position();
  }
}

}  // namespace

int RunPurge(const Call& call) { return RunPurge(call, kPurgeTimeout); }

int RunPurge(const Call& call, absl::Duration timeout) {
  if (!call.arguments.Has("prefix")) return call.UsageError("purge wants --prefix PREFIX; an empty one names all keys");
  const std::string prefix = call.arguments.Get("prefix");
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  v1::PurgeReport report;
  report.set_prefix(prefix);
  for (int walk = 0; walk < kWalksMax; ++walk) {
    const absl::StatusOr<uint64_t> keys = Walk(*client, prefix, timeout);
    if (!keys.ok()) return call.Fail(keys.status());
    if (*keys == 0) return call.Print(report, absl::StrFormat("%d keys deleted\n", report.keys()));
    report.set_keys(report.keys() + *keys);
  }
  return call.Fail(kExitFailure,
                   absl::StrFormat("%d keys deleted, and clients put others meanwhile; ask again", report.keys()));
}

}  // namespace hedgerow::node
