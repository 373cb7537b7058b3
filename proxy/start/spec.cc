// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/spec.h"

#include <cstring>

#include "absl/strings/str_split.h"
#include "config/address.h"
#include "operate/hex.h"
#include "operate/key_file.h"
#include "proxy/start/roster.h"
#include "proxy/profiles/profile.h"

namespace hedgerow {
namespace {

// 16 key bytes, as hexadecimal digits, are k0 and k1, little-endian.
hr_siphash_key MakeKey(absl::string_view digits) {
  hr_siphash_key key{};
  const std::string bytes = operate::BytesOfHex(digits);
  const auto* first = reinterpret_cast<const unsigned char*>(bytes.data());
  key.k0 = hr_siphash_load(first);
  key.k1 = hr_siphash_load(first + sizeof(key.k0));
  return key;
}

// One key, or the two that a key file held (config/load.h). None that was not read: the data plane refuses that.
std::vector<hr_siphash_key> MakeKeys(const std::string& text) {
  std::vector<hr_siphash_key> keys;
  for (absl::string_view digits : absl::StrSplit(text, ' ')) {
    if (digits.size() == operate::kKeyDigits) keys.push_back(MakeKey(digits));
  }
  return keys;
}

ServiceSpec MakeService(const v1::Service& service, const Topology::ServicePath& path, const v1::Roster& roster) {
  ServiceSpec spec;
  spec.name = service.name();
  spec.vip = service.vip();
  spec.port = static_cast<uint16_t>(service.port());
  spec.profile = ProfileOf(service);
  spec.delay_ns = static_cast<uint64_t>(service.delay_ns());
  spec.deadline_ns = static_cast<uint64_t>(service.deadline_ns());
  spec.retention_ns = static_cast<uint64_t>(service.retention_ns());
  spec.election_timeout_ns = static_cast<uint64_t>(service.election_timeout_ns());
  spec.suspect_min_ns = static_cast<uint64_t>(service.suspect_min_ns());
  spec.flow_timeout_ns = static_cast<uint64_t>(service.flow_timeout_ns());
  spec.suspect_max_ns = static_cast<uint64_t>(service.suspect_max_ns());
  spec.attempts = service.attempts();
  spec.budget_ppm = service.budget_ppm();
  spec.budget_burst = service.budget_burst();
  spec.idle_copies_ppm = service.idle_copies_ppm();
  spec.dry_run = service.dry_run() == v1::SWITCH_ON;
  spec.adaptive = service.has_adaptive();
  spec.prefer_fastest = service.prefer() == v1::PREFER_FASTEST;
  const net::Networks clients = config::NetworksOf({service.clients().begin(), service.clients().end()});
  for (const net::Network& network : clients.list()) {
    hr_network& listed = spec.clients.emplace_back();
    std::memcpy(&listed.address, network.address.mapped().data(), sizeof(listed.address));
    std::memcpy(&listed.mask, network.mask().data(), sizeof(listed.mask));
  }
  const v1::RosterService* known = FindService(roster, service.name());
  if (known != nullptr) spec.id = known->id();
  if (service.has_cluster()) {
    const v1::ClusterConfig& cluster = service.cluster();
    spec.cluster = ClusterSpec{static_cast<uint64_t>(cluster.id()), MakeKeys(cluster.key()),
                               static_cast<uint64_t>(cluster.epoch()), static_cast<uint16_t>(cluster.announce_port())};
  }
  for (int i = 0; i < service.backends_size(); ++i) {
    const v1::Backend& backend = service.backends(i);
    if (backend.name() == service.primary()) spec.primary = static_cast<uint32_t>(i);
    spec.backends.push_back({backend.name(), backend.address(), static_cast<uint16_t>(backend.port()),
                             static_cast<uint32_t>(path.backends.at(static_cast<size_t>(i)).uplink),
                             static_cast<uint32_t>(path.backends.at(static_cast<size_t>(i)).also), backend.node()});
    const v1::RosterBackend* place = known == nullptr ? nullptr : FindBackend(*known, backend);
    if (place == nullptr) continue;
    spec.backends.back().id = place->id();
    spec.backends.back().slot = place->slot();
  }
  return spec;
}

}  // namespace

DataPlaneSpec MakeSpec(const v1::Config& config, const Topology& topology, const OwnLinks& links,
                       const v1::Roster& roster) {
  DataPlaneSpec spec;
  for (int i = 0; i < config.services_size(); ++i) {
    spec.services.push_back(MakeService(config.services(i), topology.services.at(static_cast<size_t>(i)), roster));
  }
  spec.max_requests = config.limits().requests();
  spec.max_parked = config.limits().parked();
  spec.max_flows = config.limits().flows();
  spec.max_connections = config.limits().connections();
  spec.max_fragments = config.limits().fragments();
  spec.proxy_ifindex = static_cast<uint32_t>(links.proxy.link.ifindex);
  spec.proxy_mac = links.proxy.link.mac;
  spec.clock_out_ifindex = static_cast<uint32_t>(links.clock.link.ifindex);
  spec.clock_in_ifindex = static_cast<uint32_t>(links.clock.peer.ifindex);
  return spec;
}

}  // namespace hedgerow
