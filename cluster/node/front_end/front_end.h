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
  FrontEnd(UdpSocket& socket, const net::Networks& clients, bool anonymous, std::vector<NamedClient> named)
      : socket_(socket), clients_(clients), access_(std::make_unique<ClientAccess>(anonymous, std::move(named))) {}

  // From now on; what waits for an answer gets it under the key that has proved it.
  void SetNamedClients(bool anonymous, std::vector<NamedClient> named);

  std::optional<kv::Request> Take(const Datagram& datagram);
  // `pushback` is what else it says (Pushback); OVERLOADED asks for no hedge by itself.
  void Answer(const kv::Answer& answer, uint32_t pushback = 0);

  const Counters& counters() const { return counters_; }

 private:
  void Send(const NetAddress& from, const NetAddress& to, const wire::HkvAnswer& answer,
            ClientAccess::KeyNumber proved_by = 0);
  bool MayAsk(const Datagram& datagram, const wire::HkvRequest& asked, ClientAccess::KeyNumber& proved_by);

  UdpSocket& socket_;
  const net::Networks& clients_;
  std::unique_ptr<const ClientAccess> access_;
  std::unique_ptr<const ClientAccess> access_before_;
  Counters counters_;
};

// What a ReplyTo keeps of a client's datagram: both of its addresses and the client's port, which is the low 16 bits of
// way[2]. EndsOf gives them back: (local, client).
std::array<uint64_t, 5> WayBack(const Datagram& datagram);
std::pair<NetAddress, NetAddress> EndsOf(const kv::ReplyTo& reply_to);

}  // namespace hedgerow::node
