// SPDX-License-Identifier: Apache-2.0
//
// VIPs that rules of others serve as well (`in_place`, docs/adr/0061): taken over while this daemon lives, and given
// back by `down`, by a reload that leaves them out, and by the end of what the daemon renews. Part of ProxyInstance,
// called by the guardian; see net/netlink/in_place.h.

#include <algorithm>

#include "absl/time/clock.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"

namespace hedgerow {
namespace {

// Answers to earlier requests come within it, but for those of a backend that has stalled.
constexpr absl::Duration kAnswersTake = absl::Milliseconds(100);

// The part that is taken over.
net::InPlaceRules InPlaceOf(const v1::Config& config, const std::set<std::string>& but = {}) {
  net::InPlaceRules taken;
  for (const v1::Service& service : config.services()) {
    const auto vip = net::IpAddress::Parse(service.vip());
    const auto port = static_cast<uint16_t>(service.port());
    if (!vip.ok() || but.contains(service.name())) continue;
    if (service.in_place()) taken.live.insert({*vip, port});
    for (const std::string& text : service.also_at()) {
      const net::Endpoint asked{net::IpAddress::Parse(text).value_or(net::IpAddress()), port};
      taken.lent[asked] = *vip;
      for (const std::string& client : service.clients())
        if (const auto network = net::Network::Parse(client); network.ok()) taken.lent_to.emplace_back(*network, asked);
    }
  }
  return taken;
}

}  // namespace

bool ProxyInstance::IsInPlace(const net::IpAddress& vip) const {
  return std::any_of(config_.services().begin(), config_.services().end(), [&](const v1::Service& each) {
    return (each.in_place() || each.also_at_size() > 0) && each.vip() == vip.ToString();
  });
}

absl::Status ProxyInstance::KeepInPlace() { return PutInPlace(config_, topology_, InPlaceOf(config_, given_back_)); }

// Of `config`, as it is reached by `topology`. Answers of every VIP that was in place once are still expected, unless
// it is served otherwise now.
absl::Status ProxyInstance::PutInPlace(const v1::Config& config, const Topology& topology, net::InPlaceRules wanted) {
  wanted.instance = config.instance();
  wanted.interface = links_.proxy.link.name;
  wanted.known = in_place_.known;
  wanted.known.insert(wanted.live.begin(), wanted.live.end());
  for (const v1::Service& service : config.services()) {
    const auto vip = net::IpAddress::Parse(service.vip());
    if (!service.in_place() && vip.ok()) wanted.known.erase({*vip, static_cast<uint16_t>(service.port())});
  }
  const bool stands = !in_place_.instance.empty();
  if (wanted.known.empty() && wanted.lent.empty() && !stands) return absl::OkStatus();
  for (const v1::Service& service : config.services()) {
    for (const v1::Backend& backend : service.backends()) {
      const BackendPath* path = topology.Find(service.name(), backend.name());
      const auto address = net::IpAddress::Parse(backend.address());
      const auto uplink = path == nullptr ? topology.uplinks.end() : topology.uplinks.find(path->uplink);
      const bool taken = service.in_place() && !given_back_.contains(service.name());
      if (taken && address.ok() && uplink != topology.uplinks.end() && uplink->second.kind == "bridge")
        wanted.bridged[{*address, static_cast<uint16_t>(backend.port())}] = uplink->second.mac;
    }
  }
  absl::Status status = wanted == in_place_ ? net::RenewInPlace(wanted) : absl::NotFoundError("");
  if (!status.ok()) status = net::PutInPlaceRules(wanted);  // others may have taken them away
  if (!status.ok()) return status;
  if (!stands) {
    undo_.Push("giving back the VIPs in place", [this] {
      const absl::Status given = net::GiveBackInPlace(config_.instance());
      absl::SleepFor(kAnswersTake);
      return given;
    });
  }
  in_place_ = std::move(wanted);
  return absl::OkStatus();
}

// The first step of a reload: what `next` does not take over is its owner's before the kernel part forgets it.
absl::Status ProxyInstance::GiveBackBefore(const v1::Config& next) {
  const net::InPlaceRules now = InPlaceOf(config_, given_back_), then = InPlaceOf(next, given_back_);
  net::InPlaceRules kept = now;
  std::erase_if(kept.live, [&](const auto& each) { return !then.live.contains(each); });
  std::erase_if(kept.lent, [&](const auto& each) {
    const auto found = then.lent.find(each.first);
    return found == then.lent.end() || found->second != each.second;
  });
  return kept == now ? absl::OkStatus() : PutInPlace(config_, topology_, std::move(kept));
}

// Answers are led past connection tracking for as long as the proxy interface brings any: this goes last. An earlier
// daemon of a configuration before may have made them.
void ProxyInstance::PushUndoOfInPlace() {
  undo_.Push("removing the rules for VIPs in place",
             [this] { return net::RemoveInPlaceRules(config_.instance()).status(); });
}

void ProxyInstance::FollowInPlace(const v1::Config& next, const Topology& topology) {
  if (const absl::Status status = PutInPlace(next, topology, InPlaceOf(next, given_back_)); !status.ok())
    LogError(std::string(status.message()));  // tried again by KeepInPlace()
}

}  // namespace hedgerow
