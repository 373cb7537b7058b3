// SPDX-License-Identifier: Apache-2.0
//
// Loads the kernel programs as the product does and prints how many instructions the verifier of the running
// kernel looked at for each: "program<TAB>instructions". The lane of stock kernels (deploy/vm) compares them
// with what is recorded, so that a change that makes a program hard to verify is seen before it is refused
// somewhere.

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "bpf/node/raft/node_maps_abi.h"
#include "bpf/node/watch/watch_abi.h"
#include "bpf/steer/bucket.h"
#include "node.skel.h"
#include "proxy/kernel_part/kernel_data_plane.h"
#include "proxy/profiles/profile_test.h"
#include "steer.skel.h"
#include "watch.skel.h"

namespace {

// The sizes do not matter to the verifier, so they are small; attempts and backends are read from maps at run
// time.
hedgerow::DataPlaneSpec SmallSpec() {
  hedgerow::ServiceSpec service;
  service.name = "dns";
  service.vip = "192.0.2.1";
  service.port = 53;
  service.config.profile = hedgerow::BuiltInProfile("dns");
  service.config.delay_ns = 10'000'000;
  service.config.deadline_ns = 2'000'000'000;
  service.config.retention_ns = 1'000'000'000;
  service.backends = {{"a", "192.0.2.11", 53, 1}, {"b", "192.0.2.12", 53, 1}};
  // Without a cluster the verifier would not look at what takes announcements.
  service.cluster = hedgerow::ClusterSpec{.id = 1, .keys = {{1, 1}}, .epoch = 0, .announce_port = 4803};
  hedgerow::DataPlaneSpec spec;
  spec.services = {service};
  spec.max_requests = spec.max_parked = 8;
  spec.max_flows = spec.max_connections = spec.max_fragments = 128;
  spec.proxy_ifindex = spec.clock_in_ifindex = spec.clock_out_ifindex = 1;
  return spec;
}

// The most that any of several loads took.
void Count(bpf_object *object, std::map<std::string, uint32_t> &instructions) {
  bpf_program *program = nullptr;
  bpf_object__for_each_program(program, object) {
    bpf_prog_info info{};
    uint32_t bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &bytes) != 0) continue;
    uint32_t &most = instructions[bpf_program__name(program)];
    most = std::max(most, info.verified_insns);
  }
}

bool LoadWatch(std::map<std::string, uint32_t> &instructions) {
  watch_bpf *skeleton = watch_bpf__open();
  if (skeleton == nullptr) return false;
  hr_watch_config &config = skeleton->rodata->watch_config;
  config.self = config.clock_out_ifindex = config.clock_in_ifindex = 1;
  config.resigning_laps = 20;
  const bool loaded = watch_bpf__load(skeleton) == 0;
  if (loaded) Count(skeleton->obj, instructions);
  watch_bpf__destroy(skeleton);
  return loaded;
}

// A node's programs, for a node on IPv4 or IPv6: the verifier leaves out what their constants rule out.
bool LoadNode(bool ipv6, std::map<std::string, uint32_t> &instructions) {
  node_bpf *skeleton = node_bpf__open();
  if (skeleton == nullptr) return false;
  hr_node_config &config = skeleton->rodata->node_config;
  config.cluster_id = 1;
  config.self = 1;
  config.port_be = htons(4802);
  config.address.words[0] = ipv6 ? htonl(0xfd000000) : 0;
  config.address.words[2] = ipv6 ? 0 : htonl(0xffff);
  config.address.words[3] = htonl(0x0a000001);
  const bool loaded = node_bpf__load(skeleton) == 0;
  if (loaded) Count(skeleton->obj, instructions);
  node_bpf__destroy(skeleton);
  return loaded;
}

// A group's programs, with gateways and without devices: the verifier leaves out what their constants rule out.
bool LoadSteer(bool devices, std::map<std::string, uint32_t> &instructions) {
  steer_bpf *skeleton = steer_bpf__open();
  if (skeleton == nullptr) return false;
  hr_steer_config &config = skeleton->rodata->steer_config;
  config.layout = HR_STEER_LAYOUT;
  config.ipv6_prefix = 64;
  config.has_devices = devices;
  config.field_bytes = devices ? 16 : 0;
  config.openers = devices ? HR_STEER_OPENERS : 0;
  config.any = devices;
  const bool loaded = steer_bpf__load(skeleton) == 0;
  if (loaded) Count(skeleton->obj, instructions);
  steer_bpf__destroy(skeleton);
  return loaded;
}

}  // namespace

int main() {
  const auto loaded = hedgerow::KernelDataPlane::Load(SmallSpec());
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
    return 1;
  }
  for (const hedgerow::ProgramInfo &program : (*loaded)->reader().Programs()) {
    std::printf("%s\t%u\n", program.name.c_str(), program.verified_instructions);
  }
  libbpf_set_print(nullptr);
  std::map<std::string, uint32_t> others;  // the programs of nodes and groups, each in two variants
  for (const bool second : {false, true}) {
    if (LoadNode(second, others) && LoadWatch(others) && LoadSteer(second, others)) continue;
    libbpf_set_print([](libbpf_print_level, const char *format, va_list arguments) {
      return std::vfprintf(stderr, format, arguments);
    });
    if (LoadNode(second, others) && LoadWatch(others)) LoadSteer(second, others);
    return 1;
  }
  for (const auto &[name, instructions] : others) std::printf("%s\t%u\n", name.c_str(), instructions);
  return 0;
}
