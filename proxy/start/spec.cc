// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/spec.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_split.h"
#include "bpf/proxy/load.h"
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

// In 256ths of a load. A share above 0 is not rounded to 0, which is off.
uint8_t IdleShare(uint32_t ppm) {
  const auto share = static_cast<uint32_t>(uint64_t{ppm} * HR_LOAD_FULL / 1'000'000);
  return static_cast<uint8_t>(std::clamp<uint32_t>(share, ppm > 0 ? 1 : 0, 255));
}

hr_service_config MakeConfig(const v1::Service& service) {
  hr_service_config config{};
  config.profile = ProfileOf(service);
  config.attempts = static_cast<uint8_t>(service.attempts());
  config.switches = service.dry_run() == v1::SWITCH_ON ? HR_SWITCH_DRY_RUN : 0;
  config.idle_share = IdleShare(service.idle_copies_ppm());
  static_assert(v1::PREFER_FASTEST - 1 == HR_SPREAD_FASTEST && v1::PREFER_SOURCE - 1 == HR_SPREAD_SOURCE);
  config.spreads = static_cast<uint8_t>(std::max(0, service.prefer() - 1));
  config.deadline_ns = static_cast<uint64_t>(service.deadline_ns());
  config.retention_ns = static_cast<uint64_t>(service.retention_ns());
  config.suspect_min_ns = static_cast<uint64_t>(service.suspect_min_ns());
  config.suspect_max_ns = static_cast<uint64_t>(std::max(service.suspect_max_ns(), service.suspect_min_ns()));
  config.delay_ns = static_cast<uint64_t>(service.delay_ns());
  config.budget_ppm = service.budget_ppm();
  config.budget_burst = service.budget_burst();
  config.election_timeout_ns = static_cast<uint64_t>(service.election_timeout_ns());
  config.flow_timeout_ns = static_cast<uint64_t>(service.flow_timeout_ns());
  config.in_place = service.in_place() ? 1 : 0;
  const net::Networks clients = config::NetworksOf({service.clients().begin(), service.clients().end()});
  for (const net::Network& network : clients.list()) {
    if (config.client_networks == HR_MAX_CLIENT_NETWORKS) break;  // the schema allows no more
    hr_network& listed = config.clients[config.client_networks++];
    std::memcpy(&listed.address, network.address.mapped().data(), sizeof(listed.address));
    std::memcpy(&listed.mask, network.mask().data(), sizeof(listed.mask));
  }
  return config;
}

ServiceSpec MakeService(const v1::Service& service, const Topology::ServicePath& path, const v1::Roster& roster) {
  ServiceSpec spec;
  spec.name = service.name();
  spec.vip = service.vip();
  spec.port = static_cast<uint16_t>(service.port());
  v1::Service served = service;  // also under the host's own name, which translation gives its clients
  if (service.also_at_size() > 0 && path.source.has_value()) served.add_clients(path.source->ToString());
  spec.config = MakeConfig(served);
  spec.adaptive = service.has_adaptive();
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
                             static_cast<uint32_t>(path.backends.at(static_cast<size_t>(i)).also), backend.node(),
                             backend.weight()});
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
