// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/kernel_fixture.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "bpf/tests/test_links.h"
#include "net/networks.h"
#include "proxy.skel.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy/data_plane/names.h"
#include "proxy/profiles/profile_test.h"

namespace hedgerow::packets {
namespace {

// A lap takes a few thousand steps; the wheel has 10240 slots. Far more laps than it takes: a bound, not a
// duration.
constexpr int kLapsForTheWholeWheel = 100;
// What a run takes of the time that stands: two are apart by more than what HR_WAIT tells apart.
constexpr uint64_t kRunNs = 20'000;
static_assert(kRunNs > 2 * (HR_WAIT_MASK + 1));

ServiceSpec MakeService(const char *name, const char *vip, uint16_t port, const hr_profile &profile,
                        std::vector<BackendSpec> backends) {
  ServiceSpec service;
  service.name = name;
  service.vip = vip;
  service.port = port;
  service.config.profile = profile;
  service.config.delay_ns = 200 * kMillisecond;
  service.config.deadline_ns = 50 * kSecond;
  service.config.retention_ns = 10 * kSecond;
  service.config.election_timeout_ns = 40 * kSecond;
  service.config.suspect_min_ns = 40 * kSecond;
  service.config.suspect_max_ns = 1000 * kSecond;
  service.config.attempts = 2;
  service.config.budget_ppm = 1'000'000;  // every request earns one hedge
  service.config.budget_burst = 1000;
  service.backends = std::move(backends);
  return service;
}

template <typename T>
T Copy(volatile T *from) {
  T copy;
  memcpy(&copy, const_cast<T *>(from), sizeof(copy));
  return copy;
}

// All that a stack holds, the last one pushed first.
std::vector<hr_free_batch> PopAll(bpf_map *stack) {
  std::vector<hr_free_batch> batches;
  hr_free_batch batch{};
  while (bpf_map_lookup_and_delete_elem(bpf_map__fd(stack), nullptr, &batch) == 0) batches.push_back(batch);
  return batches;
}

// The indices of a shared stack, which is left as it was.
std::vector<uint32_t> ReadStack(bpf_map *stack, uint32_t batch) {
  const std::vector<hr_free_batch> batches = PopAll(stack);
  std::vector<uint32_t> free;
  for (const hr_free_batch &each : batches) free.insert(free.end(), each.index, each.index + batch);
  for (auto each = batches.rbegin(); each != batches.rend(); ++each)
    EXPECT_EQ(bpf_map_update_elem(bpf_map__fd(stack), nullptr, &*each, BPF_ANY), 0);
  return free;
}

// What the CPUs keep of a table's free indices for themselves.
std::vector<uint32_t> ReadKept(bpf_map *caches, uint32_t id) {
  std::vector<hr_free_cache> of_cpus(static_cast<size_t>(libbpf_num_possible_cpus()));
  std::vector<uint32_t> kept;
  EXPECT_TRUE(LookUpElement(caches, &id, of_cpus.data()).ok());
  for (const hr_free_cache &cache : of_cpus) kept.insert(kept.end(), cache.index, cache.index + cache.count);
  return kept;
}

void ClearArray(bpf_map *map) {
  size_t bytes = (bpf_map__value_size(map) + 7) & ~size_t{7};
  if (bpf_map__type(map) == BPF_MAP_TYPE_PERCPU_ARRAY) bytes *= static_cast<size_t>(libbpf_num_possible_cpus());
  const std::vector<char> zeros(bytes);
  for (uint32_t i = 0; i < bpf_map__max_entries(map); ++i) EXPECT_TRUE(UpdateElement(map, &i, zeros.data()).ok());
}

void ClearHash(bpf_map *map) {
  std::vector<char> key(bpf_map__key_size(map));
  while (bpf_map_get_next_key(bpf_map__fd(map), nullptr, key.data()) == 0)
    if (bpf_map_delete_elem(bpf_map__fd(map), key.data()) != 0) break;
}

// The configured primary, and no announcement yet. Sequence 1, so that a test can publish something older.
void ResetLeader(bpf_map *map, uint32_t service, uint32_t primary) {
  struct {
    uint32_t lock = 0;
    uint32_t pad = 0;
    hr_leader_view view{};
  } leader;
  leader.view.sequence = 1;
  leader.view.leader = leader.view.published = static_cast<uint8_t>(primary);
  EXPECT_EQ(bpf_map_update_elem(bpf_map__fd(map), &service, &leader, BPF_F_LOCK), 0);
}

MappedArray Open(bpf_map *map) {
  auto opened = OpenMapped(map);
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? *std::move(opened) : MappedArray();
}

hr_flow_key FlowKey(const char *client, uint16_t client_port, uint8_t protocol, hr_flow_kind kind, uint16_t id) {
  hr_flow_key key{};
  key.client = ParseAddress(client).value();
  key.client_port_be = htons(client_port);
  key.id = id;
  key.protocol = protocol;
  key.kind = static_cast<uint8_t>(kind);
  return key;
}

}  // namespace

hr_profile PairedBy(uint32_t bytes, absl::string_view rest) {
  return OwnProfile(absl::StrCat("request_offset: 0\nrequest_length: ", bytes,
                                 "\nreply_offset: 0\nreply_length: ", bytes, "\n", rest));
}

DataPlaneSpec PacketTest::Spec() {
  DataPlaneSpec spec;
  const uint32_t uplink = TestLinks::Get().uplink.ifindex;
  auto backend = [&](const char *name, const char *address, uint16_t port) {
    return BackendSpec{name, address, port, uplink};
  };
  spec.services = {
      MakeService("dns4", kDns4, kDnsPort, BuiltInProfile("dns"), {backend("a", kA4, 53), backend("b", kB4, 53)}),
      MakeService("dns6", kDns6, kDnsPort, BuiltInProfile("dns"),
                  {backend("a", kA6, kBackendDnsPort6), backend("b", kB6, kBackendDnsPort6)}),
      MakeService("raw4", kRaw4, kRawPort, PairedBy(4),
                  {backend("a", kA4, 9000), backend("b", kB4, 9000), backend("c", kC4, 9000)}),
      MakeService("raw6", kRaw6, kRawPort, PairedBy(4), {backend("a", kA6, 9000), backend("b", kB6, 9000)}),
      MakeService("single", kSingle4, kRawPort, PairedBy(4), {backend("a", kA4, 9100)}),
      MakeService("once", kOnce4, kRawPort, PairedBy(4), {backend("a", kA4, 9200), backend("b", kB4, 9200)}),
  };
  for (const bool ipv6 : {false, true}) {
    std::vector<BackendSpec> nodes;
    if (ipv6)
      nodes = {backend("n1", kA6, kHkvPort), backend("n2", kB6, kHkvPort)};
    else
      nodes = {backend("n1", kA4, kHkvPort), backend("n2", kB4, kHkvPort), backend("n3", kC4, kHkvPort)};
    for (size_t i = 0; i < nodes.size(); ++i) nodes[i].node = static_cast<uint32_t>(i + 1);
    spec.services.push_back(
        MakeService(ipv6 ? "hkv6" : "hkv4", ipv6 ? kHkv6 : kHkv4, kHkvPort, BuiltInProfile("hkv"), std::move(nodes)));
    spec.services.back().cluster = ipv6 ? ClusterSpec{kCluster6, {kKey6}, kEpoch6, kAnnouncePort}
                                        : ClusterSpec{kCluster4, {kKey4}, 0, kAnnouncePort};
  }
  spec.services[kOnceService].config.attempts = 1;
  spec.services[kRaw4Service].config.attempts = 3;
  spec.max_requests = 256;
  spec.max_parked = 128;
  spec.max_flows = spec.max_connections = 1024;
  spec.max_fragments = 256;
  const TestLinks &links = TestLinks::Get();
  spec.proxy_ifindex = links.proxy.ifindex;
  std::copy(links.proxy.mac.begin(), links.proxy.mac.end(), spec.proxy_mac.begin());
  spec.clock_out_ifindex = links.clock_out.ifindex;
  spec.clock_in_ifindex = links.clock_in.ifindex;
  spec.test_clock = true;
  return spec;
}

void PacketTest::SetUp() {
  if (const std::string &problem = TestLinks::Get().problem; !problem.empty())
    GTEST_SKIP() << "needs root (CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN): " << problem;
  static auto *shared = new std::shared_ptr<LoadedPlane>();
  if (*shared == nullptr) {
    Start(Spec());
    *shared = loaded_;
  } else {
    Use(*shared);
  }
}

void PacketTest::Start(const DataPlaneSpec &spec) {
  auto plane = KernelDataPlane::Load(spec);
  ASSERT_TRUE(plane.ok()) << plane.status();
  auto loaded = std::make_shared<LoadedPlane>();
  loaded->plane = *std::move(plane);
  loaded->spec = loaded->plane->spec();
  const auto &maps = loaded->plane->object().skeleton()->maps;
  loaded->configs = Open(maps.configs);
  loaded->live = Open(maps.data_live);
  loaded->policies = Open(maps.policies);
  loaded->requests = Open(maps.requests);
  loaded->wheel = Open(maps.wheels);
  loaded->backend_states = Open(maps.backend_states);
  loaded->service_states = Open(maps.service_states);
  loaded->tuning = Open(maps.backend_tuning);
  loaded->backend_loads = Open(maps.backend_loads);
  for (uint32_t i = 0; i < HR_GENERATIONS * HR_MAX_SERVICES; ++i)
    loaded->first_configs.push_back(Copy(loaded->configs.At<hr_service_config>(i)));
  for (uint32_t i = 0; i < HR_MAX_SERVICES; ++i)
    loaded->first_policies.push_back(Copy(loaded->policies.At<hr_service_policy>(i)));
  for (uint32_t i = 0; i < HR_MAX_BACKENDS; ++i)
    ASSERT_TRUE(LookUpElement(maps.backends, &i, &loaded->first_backends.emplace_back()).ok());
  Use(std::move(loaded));
}

void PacketTest::Use(std::shared_ptr<LoadedPlane> loaded) {
  loaded_ = std::move(loaded);
  Reset();
  while (!TestLinks::Get().clock_sniffer->Take(1, 3).empty()) {
  }  // a clone of the test before may still be on its way, where the kernel's own thread delivers it
}

// Everything as it was right after loading.
void PacketTest::Reset() {
  const auto &maps = skeleton()->maps;
  ASSERT_TRUE(plane().config().MoveBackends(loaded_->spec, 0).ok());  // an earlier test may have moved them
  auto clear = [](const MappedArray &array, size_t element_bytes) {
    for (uint32_t i = 0; i < array.entries(); ++i) memset(const_cast<char *>(array.At<char>(i)), 0, element_bytes);
  };
  clear(loaded_->requests, sizeof(hr_request));
  clear(loaded_->wheel, sizeof(hr_wheel));
  if (time_stands_) Wheel().test_ahead_ns = HR_TEST_STILL | NowNs();
  clear(loaded_->backend_states, sizeof(hr_backend_state));
  clear(loaded_->service_states, sizeof(hr_service_state));
  clear(loaded_->tuning, sizeof(hr_backend_tuning));
  clear(loaded_->backend_loads, sizeof(hr_backend_load));
  for (uint32_t i = 0; i < HR_GENERATIONS * HR_MAX_SERVICES; ++i)
    memcpy(const_cast<hr_service_config *>(loaded_->configs.At<hr_service_config>(i)), &loaded_->first_configs[i],
           sizeof(hr_service_config));
  for (uint32_t i = 0; i < HR_MAX_SERVICES; ++i)
    memcpy(const_cast<hr_service_policy *>(loaded_->policies.At<hr_service_policy>(i)), &loaded_->first_policies[i],
           sizeof(hr_service_policy));
  for (uint32_t i = 0; i < HR_MAX_BACKENDS; ++i)
    ASSERT_TRUE(UpdateElement(maps.backends, &i, &loaded_->first_backends[i]).ok());
  ClearArray(maps.scoreboard);
  ClearArray(maps.free_caches);
  PopAll(maps.free_requests);
  PopAll(maps.free_parked);
  ClearArray(maps.clients);
  ClearArray(maps.stats);
  ClearArray(maps.backend_stats);
  ClearArray(maps.service_histograms);
  ClearArray(maps.backend_histograms);
  ClearHash(maps.flows);
  ClearHash(maps.crowded_flows);
  for (volatile __u64 &until_ns : Live().crowded_ns) until_ns = 0;
  ClearHash(maps.late_requests);
  ClearHash(maps.connections);
  ClearHash(maps.fragments);
  for (uint32_t i = 0; i < loaded_->spec.services.size(); ++i)
    ResetLeader(maps.leaders, i, loaded_->spec.services[i].primary);
}

void PacketTest::TearDown() {
  if (loaded_ == nullptr) return;
  StateView view = View();
  for (uint32_t i = 0; i < HR_CLIENTS; ++i) {
    hr_client client{};
    EXPECT_TRUE(LookUpElement(skeleton()->maps.clients, &i, &client).ok());
    view.held_by_client.push_back(client.held);
  }
  EXPECT_THAT(BrokenInvariants(view), IsEmpty());
}

uint64_t PacketTest::NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t kernels_ns = static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
  return HR_TEST_TIME(kernels_ns, Wheel().test_ahead_ns);
}

Changes PacketTest::CountersByName() {
  Changes counters;
  auto add = [&](const std::string &owner, uint32_t index) {
    const auto stats = SumStats(skeleton()->maps.stats, index);
    ASSERT_TRUE(stats.ok()) << stats.status();
    for (const CounterRow &row : kCounters)
      if (const uint64_t count = stats->counters[row.number])
        counters[absl::StrCat(owner, ".", row.name)] = static_cast<int64_t>(count);
    for (const ReasonRow &row : kReasons)
      if (const uint64_t count = stats->reasons[row.number])
        counters[absl::StrCat(owner, ":", row.name)] = static_cast<int64_t>(count);
  };
  for (uint32_t i = 0; i < loaded_->spec.services.size(); ++i) add(loaded_->spec.services[i].name, i);
  add("host", HR_MAX_SERVICES);
  return counters;
}

Changes PacketTest::Since(const Changes &before) {
  Changes changes;
  for (const auto &[name, value] : CountersByName()) {
    const auto known = before.find(name);
    const int64_t change = value - (known == before.end() ? 0 : known->second);
    if (change != 0) changes[name] = change;
  }
  return changes;
}

RunResult PacketTest::RunUncounted(bpf_program *program, const Bytes &packet, const RunContext &context) {
  RunResult result;
  result.packet.resize(packet.size() + 2048);
  __sk_buff in{}, out{};
  in.mark = context.mark;
  in.priority = context.priority;
  in.gso_segs = context.gso_segs;
  in.gso_size = context.gso_size;
  in.ifindex = static_cast<uint32_t>(context.ifindex);
  in.ingress_ifindex = static_cast<uint32_t>(context.ingress_ifindex);
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet.data(), .data_out = result.packet.data(),
              .data_size_in = static_cast<uint32_t>(packet.size()),
              .data_size_out = static_cast<uint32_t>(result.packet.size()), .ctx_in = &in, .ctx_out = &out,
              .ctx_size_in = sizeof(in), .ctx_size_out = sizeof(out));
  if (Wheel().test_ahead_ns & HR_TEST_STILL) Advance(kRunNs);
  const int error = bpf_prog_test_run_opts(bpf_program__fd(program), &options);
  EXPECT_EQ(error, 0) << "BPF_PROG_TEST_RUN of " << bpf_program__name(program) << ": " << strerror(-error);
  result.verdict = static_cast<int>(options.retval);
  result.packet.resize(options.data_size_out);
  result.mark = out.mark;
  result.priority = out.priority;
  result.departure_ns = out.tstamp;
  return result;
}

RunResult PacketTest::Run(bpf_program *program, const Bytes &packet, const RunContext &context) {
  const Changes before = CountersByName();
  RunResult result = RunUncounted(program, packet, context);
  result.changes = Since(before);
  return result;
}

bpf_program *PacketTest::program_splitter() { return skeleton()->progs.hr_splitter; }

RunResult PacketTest::Split(const Bytes &packet, const RunContext &context) {
  RunContext at = context;
  if (at.ifindex == 0) at.ifindex = TestLinks::Get().proxy.ifindex;
  return Run(skeleton()->progs.hr_splitter, packet, at);
}
RunResult PacketTest::SplitOf(const std::string &client, const Bytes &packet) {
  if (client == kClient4 || client == kClient6) return Split(packet);
  return Split(packet, {.ingress_ifindex = 1000 + static_cast<int>(std::hash<std::string>()(client) % 1'000'000)});
}
void PacketTest::List(uint32_t service, const std::vector<const char *> &networks) {
  auto &config = const_cast<hr_service_config &>(ServiceConfig(service));
  for (size_t i = 0; i < networks.size(); ++i) {
    const net::Network network = *net::Network::Parse(networks[i]);
    memcpy(&config.clients[i].address, network.address.mapped().data(), sizeof(config.clients[i].address));
    memcpy(&config.clients[i].mask, network.mask().data(), sizeof(config.clients[i].mask));
  }
  config.client_networks = static_cast<uint32_t>(networks.size());
}
void PacketTest::Silence(uint32_t backend, uint64_t ns) {
  for (const uint32_t client : {1u, 2u}) {
    hr_client witness{};
    EXPECT_TRUE(LookUpElement(skeleton()->maps.clients, &client, &witness).ok());
    witness.witness = client;
    EXPECT_TRUE(UpdateElement(skeleton()->maps.clients, &client, &witness).ok());
  }
  BackendState(backend).wait_since = HR_WAIT(NowNs() - ns, 1);
  BackendState(backend).attested_since = HR_WAIT(NowNs() - ns, 2);
}
RunResult PacketTest::Guard(const Bytes &packet, const RunContext &context) {
  return Run(skeleton()->progs.hr_guard, packet, context);
}
RunResult PacketTest::Reply(const Bytes &packet, const RunContext &context) {
  RunContext at = context;
  if (at.ifindex == 0) at.ifindex = TestLinks::Get().uplink.ifindex;
  return Run(skeleton()->progs.hr_reply, packet, at);
}
RunResult PacketTest::OwnError(const Bytes &packet) { return Reply(packet, {.ifindex = net::kLoopbackIfindex}); }
RunResult PacketTest::Announce(const Bytes &datagram, bool ipv6) {
  return Reply(PacketBuilder(ipv6 ? kB6 : kB4, ipv6 ? kClient6 : kClient4).Udp(4802, kAnnouncePort, datagram).Build());
}
void PacketTest::AnnounceLeader(const char *address, uint64_t term, uint64_t sequence) {
  const RunResult run = Announce(Seal(Leading(kCluster4, address, kHkvPort, term, sequence), kKey4));
  EXPECT_EQ(run.verdict, kDropped) << "consumed";
  EXPECT_EQ(run.changes.count("hkv4:announce_accepted"), 1u);
}
hr_leader_view PacketTest::LeaderOf(uint32_t service) {
  const auto snapshot = plane().reader().Read(false);
  EXPECT_TRUE(snapshot.ok()) << snapshot.status();
  return snapshot.ok() ? snapshot->services[service].leader : hr_leader_view{};
}
RunResult PacketTest::Sink(const Bytes &packet) {
  return Run(skeleton()->progs.hr_sink, packet, {.ifindex = TestLinks::Get().proxy_peer.ifindex});
}
Bytes PacketTest::Tagged(Bytes frame) {
  memcpy(frame.data(), &skeleton()->rodata->load_config.clock_tag, HR_CLOCK_TAG_BYTES);
  return frame;
}
RunResult PacketTest::Clock(const Bytes &packet, const RunContext &context) {
  RunContext at = context;
  at.ifindex = TestLinks::Get().clock_in.ifindex;
  return Run(skeleton()->progs.hr_clock, Tagged(packet), at);
}
RunResult PacketTest::Lap() {
  return Clock(Bytes(HR_CLOCK_FRAME_BYTES), {.mark = HR_MARK_LAP | HR_MARK_VALUE(Wheel().epoch)});
}

Changes PacketTest::VisitAll() {
  const Changes before = CountersByName();
  Wheel().late = 1;
  Wheel().kick_ns = 0;  // else slots of before the last start, where nothing can be overdue, are passed over
  int laps = 0;
  do {
    RunUncounted(skeleton()->progs.hr_clock, Tagged(Bytes(HR_CLOCK_FRAME_BYTES)),
                 {.mark = HR_MARK_LAP | HR_MARK_VALUE(Wheel().epoch), .ifindex = TestLinks::Get().clock_in.ifindex});
  } while (++laps < kLapsForTheWholeWheel && (Wheel().fine_cursor < Wheel().fine_passed ||
                                              Wheel().coarse_cursor < Wheel().coarse_passed || Wheel().list != 0));
  EXPECT_LT(laps, kLapsForTheWholeWheel) << "the clock does not get through its wheel";
  return Since(before);
}

void PacketTest::MakeDue(uint32_t request) { Request(request).due_ns = NowNs() - 1; }
void PacketTest::MakeExpired(uint32_t request) {
  Request(request).sent_ns = NowNs() - ServiceConfig(Request(request).key.service).deadline_ns;
}
void PacketTest::EndRetention(uint32_t request) {
  Request(request).done_ns = NowNs() - ServiceConfig(Request(request).key.service).retention_ns;
}
Changes PacketTest::FireNow(uint32_t request) {
  TestLinks::Get().clock_sniffer->Take(0, 0);
  MakeDue(request);
  return VisitAll();
}

hr_parked PacketTest::Parked(uint32_t request) {
  hr_parked parked{};
  const uint32_t slot = Request(request).parked;
  EXPECT_NE(slot, 0u) << "nothing is parked for request " << request;
  EXPECT_TRUE(LookUpElement(skeleton()->maps.pool, &slot, &parked).ok());
  return parked;
}

uint32_t PacketTest::FindRequest(uint32_t service, const char *client, uint16_t client_port, const Bytes &correlation) {
  hr_request_key key{};
  key.client = ParseAddress(client).value();
  std::copy(correlation.begin(), correlation.end(), key.correlation);
  key.client_port_be = htons(client_port);
  key.service = static_cast<uint16_t>(service);
  const StateView view = View();
  for (const auto &[set, reference] : view.scoreboard) {
    const hr_request &request = view.requests.at(HR_REFERENCE_REQUEST(reference));
    if (HR_WORD_GENERATION(request.word) == HR_REFERENCE_GENERATION(reference) &&
        memcmp(&request.key, &key, sizeof(key)) == 0)
      return HR_REFERENCE_REQUEST(reference);
  }
  return 0;
}

bpf_map *PacketTest::FlowsOf(uint8_t protocol) {
  return protocol == IPPROTO_TCP ? skeleton()->maps.connections : skeleton()->maps.flows;
}

bool PacketTest::HasFlow(const char *client, uint16_t client_port, uint8_t protocol, hr_flow_kind kind, uint16_t id) {
  const hr_flow_key key = FlowKey(client, client_port, protocol, kind, id);
  hr_flow flow{};
  return LookUpElement(FlowsOf(protocol), &key, &flow).ok() ||
         (protocol == IPPROTO_TCP && LookUpElement(skeleton()->maps.crowded_flows, &key, &flow).ok());
}

void PacketTest::AgeFlow(const char *client, uint16_t client_port, uint8_t protocol, hr_flow_kind kind, uint16_t id,
                         uint64_t age_ns) {
  const hr_flow_key key = FlowKey(client, client_port, protocol, kind, id);
  hr_flow flow{};
  bpf_map *map = FlowsOf(protocol);
  if (!LookUpElement(map, &key, &flow).ok()) map = skeleton()->maps.crowded_flows;
  ASSERT_TRUE(LookUpElement(map, &key, &flow).ok());
  if (NowNs() <= age_ns) Advance(age_ns);  // the machine has just booted
  flow.seen_ns = NowNs() - age_ns;
  ASSERT_TRUE(UpdateElement(map, &key, &flow).ok());
}

std::vector<Captured> PacketTest::Clones(uint32_t kind, size_t expected) { return ClonesOf({kind}, expected); }

std::vector<Captured> PacketTest::Copies(size_t expected) { return ClonesOf({HR_MARK_SEND, HR_MARK_HEDGE}, expected); }

std::vector<Captured> PacketTest::ClonesOf(const std::set<uint32_t> &kinds, size_t expected) {
  std::vector<Captured> clones;
  for (int i = 0; i < 20 && (i == 0 || clones.size() < expected); ++i)
    for (Captured &captured : TestLinks::Get().clock_sniffer->Take(1, clones.size() < expected ? 100 : 0))
      if (kinds.contains(HR_MARK_KIND(captured.mark))) clones.push_back(std::move(captured));
  EXPECT_EQ(clones.size(), expected) << "clones with mark " << std::hex << *kinds.begin();
  return clones;
}

uint32_t PacketTest::StateMapEntries(bpf_map *map) { return bpf_map__max_entries(map); }

uint32_t PacketTest::RequestsInUse() {
  const size_t kept = ReadKept(skeleton()->maps.free_caches, HR_FREE_REQUESTS).size();
  return HR_HELD_REQUESTS(Wheel().held) - static_cast<uint32_t>(kept);
}

uint32_t PacketTest::CopiesInUse() {
  const size_t kept = ReadKept(skeleton()->maps.free_caches, HR_FREE_PARKED).size();
  return HR_HELD_COPIES(Wheel().held) - static_cast<uint32_t>(kept);
}

StateView PacketTest::View() {
  StateView view;
  const auto &maps = skeleton()->maps;
  for (uint32_t i = 0; i < loaded_->spec.services.size(); ++i)
    view.services.push_back({loaded_->spec.services[i].name, SumStats(maps.stats, i).value()});
  view.wheel = Copy(loaded_->wheel.At<hr_wheel>(0));
  for (uint32_t i = 0; i <= loaded_->spec.max_requests; ++i)
    view.requests.push_back(Copy(loaded_->requests.At<hr_request>(i)));
  for (uint32_t set = 0; set < bpf_map__max_entries(maps.scoreboard); ++set) {
    hr_scoreboard_set ways{};
    EXPECT_TRUE(LookUpElement(maps.scoreboard, &set, &ways).ok());
    for (const uint64_t reference : ways.ways)
      if (reference != 0) view.scoreboard.emplace_back(set, reference);
  }
  for (uint32_t i = 0; i < HR_MAX_SERVICES; ++i) view.held_by_service.push_back(ServiceState(i).held);
  uint32_t backend_id = 0;  // a fresh load numbers them in the order of the specification
  for (uint32_t i = 0; i < loaded_->spec.services.size(); ++i)
    for (uint32_t place = 0; place < loaded_->spec.services[i].backends.size(); ++place, ++backend_id)
      view.backends.push_back({i, place, loaded_->backend_loads.At<hr_backend_load>(backend_id)->in_flight});
  const auto &batch = skeleton()->rodata->load_config.free_batch;
  view.free_requests = ReadStack(maps.free_requests, batch[HR_FREE_REQUESTS]);
  view.free_parked = ReadStack(maps.free_parked, batch[HR_FREE_PARKED]);
  view.kept_requests = ReadKept(maps.free_caches, HR_FREE_REQUESTS);
  view.kept_parked = ReadKept(maps.free_caches, HR_FREE_PARKED);
  return view;
}

Bytes PacketTest::HkvRequest4(uint64_t seq, uint8_t kind) {
  return PacketBuilder(kClient4, kHkv4)
      .Udp(kClientPort, kHkvPort, HkvRequest(kind, kHkvSession, seq, Text("body")))
      .Build();
}
Bytes PacketTest::HkvReply4(uint64_t seq, const char *backend, uint8_t status, uint32_t hint) {
  return PacketBuilder(backend, kClient4)
      .Udp(kHkvPort, kClientPort, HkvAnswer(HkvRequest(kHkvWrite, kHkvSession, seq), status, hint))
      .Build();
}

Bytes PacketTest::DnsRequest4(uint16_t id, std::string_view name, uint16_t port) {
  return PacketBuilder(kClient4, kDns4).Udp(port, kDnsPort, DnsQuery(id, name)).Build();
}
Bytes PacketTest::DnsReply4(uint16_t id, const char *backend, uint8_t rcode, std::string_view name, uint16_t port) {
  return PacketBuilder(backend, kClient4).Udp(kDnsPort, port, DnsAnswer(DnsQuery(id, name), rcode)).Build();
}

}  // namespace hedgerow::packets
