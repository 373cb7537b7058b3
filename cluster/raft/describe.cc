// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/describe.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::raft {
namespace {

std::string MembersText(const Configuration& configuration, uint32_t mask) {
  std::vector<std::string> names;
  for (const Member& member : configuration.members) {
    if (((mask >> member.slot) & 1) == 0) continue;
    const std::string at = member.address.empty() ? "" : absl::StrCat("@", member.address);
    names.push_back(absl::StrCat(member.id.value(), at));
  }
  return absl::StrJoin(names, " ");
}

std::string EntryText(const Entry& entry) {
  const std::string place = absl::StrCat(entry.index.value(), "/", entry.term.value(), " ");
  if (entry.kind == EntryKind::kNoOp) return place + "no-op";
  if (entry.kind == EntryKind::kConfiguration) {
    const std::optional<Configuration> configuration = DecodeConfiguration(entry.payload.view());
    return place + (configuration.has_value() ? Describe(*configuration) : "a configuration that is none");
  }
  return absl::StrCat(place, "\"", std::string(entry.payload.view()), "\"");
}

std::string EntriesText(const std::vector<Entry>& entries) {
  return absl::StrJoin(entries, ", ", [](std::string* out, const Entry& entry) { *out += EntryText(entry); });
}

struct BodyText {
  std::string operator()(const VoteRequest& m) const {
    return absl::StrCat(m.pre_vote ? "would you vote for me in term " : "vote for me in term ", m.asked_term.value(),
                        "; my log ends at ", m.last_index.value(), "/", m.last_term.value(),
                        m.transfer_term > Term()
                            ? absl::StrCat("; the leader of term ", m.transfer_term.value(), " asked for it")
                            : "");
  }
  std::string operator()(const VoteReply& m) const {
    if (m.pre_vote)
      return absl::StrCat(m.granted ? "yes, I would" : "no, I would not", ", in term ", m.asked_term.value());
    return absl::StrCat(m.granted ? "my vote" : "no vote", " in term ", m.asked_term.value());
  }
  std::string operator()(const AppendRequest& m) const {
    return absl::StrCat("append after ", m.prev_index.value(), "/", m.prev_term.value(), ": ",
                        m.entries.empty() ? "nothing" : EntriesText(m.entries), "; commit ", m.commit.value());
  }
  std::string operator()(const AppendReply& m) const {
    if (m.accepted) return absl::StrCat("I hold up to ", m.index.value());
    if (m.conflict_index == LogIndex()) return "that term is over";
    if (m.conflict_term == Term()) {
      return absl::StrCat("not after ", m.index.value(), ": my log ends before ", m.conflict_index.value());
    }
    return absl::StrCat("not after ", m.index.value(), ": I have term ", m.conflict_term.value(), " there, from ",
                        m.conflict_index.value());
  }
  std::string operator()(const Heartbeat& m) const {
    return absl::StrCat("heartbeat ", m.round, "; commit ", m.commit.value());
  }
  std::string operator()(const HeartbeatReply& m) const { return absl::StrCat("heartbeat ", m.round, " heard"); }
  std::string operator()(const ReadIndexRequest& m) const {
    return absl::StrCat("question ", m.id.number, ": what must a read see?");
  }
  std::string operator()(const ReadIndexReply& m) const {
    return absl::StrCat("question ", m.id.number, ": up to ", m.index.value());
  }
  std::string operator()(const TimeoutNow&) const { return "start an election now"; }
  std::string operator()(const LastEntry& m) const {
    return absl::StrCat("question ", m.id.number, ": my log ends at ", m.last.index.value(), "/", m.last.term.value());
  }
};

std::string PersistText(const Persist& persist) {
  std::vector<std::string> parts;
  if (persist.hard_state.has_value()) {
    const HardState& state = *persist.hard_state;
    parts.push_back(
        absl::StrCat("term ", state.term.value(), ", ",
                     state.voted_for.IsSet() ? absl::StrCat("vote for ", state.voted_for.value()) : "no vote"));
  }
  if (persist.new_start.has_value()) {
    const NewStart& start = *persist.new_start;
    parts.push_back(absl::StrCat(start.empties ? "an empty log after " : "that the log begins after ",
                                 start.after.index.value(), "/", start.after.term.value()));
  }
  if (persist.truncate_from.has_value()) {
    parts.push_back(absl::StrCat("nothing from ", persist.truncate_from->value()));
  }
  if (!persist.entries.empty()) parts.push_back(EntriesText(persist.entries));
  return absl::StrJoin(parts, "; ");
}

std::string ReasonText(const MembershipAnswer& answer) {
  const uint64_t about = answer.about.value();
  switch (answer.refusal) {
    case ChangeRefusal::kNone: return "";
    case ChangeRefusal::kNotLeader: return "not the leader";
    case ChangeRefusal::kTransferring: return "leadership is being transferred";
    case ChangeRefusal::kUnfinished: return "what came before it is not committed yet";
    case ChangeRefusal::kFull: return "there is no room for another member";
    case ChangeRefusal::kMember: return absl::StrCat(about, " is a member already");
    case ChangeRefusal::kNoMember: return absl::StrCat(about, " is no member");
    case ChangeRefusal::kVoter: return absl::StrCat(about, " votes already");
    case ChangeRefusal::kNotCaughtUp: return absl::StrCat(about, " has not caught up");
    case ChangeRefusal::kNoVoterLeft: return "no voter would be left";
    case ChangeRefusal::kAddressTaken: return absl::StrCat("another member has the address for ", about);
    case ChangeRefusal::kAddressTooLong: return absl::StrCat("the address for ", about, " is too long");
    case ChangeRefusal::kNothing: return "it changes nothing";
  }
  return "?";
}

std::string ReasonText(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kNotLeader: return "not the leader";
    case RefusalReason::kTransferring: return "leadership is being transferred";
    case RefusalReason::kOverloaded: return "overloaded";
    case RefusalReason::kExpired: return "too late";
  }
  return "?";
}

}  // namespace

std::string Describe(const Configuration& configuration) {
  std::vector<std::string> parts = {"voters " + MembersText(configuration, configuration.voters)};
  if (configuration.joint()) parts[0] += " and " + MembersText(configuration, configuration.next_voters);
  if (configuration.learners() != 0)
    parts.push_back("learners " + MembersText(configuration, configuration.learners()));
  if (configuration.leaving != 0) parts.push_back("leaving " + MembersText(configuration, configuration.leaving));
  return absl::StrCat("configuration ", configuration.epoch, " (", absl::StrJoin(parts, "; "), ")");
}

std::string Describe(Role role) {
  switch (role) {
    case Role::kFollower: return "follower";
    case Role::kPreCandidate: return "pre-candidate";
    case Role::kCandidate: return "candidate";
    case Role::kLeader: return "leader";
  }
  return "?";
}

std::string Describe(const Message& message) {
  return absl::StrCat(message.from.value(), " -> ", message.to.value(), " (term ", message.term.value(),
                      "): ", std::visit(BodyText(), message.body));
}

std::vector<std::string> Describe(NodeId node, const Outputs& outputs) {
  const std::string self = absl::StrCat(node.value());
  std::vector<std::string> lines;
  if (outputs.role_change.has_value()) {
    lines.push_back(absl::StrCat(self, " is ", Describe(outputs.role_change->role), " in term ",
                                 outputs.role_change->term.value()));
  }
  if (outputs.publish_leader.has_value()) {
    const PublishLeader& seen = *outputs.publish_leader;
    lines.push_back(seen.leader.IsSet()
                        ? absl::StrCat(self, " sees leader ", seen.leader.value(), " of term ", seen.term.value())
                        : absl::StrCat(self, " sees no leader"));
  }
  for (const AcceptedProposal& accepted : outputs.accepted) {
    lines.push_back(absl::StrCat(self, " gives proposal ", accepted.tag, " the place ", accepted.index.value(), "/",
                                 accepted.term.value()));
  }
  for (const Refusal& refusal : outputs.refused_proposals) {
    lines.push_back(absl::StrCat(self, " refuses proposal ", refusal.tag, ": ", ReasonText(refusal.reason)));
  }
  for (const MembershipAnswer& answer : outputs.membership_answers) {
    lines.push_back(answer.refusal == ChangeRefusal::kNone
                        ? absl::StrCat(self, " takes up change ", answer.tag, " at ", answer.index.value(), "/",
                                       answer.term.value())
                        : absl::StrCat(self, " refuses change ", answer.tag, ": ", ReasonText(answer)));
  }
  if (outputs.configuration.has_value())
    lines.push_back(absl::StrCat(self, " goes by ", Describe(*outputs.configuration)));
  if (outputs.persist.has_value()) lines.push_back(absl::StrCat(self, " writes ", PersistText(*outputs.persist)));
  for (const Message& message : outputs.send) lines.push_back(Describe(message));
  if (outputs.install.has_value()) {
    lines.push_back(absl::StrCat(self, " installs the snapshot at ", outputs.install->last.index.value(), "/",
                                 outputs.install->last.term.value()));
  }
  for (const Entry& entry : outputs.apply) lines.push_back(absl::StrCat(self, " applies ", EntryText(entry)));
  for (const SnapshotNeeded& needed : outputs.snapshots_needed) {
    lines.push_back(
        absl::StrCat(self, " wants a snapshot at ", needed.at_least.value(), " or later for ", needed.to.value()));
  }
  for (const ReadReady& read : outputs.reads_ready) {
    lines.push_back(absl::StrCat(self, " may answer read ", read.tag, " (", read.index.value(), " is applied)"));
  }
  for (const TailRead& read : outputs.tail_reads) {
    lines.push_back(absl::StrCat(self, " may answer read ", read.tag, " if no entry up to ", read.up_to.index.value(),
                                 " touches it"));
  }
  for (const Refusal& refusal : outputs.refused_reads) {
    lines.push_back(absl::StrCat(self, " refuses read ", refusal.tag, ": ", ReasonText(refusal.reason)));
  }
  return lines;
}

std::string Describe(NodeId id, const Raft& node) {
  std::vector<uint64_t> terms;
  const EntryId& start = node.log().start();
  for (LogIndex index = start.index.Next(); node.log().Has(index); index = index.Next()) {
    terms.push_back(node.log().TermAt(index).value());
  }
  return absl::StrCat(
      id.value(), ": ", Describe(node.role()), " in term ", node.term().value(), ", leader ",
      node.leader().IsSet() ? absl::StrCat(node.leader().value()) : "unknown", ", log [",
      start == EntryId() ? "" : absl::StrCat("after ", start.index.value(), "/", start.term.value(), ": "),
      absl::StrJoin(terms, " "), "], commit ", node.commit().value());
}

}  // namespace hedgerow::raft
