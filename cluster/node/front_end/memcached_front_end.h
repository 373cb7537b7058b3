// SPDX-License-Identifier: Apache-2.0
//
// memcached's text protocol over UDP (docs/memcached.md): the second way into the store. Datagrams of clients
// become requests for the replica, its answers become datagrams. Owned by the node, which has one if it is
// configured; on the loop's thread.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/kv/memcached_state.h"
#include "cluster/kv/request_router.h"
#include "cluster/memcached/answer.h"
#include "cluster/memcached/rate.h"
#include "cluster/memcached/request.h"
#include "cluster/node/config/config.h"
#include "cluster/node/front_end/paced_answers.h"
#include "cluster/node/front_end/refused_lately.h"
#include "cluster/node/front_end/source_limits.h"
#include "cluster/node/status/status.h"
#include "cluster/node/net/udp_socket.h"

namespace hedgerow::node {

// How long a client waits for its answer. The protocol does not define it; this is the proxy's own deadline.
constexpr uint64_t kMemcachedTimeout_ns = 2'000'000'000;

class MemcachedFrontEnd {
 public:
  struct Counters {
    std::array<uint64_t, memcached::kVerbs> requests{};     // by Verb
    std::array<uint64_t, memcached::kRefusals> refusals{};  // by Refusal
    std::array<uint64_t, memcached::kDrops> drops{};        // by Drop
    std::array<uint64_t, memcached::kOutcomes> answers{};   // by Outcome; those of noreply, too
    uint64_t no_reply = 0;                                  // of these, answered by nothing
  };
  using Taker = std::function<void(uint64_t arrived_ns, kv::Request request)>;

  // Bound; nothing if the configuration has none.
  // `sources` outlives it.
  static absl::StatusOr<std::unique_ptr<MemcachedFrontEnd>> Open(const NodeConfig& config, SourceLimits& sources);

  int fd() const { return socket_->fd(); }
  // Where clients reach it, for announcements.
  const NetAddress& served() const { return served_; }

  // Each member serves any client: the more there are, and the longer a request is known, the less each may take
  // of one. Follows the members and the cluster's settings.
  void Follow(size_t members, const kv::MemcachedLimits& limits);

  // What has come, in a few batches; what the replica must answer goes to `take`. Whether anything had.
  bool Receive(uint64_t now_ns, const kv::MemcachedState& state, const Taker& take);
  void WasEmpty(uint64_t polled_ns) { socket_->WasEmpty(polled_ns); }
  void Answer(uint64_t now_ns, const kv::Answer& answer);
  // And what is due of the long answers.
  void Flush(uint64_t now_ns);
  // When Flush has something to send though nothing has come; UINT64_MAX: never.
  uint64_t next_deadline_ns() const { return paced_.next_ns(); }

  const Counters& counters() const { return counters_; }
  const RefusedLately& refused_lately() const { return refused_lately_; }
  const PacedAnswers::Counters& paced_counters() const { return paced_.counters(); }
  const UdpSocket::Counters& socket_counters() const { return socket_->counters(); }
  v1::Memcached StatusOf(const kv::MemcachedState& state) const;
  // What the file says and the window does not allow; empty: nothing.
  std::string Note() const;

 private:
  MemcachedFrontEnd(const NodeConfig& config, std::unique_ptr<UdpSocket> socket, SourceLimits& sources);

  std::optional<kv::Request> Take(const Datagram& datagram, uint64_t now_ns, const kv::MemcachedState& state);
  PacedAnswers::Send Sender();
  void Drop(memcached::Drop drop) { ++counters_.drops[static_cast<size_t>(drop)]; }
  void Refuse(const Datagram& datagram, memcached::Refusal refusal, const std::string& answer);
  bool WithinRate(const Datagram& datagram, uint64_t now_ns);
  struct Way {
    NetAddress local;
    NetAddress client;
    uint16_t id = 0;
    size_t room_bytes = 0;  // SourceLimits
  };
  void SendReply(uint64_t now_ns, const Way& way, const memcached::Reply& reply);
  memcached::Reply StatsReply(uint64_t now_ns, const kv::MemcachedState& state) const;

  MemcachedConfig config_;
  SourceLimits& sources_;
  memcached::Limits limits_;
  uint64_t memory_bytes_ = kv::MemcachedLimits().memory_bytes;
  NetAddress served_;
  std::unique_ptr<UdpSocket> socket_;
  PacedAnswers paced_;
  uint64_t rate_per_s_;  // with as many members as there are now, and the cluster's window
  memcached::Rate rate_;
  uint64_t opened_ns_ = 0;  // when it first received
  Counters counters_;
  RefusedLately refused_lately_{"memcached.clients"};
};

// Whether an answer is this front end's to give; the other's ReplyTo has other marks (front_end.h).
bool IsMemcacheds(const kv::ReplyTo& reply_to);

}  // namespace hedgerow::node
