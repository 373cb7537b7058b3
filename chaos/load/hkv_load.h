// SPDX-License-Identifier: Apache-2.0
//
// The load of the chaos experiments on our own store: clients that each send a request every millisecond,
// whatever became of those before (open loop), for as long as they are let. Two ways to send: once to one
// address, as a client without any knowledge of a cluster does (also behind the proxy); or with hedging in the
// application (AppHedging). Everything else is the same. One thread, one UDP socket for each client.
//
// A client has several sessions: a session's writes may run ahead of its oldest unanswered one by no more than
// the cluster keeps answers for (1,024), and one lost write must not hold up for 5 s what has nothing to do
// with it.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/load/udp_socket.h"
#include "chaos/load/app_hedging.h"
#include "chaos/load/history_file.h"
#include "chaos/load/key_rooms.h"
#include "chaos/load/operation_mix.h"
#include "chaos/load/report.h"
#include "cluster/client/pending_requests.h"

namespace hedgerow::chaos {

// Of every store's load; etcd's has no use for the hedging and the sessions.
struct LoadOptions {
  std::vector<std::string> servers;  // address:port
  // Ours: server i has node id i + 1. With one, and without `application`, nothing is ever sent elsewhere.
  bool application = false;
  AppHedgingOptions hedging{};
  MixOptions mix{};
  uint32_t clients = 2;   // at most 64
  uint32_t sessions = 8;  // of each client
  uint64_t interval_ns = 1'000'000;
  uint64_t timeout_ns = 5'000'000'000;
  uint64_t run_max_ns = 0;  // sends nothing after that
};

// InvalidArgument: what no load can be made of.
absl::Status CheckOptions(const LoadOptions& options);

// The progress of a load, for its reader: totals since the beginning, and the longest wait since the last
// tick.
struct LoadTick {
  uint64_t at_ns = 0;  // CLOCK_MONOTONIC
  uint64_t sent = 0;
  uint64_t ok = 0;
  uint64_t failed = 0;      // timed out, or answered with an error
  uint64_t longest_ns = 0;  // of the requests that ended since the last tick, and of those that still wait
};

class HkvLoad {
 public:
  static absl::StatusOr<HkvLoad> Make(const LoadOptions& options);

  // Opens the sessions: up to 10 s, again and again. Unavailable: no answer.
  absl::Status Open();

  // Until `stop` or the end of the run, and then until nothing is outstanding any more. `on_tick`, if there is
  // one, is called four times a second and once at the end with the totals, by the thread that sends, so it may
  // not block.
  void Run(const std::atomic<bool>& stop, const std::function<void(const LoadTick&)>& on_tick = nullptr);

  const std::vector<Record>& records() const { return records_; }
  const LoadCounters& counters() const { return counters_; }

 private:
  struct Issued {
    size_t session;  // place in `sessions`
    size_t record;
  };
  struct Client {
    bench::UdpSocket socket;
    OperationMix mix;
    AppHedging hedging;
    std::vector<client::PendingRequests> sessions;
    std::map<std::pair<uint64_t, uint64_t>, Issued> issued{};  // by client_id and seq
    uint64_t next_send_ns = 0;
    size_t next_session = 0;
  };

  // What the application keeps of a request, to send it again.
  struct Kept {
    size_t client;
    size_t session;
    wire::HkvRequest request;
    Attempts attempts;
    uint64_t deadline_ns;
  };

  HkvLoad(const LoadOptions& options, std::vector<bench::Address> servers)
      : options_(options), servers_(std::move(servers)), rooms_(options.mix), receive_batch_() {}

  absl::Status OpenSession(Client& client, client::PendingRequests& requests, size_t first_server);
  void SendDue(uint64_t now_ns);
  void Issue(size_t client, uint64_t intended_ns);
  void Send(Client& client, size_t server, const std::string& datagram);
  void SendCopy(Kept& kept, size_t record, size_t server, uint64_t now_ns);
  void SendCopiesDue(uint64_t now_ns);
  void GiveUp(uint64_t now_ns);
  void Receive(size_t client, uint64_t now_ns);
  void OnDatagram(size_t client, std::span<const uint8_t> bytes, const bench::Address& peer, uint64_t now_ns);
  void OnAnswer(Client& client, const Issued& issued, size_t server, wire::HkvAnswer answer, uint64_t now_ns);
  // An answer that is none, while another copy may bring one: what the application does about it.
  bool Refused(size_t record, size_t server, const wire::HkvAnswer& answer, uint64_t now_ns);
  void End(size_t record, const client::Outcome& outcome);
  void Forget(size_t record);
  uint64_t NextDue_ns(bool sending) const;
  LoadTick Tick(uint64_t now_ns);

  LoadOptions options_;
  std::vector<bench::Address> servers_;
  std::vector<Client> clients_;
  KeyRooms rooms_;
  std::vector<Record> records_;
  std::map<size_t, Kept> kept_;                       // by record
  std::set<std::pair<uint64_t, size_t>> copies_due_;  // (when, record)
  uint64_t end_ns_ = 0;
  uint64_t longest_ended_ns_ = 0;  // since the last tick
  bench::Batch receive_batch_;
  LoadCounters counters_;
};

}  // namespace hedgerow::chaos
