// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/kernel_object.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/ethernet.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "net/bpf_log.h"
#include "proxy.skel.h"
#include "proxy/kernel_part/map_sizes.h"

namespace hedgerow {
namespace {

uint32_t PossibleCpus() { return static_cast<uint32_t>(std::max(1, libbpf_num_possible_cpus())); }

uint64_t Random64() { return (uint64_t{std::random_device{}()} << 32) | std::random_device{}(); }

uint64_t NewClockTag() {
  std::array<uint8_t, sizeof(uint64_t)> bytes = std::bit_cast<std::array<uint8_t, sizeof(uint64_t)>>(Random64());
  bytes[0] = static_cast<uint8_t>((bytes[0] & 0xfcu) | 0x02u);  // locally administered, not multicast
  std::fill(bytes.begin() + HR_CLOCK_TAG_BYTES, bytes.end(), uint8_t{0});
  return std::bit_cast<uint64_t>(bytes);
}

std::set<uint16_t> AnnouncePorts(const DataPlaneSpec& spec) {
  std::set<uint16_t> ports;
  for (const ServiceSpec& service : spec.services)
    if (service.cluster.has_value()) ports.insert(service.cluster->announce_port);
  return ports;
}

}  // namespace

hr_service_config KernelMemory::Config(uint32_t generation, uint32_t service) const {
  hr_service_config config{};
  memcpy(&config,
         const_cast<const hr_service_config*>(configs.At<hr_service_config>(HR_CONFIG_ID(generation, service))),
         sizeof(config));
  return config;
}

absl::StatusOr<std::unique_ptr<KernelObject>> KernelObject::Open(const DataPlaneSpec& spec) {
  if (spec.services.empty() || spec.services.size() > HR_MAX_SERVICES)
    return absl::InvalidArgumentError(absl::StrCat("1 to ", HR_MAX_SERVICES, " services, not ", spec.services.size()));
  if (spec.max_parked == 0 || spec.max_parked > HR_MAX_REQUESTS)
    return absl::InvalidArgumentError(absl::StrCat("limits.parked must be 1 to ", HR_MAX_REQUESTS));
  if (spec.max_requests == 0 || spec.max_requests > HR_MAX_REQUESTS - 1)
    return absl::InvalidArgumentError(absl::StrCat("limits.requests must be 1 to ", HR_MAX_REQUESTS - 1));
  if (AnnouncePorts(spec).size() > HR_ANNOUNCE_PORTS)
    return absl::InvalidArgumentError(absl::StrCat("at most ", HR_ANNOUNCE_PORTS, " different announce ports"));
  auto object = std::unique_ptr<KernelObject>(new KernelObject);
  net::KeepBpfLog();
  object->skeleton_ = proxy_bpf__open();
  if (object->skeleton_ == nullptr) return net::BpfLoadError(errno);
  SetMapSizes(*object->skeleton_, spec, PossibleCpus());
  object->SetLoadConfig(spec);
  object->NoteLayouts();
  return object;
}

absl::Status KernelObject::LoadPrograms() {
  if (const int error = proxy_bpf__load(skeleton_); error != 0) return net::BpfLoadError(-error);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KernelObject>> KernelObject::Load(const DataPlaneSpec& spec) {
  auto object = Open(spec);
  if (!object.ok()) return object.status();
  if (absl::Status status = (*object)->LoadPrograms(); !status.ok()) return status;
  if (absl::Status status = (*object)->MapMemory(); !status.ok()) return status;
  return object;
}

absl::Status KernelObject::MapMemory() {
  memory_.live = std::make_shared<MappedArray>();
  struct {
    bpf_map* map;
    MappedArray* array;
  } const mapped[] = {{skeleton_->maps.configs, &memory_.configs},
                      {skeleton_->maps.policies, &memory_.policies},
                      {skeleton_->maps.requests, &memory_.requests},
                      {skeleton_->maps.wheels, &memory_.wheels},
                      {skeleton_->maps.backend_states, &memory_.backend_states},
                      {skeleton_->maps.service_states, &memory_.service_states},
                      {skeleton_->maps.backend_tuning, &memory_.tuning},
                      {skeleton_->maps.backend_loads, &memory_.backend_loads},
                      {skeleton_->maps.data_live, memory_.live.get()}};
  for (const auto& [map, array] : mapped) {
    auto opened = OpenMapped(map);
    if (!opened.ok()) return opened.status();
    *array = *std::move(opened);
  }
  room_ = {.services = bpf_map__max_entries(skeleton_->maps.service_histograms) / HR_SERVICE_HISTOGRAMS,
           .backends = bpf_map__max_entries(skeleton_->maps.backend_histograms) / HR_BACKEND_HISTOGRAMS};
  return absl::OkStatus();
}

KernelObject::~KernelObject() { proxy_bpf__destroy(skeleton_); }

void KernelObject::SetLoadConfig(const DataPlaneSpec& spec) {
  auto& config = skeleton_->rodata->load_config;
  config.proxy_ifindex = spec.proxy_ifindex;
  config.clock_out_ifindex = spec.clock_out_ifindex;
  config.clock_in_ifindex = spec.clock_in_ifindex;
  config.max_requests = spec.max_requests;
  config.max_parked = spec.max_parked;
  config.flow_part = spec.max_flows / HR_FLOW_PARTS;
  config.connection_part = spec.max_connections / HR_FLOW_PARTS;
  for (size_t i = 0; i < spec.proxy_mac.size(); ++i) config.proxy_mac[i] = spec.proxy_mac[i];
  const uint32_t limits[HR_FREE_LISTS] = {spec.max_requests, spec.max_parked};
  for (int id = 0; id < HR_FREE_LISTS; ++id) config.free_batch[id] = FreeBatch(limits[id], PossibleCpus());
  config.cold_mask = ColdSets(spec.max_requests) - 1;
  config.hash_seed = spec.test_clock ? 1 : Random64();  // a test finds the same collisions in each of its runs
  config.clock_tag = NewClockTag();
  config.self_test_tag = Random64();
  config.min_delay_ns = ~0ull;
  config.clock_kind = static_cast<uint16_t>(spec.clock_kind);
  config.test_clock = spec.test_clock ? 1 : 0;
  for (int i = 0; i < HR_CLOCK_CLASSES; ++i) config.clock_period_ns[i] = spec.clock_period_ns[i];
  for (const ServiceSpec& service : spec.services)
    config.min_delay_ns = std::min(config.min_delay_ns, service.config.delay_ns);
  const std::set<uint16_t> ports = AnnouncePorts(spec);
  std::transform(ports.begin(), ports.end(), std::begin(config.announce_ports_be),
                 [](uint16_t port) { return htons(port); });
}

std::vector<ProgramInfo> KernelObject::Programs() const {
  std::vector<ProgramInfo> result;
  for (const Hook& hook : kHooks) {
    if (!result.empty() && result.back().name == hook.program) continue;
    ProgramInfo info{.name = hook.program,
                     .fd = ProgramFd(bpf_object__find_program_by_name(skeleton_->obj, hook.program))};
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

absl::Status KernelObject::Control(hr_control_operation operation, uint32_t service, uint32_t leader,
                                   uint64_t sequence) const {
  hr_control_request request{};
  request.operation = operation;
  request.service = service;
  request.leader = leader;
  request.sequence = sequence;
  char frame[ETHER_HDR_LEN + sizeof(request)] = {};
  memcpy(frame + ETHER_HDR_LEN, &request, sizeof(request));
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = sizeof(frame));
  if (bpf_prog_test_run_opts(ProgramFd(skeleton_->progs.hr_control), &options) != 0)
    return absl::ErrnoToStatus(errno, "cannot run the control program");
  if (options.retval == HR_CONTROL_DONE) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the control program refused operation ", request.operation,
                                          " of the service with id ", request.service));
}

uint64_t KernelObject::SelfTestTag() const { return skeleton_->rodata->load_config.self_test_tag; }

absl::StatusOr<bool> KernelObject::CheckClock() const {
  char frame[60] = {};
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = sizeof(frame));
  if (bpf_prog_test_run_opts(ProgramFd(skeleton_->progs.hr_watchdog), &options) != 0)
    return absl::ErrnoToStatus(errno, "cannot run the clock's watchdog");
  return options.retval == HR_CONTROL_DONE;
}

}  // namespace hedgerow
