// SPDX-License-Identifier: Apache-2.0
//
// The data plane as the daemon sees it: plain structs in and out, no libbpf type. `LivePolicy` and `DataPlaneReader`
// are implemented by parts of KernelDataPlane (kernel_data_plane.h), and by a fake in tests. All calls come from the
// daemon's one event-loop thread unless a method says otherwise. Times are nanoseconds of CLOCK_MONOTONIC or durations;
// sizes are bytes; indices of backends are service-local.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/abi/config_abi.h"
#include "bpf/abi/request_abi.h"
#include "bpf/abi/stats_abi.h"
#include "proxy/data_plane/trace_source.h"

namespace hedgerow {

inline constexpr uint32_t kNoId = ~0u;

// What the kernel programs need to know; built by the daemon from the configuration and from the links it made.
struct BackendSpec {
  std::string name;
  std::string address;  // textual IPv4 or IPv6
  uint16_t port = 0;    // host order
  uint32_t uplink_ifindex = 0;
  uint32_t also_ifindex = 0;  // another interface by which its replies may come; 0: none
  uint32_t node = 0;          // its id in the cluster, by which a nack may name it as the leader; 0 = not known
  uint32_t weight = 1;
  // Where it stands in the maps: kNoId everywhere means in order of appearance (proxy/start/roster.h).
  uint32_t id = kNoId;
  uint32_t slot = kNoId;  // within its service
};

// The cluster that announces a service's leader. Services of one cluster have the same values here.
struct ClusterSpec {
  uint64_t id = 0;
  std::vector<hr_siphash_key> keys{};  // this proxy's, one or two; never shown anywhere
  uint64_t epoch = 0;                  // the cluster epoch that is accepted
  uint16_t announce_port = 0;          // host order
};

struct ServiceSpec {
  std::string name;
  std::string vip;             // textual
  uint16_t port = 0;           // host order
  hr_service_config config{};  // as the programs read it, but for ends, ids and shares, which MakeConfig() fills
  uint32_t primary = 0;        // service-local index of the configured leader
  bool adaptive = false;       // its delay is written by SetDelay from time to time
  uint32_t id = kNoId;         // as a backend's
  std::optional<ClusterSpec> cluster;
  std::vector<BackendSpec> backends;
};

struct DataPlaneSpec {
  std::vector<ServiceSpec> services;
  uint32_t max_requests = 131'072;
  uint32_t max_parked = 16'384;
  uint32_t max_flows = 65'536;
  uint32_t max_connections = 16'384;
  uint32_t max_fragments = 4'096;
  uint32_t proxy_ifindex = 0;               // hr0
  std::array<uint8_t, 6> proxy_mac{};       // hr0
  uint32_t clock_out_ifindex = 0;           // the clock link's end that carries the qdisc
  uint32_t clock_in_ifindex = 0;            // its other end, whose ingress runs the clock
  hr_clock_kind clock_kind = HR_CLOCK_HTB;  // what holds the clock packet back on that link
  std::array<uint64_t, HR_CLOCK_CLASSES> clock_period_ns{100'000, 1'000'000, 10'000'000};
  bool test_clock = false;  // tests set the programs' time forward (hr_wheel.test_ahead_ns)
};

// What a configuration had and its successor has not. First it is retired, because it may still answer earlier
// requests. It is forgotten when no request refers to it any more.
struct RetiredService {
  uint32_t id = 0;
  std::string vip;
  uint16_t port = 0;          // host order
  bool vip_is_known = false;  // another service has this VIP, a retired one or one of the configuration
};
struct RetiredBackend {
  uint32_t id = 0;
  std::string address;
  uint16_t port = 0;  // host order
};

// How many services and backends there is room for, from the first configuration on: a kernel part that runs
// cannot grow.
struct DataPlaneRoom {
  uint32_t services = 0;
  uint32_t backends = 0;
};
// A first configuration may grow to twice its size, and any to 16 services with 64 backends.
inline DataPlaneRoom RoomFor(size_t services, size_t backends) {
  const size_t service_room = std::min<size_t>(HR_MAX_SERVICES, std::max<size_t>(16, 2 * services));
  const size_t backend_room = std::min<size_t>(HR_MAX_BACKENDS, std::max<size_t>(64, 2 * backends));
  return {.services = static_cast<uint32_t>(service_room), .backends = static_cast<uint32_t>(backend_room)};
}

// An interface: an end of an own link, each uplink and lo, or each other one.
enum class Place { kProxy, kProxyPeer, kClock, kClockPeer, kUplinks, kOthers };
// The end's name, behind that of the proxy interface.
constexpr const char* SuffixOf(Place place) {
  return place == Place::kClock ? "c0" : place == Place::kClockPeer ? "c1" : place == Place::kProxyPeer ? "p" : "";
}
struct Hook {
  const char* program;
  Place place;
  bool egress = false;
};
// Which program stands where, in the order in which they are attached: replies before requests. The daemon attaches by
// these (net/tc/tc_attach.h), and the splitter to the uplinks' egress as their routes are made
// (proxy_uplink_routes.cc), the guard as it looks at the network (proxy_follow.cc).
inline constexpr Hook kHooks[] = {
    {"hr_reply", Place::kUplinks},
    {"hr_clock", Place::kClockPeer},
    {"hr_gate", Place::kClock, true},
    {"hr_closed_gate", Place::kClockPeer, true},
    {"hr_closed_gate", Place::kProxyPeer, true},
    {"hr_sink", Place::kProxyPeer},
    {"hr_splitter", Place::kProxy, true},
    {"hr_guard", Place::kOthers},
    {"hr_guard", Place::kOthers, true},
};
struct ProgramInfo {
  std::string name;        // of the BPF program, at most 15 bytes as the kernel shows it
  int fd = -1;             // owned by the data plane
  uint64_t run_count = 0;  // both 0 unless kernel.bpf_stats_enabled or BPF_ENABLE_STATS (proxy/cli/top.cc)
  uint64_t run_time_ns = 0;
  uint32_t verified_instructions = 0;
};

// Durations merged over CPUs. bucket i starts at hr_histogram_lower_ns(i).
struct Histogram {
  std::array<uint64_t, HR_HISTOGRAM_BUCKETS> buckets{};
  uint64_t sum_ns = 0;
  uint64_t max_ns = 0;
  uint64_t Count() const;
  // Upper edge of the bucket that holds the q-quantile (0 < q <= 1), capped at max_ns; 0 when empty.
  uint64_t QuantileNs(double q) const;
  // What was added since `earlier` (a snapshot of the same histogram); max_ns is kept from this one.
  Histogram Since(const Histogram& earlier) const;
  void Add(const Histogram& other);
};

// What the daemon learns of a backend's load.
struct LearnedLoad {
  uint32_t slow_at = 0;  // requests in flight at which its answers are slow (hr_slow_at); 0 = not known
  int32_t lost = 0;      // of those in flight, how many it will not answer
};

struct BackendSnapshot {
  std::string name;
  hr_health health = HR_HEALTHY;
  // To the one client that waits there in vain; HR_HEALTHY: `health` holds for it as for all others.
  hr_health one_client_health = HR_HEALTHY;
  uint64_t one_client_waits_ns = 0;
  hr_health tcp_health = HR_HEALTHY;  // by what answers SYNs; a new connection goes by the worse of both
  uint64_t sends = 0;
  uint64_t wins = 0;
  uint64_t answer_ewma_ns = 0;
  uint64_t last_receive_ns = 0;
  uint64_t health_since_ns = 0;  // the last change for the worse; 0: there was none
  uint64_t p95_ns = 0;           // as last written by SetBackendP95
  hr_backend_load load_state{};  // requests in flight, and answer times by them
  LearnedLoad learned{};         // as last written by SetBackendLoad
  uint32_t load = 0;             // hr_load() of both, as of the snapshot
  uint64_t unanswered = 0;       // first sends that got no answer while they were waited for
  bool drained = false;
  bool unrouted = false;   // the host has no route to it
  bool failing = false;    // it fails the service's check
  bool retry_due = false;  // it is down, and may be probed again
  Histogram answer_times;
  // Those that no pause held back, and each pause itself as one: what the suspicion timeout is learned from.
  Histogram ordinary_times;
};

struct ServiceSnapshot {
  std::string name;
  hr_stats stats{};        // summed over CPUs
  uint64_t in_flight = 0;  // counted from the request map
  double budget_tokens = 0;
  bool failovers_spent = false;  // no copy may leave around a suspect backend (HR_DEBT_FAILOVERS)
  bool bypass = false;
  bool dry_run = false;
  bool pushed_back = false;  // a backend has lately asked for later hedges, or for none
  uint64_t delay_ns = 0;     // of requests that come now
  uint32_t preferred = 0;    // service-local index + 1 of the backend that gets requests instead of the leader; 0: none
  hr_leader_view leader{};
  Histogram latency;
  Histogram fire_error;
  std::vector<BackendSnapshot> backends;
};

struct MapUse {
  std::string name;
  uint64_t used = 0;  // entries; 0 where the kernel cannot tell cheaply and `exact` is false
  uint64_t size = 0;
  uint64_t bytes = 0;
  bool exact = true;
};

struct ClockSnapshot {
  bool running = false;
  uint64_t laps = 0;
  uint64_t kicks = 0;
  uint64_t restarts = 0;
};

struct Snapshot {
  uint64_t taken_ns = 0;
  std::vector<ServiceSnapshot> services;
  hr_stats host{};  // what belongs to no service
  ClockSnapshot clock;
  std::vector<MapUse> maps;
  uint64_t hedge_until_ns = 0;  // as last written by HedgeUntil
};

// Of services, or of a service's backends; null when there is none of this name.
template <typename Named>
const Named* FindByName(const std::vector<Named>& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Named& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// What an operator or the daemon's policy changes while the programs run. kNotFound for an unknown service or backend.
class LivePolicy {
 public:
  virtual ~LivePolicy() = default;

  virtual absl::Status PinLeader(const std::string& service, const std::string& backend) = 0;
  virtual absl::Status UnpinLeader(const std::string& service) = 0;
  // The configured primary leads until an announcement comes, whatever its term.
  virtual absl::Status ForgetLeader(const std::string& service) = 0;
  virtual absl::Status SetBypass(const std::string& service, bool on) = 0;
  virtual absl::Status SetDryRun(const std::string& service, bool on) = 0;
  virtual absl::Status SetDrained(const std::string& service, const std::string& backend, bool on) = 0;
  // How long requests that come from now on wait before they are hedged. What waits already keeps its due time.
  virtual absl::Status SetDelay(const std::string& service, uint64_t delay_ns) = 0;
  // The backend that gets requests instead of the leader; nullopt: the leader gets them.
  virtual absl::Status SetPreferred(const std::string& service, std::optional<size_t> backend) = 0;
  // As of a snapshot: requests that go elsewhere probe those of them that are down.
  virtual absl::Status SetUnhealthy(const std::string& service, const std::vector<size_t>& backends) = 0;
  // The host has no route to them, as known until this time of CLOCK_MONOTONIC: requests go to the others, and where
  // there is none an ICMP error answers.
  virtual absl::Status SetUnrouted(const std::string& service, const std::vector<size_t>& backends,
                                   uint64_t until_ns) = 0;
  // They fail the service's check, as known until this time of CLOCK_MONOTONIC: they count as impaired.
  virtual absl::Status SetFailing(const std::string& service, const std::vector<size_t>& backends,
                                  uint64_t until_ns) = 0;
  // The service's next request from this address and port (host order) is tracked and its first datagram dropped, until
  // this time of CLOCK_MONOTONIC: what the client gets then comes by a hedge. One test of a service at a time; the last
  // one counts.
  virtual absl::Status TestHedge(const std::string& service, const hr_address& client, uint16_t port,
                                 uint64_t until_ns) = 0;
  // p95 of a backend's ordinary answer times, 0 = unknown: a third of its suspicion timeout.
  virtual absl::Status SetBackendP95(const std::string& service, size_t backend, uint64_t p95_ns) = 0;
  virtual absl::Status SetBackendLoad(const std::string& service, size_t backend, const LearnedLoad& learned) = 0;
};

// What the programs have counted and decided.
class DataPlaneReader {
 public:
  virtual ~DataPlaneReader() = default;

  virtual std::vector<ProgramInfo> Programs() = 0;
  // Everything that can be counted. `histograms` false leaves them empty (cheaper).
  virtual absl::StatusOr<Snapshot> Read(bool histograms) = 0;
  // The kernel emits what becomes of the requests that the filter names, from the first Renew() on. One at a time. The
  // source may outlive the data plane, which another may succeed.
  virtual absl::StatusOr<std::unique_ptr<TraceSource>> OpenTrace(const hr_trace_filter& filter) = 0;
};

}  // namespace hedgerow
