// SPDX-License-Identifier: Apache-2.0
//
// The stage of watch_live_test: a namespace for the node's process and one for its peers, joined by a veth
// whose transmit checksum offload is off; a process that may die (watch_victim); and an ear at the far end that
// hears whole frames with the time at which they came. Test code only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bpf/node/watch/watch_abi.h"
#include "net/unique_fd.h"

namespace hedgerow::offload {

uint64_t RealtimeNs();
uint64_t MonotonicNs();
uint64_t AvailableMegabytes();  // of memory

struct Heard {
  uint64_t at_ns = 0;  // CLOCK_REALTIME, when the kernel took it in
  uint16_t port = 0;   // destination
  uint16_t source_port = 0;
  std::vector<uint8_t> frame{};
  std::string payload{};
};

// Frames that carry UDP, at one interface of the calling thread's namespace.
class Ear {
 public:
  explicit Ear(int ifindex);
  // Everything that came, until it has been quiet for `quiet_ms` or `longest_ms` have passed.
  std::vector<Heard> Listen(int quiet_ms, int longest_ms);

 private:
  bool HearOne(std::vector<Heard>& heard, int timeout_ms);
  net::UniqueFd socket_;
};

struct VictimOptions {
  std::string instance = "watched";
  uint64_t term = 7;
  bool ipv6 = false;
  int proxies = 1;
  int threads = 1;
  int resident_megabytes = 0;
  uint64_t lease_ms = 3'600'000;
  uint64_t stall_from_ms = 0;   // after its loop last turned
  uint64_t stall_until_ms = 0;  // 0: it is never stalled
};

// A run of watch_victim in the calling thread's namespace.
class Victim {
 public:
  explicit Victim(const VictimOptions& options);
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  std::string Read();                            // a line
  uint64_t Command(const std::string& command);  // returns when it was begun (CLOCK_MONOTONIC); 0: no answer
  void Kill(int signal);                         // to the process
  int Wait();                                    // status, as waitpid's
  pid_t pid() const { return pid_; }
  bool ready() const { return ready_; }
  const std::string& first_line() const { return first_line_; }

  hr_watch watched() const { return Read<hr_watch>(watch_); }
  hr_watch_clock clock() const { return Read<hr_watch_clock>(clock_); }
  // A plain write of the watch's element: what stale or foreign news would be.
  void Forge(const hr_watch& watch);

 private:
  template <typename T>
  static T Read(const net::UniqueFd& map);

  pid_t pid_ = -1;
  bool ready_ = false;
  bool waited_ = false;
  int status_ = 0;
  std::string first_line_;
  net::UniqueFd to_, from_;
  net::UniqueFd watch_, clock_, state_;
};

// The ids of the process's BPF links on the tracepoints that a watch uses. Those of other processes may come and go.
std::vector<uint32_t> TracepointLinksOf(pid_t pid);
bool LinkExists(uint32_t id);

// Makes both namespaces' links; the calling thread is in the node's. Returns the index of the far end, which is
// in the namespace of `peer`. 0: it failed.
int JoinNamespaces(int peer);

}  // namespace hedgerow::offload
