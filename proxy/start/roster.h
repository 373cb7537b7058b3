// SPDX-License-Identifier: Apache-2.0
//
// The ids of services and backends in the kernel's maps, from one configuration to the next. Requests in flight, flows
// and the scoreboard name services and backends by id only. What stays configured keeps its id, and an id that is given
// up is assigned again only when the last request that refers to it has ended. Pure; kept in the instance's record.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proxy/api/config.pb.h"
#include "proxy/api/record.pb.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

// The roster under `config`. New entries get the lowest ids that no entry has, retired ones included. An entry that is
// not configured any more is retired until its requests must have ended; if it is back by then, it has its old id.
// FailedPrecondition, with every reason, when an id would have to be assigned twice.
absl::StatusOr<v1::Roster> NextRoster(const v1::Roster& present, const v1::Config& config, DataPlaneRoom room,
                                      int64_t now_ns);

// What is over: retired, and its time has passed, and nothing in flight knows it. A service goes with its
// backends.
struct RosterPart {
  std::vector<v1::RosterService> services;
  std::vector<v1::RosterBackend> backends;
  bool empty() const { return services.empty() && backends.empty(); }
};
// Is there a request that refers to one of these places (a mask) of a service?
using IsKnownFn = std::function<bool(uint32_t service, uint32_t places)>;
RosterPart Over(const v1::Roster& roster, int64_t now_ns, const IsKnownFn& is_known);
v1::Roster Without(const v1::Roster& roster, const RosterPart& part);

bool AnyRetired(const v1::Roster& roster);
// Has any service this VIP, configured or retired?
bool HasVip(const v1::Roster& roster, const std::string& vip);
// Among those that are configured; null when there is none.
const v1::RosterService* FindService(const v1::Roster& roster, const std::string& name);
const v1::RosterBackend* FindBackend(const v1::RosterService& service, const v1::Backend& backend);

}  // namespace hedgerow
