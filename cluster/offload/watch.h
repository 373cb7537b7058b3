// SPDX-License-Identifier: Apache-2.0
//
// The watch over this very process (DESIGN, "A dying leader"): kernel programs that note its death within
// microseconds, and a clock in the kernel that then tells peers and proxies that their leader resigns; or,
// should its loop wait for a processor, peers that it is stalled. Made by Node when it starts, after it has
// adopted the shared state; on the loop's thread.
//
// The clock outlives the process, and has to: it is a veth pair with a queueing discipline and a TC filter, not
// a link that goes with its descriptor. It comes to rest by itself. The next incarnation removes it
// (RemoveLeftovers), or the end of the network namespace does.
//
// Needs CAP_BPF, CAP_PERFMON (raw tracepoints) and CAP_NET_ADMIN.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/node/watch/watch_abi.h"
#include "cluster/raft/types.h"
#include "net/mapped.h"
#include "net/tc/clock_qdisc.h"
#include "net/ip_address.h"
#include "net/tc/tc_attach.h"

struct watch_bpf;

namespace hedgerow::offload {

struct Endpoint {
  net::IpAddress address{};
  uint16_t port = 0;  // host order
};

struct WatchSpec {
  struct Proxy {
    Endpoint address{};
    hr_siphash_key key{};
  };

  // One of a kind on this host, and the same in the node's next incarnation: "node-1-of-42".
  std::string instance{};
  uint64_t incarnation = 0;  // of the shared state; never 0
  raft::NodeId self{};
  uint64_t cluster_id = 0;
  uint64_t cluster_epoch = 0;
  std::vector<hr_node_key> cluster_keys{};  // of a watch without a kernel part; else they are in keys_map
  Endpoint peer_address{};                  // this node's: where its datagrams come from
  Endpoint serve{};                         // what announcements name
  std::vector<Endpoint> peers{};            // the others
  std::vector<Proxy> proxies{};
  // A leader whose loop waits for a processor is stalled from this long after it last turned, and until then. It
  // is no longer once the loop has run for stall_from_ns since. 0 and 0: never.
  uint64_t stall_from_ns = 0;
  uint64_t stall_until_ns = 0;
  // `node`, `numbers` and `node_keys` of the node's kernel part; -1: its own, which is of use to tests
  int state_map = -1;
  int numbers_map = -1;
  int keys_map = -1;
};

class Watch {
 public:
  // The same is said this often: 20 ms, as long as the shortest election timeout.
  static constexpr uint32_t kResigningLaps = 20;
  // A lap is longer by the timer's and the soft interrupt's latency (20 to 70 us measured), and is to stay
  // below 1 ms.
  static constexpr uint64_t kLap_ns = 900'000;

  // Loads, watches the calling process, and proves the clock by letting it go round once. What a former
  // incarnation of the instance left is removed first. Says what the kernel refused.
  static absl::StatusOr<std::unique_ptr<Watch>> Start(const WatchSpec& spec);
  // Nothing is left.
  ~Watch();

  // Looks up how peers and proxies are reached: at the start, and when routes may have changed. Returns the
  // nodes that cannot be notified, and why, one line each.
  std::vector<std::string> FindRoutes();

  // The proxies' keys from now on, in the order of `spec.proxies`. Each proxy is notified with its key once FindRoutes
  // has been called.
  void SetProxyKeys(const std::vector<hr_siphash_key>& keys);

  // The peers from now on. A former peer is not notified; a new one is once FindRoutes has found it.
  void SetPeers(std::vector<Endpoint> peers);

  // As leader: the nodes that start an election, the most complete log first. Cheap where nothing has changed.
  void SetSuccessors(raft::Term term, std::span<const raft::NodeId> order);

  // As leader, after the shared state says so, and then at every turn of the loop: the clock goes round. A
  // memory access as long as it does.
  void Tend(uint64_t now_ns);

  hr_watch watched() const { return Copy(*watch_.At(0)); }
  hr_watch_clock clock() const { return Copy(*clock_.At(0)); }

  // Descriptors of the maps, which are this object's.
  struct Maps {
    int state = -1, numbers = -1, watch = -1, clock = -1;
  };
  Maps maps() const;

  // Whatever a former incarnation of this instance left in the calling thread's network namespace. OK when
  // there is nothing.
  static absl::Status RemoveLeftovers(const std::string& instance);

 private:
  explicit Watch(const WatchSpec& spec) : spec_(spec) {}
  absl::Status MakeLink();
  absl::Status Load();
  absl::Status MapArrays();
  absl::Status WatchThisProcess();
  absl::Status MakeClock();
  absl::Status Kick();
  absl::Status WriteTarget(uint32_t index, const Endpoint& to, const hr_siphash_key& key);

  template <typename T>
  static T Copy(const volatile T& shared);

  WatchSpec spec_;
  watch_bpf* skeleton_ = nullptr;
  int out_ifindex_ = 0;
  int in_ifindex_ = 0;
  std::unique_ptr<net::Attachment> attachment_;
  net::Mapped<hr_watch> watch_;
  net::Mapped<hr_watch_clock> clock_;
  net::Mapped<hr_watch_plan> plan_;
  net::Mapped<hr_watch_target> targets_;
  bool made_link_ = false;
};

template <typename T>
T Watch::Copy(const volatile T& shared) {
  static_assert(sizeof(T) % 8 == 0);
  T copy;
  const auto* from = reinterpret_cast<const volatile uint64_t*>(&shared);
  auto* to = reinterpret_cast<uint64_t*>(&copy);
  for (size_t i = 0; i < sizeof(T) / 8; ++i) to[i] = from[i];
  return copy;
}

}  // namespace hedgerow::offload
