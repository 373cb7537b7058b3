// SPDX-License-Identifier: Apache-2.0
//
// The Raft core: one node's part of the protocol as a function of events. It includes no socket, thread, clock
// or disk; the loop around it (cluster/node, or the simulator) feeds events and carries out outputs in the
// order that outputs.h states. "Raft section n" is Ongaro and Ousterhout, In Search of an Understandable
// Consensus Algorithm (extended version); "dissertation section n" is Ongaro, Consensus: Bridging Theory and
// Practice.
//
// The parts: raft.cc (steps, terms, persistence), raft_election.cc, raft_follower.cc, raft_leader.cc,
// raft_reads.cc, raft_kernel.cc, raft_snapshot.cc, raft_membership.cc, raft_stall.cc.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "bpf/node/raft/decisions_abi.h"
#include "cluster/raft/configuration.h"
#include "cluster/raft/event.h"
#include "cluster/raft/failure_detector.h"
#include "cluster/raft/log.h"
#include "cluster/raft/message.h"
#include "cluster/raft/options.h"
#include "cluster/raft/outputs.h"
#include "cluster/raft/progress.h"
#include "cluster/raft/reads.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

class Raft {
 public:
  // A node starts, or starts again, as a follower without a leader.
  Raft(Options options, RestoredState restored, uint64_t now_ns, uint64_t random);

  // Adds to `outputs`, which the caller clears between steps.
  void Step(const Event& event, Outputs& outputs);

  // When the next Tick is due at the latest.
  uint64_t next_deadline_ns() const;

  Role role() const { return role_; }
  Term term() const { return term_; }
  NodeId voted_for() const { return voted_for_; }
  NodeId leader() const { return leader_; }
  LogIndex commit() const { return commit_; }
  LogIndex applied() const { return applied_; }
  LogIndex durable() const { return durable_index_; }
  const Log& log() const { return log_; }
  // The last one that this node has taken or installed.
  const Snapshot& snapshot() const { return snapshot_; }
  // Whether this node's leader, or as leader a majority, is to be taken for dead. A Tick is wanted at its next poll,
  // too.
  const FailureDetector& detector() const { return detector_; }
  const Options& options() const { return options_; }
  // What a leader knows of the others, by slot; means something for peers(), and in no other role.
  const std::vector<Progress>& progress() const { return progress_; }

  // What this node goes by: the latest that its log holds, committed or not (dissertation section 4.1).
  const Configuration& configuration() const { return configurations_.latest(); }
  bool configuration_committed() const { return configurations_.latest_index() <= commit_; }
  // What a snapshot at `index` carries.
  const Configuration& ConfigurationAt(LogIndex index) const { return configurations_.At(index); }
  // Those that this node speaks to of its own accord: a mask of slots, without its own.
  uint32_t peers() const { return peers_; }
  // Whether this node decides with others; and whether it may want to be elected, which it may while it is not
  // known that it has left.
  bool votes_itself() const { return self_ != kNoMember && ((configuration().deciding() >> self_) & 1) != 0; }
  bool may_stand() const;
  // For a host whose state machine must not answer: the node votes and acknowledges, and does not stand.
  void SetMayLead(bool may_lead) { may_lead_ = may_lead; }
  // Fit to be promoted, as its leader sees it (dissertation section 4.2.1).
  bool IsCaughtUp(size_t member, uint64_t now_ns) const;
  // Messages of former members (raft_membership.cc).
  uint64_t refused_messages() const { return refused_messages_; }

  // In this log and not known to be committed, or not durable here though the others have committed it: a disk
  // that hangs must not let memory grow. A leader refuses proposals beyond the bounds of Options.
  uint64_t outstanding_entries() const { return log_.last_index().value() - committed_and_durable().value(); }
  uint64_t outstanding_bytes() const { return log_.BytesAfter(committed_and_durable()); }

  // How long the oldest write that was asked for has not been reported durable; 0: none waits (raft_stall.cc).
  uint64_t disk_stalled_ns(uint64_t now_ns) const;
  // How long a leader's log has had entries that are not committed and has committed none; 0: none waits, or this
  // node does not lead.
  uint64_t commit_stalled_ns(uint64_t now_ns) const;
  // The voter that should lead next, of those that have answered lately: the one whose log is known to hold most;
  // `last_resort` only if there is no other. Not set: none has.
  NodeId Successor(uint64_t now_ns, NodeId last_resort) const;

  // A leader's last heartbeat round.
  uint64_t round() const { return round_; }
  // It leads, has heard no majority for a timeout, and asks whether it still leads.
  bool checks_quorum() const { return quorum_check_end_ns_ != 0; }
  // A leader hands over, and refuses proposals until that is done or given up.
  bool transferring() const { return role_ == Role::kLeader && transfer_target_.IsSet(); }

  // Since the start.
  struct Counters {
    uint64_t reordered_kept = 0;    // appends that came before what they follow, and were kept
    uint64_t reordered_stored = 0;  // of them, those that what they follow then reached
    uint64_t holes_in_flight = 0;   // refusals that a leader answered by waiting
    uint64_t holes_sent_again = 0;
    uint64_t probes = 0;               // a leader stopped a pipeline to find out where the logs agree
    uint64_t restarts_seen = 0;        // a follower knew less of its log than it had acknowledged, and was probed
    uint64_t quorum_checks = 0;        // a leader heard no majority for a timeout, and asked whether it still leads
    uint64_t step_downs_own_disk = 0;  // a leader whose log did not move asked another to lead, by StallCause
    uint64_t step_downs_replication = 0;
    uint64_t terms_given_up = 0;  // a candidate saw that its term can have no leader
    uint64_t majority_reads = 0;  // confirmed by where a majority's logs end, and by no leader
    // Messages and snapshots that no member sends that follows the protocol: a batch that is none, a second
    // leader of one term, an entry in the place of a committed one. Their sender is at fault, and this node
    // goes on.
    uint64_t impossible = 0;
  };
  const Counters& counters() const { return counters_; }
  size_t reordered_appends() const { return reorder_buffer_.size(); }

  // Of all clients; more than reads_max are refused.
  size_t waiting_reads() const { return led_reads_.size() + asked_reads_.size() + unapplied_reads_.size(); }

  // For the kernel bridge, which keeps the kernel part in step (cluster/offload/kernel_bridge).
  LogIndex matched() const { return matched_; }
  uint64_t election_deadline_ns() const { return election_deadline_ns_; }
  uint32_t votes() const { return votes_; }
  // The term in which a node wants to be elected, as far as this follower has heard since it last heard its
  // leader; or none.
  Term suspected_term() const { return suspected_term_ > term_ ? suspected_term_ : Term(); }
  size_t self() const { return self_; }                        // this node's slot; HR_RAFT_MAX_MEMBERS: it is no member
  uint64_t asked_sequence() const { return asked_sequence_; }  // of the last Persist
  uint64_t durable_sequence() const { return durable_sequence_; }

 private:
  static constexpr size_t kNoMember = HR_RAFT_MAX_MEMBERS;
  using Reached = std::array<__u64, HR_RAFT_MAX_MEMBERS>;

  // Committed, and durable here.
  LogIndex committed_and_durable() const { return std::min(commit_, std::max(durable_index_, log_.start().index)); }

  // Lasts one step.
  struct Context {
    uint64_t now_ns;
    uint64_t random;
    Outputs& out;
  };

  // raft.cc
  void On(Context& context, const Tick&);
  void On(Context& context, const Receive& receive);
  void On(Context& context, const Persisted& persisted);
  void On(Context& context, const Applied& applied);
  void On(Context& context, const RoundTrip& round_trip);
  bool AdoptTerm(Context& context, const Message& message);
  void BecomeFollower(Context& context, Term term, NodeId leader);
  void SetRole(Context& context, Role role, NodeId leader);
  Persist& ToPersist(Context& context);
  void PersistHardState(Context& context);
  void EnterTerm(Context& context, Term term, NodeId voted_for);
  void AppendToLog(Context& context, Entry entry);
  void TakeConfiguration(const Entry& entry);
  void TruncateLog(Context& context, LogIndex from);
  void AdvanceCommit(Context& context, LogIndex commit);
  void Send(Context& context, NodeId to, decltype(Message::body) body);
  void SendOnceDurable(Context& context, NodeId to, decltype(Message::body) body);
  void DrawElectionDeadline(Context& context);
  uint64_t HeartbeatInterval_ns() const;
  size_t MemberOf(NodeId node) const { return configuration().SlotOf(node); }
  NodeId NodeAt(size_t member) const { return configuration().At(member)->id; }
  bool IsPeer(size_t member) const { return member < HR_RAFT_MAX_MEMBERS && ((peers_ >> member) & 1) != 0; }
  template <typename Act>
  void ForEach(uint32_t slots, Act act) const {
    for (size_t member = 0; member < HR_RAFT_MAX_MEMBERS; ++member) {
      if (((slots >> member) & 1) != 0) act(member);
    }
  }
  bool IsQuorum(uint32_t members) const;
  uint64_t QuorumValue(const Reached& reached) const;
  hr_raft_state DecisionState() const;

  // raft_membership.cc
  void On(Context& context, const ChangeMembership& change);
  ChangeRefusal MayChange() const;
  ChangeRefusal MayPromote(Context& context, const std::vector<MemberChange>& changes, NodeId& who) const;
  void AppendConfiguration(Context& context, const Configuration& next);
  void ConfigurationChanged(Context& context);
  void RefreshPeers(uint64_t now_ns);
  void LeadConfiguration(Context& context);
  void HandOver(Context& context);
  bool MayHear(const Message& message) const;

  // raft_election.cc
  void On(Context& context, const LeaderResigns& resigns);
  void On(Context& context, const LeaderStalled& stalled);
  void ReportReason(Context& context, StandReason reason) const;
  StandReason WhyAfterWaiting() const;
  void StartPreVote(Context& context);
  void AskForPreVotes(Context& context);
  void StartElection(Context& context);
  VoteRequest VoteRequestFor(Term asked_term, bool pre_vote) const;
  void CountVote(Context& context, size_t member);
  void GiveUpIfSplit(Context& context);
  void Handle(Context& context, const Message& message, const VoteRequest& request);
  void Handle(Context& context, const Message& message, const VoteReply& reply);
  void Handle(Context& context, const Message& message, const TimeoutNow&);
  bool TrustsLeader(uint64_t now_ns) const;

  // raft_follower.cc
  bool MayFollow(NodeId leader) const;
  void FollowLeader(Context& context, NodeId leader);
  void LeaderHeardAt(Context& context, uint64_t heard_ns);
  void Handle(Context& context, const Message& message, const AppendRequest& request);
  void Handle(Context& context, const Message& message, const Heartbeat& heartbeat);
  LogIndex StoreEntries(Context& context, const AppendRequest& request);
  void RefuseAppend(Context& context, const Message& message, const AppendRequest& request, hr_raft_verdict why);
  void KeepEarly(const AppendRequest& request);
  LogIndex StoreReordered(Context& context);
  bool FollowsLog(const AppendRequest& request) const;

  AppendRequest WithoutCompacted(AppendRequest request) const;
  static bool IsWellFormed(Term leader_term, const AppendRequest& request);
  bool ContradictsStart(const AppendRequest& request) const;

  // raft_kernel.cc
  void On(Context& context, const KernelAppended& appended);
  void On(Context& context, const KernelVoted& voted);
  void On(Context& context, const KernelHeard& heard);
  void On(Context& context, const KernelCounted& counted);
  void On(Context& context, const KernelVotes& votes);

  // raft_leader.cc
  void On(Context& context, const Propose& propose);
  void On(Context& context, const TransferLeadership& transfer);
  void BecomeLeader(Context& context);
  void CheckQuorum(Context& context);
  void QuorumConfirmed(Context& context);
  void LeaderTick(Context& context);
  void SendAgain(Context& context);
  void Refused(Context& context, size_t member, const AppendReply& reply);
  void FillHole(Context& context, size_t member);
  void StartHeartbeatRound(Context& context);
  void Replicate(Context& context, size_t member);
  void ReplicateToAll(Context& context);
  bool Acknowledged(Context& context, size_t member, LogIndex index);
  void MaybeCommit(Context& context);
  void MaybeTransfer(Context& context, size_t member);
  void Handle(Context& context, const Message& message, const AppendReply& reply);
  void Handle(Context& context, const Message& message, const HeartbeatReply& reply);

  // raft_stall.cc
  bool DiskStalls(uint64_t now_ns) const { return disk_stalled_ns(now_ns) >= options_.stall_ns / 2; }
  StallCause Stalled(uint64_t now_ns) const;
  void ForgiveStandstill(const Context& context);
  void StepDownIfStalled(Context& context);

  // raft_snapshot.cc
  void On(Context& context, const SnapshotTaken& taken);
  void On(Context& context, const SnapshotReceived& received);
  void On(Context& context, const SnapshotSent& sent);
  void AskForSnapshot(Context& context, size_t member);
  void Install(Context& context, const Snapshot& snapshot);

  // raft_reads.cc
  void On(Context& context, const Read& read);
  void Handle(Context& context, const Message& message, const ReadIndexRequest& request);
  void Handle(Context& context, const Message& message, const ReadIndexReply& reply);
  void Handle(Context& context, const Message& message, const LastEntry& answer);
  void LeadReads(Context& context);
  void ConfirmReads(Context& context);
  void AskForReads(Context& context);
  void SendQuestion(Context& context);
  void AskAgain(Context& context);
  uint64_t AskAgain_ns() const;
  void LeaderChangedForReads(Context& context);
  bool HasApplied(const EntryId& up_to) const;
  void AnswerWhenApplied(Context& context, UnappliedRead read);
  void ReleaseReads(Context& context);
  void ExpireReads(Context& context);
  uint64_t LeaderWait_ns() const;

  Options options_;
  uint64_t steps_ = 0;
  size_t self_ = kNoMember;
  uint32_t peers_ = 0;
  bool may_lead_ = true;
  uint64_t refused_messages_ = 0;

  // Raft figure 2.
  Term term_;
  NodeId voted_for_;
  Log log_;
  Snapshot snapshot_;
  LogIndex commit_;
  LogIndex applied_;     // said by the caller
  LogIndex handed_out_;  // in Outputs::apply
  ConfigurationHistory configurations_;

  Role role_ = Role::kFollower;
  NodeId leader_;
  RoleChange published_role_;
  PublishLeader published_leader_;

  // Durability: what was asked for and what was reported.
  struct Write {
    uint64_t sequence;
    LogIndex last;  // of the log after it, as far as it still stands
    uint64_t asked_ns;
  };
  uint64_t asked_sequence_ = 0;
  uint64_t durable_sequence_ = 0;
  LogIndex durable_index_;
  std::deque<Write> writes_;
  std::deque<std::pair<uint64_t, Message>> held_back_;  // by what they wait for

  // Elections.
  FailureDetector detector_;
  std::array<NodeId, HR_RAFT_MAX_MEMBERS> measured_{};  // whose round trips it has
  uint64_t election_wait_ns_ = 0;                       // the last one drawn
  uint64_t election_deadline_ns_ = 0;
  uint32_t votes_ = 0;     // mask over members
  uint32_t refusals_ = 0;  // a candidate's, likewise
  uint32_t given_up_ = 0;  // terms in a row, without a leader in between
  uint64_t own_vote_sequence_ = 0;
  uint64_t own_vote_asked_ns_ = 0;
  uint64_t own_vote_took_ns_ = 0;  // until it was durable
  Term transfer_term_;             // its leader asked for an election, or gave itself up
  NodeId resigned_;      // the last leader whose host said that it is dead; not waited for until a leader is heard
  Term suspected_term_;  // see suspected_term()

  // Following.
  LogIndex matched_;  // our log is known to equal the current leader's up to here
  // This term's appends that came too soon, by what they follow, which is beyond our log's end.
  std::map<LogIndex, AppendRequest> reorder_buffer_;

  // Leading.
  std::vector<Progress> progress_;
  std::array<NodeId, HR_RAFT_MAX_MEMBERS> followed_{};  // whose progress it is
  // It suspects that no majority hears it, asks, and sends no heartbeat and no append until one does or this ends.
  uint64_t quorum_check_end_ns_ = 0;
  uint64_t heartbeat_due_ns_ = 0;  // or pre-votes
  uint64_t resend_due_ns_ = 0;     // when to look for what was lost
  uint64_t round_ = 0;
  LogIndex term_start_;  // the no-op
  NodeId transfer_target_;
  uint64_t transfer_deadline_ns_ = 0;
  uint64_t commit_moved_ns_ = 0;       // or when the first entry after it was appended
  uint64_t replication_moved_ns_ = 0;  // when a voter's match index last moved
  uint64_t step_down_ns_ = 0;          // not before
  NodeId asked_to_lead_;               // the last one, when this node stepped down
  uint32_t step_downs_ = 0;            // since this node last saw the commit index move

  // Reads.
  LeaderReads led_reads_;
  FollowerReads asked_reads_;
  std::deque<UnappliedRead> unapplied_reads_;

  Counters counters_;
};

}  // namespace hedgerow::raft
