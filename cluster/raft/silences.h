// SPDX-License-Identifier: Apache-2.0
//
// How long leader and followers did not hear each other lately although both lived: a busy host lets a process
// wait for its processor, and a hypervisor the whole machine. Such waits come seconds apart, so nothing of them
// is left in a mean of round trips (RFC 6298) when the next one comes; what has just been survived twice over
// is no sign of death. For availability only (R4).

#pragma once

#include <algorithm>
#include <cstdint>

#include "cluster/raft/types.h"

namespace hedgerow::raft {

class Silences {
 public:
  // A silence fades, in a straight line, and is forgotten after this.
  static constexpr uint64_t kFade_ns = 60'000'000'000;

  // Whom a node listens to: its leader, or as leader a majority.
  struct Listening {
    Term term;
    NodeId leader;
    bool leads = false;
    bool operator==(const Listening&) const = default;
  };

  // Whoever gives up whom it listened to, or finds somebody else, learns nothing from the silence before.
  void ListenTo(const Listening& listening);
  // Something was heard: the silence that has been looked at is over, and counts, up to `most_ns`.
  void Heard(uint64_t now_ns, uint64_t heard_ns, uint64_t most_ns);
  // Nothing was heard since, for all that this process has received.
  void Look(uint64_t now_ns);
  // It is known to have lasted so long.
  void AtLeast(uint64_t silent_ns) { silent_ns_ = std::max(silent_ns_, silent_ns); }

  // The longest of late, less what has faded.
  uint64_t Longest_ns(uint64_t now_ns) const;

 private:
  Listening listening_;
  uint64_t heard_ns_ = 0;
  uint64_t silent_ns_ = 0;  // since then, when that was last looked at
  uint64_t longest_ns_ = 0;
  uint64_t longest_at_ns_ = 0;
};

}  // namespace hedgerow::raft
