// SPDX-License-Identifier: Apache-2.0
//
// hkv over UDP (docs/WIRE_FORMAT.md): datagrams of clients become requests for the replica, its answers become
// datagrams. What cannot be understood is answered here, with an error; what does not even look like hkv is
// dropped and counted. On the loop's thread.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cluster/kv/request_router.h"
#include "cluster/node/front_end/client_access.h"
#include "cluster/node/front_end/refused_lately.h"
#include "cluster/node/front_end/source_limits.h"
#include "cluster/node/net/udp_socket.h"
#include "cluster/raft/types.h"
#include "cluster/wire/hkv.h"
#include "net/networks.h"

namespace hedgerow::node {

class FrontEnd {
 public:
  struct Counters {
    uint64_t requests = 0;
    std::array<uint64_t, wire::kHkvDrops> drops{};       // by HkvDrop
    std::array<uint64_t, wire::kHkvStatuses> answers{};  // by HkvStatus
    uint64_t asked_for_no_hedge = 0;                     // of these
    uint64_t asked_for_later_hedge = 0;
    std::array<uint64_t, wire::kHkvDenials> denied{};  // of these, by HkvDenial
    uint64_t authenticated = 0;                        // requests that a named client has proved
  };

  // `clients`: the sources that are served; it outlives this.
  FrontEnd(UdpSocket& socket, const net::Networks& clients, bool anonymous, std::vector<NamedClient> named,
           SourceLimits& sources)
      : socket_(socket),
        clients_(clients),
        access_(std::make_unique<ClientAccess>(anonymous, std::move(named))),
        sources_(sources) {}

  // From now on; what waits for an answer gets it under the key that has proved it.
  void SetNamedClients(bool anonymous, std::vector<NamedClient> named);

  std::optional<kv::Request> Take(const Datagram& datagram, uint64_t now_ns);
  // `pushback` is what else it says (Pushback); OVERLOADED asks for no hedge by itself.
  void Answer(const kv::Answer& answer, uint32_t pushback = 0);

  // The named client that has proved it (ClientAccess::ClientOf); 0: none has.
  uint64_t ClientOf(const kv::ReplyTo& reply_to) const;

  const Counters& counters() const { return counters_; }
  const RefusedLately& refused_lately() const { return refused_lately_; }

 private:
  bool MayAsk(const Datagram& datagram, const wire::HkvRequest& asked, size_t room_bytes,
              ClientAccess::KeyNumber& proved_by);
  void Drop(wire::HkvDrop drop) { ++counters_.drops[static_cast<size_t>(drop)]; }
  void Send(const NetAddress& from, const NetAddress& to, const wire::HkvAnswer& answer, size_t room_bytes,
            ClientAccess::KeyNumber proved_by = 0);

  UdpSocket& socket_;
  const net::Networks& clients_;
  std::unique_ptr<const ClientAccess> access_;
  std::unique_ptr<const ClientAccess> access_before_;
  SourceLimits& sources_;
  Counters counters_;
  RefusedLately refused_lately_{"clients"};
  uint64_t now_ns_ = 0;  // when the last datagram was taken
};

// What a ReplyTo keeps of a client's datagram: both of its addresses and the client's port, which is the low 16 bits of
// way[2]. EndsOf gives them back: (local, client). And how long its answer may be (SourceLimits), in the 18 bits from
// 40 on.
std::array<uint64_t, 5> WayBack(const Datagram& datagram, size_t room_bytes);
size_t RoomOf(const kv::ReplyTo& reply_to);
std::pair<NetAddress, NetAddress> EndsOf(const kv::ReplyTo& reply_to);

}  // namespace hedgerow::node
