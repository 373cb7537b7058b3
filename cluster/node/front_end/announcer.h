// SPDX-License-Identifier: Apache-2.0
//
// Announces this node to the proxies while it leads: at once when it is elected, then with its heartbeats,
// because an announcement may be lost and a proxy may be new. Announcements are ordered by (term, sequence), so
// an old one cannot replace a newer leader. On the loop's thread.

#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "cluster/node/net/net_address.h"
#include "cluster/node/net/udp_socket.h"
#include "cluster/raft/types.h"
#include "cluster/wire/announce.h"

namespace hedgerow::node {

class Announcer {
 public:
  struct Proxy {
    NetAddress address;
    wire::Key key;
  };

  // Heartbeat rounds may come faster than this when reads ask for them; announcements do not.
  static constexpr uint64_t kInterval_ns = 2'000'000;

  // How long this node holds what it is sent: from `since_ns` (CLOCK_MONOTONIC), when it began to take requests, and
  // no longer than `longest_ns`.
  struct Holding {
    uint64_t since_ns;
    uint64_t longest_ns;
  };

  Announcer(UdpSocket& socket, uint64_t cluster_id, const NetAddress& serve, Holding holding,
            std::vector<Proxy> proxies);

  // The leader serves at this address, too: another announcement, since each names one. Proxies that have no
  // such backend count it and change nothing.
  void AlsoName(const NetAddress& serve);

  // Of the cluster; before anything else.
  void SetEpoch(uint64_t epoch) { announcements_.front().cluster_epoch = epoch; }

  void Led(raft::Term term, uint64_t now_ns);  // this node leads from now on
  void Lost() { leading_ = false; }            // it does not
  void HeartbeatRound(uint64_t now_ns);

  // Sequences come from `draw`, which others announce with, too. It gives 0 where there is no such counter.
  void DrawSequencesFrom(std::function<uint64_t()> draw) { draw_ = std::move(draw); }

  uint64_t sent() const { return sent_; }

 private:
  void Announce(uint64_t now_ns);

  UdpSocket& socket_;
  Holding holding_;
  std::vector<Proxy> proxies_;
  std::vector<wire::Announcement> announcements_;  // one for each address; else alike
  std::function<uint64_t()> draw_{};
  bool leading_ = false;
  uint64_t sequence_ = 0;
  uint64_t last_ns_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace hedgerow::node
