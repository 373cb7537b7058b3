// SPDX-License-Identifier: Apache-2.0
#include "proxy/data_plane/kernel_data_plane.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <net/ethernet.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "bpf/proxy/choose.h"
#include "net/bpf_log.h"
#include "proxy.skel.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy/data_plane/kernel_trace.h"
#include "proxy/data_plane/map_sizes.h"
#include "proxy/data_plane/numbered_trace.h"

namespace hedgerow {
namespace {

constexpr uint64_t kMicrosPerHedge = 1'000'000;

uint64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::set<uint16_t> AnnouncePorts(const DataPlaneSpec& spec) {
  std::set<uint16_t> ports;
  for (const ServiceSpec& service : spec.services)
    if (service.cluster.has_value()) ports.insert(service.cluster->announce_port);
  return ports;
}

// A backend's place in the configuration by its place in the kernel; HR_NO_BACKEND where the place holds no backend of
// the configuration.
uint8_t PositionOf(const ServiceSpec& service, uint32_t slot) {
  for (size_t i = 0; i < service.backends.size(); ++i)
    if (service.backends[i].slot == slot) return static_cast<uint8_t>(i);
  return HR_NO_BACKEND;
}

// What the kernel says a map takes, from /proc/self/fdinfo; 0 when it does not say.
uint64_t MapBytes(int fd) {
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", fd));
  std::string key;
  uint64_t value = 0;
  while (info >> key) {
    if (key == "memlock:" && info >> value) return value;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelDataPlane>> KernelDataPlane::Open(const DataPlaneSpec& spec) {
  if (spec.services.empty() || spec.services.size() > HR_MAX_SERVICES)
    return absl::InvalidArgumentError(absl::StrCat("1 to ", HR_MAX_SERVICES, " services, not ", spec.services.size()));
  if (spec.max_parked == 0 || spec.max_parked > HR_MAX_REQUESTS)
    return absl::InvalidArgumentError(absl::StrCat("limits.parked must be 1 to ", HR_MAX_REQUESTS));
  if (spec.max_requests == 0 || spec.max_requests > HR_MAX_REQUESTS - 1)
    return absl::InvalidArgumentError(absl::StrCat("limits.requests must be 1 to ", HR_MAX_REQUESTS - 1));
  if (AnnouncePorts(spec).size() > HR_ANNOUNCE_PORTS)
    return absl::InvalidArgumentError(absl::StrCat("at most ", HR_ANNOUNCE_PORTS, " different announce ports"));
  auto plane = std::unique_ptr<KernelDataPlane>(new KernelDataPlane(spec));
  net::KeepBpfLog();
  plane->skeleton_ = proxy_bpf__open();
  if (plane->skeleton_ == nullptr) return net::BpfLoadError(errno);
  if (absl::Status status = plane->SetSizes(); !status.ok()) return status;
  plane->SetLoadConfig();
  plane->NoteLayouts();
  if (absl::Status status = plane->Number(); !status.ok()) return status;
  return plane;
}

absl::Status KernelDataPlane::LoadObject() {
  if (const int error = proxy_bpf__load(skeleton_); error != 0) return net::BpfLoadError(-error);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KernelDataPlane>> KernelDataPlane::Load(const DataPlaneSpec& spec) {
  auto plane = Open(spec);
  if (!plane.ok()) return plane.status();
  if (absl::Status status = (*plane)->LoadObject(); !status.ok()) return status;
  if (absl::Status status = (*plane)->MapMemory(); !status.ok()) return status;
  if (absl::Status status = (*plane)->Reconfigure((*plane)->spec_); !status.ok()) return status;
  return plane;
}

absl::Status KernelDataPlane::MapMemory() {
  trace_ = std::make_shared<MappedArray>();
  struct {
    bpf_map* map;
    MappedArray* array;
  } const mapped[] = {{skeleton_->maps.configs, &configs_},
                      {skeleton_->maps.data_published, &published_},
                      {skeleton_->maps.policies, &policies_},
                      {skeleton_->maps.requests, &requests_},
                      {skeleton_->maps.wheels, &wheel_},
                      {skeleton_->maps.backend_states, &backend_states_},
                      {skeleton_->maps.service_states, &service_states_},
                      {skeleton_->maps.backend_tuning, &tuning_},
                      {skeleton_->maps.data_trace, trace_.get()}};
  for (const auto& [map, array] : mapped) {
    auto opened = MappedArray::Open(map);
    if (!opened.ok()) return opened.status();
    *array = *std::move(opened);
  }
  return absl::OkStatus();
}

KernelDataPlane::~KernelDataPlane() {
  if (stats_fd_ >= 0) close(stats_fd_);
  proxy_bpf__destroy(skeleton_);
}

absl::Status KernelDataPlane::SetSizes() {
  for (const MapSize& size : MapSizes(BoundsOf(spec_), 1)) {
    bpf_map* map = bpf_object__find_map_by_name(skeleton_->obj, size.name.c_str());
    if (map == nullptr) return absl::InternalError(absl::StrCat("the programs have no map ", size.name));
    bpf_map__set_max_entries(map, size.entries);
  }
  return absl::OkStatus();
}

void KernelDataPlane::SetLoadConfig() {
  auto& config = skeleton_->rodata->load_config;
  config.proxy_ifindex = spec_.proxy_ifindex;
  config.clock_out_ifindex = spec_.clock_out_ifindex;
  config.clock_in_ifindex = spec_.clock_in_ifindex;
  config.max_requests = spec_.max_requests;
  config.max_parked = spec_.max_parked;
  for (size_t i = 0; i < spec_.proxy_mac.size(); ++i) config.proxy_mac[i] = spec_.proxy_mac[i];
  config.cold_mask = ColdSets(spec_.max_requests) - 1;
  config.hash_seed = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  config.min_delay_ns = ~0ull;
  config.clock_kind = static_cast<uint16_t>(spec_.clock_kind);
  config.test_clock = spec_.test_clock ? 1 : 0;
  for (int i = 0; i < HR_CLOCK_CLASSES; ++i) config.clock_period_ns[i] = spec_.clock_period_ns[i];
  for (const ServiceSpec& service : spec_.services)
    config.min_delay_ns = std::min<uint64_t>(config.min_delay_ns, service.delay_ns);
  const std::set<uint16_t> ports = AnnouncePorts(spec_);
  std::transform(ports.begin(), ports.end(), std::begin(config.announce_ports_be), [](uint16_t port) { return htons(port); });
}

std::vector<ProgramInfo> KernelDataPlane::Programs() {
  struct {
    bpf_program* program;
    Hook hook;
  } const programs[] = {{skeleton_->progs.hr_reply, Hook::kUplinkIngress},
                        {skeleton_->progs.hr_clock, Hook::kClockIngress},
                        {skeleton_->progs.hr_departure, Hook::kFqEgress},
                        {skeleton_->progs.hr_sink, Hook::kProxyPeerIngress},
                        {skeleton_->progs.hr_splitter, Hook::kProxyEgress}};
  std::vector<ProgramInfo> result;
  for (const auto& [program, hook] : programs) {
    ProgramInfo info{.name = bpf_program__name(program), .hook = hook, .fd = ProgramFd(program)};
    bpf_prog_info kernel{};
    uint32_t bytes = sizeof(kernel);
    if (bpf_obj_get_info_by_fd(info.fd, &kernel, &bytes) == 0) {
      info.run_count = kernel.run_cnt;
      info.run_time_ns = kernel.run_time_ns;
      info.verified_instructions = kernel.verified_insns;
    }
    result.push_back(info);
  }
  return result;
}

absl::StatusOr<size_t> KernelDataPlane::FindService(const std::string& name) const {
  for (size_t i = 0; i < spec_.services.size(); ++i)
    if (spec_.services[i].name == name) return i;
  return absl::NotFoundError(absl::StrCat("no service named \"", name, "\""));
}

absl::StatusOr<size_t> KernelDataPlane::FindBackend(size_t service, const std::string& name) const {
  const auto& backends = spec_.services[service].backends;
  for (size_t i = 0; i < backends.size(); ++i)
    if (backends[i].name == name) return i;
  return absl::NotFoundError(
      absl::StrCat("service ", spec_.services[service].name, " has no backend named \"", name, "\""));
}

absl::StatusOr<uint32_t> KernelDataPlane::Control(const hr_control_request& request) {
  char frame[ETHER_HDR_LEN + sizeof(request)] = {};
  memcpy(frame + ETHER_HDR_LEN, &request, sizeof(request));
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = sizeof(frame));
  if (bpf_prog_test_run_opts(ProgramFd(skeleton_->progs.hr_control), &options) != 0)
    return absl::ErrnoToStatus(errno, "cannot run the control program");
  return options.retval;
}

absl::Status KernelDataPlane::PinLeader(const std::string& service, const std::string& backend) {
  auto index = FindService(service);
  if (!index.ok()) return index.status();
  auto leader = FindBackend(*index, backend);
  if (!leader.ok()) return leader.status();
  hr_control_request request{};
  request.operation = HR_CONTROL_PIN;
  request.service = spec_.services[*index].id;
  request.leader = spec_.services[*index].backends[*leader].slot;
  auto result = Control(request);
  if (!result.ok()) return result.status();
  return *result == HR_CONTROL_DONE ? absl::OkStatus() : absl::InternalError("the control program refused the leader");
}

absl::Status KernelDataPlane::UnpinLeader(const std::string& service) {
  auto index = FindService(service);
  if (!index.ok()) return index.status();
  hr_control_request request{};
  request.operation = HR_CONTROL_UNPIN;
  request.service = spec_.services[*index].id;
  auto result = Control(request);
  if (!result.ok()) return result.status();
  return *result == HR_CONTROL_DONE ? absl::OkStatus() : absl::InternalError("the control program refused");
}

absl::StatusOr<bool> KernelDataPlane::CheckClock() {
  char frame[60] = {};
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = sizeof(frame));
  if (bpf_prog_test_run_opts(ProgramFd(skeleton_->progs.hr_watchdog), &options) != 0)
    return absl::ErrnoToStatus(errno, "cannot run the clock's watchdog");
  return options.retval == HR_CONTROL_DONE;
}

absl::StatusOr<std::unique_ptr<TraceSource>> KernelDataPlane::OpenTrace(const hr_trace_filter& filter) {
  net::UniqueFd rings(fcntl(bpf_map__fd(skeleton_->maps.trace_rings), F_DUPFD_CLOEXEC, 0));
  if (!rings.valid()) return absl::ErrnoToStatus(errno, "cannot hold the trace's map");
  const TraceNumbers numbers(spec_.services);
  auto trace = KernelTrace::Open(trace_, std::move(rings), numbers.ToKernel(filter));
  if (!trace.ok()) return trace.status();
  return std::make_unique<NumberedTrace>(*std::move(trace), numbers);
}

absl::Status KernelDataPlane::HedgeUntil(uint64_t until_ns) {
  wheel_.At<hr_wheel>(0)->hedge_until_ns = until_ns;
  return absl::OkStatus();
}

absl::Status KernelDataPlane::EnableRunTimeStats() {
  stats_fd_ = bpf_enable_stats(BPF_STATS_RUN_TIME);
  if (stats_fd_ < 0) return absl::ErrnoToStatus(errno, "cannot enable BPF run-time statistics");
  return absl::OkStatus();
}

// What requests hold, counted from the map and not from any counter.
KernelDataPlane::RequestUse KernelDataPlane::CountRequests() const {
  RequestUse use{.in_flight = std::vector<uint64_t>(HR_MAX_SERVICES)};
  const uint32_t handed_out = wheel_.At<hr_wheel>(0)->requests_made;
  const uint32_t made = std::min(handed_out, spec_.max_requests);
  for (uint32_t i = 1; i <= made; ++i) {
    const volatile hr_request* request = requests_.At<hr_request>(i);
    const uint8_t state = HR_WORD_STATE(request->word);
    const uint32_t service = request->key.service;
    if (state == HR_STATE_PENDING && service < use.in_flight.size()) use.in_flight[service]++;
    if (state != HR_STATE_FREE && request->parked != 0) use.parked++;
  }
  return use;
}

std::vector<MapUse> KernelDataPlane::ReadMapUse(uint64_t parked) const {
  const volatile hr_wheel* wheel = wheel_.At<hr_wheel>(0);
  const auto& maps = skeleton_->maps;
  std::vector<MapUse> uses = {
      {"requests", wheel->nodes, spec_.max_requests, MapBytes(bpf_map__fd(maps.requests)), true},
      {"scoreboard", wheel->nodes, spec_.max_requests, MapBytes(bpf_map__fd(maps.scoreboard)), false},
      {"parked", parked, spec_.max_parked, MapBytes(bpf_map__fd(maps.pool)), true},
      {"flows", 0, spec_.max_flows, MapBytes(bpf_map__fd(maps.flows)), false},
      {"fragments", 0, spec_.max_fragments, MapBytes(bpf_map__fd(maps.fragments)), false},
  };
  return uses;
}

absl::StatusOr<hr_leader_view> KernelDataPlane::ReadLeader(uint32_t service_id) const {
  struct {
    uint32_t lock;
    uint32_t pad;
    hr_leader_view view;
  } leader{};
  if (bpf_map_lookup_elem_flags(bpf_map__fd(skeleton_->maps.leaders), &service_id, &leader, BPF_F_LOCK) != 0)
    return absl::ErrnoToStatus(errno, "cannot read the leader map");
  return leader.view;
}

absl::Status KernelDataPlane::ReadService(size_t service, bool histograms, ServiceSnapshot& snapshot) {
  const ServiceSpec& spec = spec_.services[service];
  const uint32_t id = spec.id;
  const auto& maps = skeleton_->maps;
  snapshot.name = spec.name;
  auto stats = SumStats(maps.stats, id);
  if (!stats.ok()) return stats.status();
  snapshot.stats = *stats;
  snapshot.budget_tokens =
      static_cast<double>(service_states_.At<hr_service_state>(id)->budget_micros) / static_cast<double>(kMicrosPerHedge);
  const hr_service_config config = Config(Published(), id);
  const volatile hr_service_policy* policy = policies_.At<hr_service_policy>(id);
  snapshot.bypass = (policy->switches & HR_SWITCH_BYPASS) != 0;
  snapshot.dry_run = (policy->switches & HR_SWITCH_DRY_RUN) != 0;
  snapshot.delay_ns = policy->delay_ns;
  const uint8_t preferred =
      policy->preferred == 0 ? uint8_t{HR_NO_BACKEND} : PositionOf(spec, policy->preferred - 1);
  snapshot.preferred = preferred == HR_NO_BACKEND ? 0 : preferred + 1u;
  snapshot.pushed_back = MonotonicNs() < service_states_.At<hr_service_state>(id)->pushback_until_ns;
  const absl::StatusOr<hr_leader_view> leader = ReadLeader(id);
  if (!leader.ok()) return leader.status();
  snapshot.leader = *leader;
  snapshot.leader.leader = PositionOf(spec, leader->leader);
  snapshot.leader.published = PositionOf(spec, leader->published);
  if (histograms) {
    for (auto [kind, into] : {std::pair(HR_HISTOGRAM_LATENCY, &snapshot.latency),
                              std::pair(HR_HISTOGRAM_FIRE_ERROR, &snapshot.fire_error)}) {
      auto histogram = SumHistogram(maps.service_histograms, id * HR_SERVICE_HISTOGRAMS + kind);
      if (!histogram.ok()) return histogram.status();
      *into = *histogram;
    }
  }
  for (uint32_t i = 0; i < spec.backends.size(); ++i) {
    const uint32_t backend_id = spec.backends[i].id;
    const volatile hr_backend_state* state = backend_states_.At<hr_backend_state>(backend_id);
    BackendSnapshot backend;
    backend.name = spec.backends[i].name;
    auto counts = SumBackendStats(maps.backend_stats, backend_id);
    if (!counts.ok()) return counts.status();
    backend.sends = counts->sends;
    backend.wins = counts->wins;
    backend.unanswered = counts->unanswered;
    backend.drained = (policy->drained & (1u << spec.backends[i].slot)) != 0;
    backend.health = static_cast<hr_health>(state->health);
    backend.answer_ewma_ns = state->answer_ewma_ns;
    backend.last_receive_ns = state->last_receive_ns;
    backend.health_since_ns = state->health_since_ns;
    backend.retry_due = state->health == HR_DOWN &&
                        MonotonicNs() >= state->health_since_ns + HR_STANDBY_RETRY * config.election_timeout_ns;
    backend.p95_ns = tuning_.At<hr_backend_tuning>(backend_id)->p95_ns;
    // As the programs will find when something is sent to it.
    if (backend.health != HR_HEALTHY &&
        hr_has_rested(state, hr_suspicion_timeout_ns(&config, backend.p95_ns), MonotonicNs()))
      backend.health = HR_HEALTHY;
    if (histograms) {
      Histogram held_back, pauses;
      // The part before the whole: what is recorded meanwhile must not make it more than that.
      for (auto [kind, into] : {std::pair(HR_HISTOGRAM_HELD_BACK, &held_back), std::pair(HR_HISTOGRAM_PAUSES, &pauses),
                                std::pair(HR_HISTOGRAM_ANSWERS, &backend.answer_times)}) {
        auto histogram = SumHistogram(maps.backend_histograms, backend_id * HR_BACKEND_HISTOGRAMS + kind);
        if (!histogram.ok()) return histogram.status();
        *into = *histogram;
      }
      backend.ordinary_times = backend.answer_times.Since(held_back);
      backend.ordinary_times.Add(pauses);
    }
    snapshot.backends.push_back(std::move(backend));
  }
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> KernelDataPlane::Read(bool histograms) {
  Snapshot snapshot;
  snapshot.taken_ns = MonotonicNs();
  const RequestUse use = CountRequests();
  for (size_t i = 0; i < spec_.services.size(); ++i) {
    ServiceSnapshot service;
    service.in_flight = use.in_flight[spec_.services[i].id];
    if (absl::Status status = ReadService(i, histograms, service); !status.ok()) return status;
    snapshot.services.push_back(std::move(service));
  }
  auto host = SumStats(skeleton_->maps.stats, HR_MAX_SERVICES);
  if (!host.ok()) return host.status();
  snapshot.host = *host;
  const volatile hr_wheel* wheel = wheel_.At<hr_wheel>(0);
  snapshot.clock = ClockSnapshot{.running = wheel->running != 0,
                                 .laps = wheel->laps,
                                 .kicks = wheel->kicks,
                                 .restarts = wheel->restarts,
                                 .visits = wheel->visits,
                                 .last_lap_ns = wheel->last_lap_ns,
                                 .nodes = wheel->nodes};
  for (int i = 0; i < HR_CLOCK_CLASSES; ++i) snapshot.clock.laps_of_class[i] = wheel->laps_of_class[i];
  snapshot.hedge_until_ns = wheel->hedge_until_ns;
  snapshot.maps = ReadMapUse(use.parked);
  return snapshot;
}

}  // namespace hedgerow
