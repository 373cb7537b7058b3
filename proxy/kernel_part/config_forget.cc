// SPDX-License-Identifier: Apache-2.0
//
// ConfigWriter: the maps without what a reload has retired: nothing in flight refers to it any more, its elements go,
// and its ids are clean for the next. Called by ProxyInstance::ForgetRetired, once a second while anything
// is retired.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proxy/kernel_part/config_writer.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy.skel.h"

namespace hedgerow {
namespace {

constexpr uint32_t kEntriesAtOnce = 1024;

// Deletes the entries of an LRU map that `is_over` names.
template <typename Key, typename Value, typename IsOver>
absl::Status DeleteEntries(bpf_map* map, const IsOver& is_over) {
  const int fd = bpf_map__fd(map);
  std::vector<Key> keys(kEntriesAtOnce);
  std::vector<Value> values(kEntriesAtOnce);
  uint32_t place = 0;
  for (bool first = true, last = false; !last; first = false) {
    uint32_t count = kEntriesAtOnce;
    uint32_t next = 0;
    const int error =
        bpf_map_lookup_batch(fd, first ? nullptr : &place, &next, keys.data(), values.data(), &count, nullptr);
    last = error != 0;
    if (error != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, absl::StrCat("BPF map ", bpf_map__name(map), ": cannot be read"));
    }
    // An entry that is gone meanwhile was evicted as the least recently used.
    for (uint32_t i = 0; i < count; ++i)
      if (is_over(keys[i], values[i])) bpf_map_delete_elem(fd, &keys[i]);
    place = next;
  }
  return absl::OkStatus();
}

}  // namespace

// The next owner of one of these ids must not get requests meant for the former owner, nor answer in its name: a TCP
// connection lives for hours, and a flow for as long as its client sends.
absl::Status ConfigWriter::ForgetFlows(const std::vector<RetiredService>& services,
                                       const std::vector<RetiredBackend>& backends) {
  std::set<uint32_t> service_ids, backend_ids;
  for (const RetiredService& service : services) service_ids.insert(service.id);
  for (const RetiredBackend& backend : backends) backend_ids.insert(backend.id);
  const auto is_theirs = [&](const hr_flow_key& key, const hr_flow& flow) {
    return key.kind == HR_FLOW_CONNECTION ? service_ids.contains(key.id) || backend_ids.contains(flow.id)
                                          : backend_ids.contains(key.id) || service_ids.contains(flow.id);
  };
  const auto& maps = object_.skeleton()->maps;
  for (bpf_map* map : {maps.flows, maps.crowded_flows, maps.connections})
    if (absl::Status status = DeleteEntries<hr_flow_key, hr_flow>(map, is_theirs); !status.ok()) return status;
  // Its masks are of the places of a service that changes: a reply that comes so late is the price of a reload.
  const auto all = [](const hr_request_key&, const hr_late&) { return true; };
  if (absl::Status status = DeleteEntries<hr_request_key, hr_late>(maps.late_requests, all); !status.ok())
    return status;
  return DeleteEntries<hr_fragment_key, hr_fragment>(
      object_.skeleton()->maps.fragments, [&](const hr_fragment_key&, const hr_fragment& fragment) {
        return fragment.action == HR_FRAGMENT_TO_BACKEND ? backend_ids.contains(fragment.id)
                                                         : service_ids.contains(fragment.id);
      });
}

bool ConfigWriter::IsKnown(uint32_t service, uint32_t places) const {
  const uint32_t handed_out = memory_.Wheel().requests_made;
  const uint32_t made = std::min(handed_out, spec_.max_requests);
  for (uint32_t i = 1; i <= made; ++i) {
    const volatile hr_request* request = memory_.requests.At<hr_request>(i);
    if (HR_WORD_STATE(request->word) == HR_STATE_FREE || request->key.service != service) continue;
    const uint32_t hinted = request->hint == 0 ? 0 : 1u << (request->hint - 1);
    if ((places & (HR_SENT_MASK(request->masks) | HR_OUTSTANDING_NOW(request->outstanding) | hinted)) != 0) return true;
  }
  return false;
}

absl::Status ConfigWriter::Forget(const std::vector<RetiredService>& services,
                                  const std::vector<RetiredBackend>& backends) {
  for (const RetiredBackend& backend : backends) {
    const auto endpoint = ParseEndpoint(backend.address, backend.port);
    if (!endpoint.ok()) return endpoint.status();
    const auto there = Delete(object_.skeleton()->maps.backend_ids, &*endpoint);
    if (!there.ok()) return there.status();
  }
  for (const RetiredService& service : services) {
    if (service.vip_is_known) continue;
    const auto vip = ParseEndpoint(service.vip, service.port);
    if (!vip.ok()) return vip.status();
    const auto there = Delete(object_.skeleton()->maps.vip_addresses, &vip->address);
    if (!there.ok()) return there.status();
  }
  // A program that handles a packet of a TCP connection writes the flow anew, from what it has read before. So the
  // flows are deleted twice, and all such programs end in between.
  absl::Status status = ForgetFlows(services, backends);
  if (status.ok()) status = WaitForPrograms();
  if (status.ok()) status = ForgetFlows(services, backends);
  for (const RetiredBackend& backend : backends)
    if (status.ok()) status = ClearBackend(backend.id);
  for (const RetiredService& service : services)
    if (status.ok()) status = ClearService(service.id);
  return status.ok() && !services.empty() ? ClearConfigs(services) : status;
}

// Both generations, one after the other: a published configuration is not written.
absl::Status ConfigWriter::ClearConfigs(const std::vector<RetiredService>& services) {
  for (const bool publish : {true, false}) {
    for (const RetiredService& service : services)
      if (absl::Status status = StoreSpare(service.id, {}); !status.ok()) return status;
    if (!publish) continue;
    if (absl::Status status = Publish(memory_.Published() ^ 1); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// The next service with this id begins with nothing.
absl::Status ConfigWriter::ClearService(uint32_t id) {
  const auto& maps = object_.skeleton()->maps;
  absl::Status status = Zero(maps.policies, id);
  if (status.ok()) status = Zero(maps.service_states, id);
  if (status.ok()) status = Zero(maps.stats, id);
  for (uint32_t kind = 0; kind < HR_SERVICE_HISTOGRAMS && status.ok(); ++kind)
    status = Zero(maps.service_histograms, id * HR_SERVICE_HISTOGRAMS + kind);
  if (status.ok()) status = Zero(maps.leaders, id);
  return status;
}

absl::Status ConfigWriter::ClearBackend(uint32_t id) {
  const auto& maps = object_.skeleton()->maps;
  absl::Status status;
  for (bpf_map* map : {maps.backends, maps.backend_states, maps.backend_stats, maps.backend_tuning, maps.backend_loads})
    if (status.ok()) status = Zero(map, id);
  if (status.ok()) status = Zero(maps.backend_states, HR_TCP_STATE(id));
  for (uint32_t kind = 0; kind < HR_BACKEND_HISTOGRAMS && status.ok(); ++kind)
    status = Zero(maps.backend_histograms, id * HR_BACKEND_HISTOGRAMS + kind);
  return status;
}

}  // namespace hedgerow
