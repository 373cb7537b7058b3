// SPDX-License-Identifier: Apache-2.0
//
// The harmless request of a profile (`check` in proxy/profiles/*.yaml), and what a datagram that comes back says. In
// the words of the configuration, as the kernel programs do it in bytes; places behind a path or a header are not
// looked for. Called by `hedgerow check`.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proxy/api/config.pb.h"

namespace hedgerow {

// So many random bytes QueryOf() takes.
inline constexpr size_t kQueryRandomBytes = 16;

// The profile's request, with correlation bytes from `random`. Nothing where the profile names none.
std::optional<std::string> QueryOf(const v1::Profile& profile, absl::string_view random);
std::optional<std::string> NewQueryOf(const v1::Profile& profile);  // with random ones

enum class ReplyKind {
  kAnswer,
  kNegativeOk,      // a negative reply that `negative_ok` lists
  kNamesTheLeader,  // a negative reply that says where the leader is: a standby at work
  kNegative,        // the server cannot serve
  kNoReply,         // by this profile it is no reply to the request
};

struct JudgedReply {
  ReplyKind kind = ReplyKind::kAnswer;
  std::string name;  // of the negative reply; empty where it has none
};

JudgedReply JudgeReply(const v1::Profile& profile, absl::string_view query, absl::string_view reply);

// Does the profile take this datagram for a request that it may send twice?
bool IsHedged(const v1::Profile& profile, absl::string_view datagram);

}  // namespace hedgerow
