// SPDX-License-Identifier: Apache-2.0
//
// The errors of the log, each saying what was found and what to do. Codes: DataLoss, something durable is
// damaged or missing; ResourceExhausted, no space, which can pass; FailedPrecondition, the log of another node,
// or one that this node may not use any more; Unavailable, it is in use; Internal, the operating system refused
// something.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace hedgerow::storage {

// Marks an error as one of a node that has lost what it promised, though what it finds is whole: it can go on
// only in a recovered cluster (docs/adr/0019).
absl::Status AsLost(absl::Status status);
bool IsLost(const absl::Status& status);

// What to do with such a node, for those errors: the end of a sentence, without its point.
inline constexpr char kLetItComeBack[] =
    "let it come back under an id that was never used (`hedgerow-node members rejoin` at the leader): the others go on "
    "while they are a majority";

absl::Status DamagedError(const std::string& path, const std::string& what);
absl::Status FullDiskError(const std::string& path, const std::string& what);
// `doing`: "open", "write".
absl::Status FromErrno(const std::string& path, const std::string& doing, int error_number);

}  // namespace hedgerow::storage
