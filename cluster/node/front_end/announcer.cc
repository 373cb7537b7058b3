// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/announcer.h"

#include <algorithm>
#include <utility>

namespace hedgerow::node {
namespace {

constexpr uint64_t kMillisecond_ns = 1'000'000;

// 0 would say nothing.
uint32_t HeldFor_ms(uint64_t held_ns) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(held_ns / kMillisecond_ns, 1, UINT32_MAX));
}

}  // namespace

Announcer::Announcer(UdpSocket& socket, uint64_t cluster_id, const NetAddress& serve, Holding holding,
                     std::vector<Proxy> proxies)
    : socket_(socket), holding_(holding), proxies_(std::move(proxies)) {
  announcements_.emplace_back().cluster_id = cluster_id;
  announcements_.back().leader_address = serve.bytes;
  announcements_.back().leader_port = serve.port;
}

void Announcer::AlsoName(const NetAddress& serve) {
  announcements_.push_back(announcements_.front());
  announcements_.back().leader_address = serve.bytes;
  announcements_.back().leader_port = serve.port;
}

void Announcer::Led(raft::Term term, uint64_t now_ns) {
  leading_ = true;
  for (wire::Announcement& announcement : announcements_) announcement.term = term;
  Announce(now_ns);
}

void Announcer::HeartbeatRound(uint64_t now_ns) {
  if (leading_ && now_ns - last_ns_ >= kInterval_ns) Announce(now_ns);
}

// Each is about a service of its own, and sequences order what is said about one: they may share it.
void Announcer::Announce(uint64_t now_ns) {
  last_ns_ = now_ns;
  const uint64_t drawn = draw_ ? draw_() : 0;
  sequence_ = drawn != 0 ? drawn : sequence_ + 1;
  const uint32_t held_ms = HeldFor_ms(std::min(now_ns - holding_.since_ns, holding_.longest_ns));
  for (wire::Announcement& announcement : announcements_) {
    announcement.sequence = sequence_;
    announcement.holds_ms = held_ms;
    for (const Proxy& proxy : proxies_) {
      socket_.Send(proxy.address, wire::SealAnnouncement(announcement, proxy.key));
      ++sent_;
    }
  }
}

}  // namespace hedgerow::node
