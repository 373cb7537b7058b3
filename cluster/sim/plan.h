// SPDX-License-Identifier: Apache-2.0
//
// What one seed simulates: the size of the cluster, its options, the faults. Each seed draws only some kinds
// of faults and their strength (swarm testing, Groce et al., ISSTA 2012): a run in which everything fails all
// the time rarely gets far enough for the deeper faults.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/kv/request_router.h"
#include "cluster/kv/settings.h"
#include "cluster/offload/kernel_bridge.h"
#include "cluster/raft/options.h"
#include "cluster/sim/random.h"

namespace hedgerow::sim {

constexpr uint64_t kMicrosecond = 1'000;
constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

struct NetworkPlan {
  uint64_t delay_min_ns = 0;
  uint64_t delay_max_ns = 0;
  uint64_t drop_ppm = 0;
  uint64_t duplicate_ppm = 0;
  uint64_t corrupt_ppm = 0;  // found by the checksum, so dropped
  uint64_t late_ppm = 0;     // this many arrive after up to late_max_ns: reordering, and ghosts
  uint64_t late_max_ns = 0;
  uint64_t late_votes_ppm = 0;  // the same for votes: a network may be as unfair as it likes
  uint64_t late_votes_max_ns = 0;
  bool late_acks = false;  // acknowledgements, too
  bool jitter = false;     // delays so unlike that packets overtake each other all the time
};

// Whether messages between nodes travel as their real datagrams (sealed_link.h).
struct SealedPlan {
  bool on = false;
  bool copies = false;           // what is the same for several leaves once, for all of them
  uint64_t flip_ppm = 0;         // bits of this many are flipped
  uint64_t replay_ppm = 0;       // after this many datagrams comes one that the network has recorded
  uint64_t long_values_ppm = 0;  // of what clients put: longer than a datagram
};

struct DiskPlan {
  uint64_t sync_min_ns = 0;
  uint64_t sync_max_ns = 0;
  bool memory = false;
};

struct SnapshotPlan {
  uint64_t every_entries = UINT64_MAX;
  size_t chunk_bytes = 0;
  size_t slice_bytes = 0;
  uint64_t pause_max_ns = 0;  // between slices, and while a file is written
  uint64_t crash_ppm = 0;     // soon after something has become of a snapshot
};

// The nodes' kernel parts. In memory mode hosts keep their power: one that lost it would come back as a
// learner.
struct KernelPlan {
  bool on = false;
  offload::Durability durability = offload::Durability::kDisk;
  offload::Switches switches;
  uint64_t lease_ns = 0;
  size_t ring_records = 0;
  // Of so many datagrams the handling is torn at the lock's boundaries, for up to so long.
  uint64_t torn_ppm = 0;
  uint64_t torn_max_ns = 0;
  uint64_t detach_max_ns = 0;  // after the process's death, its programs go on for so long
};

struct FaultPlan {
  uint64_t mean_interval_ns = 0;  // 0: none
  uint64_t duration_max_ns = 0;
  uint64_t on_leader_ppm = 0;
  uint64_t crash_new_leader_ppm = 0;
  uint64_t crash_voter_ppm = 0;          // soon after its vote; with power cuts, of its host's power
  uint64_t resigns_truly_ppm = 500'000;  // else a false alarm
  bool partitions = false;
  bool one_way = false;
  bool slow_links = false;
  bool crashes = false;
  bool power_cuts = false;  // several nodes at one instant
  bool pauses = false;
  bool standstills = false;  // of whole machines, in place of pauses: requests that came meanwhile look new
  bool slow_disks = false;
  bool full_disks = false;
  bool hung_disks = false;
  bool size_filters = false;  // a node's entries are lost, and its shorter messages arrive
  bool clock_jumps = false;
  bool transfers = false;
  bool resignations = false;   // true ones and false alarms
  bool empty_folders = false;  // of a minority, once all others have recorded its logs
};

// What an administrator does to the cluster's membership, at any time.
struct MembershipPlan {
  uint64_t mean_interval_ns = 0;  // 0: nothing
  uint64_t spares = 0;            // nodes that are no members at first
  uint64_t on_leader_ppm = 0;     // it is the leader that is removed
  uint64_t crash_ppm = 0;         // of the leader, soon after a change has begun
  uint64_t edit_file_ppm = 0;     // of the members in a node's configuration file, before it starts again
};

// How often the cluster is recovered from what one node has left (docs/adr/0019).
struct RecoveryPlan {
  uint64_t mean_interval_ns = 0;    // 0: never
  uint64_t after_election_ppm = 0;  // and soon after one, when logs end in different terms
};

struct ClientPlan {
  uint64_t session_clients = 0;
  uint64_t windowed_clients = 0;
  uint64_t think_max_ns = 0;
  uint64_t outstanding_max = 1;
  uint64_t keys = 1;
  uint64_t hedge_ppm = 0;
  uint64_t sleep_ppm = 0;  // after an operation: silent for longer than a session lives
  uint64_t other_ppm = 0;  // of writes: another request is sent under the same number
};

// What is tried once the faults have ended, while clients go on (last_days.h).
struct LastDaysPlan {
  bool hung_disk = false;        // of the leader, for good
  bool folder_put_back = false;  // of a follower
};

// What the files of the nodes say, and how often an administrator changes what holds.
struct SettingsPlan {
  std::vector<kv::Settings> files;  // by node, the spares included
  bool differ = false;              // between nodes; else all files say the same, and nothing changes it
  uint64_t mean_interval_ns = 0;    // of changes; 0: none
  uint64_t changes_seed = 0;
  uint64_t check_every_entries = 50;
  uint64_t shortest_timeout_ns = 0;  // of sessions, that ever holds
};

// Requests under sessions that are not the sender's, and OPENs of sessions that are never used (stranger.h).
struct StrangerPlan {
  uint64_t mean_interval_ns = 0;  // 0: none
  uint64_t seed = 0;
};

struct MemcachedPlan {
  uint64_t counting_clients = 0;  // their frame ids
  uint64_t one_id_clients = 0;
};

struct Plan {
  uint64_t nodes = 3;
  raft::Options raft;
  SettingsPlan settings;
  kv::RouterOptions router;
  NetworkPlan network;
  DiskPlan disk;
  SealedPlan sealed;
  uint64_t turn_max_ns = 0;  // the longest that a turn of a node's loop takes; what comes meanwhile waits
  KernelPlan kernel;
  SnapshotPlan snapshots;
  FaultPlan faults;
  ClientPlan clients;
  StrangerPlan stranger;
  MemcachedPlan memcached;
  MembershipPlan membership;
  RecoveryPlan recovery;
  LastDaysPlan last_days;
};

// No packet of a windowed client takes longer; DedupeWindow states that its users see to this.
constexpr uint64_t kWindowedDelayMax_ns = 500 * kMillisecond;
// The longest that a file says, or an administrator asks for.
constexpr uint64_t kWindowMax_ns = 9 * kSecond;

Plan DrawPlan(Random& random);
// What a file may say, or an administrator ask for: small limits, too, that clients run into.
kv::Settings DrawSettings(Random& random);
std::string Describe(const Plan& plan);

}  // namespace hedgerow::sim
