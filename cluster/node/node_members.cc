// SPDX-License-Identifier: Apache-2.0
//
// The cluster's members as a node sees them: which members it talks to and where, changes that an administrator
// asks for, and what the status reports of them. They stand in the log (docs/adr/0013). The configuration file
// has the members that the cluster began with, and this node.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cluster/node/config/config_check.h"
#include "cluster/node/node.h"

namespace hedgerow::node {
namespace {

// A member that is to be moved has answered the leader within this.
constexpr uint64_t kAnswersWithin_ns = 2'000'000'000;
constexpr char kMoveInOrder[] =
    "stop the node, set the `peer` of its own entry in its configuration file, start it, and then move it. The "
    "others reach it at its new address before it is moved";

bool Has(uint32_t slots, const raft::Member& member) { return ((slots >> member.slot) & 1) != 0; }

std::string RoleOf(const raft::Configuration& configuration, const raft::Member& member) {
  if (Has(configuration.leaving, member)) return "left";
  if (Has(configuration.learners(), member)) return "learner";
  if (!configuration.joint()) return "voter";
  const bool before = Has(configuration.voters, member);
  const bool after = Has(configuration.next_voters, member);
  return before && after ? "voter" : after ? "joining" : "leaving";
}

absl::Status ToStatus(const raft::MembershipAnswer& answer, raft::NodeId leader) {
  const std::string who = absl::StrCat("node ", answer.about.value());
  switch (answer.refusal) {
    case raft::ChangeRefusal::kNone: return absl::OkStatus();
    case raft::ChangeRefusal::kNotLeader: return NotLeading(leader);
    case raft::ChangeRefusal::kTransferring:
      return absl::FailedPreconditionError("leadership is being handed over; ask again");
    case raft::ChangeRefusal::kUnfinished:
      return absl::FailedPreconditionError("an earlier change, or the leader's election, is not done yet; ask again");
    case raft::ChangeRefusal::kFull:
      return absl::FailedPreconditionError(
          absl::StrCat("a cluster has at most ", HR_RAFT_MAX_MEMBERS, " members, learners included"));
    case raft::ChangeRefusal::kMember: return absl::InvalidArgumentError(absl::StrCat(who, " is a member already"));
    case raft::ChangeRefusal::kNoMember: return absl::InvalidArgumentError(absl::StrCat(who, " is no member"));
    case raft::ChangeRefusal::kVoter: return absl::InvalidArgumentError(absl::StrCat(who, " votes already"));
    case raft::ChangeRefusal::kNotCaughtUp:
      return absl::FailedPreconditionError(
          absl::StrCat(who, " has not caught up with the leader, or does not answer; ask again"));
    case raft::ChangeRefusal::kNoVoterLeft: return absl::InvalidArgumentError("no voter would be left");
    case raft::ChangeRefusal::kAddressTaken:
      return absl::InvalidArgumentError(absl::StrCat("another member has the address for ", who));
    case raft::ChangeRefusal::kAddressTooLong:
      return absl::InvalidArgumentError(absl::StrCat("the address for ", who, " is too long"));
    case raft::ChangeRefusal::kNothing: return absl::InvalidArgumentError("that changes nothing");
  }
  return absl::InternalError("a refusal without a reason");
}

// As the configuration file's are checked (config_check.cc): once such an address is committed, the member
// cannot be reached, and the others must commit the change that moves it without it.
absl::Status CheckAddress(const NetAddress& address, const NetAddress& own) {
  if (const absl::string_view why = WhyNotUnicast(address); !why.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got \"", address.ToString(), "\", expected a unicast address (this is ", why, ")"));
  }
  if (address.is_v4() == own.is_v4()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("got \"", address.ToString(), "\", expected an ",
                                                 own.is_v4() ? "IPv4" : "IPv6", " address like this node's ",
                                                 own.ToString()));
}

// Peers' datagrams to a port for clients would be answered as clients' mistakes, and answered again.
absl::Status CheckIsNoClientsPort(const NetAddress& address, const NodeConfig& config) {
  const auto serves = [&address](const MemberConfig& member) { return member.serve == address; };
  const auto member = std::find_if(config.members.begin(), config.members.end(), serves);
  if (member == config.members.end() && address != config.memcached.listen) return absl::OkStatus();
  const raft::NodeId node = member == config.members.end() ? config.self : member->id;
  return absl::InvalidArgumentError(
      absl::StrCat("got \"", address.ToString(), "\", where node ", node.value(),
                   " serves clients; expected the `peer` address of the new member's file"));
}

}  // namespace

// After each turn, and each step that changes them. Once they were changed, what the log says goes before the
// file: an address there is only what the cluster began with.
void Node::FollowMembers() {
  const raft::Raft& raft = replica_.raft();
  const raft::Configuration& configuration = raft.configuration();
  const uint32_t committed_epoch = raft.ConfigurationAt(raft.commit()).epoch;
  const std::tuple now(configuration.epoch, raft.peers(), committed_epoch);
  if (followed_members_ == now) return;
  followed_members_ = now;
  std::vector<PeerState> others;
  for (const raft::Member& member : configuration.members) {
    if (!Has(raft.peers(), member)) continue;
    PeerState& peer = others.emplace_back();
    peer.id = member.id;
    peer.slot = member.slot;
    const absl::StatusOr<NetAddress> address = NetAddress::Parse(member.address);
    const MemberConfig* const known = config_.Find(member.id);
    if (configuration.epoch != 0 && member.address.empty()) continue;
    if (known != nullptr && (configuration.epoch == 0 || !address.ok())) {
      peer.address = known->peer;
    } else if (address.ok()) {
      peer.address = *address;
    }
  }
  // A node that joins receives nothing before it knows a member.
  peers_.SetMembers(others, configuration.epoch, committed_epoch, now_ns_);
  offloads_->SetMembers(std::move(others));
}

absl::StatusOr<uint32_t> Node::ChangeMembers(std::vector<raft::MemberChange> changes) {
  for (raft::MemberChange& change : changes) {
    using Kind = raft::MemberChange::Kind;
    if (!change.node.IsSet() || change.node.value() > UINT32_MAX)
      return absl::InvalidArgumentError(absl::StrCat("a node's id is 1 to ", UINT32_MAX));
    if (change.kind != Kind::kAddLearner && change.kind != Kind::kMove) continue;
    // To nowhere: another member has its address from now on.
    if (change.kind == Kind::kMove && change.address.empty()) continue;
    const absl::StatusOr<NetAddress> address = NetAddress::Parse(change.address);
    if (!address.ok()) return address.status();
    if (absl::Status sound = CheckAddress(*address, config_.own().peer); !sound.ok()) return sound;
    if (absl::Status apart = CheckIsNoClientsPort(*address, config_); !apart.ok()) return apart;
    change.address = address->ToString();
  }
  using Epoch = absl::StatusOr<uint32_t>;
  return Ask<Epoch>([this, changes = std::move(changes)] { return ChangeMembersNow(changes); }).value_or(Late());
}

// Of the voters that a change ends with a majority must answer now: without it neither this change would ever
// be committed nor another one begun, and the entry in the log could not be undone. (Of three voters with 3
// down, `remove 2` where `remove 3` was meant.) Raft does not require the check; the administrator needs it.
// What the core refuses anyway is left to the core, which says why.
absl::Status Node::CheckStaysAble(const std::vector<raft::MemberChange>& changes) const {
  const raft::Raft& raft = replica_.raft();
  if (raft.role() != raft::Role::kLeader || raft.configuration().joint()) return absl::OkStatus();
  const raft::ChangeResult result = raft::Changed(raft.configuration(), changes);
  if (result.refusal != raft::ChangeRefusal::kNone || !result.next.joint()) return absl::OkStatus();
  uint32_t answering = 0;
  std::string silent;
  for (const raft::Member& member : result.next.members) {
    if (((result.next.next_voters >> member.slot) & 1) == 0) continue;
    const bool self = member.slot == raft.self();
    const uint64_t contact_ns = Has(raft.peers(), member) ? raft.detector().peer_heard_ns(member.slot) : 0;
    if (self || contact_ns + raft.detector().timeout_ns() >= now_ns_) {
      answering |= 1u << member.slot;
    } else {
      absl::StrAppend(&silent, silent.empty() ? "" : ", ", member.id.value());
    }
  }
  if (hr_raft_is_quorum(answering, result.next.next_voters) != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("of the voters that would be left a majority does not answer (", silent,
                   "): the cluster would stand still, and this could not be undone. Remove who does not answer "
                   "first, or start "
                   "it"));
}

// A voter is moved to where it answers, and nowhere else. Each node sends to the new address as soon as its log
// has it, so with a mistyped one the entry itself could lack the acknowledgement that commits it, and no later
// entry could take it back. A learner is in no majority.
absl::Status Node::CheckIsThere(const std::vector<raft::MemberChange>& changes) const {
  const raft::Raft& raft = replica_.raft();
  if (raft.role() != raft::Role::kLeader) return absl::OkStatus();
  const raft::Configuration& configuration = raft.configuration();
  for (const raft::MemberChange& change : changes) {
    if (change.kind != raft::MemberChange::Kind::kMove) continue;
    const raft::Member* const member = configuration.Find(change.node);
    if (member == nullptr || !Has(configuration.deciding(), *member)) continue;
    if (change.node == config_.self) {
      if (change.address == config_.own().peer.ToString()) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("this node listens at ", config_.own().peer.ToString(), " and not at ",
                       change.address.empty() ? "no address" : change.address, ": ", kMoveInOrder));
    }
    const std::vector<PeerState>& others = peers_.states();
    const auto peer = std::find_if(others.begin(), others.end(),
                                   [&change](const PeerState& other) { return other.id == change.node; });
    if (peer == others.end()) continue;
    if (change.address.empty()) {
      if (peer->ReportsLost(now_ns_)) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("node ", change.node.value(), " has not said lately that it is LOST, so it keeps its address"));
    }
    // What answers elsewhere than at its configured address is heard by the process alone, never by the kernel part.
    const bool there = change.address == peer->answers_at.ToString() && peer->heard_ns + kAnswersWithin_ns >= now_ns_;
    if (there || change.address == peer->address.ToString()) continue;  // the latter changes nothing, says the core
    return absl::FailedPreconditionError(
        absl::StrCat("node ", change.node.value(), " does not answer at ", change.address, ": ", kMoveInOrder));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Node::ChangeMembersNow(const std::vector<raft::MemberChange>& changes) {
  if (absl::Status able = CheckStaysAble(changes); !able.ok()) return able;
  if (absl::Status there = CheckIsThere(changes); !there.ok()) return there;
  membership_answer_ = {.refusal = raft::ChangeRefusal::kNotLeader};
  replica_.Feed(raft::ChangeMembership{.tag = 1, .changes = changes});
  replica_.Settle();
  const absl::Status status = ToStatus(membership_answer_, replica_.raft().leader());
  if (!status.ok()) return status;
  return membership_answer_.epoch;
}

// By its own log: the configuration without it is committed.
bool Node::HasLeft() const {
  const raft::Configuration& configuration = replica_.raft().configuration();
  if (configuration.members.empty() || !replica_.raft().configuration_committed()) return false;
  const raft::Member* const self = configuration.Find(config_.self);
  return self == nullptr || Has(configuration.leaving, *self);
}

// A node that is down when it is removed is not informed, since members no longer talk to it: it asks. A leader
// that talks to it proves that it is a member, even if another member does not know that yet.
bool Node::IsRemoved() const {
  if (HasLeft()) return true;
  return !replica_.raft().leader().IsSet() && peers_.RemovedBy(now_ns_).has_value();
}

// A configuration that is newer than the answer may have added this node again, committed or not.
void Node::FollowRemoval() {
  const std::optional<Peers::Removal> removal = peers_.RemovedBy(now_ns_);
  replica_.SetRemoved(removal.has_value() && removal->epoch >= replica_.raft().configuration().epoch);
  AskWhetherRemoved();
}

void Node::AskWhetherRemoved() {
  constexpr uint64_t kEvery_ns = 1'000'000'000;
  if (leaderless_since_ns_ == 0 || HasLeft()) return;
  if (now_ns_ < std::max(leaderless_since_ns_, asked_again_ns_) + kEvery_ns) return;
  asked_again_ns_ = now_ns_;
  peers_.AskAgain();
}

std::string Node::WhyRemoved() const {
  if (!IsRemoved()) return "";
  const std::optional<Peers::Removal> removal = peers_.RemovedBy(now_ns_);
  const std::string by = HasLeft()
                             ? absl::StrCat("configuration ", replica_.raft().configuration().epoch)
                             : absl::StrCat("configuration ", removal->epoch, ", says node ", removal->by.value());
  return absl::StrCat(
      "this node is no member of the cluster any more (", by,
      "): it takes part in nothing. Stop it for good, and take it out of the proxies' backends. To have it "
      "back, `hedgerow-node members add ",
      config_.self.value(), " ", config_.own().peer.ToString(), "` at the leader: it goes on with its log");
}

void Node::AddMembersTo(NodeStatus& status) const {
  const raft::Raft& raft = replica_.raft();
  const raft::Configuration& configuration = raft.configuration();
  status.config_epoch = configuration.epoch;
  status.committed_epoch = raft.ConfigurationAt(raft.commit()).epoch;
  status.joint = configuration.joint();
  status.joins = configuration.members.empty();
  status.removed = WhyRemoved();
  for (const raft::Member& member : configuration.members) {
    v1::Member& reported = *status.members.Add();
    reported.set_id(member.id.value());
    reported.set_address(member.address);
    reported.set_role(RoleOf(configuration, member));
    reported.set_caught_up(Has(raft.peers(), member) && raft.IsCaughtUp(member.slot, now_ns_));
  }
  status.counters.emplace_back("members_refused", peers_.counters().refused + raft.refused_messages());
}

}  // namespace hedgerow::node
