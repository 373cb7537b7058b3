// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// For tests of reloads under the programs that run: a plane of the test's own, whose configuration changes, and
// what of it a reload writes. Used by reconfigure_test.cc and reload_steps_test.cc.
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <map>
#include <string>
#include <vector>

#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "proxy.skel.h"

namespace hedgerow::packets {

class ReconfigureTest : public PacketTest {
 protected:
  // The fixture's services with their numbers, as the first load gives them.
  DataPlaneSpec WithIds() { return plane().spec(); }
  static ServiceSpec &Raw(DataPlaneSpec &spec) { return spec.services[kRaw4Service]; }
  void SetUp() override {
    PacketTest::SetUp();
    if (IsSkipped()) return;
    Start(Spec());
  }
  void Reconfigure(const DataPlaneSpec &spec) {
    const absl::Status status = plane().config().Reconfigure(spec);
    ASSERT_TRUE(status.ok()) << status;
  }
  static Bytes RawRequest(uint8_t id, const char *vip = kRaw4) {
    return PacketBuilder(kClient4, vip).Udp(kClientPort, kRawPort, Pattern(8, id)).Build();
  }
  static Bytes RawReply(uint8_t id, const char *backend) {
    return PacketBuilder(backend, kClient4).Udp(kRawPort, kClientPort, Pattern(8, id)).Build();
  }
  uint32_t FindRaw(uint8_t id) {
    Bytes correlation = Pattern(8, id);
    correlation.resize(4);
    return FindRequest(kRaw4Service, kClient4, kClientPort, correlation);
  }
  std::string SentTo(const Bytes &packet) { return Read(Split(packet).packet).destination; }
  static BackendSpec Another(const ServiceSpec &service, const char *address, uint32_t id, uint32_t slot) {
    BackendSpec backend = service.backends[0];
    backend.name = address;
    backend.address = address;
    backend.id = id;
    backend.slot = slot;
    return backend;
  }
  // All of a map that a reload writes, by key.
  static std::map<Bytes, Bytes> Entries(bpf_map *map) {
    std::map<Bytes, Bytes> entries;
    Bytes key(bpf_map__key_size(map)), value(bpf_map__value_size(map)), next(key.size());
    for (bool first = true; bpf_map_get_next_key(bpf_map__fd(map), first ? nullptr : key.data(), next.data()) == 0;
         first = false) {
      key = next;
      EXPECT_EQ(bpf_map_lookup_elem(bpf_map__fd(map), key.data(), value.data()), 0);
      entries[key] = value;
    }
    return entries;
  }
  std::vector<std::map<Bytes, Bytes>> Configured() {
    const auto &maps = skeleton()->maps;
    std::vector<std::map<Bytes, Bytes>> all;
    for (bpf_map *map :
         {maps.configs, maps.policies, maps.backends, maps.vips, maps.vip_addresses, maps.backend_ids, maps.clusters})
      all.push_back(Entries(map));
    return all;
  }
};

}  // namespace hedgerow::packets
