// SPDX-License-Identifier: Apache-2.0
//
// A worker of a collector: takes messages from its sockets, counts them by source, works on each for a stated number of
// steps, and answers those that ask for it. Its sockets are those that a supervisor hands down (LISTEN_FDS,
// sd_listen_fds(3)), or its own. One thread, level-triggered epoll. Used by hr-steer-collector and its test.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/load/mapped_words.h"
#include "bench/load/udp_socket.h"
#include "bench/steer/message.h"

namespace hedgerow::bench {

struct Listening {
  int fd = -1;
  bool tcp = false;
};

// Those of LISTEN_FDS, whatever their order; none where the variable is absent or meant for another process.
absl::StatusOr<std::vector<Listening>> InheritedSockets();

struct OwnSockets {
  Address address;
  bool udp = true;
  bool tcp = true;
  bool reuseport = false;
  int receive_buffer = 4 << 20;  // of UDP
};
absl::StatusOr<std::vector<Listening>> OpenSockets(const OwnSockets& wanted);

struct CollectorOptions {
  uint8_t slot = SteerMessage::kNoSlot;
  uint64_t work_steps = 0;  // for each message
  // A message leaves the socket when it has been counted and answered. A killed worker then loses no message that it
  // had read, which would count against the steering; a message may be answered twice instead.
  bool peek = false;
  // Others have the same sockets: each event wakes one worker.
  bool shared = false;
  int64_t heartbeat_ns = 0;  // WATCHDOG=1 so often; 0: never
};

struct CollectorTotals {
  uint64_t udp = 0;
  uint64_t tcp = 0;
  uint64_t accepted = 0;
  uint64_t not_messages = 0;  // datagrams that are none, and connections closed for it
  uint64_t unanswered = 0;    // answers that the kernel did not take
  uint64_t beyond = 0;        // sources that the counts have no place for
};

// One dependent multiplication each; what it costs is measured by hr-steer-collector --calibrate.
uint64_t Work(uint64_t steps, uint64_t seed);

// How many messages of each source a worker has counted, in a mapped file: what a worker that is killed had counted
// stays, and its successor counts on. One process writes a file at a time. bench/steer_rig.py reads it: for each source
// two 64-bit numbers, UDP and TCP.
class SourceCounts {
 public:
  // An existing file keeps what it has. An empty path: nothing is counted.
  static absl::StatusOr<SourceCounts> Map(const std::string& path, size_t sources);

  // A source beyond the file's end is not counted: false.
  bool Count(uint32_t source, bool tcp);

 private:
  MappedWords counts_{};
  size_t sources_ = 0;
};

class Collector {
 public:
  Collector(std::vector<Listening> sockets, SourceCounts counts, const CollectorOptions& options);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // Waits at most so long and handles what there is.
  void Turn(int timeout_ms);
  const CollectorTotals& totals() const { return totals_; }

 private:
  void ReadDatagrams(int fd);
  void ReadOneByPeeking(int fd);
  void Accept(int fd);
  // False: the connection is over.
  bool ReadConnection(int fd, std::vector<uint8_t>& rest);
  // Counts, works; true and the answer where one is wanted.
  bool Handle(const SteerMessage& message, bool tcp, SteerMessage& answer);

  std::vector<Listening> sockets_;
  SourceCounts counts_;
  CollectorOptions options_;
  CollectorTotals totals_;
  uint32_t pid_;
  int epoll_;
  int64_t next_heartbeat_ns_ = 0;
  uint64_t result_ = 1;  // of the work, so that it is not left out
  std::vector<uint8_t> buffer_;
  struct Datagrams;
  std::unique_ptr<Datagrams> datagrams_;
  std::unordered_map<int, std::vector<uint8_t>>
      connections_;  // by descriptor: the beginning of a message whose end has not come
};

}  // namespace hedgerow::bench
