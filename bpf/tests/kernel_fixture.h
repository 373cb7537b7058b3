// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What every packet test stands on: the real KernelDataPlane::Load in a network namespace of the test process,
// one call that runs a program on a packet through BPF_PROG_TEST_RUN, and what came of it: verdict, packet,
// counters that changed, and the clones that were really sent on the clock's link. The programs' time stands, but for
// 20 us a run, and is set forward, or time-dependent state through the mapped arrays, so that no test waits for a
// deadline or finds one passed. Every test ends with the checks of invariants.h.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/pkt_cls.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bpf/proxy/choose.h"
#include "bpf/tests/cluster_messages.h"
#include "bpf/tests/invariants.h"
#include "bpf/tests/packet.h"
#include "bpf/tests/sniffer.h"
#include "net/netlink/link.h"
#include "proxy/kernel_part/kernel_data_plane.h"
#include "proxy/kernel_part/kernel_maps.h"

struct bpf_map;
struct bpf_program;

namespace hedgerow::packets {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

inline constexpr uint64_t kMillisecond = 1'000'000;
inline constexpr uint64_t kSecond = 1'000'000'000;

inline constexpr int kUntouched = TC_ACT_UNSPEC;
inline constexpr int kDropped = TC_ACT_SHOT;
inline constexpr int kRedirected = TC_ACT_REDIRECT;

// Counters that changed, by "service.counter", "service:reason" and "host:reason" (or "host.pings").
using Changes = std::map<std::string, int64_t>;

struct RunContext {
  uint32_t mark = 0;
  uint32_t priority = 0;
  uint32_t gso_segs = 0;
  uint32_t gso_size = 0;
  int ifindex = 0;          // where the packet is; 0 = the interface the program is attached to
  int ingress_ifindex = 0;  // where it came in; 0 = it is of a socket here
};

// A profile of which the first bytes of a request and its reply are the correlation bytes, and the rest as given.
hr_profile PairedBy(uint32_t bytes, absl::string_view rest = "");

struct RunResult {
  int verdict = 0;
  Bytes packet;
  uint32_t mark = 0;
  uint32_t priority = 0;
  uint64_t departure_ns = 0;  // the skb's time stamp
  Changes changes;
};

// The addresses of the specification below.
inline constexpr char kClient4[] = "10.77.0.1";
inline constexpr char kClient6[] = "fd77::1";
inline constexpr char kA4[] = "10.77.0.11", kB4[] = "10.77.0.12", kC4[] = "10.77.0.13";
inline constexpr char kA6[] = "fd77::11", kB6[] = "fd77::12";
inline constexpr char kDns4[] = "10.99.0.53", kDns6[] = "fd99::53";
inline constexpr char kRaw4[] = "10.99.0.1", kRaw6[] = "fd99::1";
inline constexpr char kSingle4[] = "10.99.0.2", kOnce4[] = "10.99.0.3";
inline constexpr char kHkv4[] = "10.99.0.4", kHkv6[] = "fd99::4";
inline constexpr uint16_t kDnsPort = 53;
inline constexpr uint16_t kBackendDnsPort6 = 5353;
inline constexpr uint16_t kRawPort = 9000;
inline constexpr uint16_t kHkvPort = 4801;
inline constexpr uint16_t kAnnouncePort = 4803;
inline constexpr uint16_t kClientPort = 40000;
// Indices of its services and (global) numbers of its backends.
enum Service : uint32_t {
  kDns4Service,
  kDns6Service,
  kRaw4Service,
  kRaw6Service,
  kSingleService,
  kOnceService,
  kHkv4Service,
  kHkv6Service
};
enum Backend : uint32_t {
  kDns4A,
  kDns4B,
  kDns6A,
  kDns6B,
  kRaw4A,
  kRaw4B,
  kRaw4C,
  kRaw6A,
  kRaw6B,
  kSingleA,
  kOnceA,
  kOnceB,
  kHkv4A,
  kHkv4B,
  kHkv4C,
  kHkv6A,
  kHkv6B
};
// The clusters behind the two hkv services. kCluster6 is in its third cluster epoch.
inline constexpr uint64_t kCluster4 = 7, kCluster6 = 8, kEpoch6 = 3;
inline constexpr hr_siphash_key kKey4 = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
inline constexpr hr_siphash_key kKey6 = {0x1716151413121110, 0x1f1e1d1c1b1a1918};

// A loaded data plane and its memory. Loading takes the verifier about a second, so that the tests of a process
// share one, set back to its first state before each.
struct LoadedPlane {
  DataPlaneSpec spec;
  std::unique_ptr<KernelDataPlane> plane;
  MappedArray configs, live, policies, requests, wheel, backend_states, service_states, backend_loads, tuning;
  std::vector<hr_service_config> first_configs;  // of both generations
  std::vector<hr_service_policy> first_policies;
  std::vector<hr_backend> first_backends;
};

class PacketTest : public ::testing::Test {
 protected:
  // Small limits, so that bounds can be reached; delays so long that nothing falls due while a test runs. Tests
  // may change what it says before Start().
  //   dns4  10.99.0.53:53 -> 10.77.0.11:53, .12:53        dns6  [fd99::53]:53 -> [fd77::11]:5353,
  //   [fd77::12]:5353 raw4  10.99.0.1:9000 -> .11, .12, .13 (port 9000)    raw6  [fd99::1]:9000 -> fd77::11,
  //   fd77::12 (port 9000) single 10.99.0.2:9000 -> .11:9100 alone              once  10.99.0.3:9000 ->
  //   .11:9200, .12:9200; one attempt
  //   hkv4  10.99.0.4:4801 -> .11, .12, .13 (port 4801), nodes 1, 2, 3 of kCluster4
  //   hkv6  [fd99::4]:4801 -> fd77::11, fd77::12 (port 4801), nodes 1, 2 of kCluster6
  static DataPlaneSpec Spec();

  void SetUp() override;
  void TearDown() override;
  // Loads the programs for this test alone, with another specification.
  void Start(const DataPlaneSpec &spec);

  RunResult Split(const Bytes &packet, const RunContext &context = {});
  // A packet of this client: of a socket here where it is kClient4 or kClient6, else through an interface that is this
  // client's alone, whose network the service lists.
  RunResult SplitOf(const std::string &client, const Bytes &packet);
  void List(uint32_t service, const std::vector<const char *> &networks);
  RunResult Guard(const Bytes &packet, const RunContext &context);
  RunResult Reply(const Bytes &packet, const RunContext &context = {});
  RunResult OwnError(const Bytes &packet);
  RunResult Sink(const Bytes &packet);
  // A datagram that comes to the announce port, over IPv4 or IPv6.
  RunResult Announce(const Bytes &datagram, bool ipv6 = false);
  // hkv4's cluster says who leads; it must be believed.
  void AnnounceLeader(const char *address, uint64_t term, uint64_t sequence = 1);
  hr_leader_view LeaderOf(uint32_t service);
  // A packet of the proxy's own on the clock's link, with this load's tag.
  RunResult Clock(const Bytes &packet, const RunContext &context);
  Bytes Tagged(Bytes frame);
  // One lap of the clock's own packet, of the current epoch.
  RunResult Lap();
  // Lets the clock look at every request whatever it is due at: each is then judged by its own times.
  Changes VisitAll();

  // Makes a request due, or past its deadline, or past its retention, at the next VisitAll().
  void MakeDue(uint32_t request);
  void MakeExpired(uint32_t request);
  void EndRetention(uint32_t request);
  // Both in one: the clock visits it now because it is due.
  Changes FireNow(uint32_t request);

  volatile hr_wheel &Wheel() { return *loaded_->wheel.At<hr_wheel>(0); }
  uint32_t RequestsInUse();
  uint32_t CopiesInUse();
  volatile hr_request &Request(uint32_t index) { return *loaded_->requests.At<hr_request>(index); }
  uint8_t StateOf(uint32_t request) { return HR_WORD_STATE(Request(request).word); }
  uint32_t SentTo(uint32_t request) { return HR_SENT_MASK(Request(request).masks); }
  uint32_t Outstanding(uint32_t request) { return HR_OUTSTANDING_NOW(Request(request).outstanding); }
  uint8_t WinnerOf(uint32_t request) { return HR_WORD_WINNER(Request(request).word); }
  volatile hr_backend_state &BackendState(uint32_t id) { return *loaded_->backend_states.At<hr_backend_state>(id); }
  volatile hr_backend_load &BackendLoad(uint32_t id) { return *loaded_->backend_loads.At<hr_backend_load>(id); }
  volatile hr_backend_tuning &BackendTuning(uint32_t id) { return *loaded_->tuning.At<hr_backend_tuning>(id); }
  // Two clients of two users wait in vain for an answer of the backend since `ns` ago.
  void Silence(uint32_t backend, uint64_t ns);
  volatile hr_service_state &ServiceState(uint32_t id) { return *loaded_->service_states.At<hr_service_state>(id); }
  // The published configuration of a service, which tests change between two packets.
  volatile hr_service_config &ServiceConfig(uint32_t id) {
    return *loaded_->configs.At<hr_service_config>(HR_CONFIG_ID(Published(), id));
  }
  volatile hr_live &Live() { return *loaded_->live.At<hr_live>(0); }
  volatile __u64 &Published() { return Live().published; }
  volatile hr_service_policy &ServicePolicy(uint32_t id) { return *loaded_->policies.At<hr_service_policy>(id); }
  hr_parked Parked(uint32_t request);
  // Number of the request the scoreboard has for this client and these correlation bytes; 0 = none.
  uint32_t FindRequest(uint32_t service, const char *client, uint16_t client_port, const Bytes &correlation);
  uint32_t FindDns(uint16_t id, uint16_t client_port = kClientPort) {
    return FindRequest(kDns4Service, kClient4, client_port, {static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id)});
  }
  bool HasFlow(const char *client, uint16_t client_port, uint8_t protocol, hr_flow_kind kind, uint16_t id);
  // Takes a flow away, or lets it look as old as `age_ns`.
  void AgeFlow(const char *client, uint16_t client_port, uint8_t protocol, hr_flow_kind kind, uint16_t id,
               uint64_t age_ns);

  // The clones of one kind (HR_MARK_...) that the clock's link got since the last look. More or fewer is a
  // failure.
  std::vector<Captured> Clones(uint32_t kind, size_t expected);
  // The same for copies of both kinds on their way to an uplink, in the order in which they were sent.
  std::vector<Captured> Copies(size_t expected);

  KernelDataPlane &plane() { return *loaded_->plane; }
  proxy_bpf *skeleton() { return loaded_->plane->object().skeleton(); }
  bpf_map *FlowsOf(uint8_t protocol);
  RunResult Run(bpf_program *program, const Bytes &packet, const RunContext &context);
  bpf_program *program_splitter();
  // Without looking at the counters; may be called from many threads.
  RunResult RunUncounted(bpf_program *program, const Bytes &packet, const RunContext &context);
  StateView View();
  // The programs' time, which Advance() sets forward.
  uint64_t NowNs();
  void Advance(uint64_t ns) { Wheel().test_ahead_ns = Wheel().test_ahead_ns + ns; }
  // From now on it is the kernel's, for threads that run programs at once.
  void LetTimeRun() { Wheel().test_ahead_ns = 0; }
  static uint32_t StateMapEntries(bpf_map *map);

  // Frames of the services, whole.
  static Bytes HkvRequest4(uint64_t seq, uint8_t kind = kHkvWrite);
  static Bytes HkvReply4(uint64_t seq, const char *backend, uint8_t status = 0, uint32_t hint = 0);
  uint32_t FindHkv(uint64_t seq) {
    return FindRequest(kHkv4Service, kClient4, kClientPort, HkvCorrelation(kHkvSession, seq));
  }
  static constexpr uint64_t kHkvSession = 0x5e55101d;
  static Bytes DnsRequest4(uint16_t id, std::string_view name = "www.example.org", uint16_t port = kClientPort);
  static Bytes DnsReply4(uint16_t id, const char *backend, uint8_t rcode = 0, std::string_view name = "www.example.org",
                         uint16_t port = kClientPort);

 protected:
  bool time_stands_ = true;  // for a fixture's constructor

 private:
  void Use(std::shared_ptr<LoadedPlane> loaded);
  void Reset();
  Changes CountersByName();
  Changes Since(const Changes &before);
  std::vector<Captured> ClonesOf(const std::set<uint32_t> &kinds, size_t expected);

  std::shared_ptr<LoadedPlane> loaded_;
};

}  // namespace hedgerow::packets
