// SPDX-License-Identifier: Apache-2.0
//
// A node's kernel part for real: loads the kernel programs (bpf/node), makes or adopts the pinned maps that
// outlive a process, and attaches to the node's interface. Everything that changes the shared
// state goes through the control programs. One owner: the loop's thread; DrawPacketNumber may be called from
// any.
//
// Order at start: Open; Control(ADOPT); Take all of the ring; SetMember and SetIncarnation as they become
// known; Attach; Control(OPEN). The programs that are attached go with this object or its process; the pins
// stay (RemovePins).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/node/raft/node_maps_abi.h"
#include "cluster/offload/kernel.h"
#include "cluster/offload/ring_reader.h"
#include "net/mapped.h"
#include "net/tc/tc_attach.h"
#include "net/unique_fd.h"

struct bpf_program;
struct node_bpf;

namespace hedgerow::offload {

struct BpfKernelOptions {
  uint64_t cluster_id = 0;
  std::vector<hr_node_key> keys{};  // the first one seals, all open
  uint32_t self = 0;                // node id
  hr_address address{};             // where the peers send to, v4-mapped
  uint16_t port = 0;                // host order
  std::string instance{};           // one of a kind on this host, and the same in the node's next incarnation
  bool pin = false;                 // the maps outlive the process
  // Something is owed that a former incarnation's maps hold: without them Open is DataLoss and pins nothing,
  // else the next start would take empty maps for those.
  bool must_adopt = false;
  std::string bpffs = "/sys/fs/bpf";
};

enum class XdpChoice : uint8_t { kAuto, kNative, kGeneric };  // kAuto: native, where that fails and on a veth generic

struct AttachOptions {
  std::string interface {};  // "": the one that has the node's address
  bool xdp = true;
  bool broadcast = true;
  XdpChoice mode = XdpChoice::kAuto;
  net::Mechanism tc = net::Mechanism::kAuto;  // of the broadcast
};

// One hook, for the node's status.
struct HookStatus {
  bool on = false;
  std::string detail{};  // on: "native XDP on eth0"; off: why
};

class BpfKernel : public Kernel {
 public:
  // FailedPrecondition: pinned maps of another layout, node or cluster, which the message says how to get rid
  // of; PermissionDenied: capabilities; Internal, with the tail of the verifier's log: the kernel refused a
  // program that nothing can do without. Of a refused XDP or broadcast program its hook says why; the other one
  // goes on.
  static absl::StatusOr<std::unique_ptr<BpfKernel>> Open(const BpfKernelOptions& options);
  ~BpfKernel() override;
  BpfKernel(const BpfKernel&) = delete;
  BpfKernel& operator=(const BpfKernel&) = delete;

  // Whether an instance has pinned maps, of whatever layout.
  static bool HasPins(const std::string& bpffs, const std::string& instance);
  // Of an instance that has some, before anything else is changed: whether Open could take them, as far as they
  // name their owner. Errors are those of Open.
  static absl::Status CheckPins(const std::string& bpffs, const std::string& instance, uint64_t cluster_id,
                                uint32_t self);
  // Removes what an instance has pinned. What it held is lost with it.
  static absl::Status RemovePins(const std::string& bpffs, const std::string& instance);

  // Where the pins are gone while this runs (somebody has cleared the bpffs), they are made again: else the process's
  // next death would be the maps' too. True: they were. An error: they are gone.
  absl::StatusOr<bool> KeepPins();

  bool adopted() const { return adopted_; }  // from an earlier incarnation; otherwise the state is all zero

  // Each hook by itself: what fails is off and says why. May be called again: what is on stays on, what is off
  // or was detached from outside is tried again.
  void Attach(const AttachOptions& options);
  void Detach();
  // As the kernel says now: a program that was taken off by hand is off.
  HookStatus Xdp();
  HookStatus Broadcast();

  // Kernel.
  void Control(hr_node_control& request) override;
  uint64_t ProducerPosition() override { return ring_.ProducerPosition(); }
  uint64_t Take(uint64_t until, bool wait, std::vector<RingRecord>& records) override {
    return ring_.Take(until, wait, records);
  }
  void Release(uint64_t position) override { ring_.Release(position); }
  void SetAwake(bool awake) override;
  void SetSent(uint64_t index, uint64_t round) override;
  uint64_t Moved() override;

  // The member at this slot is in this incarnation now, and all its numbers up to `floor` are old.
  // Incarnation 0: unknown, its datagrams are left to the process.
  void SetIncarnation(uint32_t slot, uint64_t incarnation, uint64_t floor);
  // A copy, for tests and status; not of one moment.
  hr_node_window ReadWindow(uint32_t slot) const;

  // A member by its slot (the bit of hr_node_shared.voters). `peer.node` 0: no member.
  void SetMember(uint32_t slot, const hr_node_peer& peer);
  hr_node_peer Member(uint32_t slot) const;
  // Mask of the slots that the broadcast can reach: HR_NODE_MARK_BROADCAST | mask is the mark to send with.
  uint32_t Reachable() const { return reachable_; }

  // From now on these are the cluster's keys: the first one seals, all open. The programs see each key before one of
  // them seals with it, and open no key that is left out once this returns. An error: the kernel has no memory; the
  // former keys stay valid.
  absl::Status SetKeys(const std::vector<hr_node_key>& keys);

  // From the counter that the programs draw from too. Never 0.
  uint64_t DrawPacketNumber();
  uint64_t DrawAnnounceSequence();

  hr_node_stats Counters() const;  // sums over all CPUs

  // For the node's other kernel programs (Watch), which share them.
  int state_map() const;
  int numbers_map() const;
  int keys_map() const;

  // For packet tests: programs and maps as they are.
  node_bpf* skeleton() { return skeleton_; }

 private:
  explicit BpfKernel(const BpfKernelOptions& options) : options_(options) {}

  struct Wanted {
    bool xdp = true;
    bool broadcast = true;
  };
  absl::Status Load();
  absl::Status LoadAllowed();
  absl::Status LoadPrograms(Wanted wanted);
  absl::Status MakePinFolder();
  absl::Status MakePins();
  absl::StatusOr<bool> AdoptPins();
  static absl::Status CheckAbout(int about_fd, const std::string& pin_dir, uint64_t cluster_id, uint32_t self);
  absl::Status FindInterface(const std::string& name);
  void SetXdpHook(const hr_node_hook& hook);
  absl::Status AttachXdp(XdpChoice choice);
  absl::Status AttachBroadcast(net::Mechanism mechanism);
  bool XdpAttached() const;
  bool BroadcastAttached() const;

  BpfKernelOptions options_;
  node_bpf* skeleton_ = nullptr;
  Wanted loaded_{};
  bool refused_ = false;  // the last attempt to load: by the verifier
  bool adopted_ = false;
  bool mounted_bpffs_ = false;
  std::string pin_dir_{};
  RingReader ring_{};
  net::Mapped<hr_node_numbers> numbers_{};
  net::Mapped<hr_node_doorbell> doorbell_{};
  uint32_t reachable_ = 0;

  int ifindex_ = 0;
  std::string interface_{};
  net::UniqueFd xdp_link_{};
  bool veth_ =
      false;  // for native XDP it copies each datagram, and loses what goes back unless its other end has a program
  std::string xdp_detail_ = "not attached";
  std::optional<net::Attachment> broadcast_{};
  std::string broadcast_detail_ = "not attached";
};

}  // namespace hedgerow::offload
