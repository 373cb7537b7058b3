// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/announcer.h"

#include <utility>

namespace hedgerow::node {

Announcer::Announcer(UdpSocket& socket, uint64_t cluster_id, const NetAddress& serve,
                     std::vector<Proxy> proxies)
    : socket_(socket), proxies_(std::move(proxies)) {
  announcement_.cluster_id = cluster_id;
  announcement_.leader_address = serve.bytes;
  announcement_.leader_port = serve.port;
}

void Announcer::Led(raft::Term term, uint64_t now_ns) {
  leading_ = true;
  announcement_.term = term;
  Announce(now_ns);
}

void Announcer::HeartbeatRound(uint64_t now_ns) {
  if (leading_ && now_ns - last_ns_ >= kInterval_ns) Announce(now_ns);
}

void Announcer::Announce(uint64_t now_ns) {
  last_ns_ = now_ns;
  const uint64_t drawn = draw_ ? draw_() : 0;
  announcement_.sequence = drawn != 0 ? drawn : announcement_.sequence + 1;
  for (const Proxy& proxy : proxies_) {
    socket_.Send(proxy.address, wire::SealAnnouncement(announcement_, proxy.key));
    ++sent_;
  }
}

}  // namespace hedgerow::node
