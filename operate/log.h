// SPDX-License-Identifier: Apache-2.0
//
// The daemon's log: one line per event on stderr, with the time in UTC. Under
// `up` stderr is the instance's log file, under systemd it is the journal.
// Events are rare by design (starts, losses, repairs); nothing is logged per
// packet.

#pragma once

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hedgerow {

inline void LogLine(absl::string_view level, absl::string_view text) {
  const std::string line = absl::StrCat(
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ", level, " ", text, "\n");
  fwrite(line.data(), 1, line.size(), stderr);
}

template <typename... Parts>
void LogInfo(const Parts&... parts) {
  LogLine("info", absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  LogLine("warning", absl::StrCat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
  LogLine("error", absl::StrCat(parts...));
}

}  // namespace hedgerow
