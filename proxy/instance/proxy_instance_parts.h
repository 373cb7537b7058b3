// SPDX-License-Identifier: Apache-2.0
//
// What the files of ProxyInstance (proxy_*.cc) share.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proxy/api/config.pb.h"
#include "proxy/instance/answer_history.h"
#include "proxy/start/roster.h"
#include "proxy/start/topology.h"
#include "proxy/data_plane/data_plane.h"
#include "proxy/kernel_part/pinned_array.h"

namespace hedgerow {

// The last two are attached to the uplinks, beside lo and the proxy interface, the guard to all other interfaces.
inline constexpr char kClockProgram[] = "hr_clock";
inline constexpr char kGuardProgram[] = "hr_guard";
inline constexpr char kReplyProgram[] = "hr_reply";
inline constexpr char kSplitterProgram[] = "hr_splitter";

inline absl::Status Annotate(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", std::string(status.message())));
}

inline std::string AnswersPath(const std::string& pin_folder) { return absl::StrCat(pin_folder, "/answers"); }

inline DataPlaneRoom RoomOf(const v1::Config& config) {
  size_t backends = 0;
  for (const v1::Service& service : config.services()) backends += static_cast<size_t>(service.backends_size());
  return RoomFor(static_cast<size_t>(config.services_size()), backends);
}

// By which interface each configured backend is reached.
inline void NoteUplinks(const v1::Config& config, const Topology& topology, v1::Roster& roster) {
  for (int i = 0; i < config.services_size(); ++i) {
    const v1::RosterService* service = FindService(roster, config.services(i).name());
    for (int j = 0; service != nullptr && j < config.services(i).backends_size(); ++j) {
      const v1::RosterBackend* backend = FindBackend(*service, config.services(i).backends(j));
      if (backend == nullptr) continue;
      const_cast<v1::RosterBackend*>(backend)->set_uplink(
          topology.services.at(static_cast<size_t>(i)).backends.at(static_cast<size_t>(j)).uplink);
    }
  }
}

inline PinnedArraySpec AnswersSpec(uint32_t backends) {
  return {.name = "hr_answers", .value_bytes = sizeof(AnswerHistory::Memory), .entries = backends};
}

}  // namespace hedgerow
