// SPDX-License-Identifier: Apache-2.0
//
// Finds clusters that were set up anew under their old id. Announcements are ordered by (cluster epoch, term,
// sequence), and such a cluster begins at term 1: each of its announcements is older than the last one of the cluster
// before it, for as long as that one's terms went. A cluster that lives announces a newer leader every few
// milliseconds. So a leader that no announcement has confirmed for kSilence, while older ones come second after second,
// is one of a cluster that is gone. Once it is forgotten, the next announcement counts. That is what a daemon that
// starts believes, too. Announcements of a term that is too far on count as older ones do: if the cluster is truly
// there, it is followed after that time. Owned by the guardian; on the event loop's thread.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

class LeaderWatch {
 public:
  static constexpr uint64_t kSilence_ns = 10'000'000'000;
  // Looks in a row that find more such announcements than the one before: a few old datagrams decide nothing.
  static constexpr int kLooks = 10;

  // A problem earlier than that, so that `status` has it before it passes.
  static constexpr uint64_t kOutdatedSilence_ns = 2'000'000'000;
  static constexpr int kOutdatedLooks = 3;

  // Once a second. The services whose leader is to be forgotten.
  std::vector<std::string> Look(const Snapshot& snapshot);
  // As of the last look: the services whose known leader seems to be one of a cluster that is gone.
  const std::vector<std::string>& outdated() const { return outdated_; }

 private:
  struct Service {
    uint64_t stale = 0;    // announcements, as of the last look
    int looks = 0;         // in a row that found more, while the leader was silent for kOutdatedSilence_ns
    int silent_looks = 0;  // the same for kSilence_ns, since the leader was to be forgotten
  };
  std::map<std::string, Service> services_;
  std::vector<std::string> outdated_;
};

}  // namespace hedgerow
