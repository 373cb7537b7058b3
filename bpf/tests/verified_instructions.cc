// SPDX-License-Identifier: Apache-2.0
//
// Loads the kernel programs as the product does and prints how many instructions the verifier of the running kernel
// looked at for each: "program<TAB>instructions". The lane of stock kernels (deploy/vm) compares them with what is
// recorded, so that a change that makes a program hard to verify is seen before it is refused somewhere.

#include <cstdio>

#include "proxy/data_plane/kernel_data_plane.h"

namespace {

// The sizes do not matter to the verifier, so they are small; attempts and backends are read from maps at run time.
hedgerow::DataPlaneSpec SmallSpec() {
  hedgerow::ServiceSpec service;
  service.name = "dns";
  service.vip = "192.0.2.1";
  service.port = 53;
  service.profile = hedgerow::DnsProfile();
  service.delay_ns = 10'000'000;
  service.deadline_ns = 2'000'000'000;
  service.linger_ns = 1'000'000'000;
  service.backends = {{"a", "192.0.2.11", 53, 1}, {"b", "192.0.2.12", 53, 1}};
  // Without a cluster the verifier would not look at what takes announcements.
  service.cluster = hedgerow::ClusterSpec{.id = 1, .key = {1, 1}, .epoch = 0, .announce_port = 4803};
  hedgerow::DataPlaneSpec spec;
  spec.services = {service};
  spec.max_requests = spec.max_parked = 8;
  spec.max_flows = spec.max_fragments = 128;
  spec.proxy_ifindex = spec.clock_in_ifindex = spec.clock_out_ifindex = 1;
  return spec;
}

}  // namespace

int main() {
  const auto loaded = hedgerow::KernelDataPlane::Load(SmallSpec());
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
    return 1;
  }
  for (const hedgerow::ProgramInfo& program : (*loaded)->Programs()) {
    std::printf("%s\t%u\n", program.name.c_str(), program.verified_instructions);
  }
  return 0;
}
