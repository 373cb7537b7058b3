// SPDX-License-Identifier: Apache-2.0
//
// The planted mistakes by name.

#pragma once

#include <optional>
#include <string_view>

#include "cluster/raft/seeded_bugs.h"

namespace hedgerow::sim {

struct NamedBug {
  std::string_view name;
  Bug bug;
};

inline constexpr NamedBug kBugs[] = {
    {"vote_without_log_check", Bug::kVoteWithoutLogCheck},
    {"commit_older_term", Bug::kCommitOlderTerm},
    {"latest_seq_only_dedupe", Bug::kLatestSeqOnlyDedupe},
    {"apply_below_lowest_unanswered", Bug::kApplyBelowLowestUnanswered},
    {"session_recreation", Bug::kSessionRecreation},
    {"wall_clock_expiry", Bug::kWallClockExpiry},
    {"held_copy_without_age_limit", Bug::kHeldCopyWithoutAgeLimit},
    {"read_index_id_reuse", Bug::kReadIndexIdReuse},
    {"read_before_own_term_commit", Bug::kReadBeforeOwnTermCommit},
    {"ack_before_write", Bug::kAckBeforeWrite},
    {"minority_quorum", Bug::kMinorityQuorum},
    {"stale_vote_counted", Bug::kStaleVoteCounted},
    {"forward_tag_reuse", Bug::kForwardTagReuse},
    {"no_fence", Bug::kNoFence},
    {"plain_update", Bug::kPlainUpdate},
    {"ack_without_store", Bug::kAckWithoutStore},
    {"ack_by_index_alone", Bug::kAckByIndexAlone},
    {"equality_quorum", Bug::kEqualityQuorum},
    {"lease_by_helper", Bug::kLeaseByHelper},
    {"resign_of_another_term", Bug::kResignOfAnotherTerm},
    {"install_keeps_tail", Bug::kInstallKeepsTail},
    {"install_with_leaders_term", Bug::kInstallWithLeadersTerm},
    {"compact_past_snapshot", Bug::kCompactPastSnapshot},
    {"snapshot_without_sessions", Bug::kSnapshotWithoutSessions},
    {"cut_sees_later_changes", Bug::kCutSeesLaterChanges},
    {"install_without_fence", Bug::kInstallWithoutFence},
    {"dedupe_without_fingerprint", Bug::kDedupeWithoutFingerprint},
    {"dedupe_by_local_clock", Bug::kDedupeByLocalClock},
    {"snapshot_without_dedupe", Bug::kSnapshotWithoutDedupe},
    {"superseded_still_known", Bug::kSupersededStillKnown},
    {"superseded_without_age", Bug::kSupersededWithoutAge},
    {"proposed_again", Bug::kProposedAgain},
    {"known_from_a_former_log", Bug::kKnownFromAFormerLog},
    {"learner_counted", Bug::kLearnerCounted},
    {"joint_quorum_by_one_mask", Bug::kJointQuorumByOneMask},
    {"leader_commits_in_old_configuration", Bug::kLeaderCommitsInOldConfiguration},
    {"configuration_not_rolled_back", Bug::kConfigurationNotRolledBack},
    {"removed_leader_counts_itself", Bug::kRemovedLeaderCountsItself},
    {"change_before_the_last_is_committed", Bug::kChangeBeforeTheLastIsCommitted},
    {"begins_with_the_file", Bug::kBeginsWithTheFile},
    {"old_epoch_accepted", Bug::kOldEpochAccepted},
    {"recover_without_tail", Bug::kRecoverWithoutTail},
    {"emptied_folder_accepted", Bug::kEmptiedFolderAccepted},
    {"old_incarnation_ack_counted", Bug::kOldIncarnationAckCounted},
    {"limits_of_the_file", Bug::kLimitsOfTheFile},
    {"snapshot_without_settings", Bug::kSnapshotWithoutSettings},
};

inline std::optional<Bug> FindBug(std::string_view name) {
  for (const NamedBug& known : kBugs) {
    if (known.name == name) return known.bug;
  }
  return std::nullopt;
}

}  // namespace hedgerow::sim
