// SPDX-License-Identifier: Apache-2.0
//
// Who has which number in the kernel's maps, from one configuration to the
// next. Requests in flight, flows and the scoreboard know services and
// backends by their numbers only: whatever stays configured keeps its own, and
// a number that is given up is given to nobody else until the last request
// that knows it has ended. Pure; kept in the instance's record.

#ifndef HEDGEROW_PROXY_DAEMON_ROSTER_H_
#define HEDGEROW_PROXY_DAEMON_ROSTER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proxy/api/config.pb.h"
#include "proxy/api/record.pb.h"

namespace hedgerow {

// The kernel part's room; a running one cannot grow.
struct RosterRoom {
  uint32_t services = 0;
  uint32_t backends = 0;
};

// The roster under `config`: new entries get the lowest numbers that nobody has, retired ones included; what is
// not configured any more is retired until its requests must have ended; who is back by then has its old
// number. FailedPrecondition, with every reason, when a number would have to be given twice.
absl::StatusOr<v1::Roster> NextRoster(const v1::Roster& present, const v1::Config& config, RosterRoom room,
                                      int64_t now_ns);

// After a daemon that died between two configurations: `before`, and what only `half_done` has, retired from
// now on, for requests may have met it. Both grew from one roster, so that no number is in them for two.
v1::Roster WithHalfDone(const v1::Roster& before, const v1::Roster& half_done, int64_t now_ns);

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
// Among those that are configured; null when there is none.
const v1::RosterService* FindService(const v1::Roster& roster, const std::string& name);
const v1::RosterBackend* FindBackend(const v1::RosterService& service, const v1::Backend& backend);

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DAEMON_ROSTER_H_
