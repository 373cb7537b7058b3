// SPDX-License-Identifier: Apache-2.0
//
// Sources that go on sending: each has a UDP socket, a TCP connection, or both, and sends by a timetable that was fixed
// before the first message (open loop). A connection that ends is opened again at once, and what it owes no answer to
// is sent again on the new one: a source of telemetry does the same. Used by hr-steer-load.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/load/histogram.h"
#include "bench/load/udp_socket.h"
#include "bench/steer/message.h"
#include "net/unique_fd.h"

namespace hedgerow::bench {

struct StreamOptions {
  Address target;
  Address first_source;
  uint32_t sources = 512;
  bool udp = true;
  bool tcp = true;
  double rate = 10'000;  // messages per second, of all sources together
  double seconds = 3;
  double warm_up = 0.2;               // seconds at the same rate that are not measured
  uint16_t bytes = 256;               // of a message
  uint32_t answer_every = 1;          // of a source's messages, which ask for an answer
  int64_t linger_ns = 1'000'000'000;  // how long answers are waited for after the last message
  int64_t retry_ns = 20'000'000;      // from a failed connection attempt to the next
  bool one_address = false;  // all sources have the first one's, and differ by their sockets and the messages' number
  bool patient = false;      // goes on where a first connection fails: the collector may come later
};

// Of one message, in the file that bench/steer_records.py reads.
struct StreamRecord {
  static constexpr uint32_t kNoAnswer = UINT32_MAX;
  static constexpr uint32_t kNoneWanted = UINT32_MAX - 1;

  int64_t intended_ns = 0;  // CLOCK_MONOTONIC
  uint32_t latency_us = kNoneWanted;
  uint32_t source = 0;
  uint32_t pid = 0;  // of the worker that answered
  uint8_t slot = SteerMessage::kNoSlot;
  uint8_t tcp = 0;
  uint16_t sent_again = 0;
};
static_assert(sizeof(StreamRecord) == 24);

struct StreamResult {
  std::vector<StreamRecord> records;  // of the measured part
  Histogram udp_latency_ns, tcp_latency_ns, send_lag_ns;
  uint64_t sent = 0;         // messages, those of the warm-up included
  uint64_t unsent = 0;       // not handed to the kernel when the last message was due
  uint64_t udp_refused = 0;  // datagrams that were answered by "port unreachable"
  uint64_t connects = 0, connect_failures = 0, connections_lost = 0;
  uint64_t duplicates = 0;             // answers to a message that was answered already
  uint64_t overflowed = 0;             // messages of connections that took none for too long
  int64_t user_us = 0, system_us = 0;  // of the measured part
};

class SourceStream {
 public:
  // `on_event` is called with "measuring" and "measured".
  static absl::StatusOr<std::unique_ptr<SourceStream>> Open(const StreamOptions& options,
                                                            std::function<void(const char*)> on_event);

  // Ends early, without an error, when `stop` says so.
  absl::StatusOr<StreamResult> Run(const std::function<bool()>& stop);

 private:
  struct Connection {
    net::UniqueFd fd{};
    bool open = false;
    int64_t retry_ns = 0;  // when it is closed
    std::string out;       // what the kernel has not taken yet
    std::string in;        // the beginning of an answer
    std::deque<uint32_t> outstanding;
  };

  SourceStream(const StreamOptions& options, std::function<void(const char*)> on_event);
  absl::Status OpenAll();
  void SendDue(uint64_t until);
  void SendDatagram(uint32_t source, uint32_t id);
  void SendOnConnection(uint32_t source, uint32_t id);
  absl::StatusOr<Address> AddressOf(uint32_t source) const;
  void Connect(uint32_t source);
  void Lose(uint32_t source, bool was_open);
  void Flush(Connection& connection, uint32_t source);
  void Wait(int64_t due_ns);
  void ReadDatagrams(uint32_t source);
  void ReadConnection(uint32_t source);
  void Answered(const SteerMessage& answer, int64_t now_ns);
  std::string MessageOf(uint32_t id) const;
  bool WantsAnswer(uint32_t id) const;

  StreamOptions options_;
  std::function<void(const char*)> on_event_;
  net::UniqueFd epoll_{};
  std::vector<net::UniqueFd> datagrams_;  // by source
  std::vector<Connection> connections_;
  std::vector<uint32_t> order_;  // of the sources' turns
  std::vector<StreamRecord> records_;
  std::multimap<int64_t, uint32_t> retries_;
  StreamResult result_;
  uint64_t next_ = 0, outstanding_ = 0, measured_from_ = 0;
  uint64_t waiting_bytes_ = 0;
  std::vector<uint8_t> buffer_;
};

}  // namespace hedgerow::bench
