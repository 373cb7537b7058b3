// SPDX-License-Identifier: Apache-2.0
//
// The one list of problems: what `status` shows, and what makes it `degraded`. enum ProblemCode, the codes in `status`,
// `plan` and hedgerow_problem_active, and docs/problems.md are made of it. Adding a problem: a line here, and
// {ProblemCode::kYours, "what is wrong, of which thing"} where it is found. A code keeps its meaning for ever.
// Pure; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hedgerow {

// X(enumerator, code, family, when, remedy). The family is a section of docs/problems.md: `backends`, `network`,
// `others` (what else runs on the host and meets our packets), `clients` or `machine` (the proxy's own parts).
// clang-format off
#define HR_PROBLEMS(X)                                                                                             \
  X(kBackendSuspect, backend_suspect, backends, "a backend has not answered for its suspicion timeout",            \
    "look at the backend; requests reach a standby meanwhile")                                                     \
  X(kBackendDown, backend_down, backends, "a backend has been silent for long, or its host refuses",               \
    "look at the backend; requests go to a standby. `hedgerow check SERVICE` asks it directly, and names the address of one that answers from another")                                                               \
  X(kBackendImpaired, backend_impaired, backends, "a backend lives, and leaves unanswered, or refuses, more than an eighth of the requests that another backend then answers, or it fails the service's `check`", \
    "look at what the server needs for its answers (a resolver's uplink, a database); requests go to the other backend, and come back when probes are answered") \
  X(kServiceDown, service_down, backends, "every backend of a service is down", "look at the backends and the network") \
  X(kLeaderOutdated, leader_outdated, backends,                                                                    \
    "a service's cluster announces its leader, and only with older terms than the known leader's: it was set up anew under its old id", \
    "nothing, if it was: the known leader is forgotten after 20 s; otherwise look for nodes of a former cluster that still run") \
  X(kNothingHedged, nothing_hedged, backends, "none of a service's copies could be built or sent: three or more in a row, the last one within 60 s", \
    "look at the problems beside it and at the uplink (`ip -s link`): first sends leave, copies do not")                \
  X(kNoRoute, no_route, network, "no route leads to a backend, or no host answers for its address or its gateway's",     \
    "`ip route get ADDRESS` and `ip neighbour` say what the kernel knows; followed as soon as there is a route and an answer")                     \
  X(kUplinkUnfit, uplink_unfit, network,                                                                           \
    "a backend is reached through an interface without Ethernet frames, or the proxy interface; or a service with `also_at` and another have different sources", \
    "route the backend through another interface, or give the service an instance of its own")                                                                 \
  X(kVrf, vrf, network, "a backend is reached through a VRF only",                                                 \
    "run the daemon and its clients outside of the VRF, with a route to the backend in the main table")            \
  X(kIpsec, ipsec, network, "an IPsec policy is for what goes to a backend; the proxy's packets pass it by and leave in clear",    \
    "reach the backend through a tunnel interface with Ethernet frames whose own packets are encrypted, or except it from the policy; looked for at `up` and every 10 s") \
  X(kUplinkDown, uplink_down, network, "the interface by which a backend is reached is down or has no carrier",    \
    "look at the cable, or at `ip link`; followed as soon as a route leads elsewhere")                             \
  X(kNoSource, no_source, network, "the uplink has no address that requests can come from",                        \
    "give the uplink an address; temporary and tentative IPv6 addresses are never taken")                \
  X(kAttachFailed, attach_failed, network, "a program of the proxy cannot be attached to an interface",                    \
    "the text has the kernel's reason; tried again every second")                                                  \
  X(kVipLocal, vip_local, network, "a VIP is an address of this host", "choose an address that nothing has, or [take it in place](reaching-a-vip.md#the-hosts-own-address)")       \
  X(kAddressTaken, address_taken, network, "something listens at an address of this host that a service is asked at as well (`also_at`, or its VIP in place)", \
    "the text names socket and process: let it listen at other addresses or another port, or list it as a backend")  \
  X(kNotForwarded, not_forwarded, network, "this host does not forward what the service's `clients` send to one of its `also_at`", \
    "the text has the setting")                                                                                     \
  X(kVipRoutedElsewhere, vip_routed_elsewhere, network,                                                            \
    "the kernel sends packets to a VIP elsewhere, for some senders at least: a routing rule or a foreign route",    \
    "the text names it; set `rule_priority` to a number below the rule's, or change the rule")                     \
  X(kVipRouteLost, vip_route_lost, network, "a VIP's route or its source address cannot be put in place",          \
    "the text has the kernel's reason; tried again every second")                                                  \
  X(kIpv6Disabled, ipv6_disabled, network, "IPv6 is disabled on the proxy interface, and the daemon may not enable it, as under its systemd unit", \
    "`sysctl -w net.ipv6.conf.hr0.disable_ipv6=0`; before a start net.ipv6.conf.default.disable_ipv6=0") \
  X(kProgramBefore, program_before, others,                                                                        \
    "answers do not reach the reply program on an uplink: a program in front of it ends them",                     \
    "let that program return TC_ACT_UNSPEC for packets of the backends, or put it behind ours; with TCX ours goes to the front by itself, a filter needs `attach: tcx` or another priority") \
  X(kRulesOut, rules_out, others, "packets to a VIP do not leave this host's sockets by the proxy interface",      \
    "in firewall rules that name the uplink (`oifname`, `-o`) name the proxy interface as well, or leave `vip_route` at `auto`")                   \
  X(kRulesIn, rules_in, others, "answers of a VIP do not reach this host's sockets",                               \
    "in firewall rules that name the uplink (`iifname`, `-i`) name the proxy interface as well, or leave `vip_route` at `auto`")                   \
  X(kInPlaceLost, in_place_lost, others, "a VIP in place cannot be taken over: its owner serves it",                 \
    "the text has the reason; tried again every 2 s, or each minute where clients got nothing (see other problems)")                                                     \
  X(kClientsDropped, clients_dropped, clients,                                                                     \
    "three packets or more of the last minute, which this host would have forwarded to a VIP, came from none of the service's `clients` (`not_a_client`): these clients get nothing", \
    "list their network, as it is when the packets leave this host, in `clients` ([config.md](config.md#who-may-use-a-vip)), or find out what sends them") \
  X(kClientsUnanswered, clients_unanswered, clients,                                                               \
    "nine of ten requests of the last minute, and at least 100, got no answer from any backend, though all are healthy", \
    "ask a backend itself for what the clients ask (`hedgerow check`, `hedgerow trace`): a policy of the servers drops it, or their answers leave by another way") \
  X(kOwnLink, own_link, machine, "one of the proxy's own interfaces is not as it should be",                       \
    "the text has the kernel's reason")                                                                            \
  X(kDataPlane, data_plane, machine, "the daemon cannot read or write the kernel part", "report it")               \
  X(kReload, reload, machine, "a reload could not be ended or undone", "the text has the reason; tried again every second") \
  X(kKeyFile, key_file, machine, "a key file cannot be used", "the text has the reason")                           \
  X(kNotServed, not_served, machine, "the metrics and the live page, or a socket for administration, cannot be served: a port that is taken, an address or a certificate that is not there", \
    "the text names it, with the reason; the proxy works on without it, and it is served as soon as it can be")       \
  X(kGivesUp, gives_up, machine, "the daemon takes everything down and ends", "the log has the reason")
// clang-format on

enum class ProblemCode {
#define HR_PROBLEM_ENUMERATOR(enumerator, code, family, when, remedy) enumerator,
  HR_PROBLEMS(HR_PROBLEM_ENUMERATOR)
#undef HR_PROBLEM_ENUMERATOR
};

struct ProblemRow {
  absl::string_view code;  // snake_case, such as "no_route"
  absl::string_view family;
  absl::string_view when, remedy;  // Markdown
};
// By ProblemCode.
inline constexpr auto kProblems = std::to_array<ProblemRow>({
#define HR_PROBLEM_ROW(enumerator, code, family, when, remedy) {#code, #family, when, remedy},
    HR_PROBLEMS(HR_PROBLEM_ROW)
#undef HR_PROBLEM_ROW
});

constexpr const ProblemRow& RowOf(ProblemCode code) { return kProblems.at(static_cast<size_t>(code)); }
// What may come by itself, by DHCP, a tunnel, a cable: the proxy starts without it, and follows it (docs/adr/0058).
constexpr bool MayCome(ProblemCode code) {
  return code == ProblemCode::kNoRoute || code == ProblemCode::kUplinkDown || code == ProblemCode::kNoSource ||
         code == ProblemCode::kIpv6Disabled || code == ProblemCode::kNotForwarded;
}
constexpr absl::string_view CodeText(ProblemCode code) { return RowOf(code).code; }

struct Problem {
  ProblemCode code;
  std::string text;  // one line; names the thing and the cause, without the code

  std::string ToString() const;  // "CODE: TEXT", as `status` shows it
  friend bool operator==(const Problem&, const Problem&) = default;
};

std::string JoinProblems(const std::vector<Problem>& problems, absl::string_view separator);

}  // namespace hedgerow
