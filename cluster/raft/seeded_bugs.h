// SPDX-License-Identifier: Apache-2.0
//
// Known mistakes, planted so that the simulator can prove that it finds them. They exist only in objects
// compiled with HEDGEROW_SEEDED_BUGS, which are linked into the simulator and its tests; in everything else
// SeededBug() is the constant false and the compiler removes what depends on it.

#pragma once

#include <cstdint>

namespace hedgerow {

enum class Bug : uint8_t {
  kNone,
  kVoteWithoutLogCheck,
  kCommitOlderTerm,
  kLatestSeqOnlyDedupe,
  kApplyBelowLowestUnanswered,
  kSessionRecreation,
  kWallClockExpiry,
  kHeldCopyWithoutAgeLimit,
  kReadIndexIdReuse,
  kReadBeforeOwnTermCommit,
  kAckBeforeWrite,
  kMinorityQuorum,
  kStaleVoteCounted,
  kForwardTagReuse,
  kNoFence,
  kPlainUpdate,
  kAckWithoutStore,
  kAckByIndexAlone,
  kEqualityQuorum,
  kLeaseByHelper,
  kResignOfAnotherTerm,
  kInstallKeepsTail,
  kInstallWithLeadersTerm,
  kCompactPastSnapshot,
  kSnapshotWithoutSessions,
  kCutSeesLaterChanges,
  kInstallWithoutFence,
  kDedupeWithoutFingerprint,
  kDedupeByLocalClock,
  kSnapshotWithoutDedupe,
  kSupersededStillKnown,
  kSupersededWithoutAge,
  kProposedAgain,
  kKnownFromAFormerLog,
  kLearnerCounted,
  kJointQuorumByOneMask,
  kLeaderCommitsInOldConfiguration,
  kConfigurationNotRolledBack,
  kRemovedLeaderCountsItself,
  kChangeBeforeTheLastIsCommitted,
  kBeginsWithTheFile,
  kOldEpochAccepted,
  kRecoverWithoutTail,
  kEmptiedFolderAccepted,
  kOldIncarnationAckCounted,
  kLimitsOfTheFile,
  kSnapshotWithoutSettings,
};

#ifdef HEDGEROW_SEEDED_BUGS
// One bug at a time, per thread: simulations run in parallel.
inline thread_local Bug planted_bug = Bug::kNone;
inline bool SeededBug(Bug bug) { return planted_bug == bug; }
#else
constexpr bool SeededBug(Bug) { return false; }
#endif

}  // namespace hedgerow
