// SPDX-License-Identifier: Apache-2.0
//
// Loading, the pinned maps, and everything that goes through the maps; the hooks are in bpf_kernel_hooks.cc.
#include "cluster/offload/bpf_kernel.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/ethernet.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "cluster/offload/kernel_keys.h"
#include "cluster/raft/check.h"
#include "net/bpf_log.h"
#include "net/bpffs.h"
#include "node.skel.h"

namespace hedgerow::offload {
namespace {

// Of a call that waits for memory.
constexpr timespec kControlAgain{.tv_sec = 0, .tv_nsec = 1'000'000};

struct PinnedMap {
  const char* name;
  bpf_map* map;
};

// Without `about`, which is pinned last: it says that the others are whole.
std::array<PinnedMap, 4> StateMaps(node_bpf* skeleton) {
  return {{{"node", skeleton->maps.node},
           {"windows", skeleton->maps.windows},
           {"numbers", skeleton->maps.numbers},
           {"ring", skeleton->maps.ring}}};
}

std::string PinPath(const std::string& folder, const char* name) { return absl::StrCat(folder, "/", name); }

// Runs a control program on `request`, which becomes the answer. A request that is not carried out would break
// the safety contract (a fence that does not hold), so the process does not go on before it is: it stands still
// while the host has no memory for that, and its lease ends.
template <typename Request>
void RunControl(bpf_program* program, Request& request) {
  char frame[ETHER_HDR_LEN + sizeof(request)] = {};
  char answer[sizeof(frame)];
  memcpy(frame + ETHER_HDR_LEN, &request, sizeof(request));
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_out = answer, .data_size_in = sizeof(frame),
              .data_size_out = sizeof(answer));
  while (bpf_prog_test_run_opts(bpf_program__fd(program), &options) != 0) {
    HEDGEROW_CHECK(errno == EINTR || errno == EAGAIN || errno == ENOMEM);  // memory for the frame
    if (errno == ENOMEM) nanosleep(&kControlAgain, nullptr);
    options.data_size_out = sizeof(answer);
  }
  HEDGEROW_CHECK(options.retval == 0);
  memcpy(&request, answer + ETHER_HDR_LEN, sizeof(request));
}

uint64_t AddOne(volatile __u64* counter) {
  return __atomic_add_fetch(const_cast<__u64*>(counter), 1, __ATOMIC_RELAXED);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BpfKernel>> BpfKernel::Open(const BpfKernelOptions& options) {
  auto kernel = std::unique_ptr<BpfKernel>(new BpfKernel(options));
  if (absl::Status status = kernel->Load(); !status.ok()) return status;
  return kernel;
}

BpfKernel::~BpfKernel() {
  Detach();
  if (skeleton_ != nullptr) node_bpf__destroy(skeleton_);
  if (mounted_bpffs_) net::ReleaseBpffs(options_.bpffs).IgnoreError();  // not while anything is pinned
}

bool BpfKernel::HasPins(const std::string& bpffs, const std::string& instance) {
  return access(PinPath(net::PinDir(bpffs, instance), "about").c_str(), F_OK) == 0;
}

absl::Status BpfKernel::CheckPins(const std::string& bpffs, const std::string& instance, uint64_t cluster_id,
                                  uint32_t self) {
  const std::string pin_dir = net::PinDir(bpffs, instance);
  const std::string path = PinPath(pin_dir, "about");
  const net::UniqueFd about(bpf_obj_get(path.c_str()));
  if (!about.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  return CheckAbout(about.get(), pin_dir, cluster_id, self);
}

absl::Status BpfKernel::RemovePins(const std::string& bpffs, const std::string& instance) {
  return net::RemovePinDir(bpffs, instance);
}

absl::Status BpfKernel::Load() {
  if (absl::Status status = LoadAllowed(); !status.ok()) return status;
  if (options_.must_adopt && !adopted_)
    return absl::DataLossError(absl::StrCat("the maps that were pinned in ", pin_dir_, " are gone"));
  if (options_.pin && !adopted_) {
    if (absl::Status status = MakePins(); !status.ok()) return status;
  }
  auto ring = RingReader::Open(bpf_map__fd(skeleton_->maps.ring), HR_NODE_RING_BYTES);
  if (!ring.ok()) return ring.status();
  ring_ = *std::move(ring);
  auto numbers = net::Mapped<hr_node_numbers>::Open(numbers_map(), 1);
  if (!numbers.ok()) return numbers.status();
  numbers_ = *std::move(numbers);
  auto doorbell = net::Mapped<hr_node_doorbell>::Open(bpf_map__fd(skeleton_->maps.doorbell), 1);
  if (!doorbell.ok()) return doorbell.status();
  doorbell_ = *std::move(doorbell);
  return SetKeys(options_.keys);
}

// A program that this kernel's verifier refuses costs its own offload, and no other.
absl::Status BpfKernel::LoadAllowed() {
  const absl::Status status = LoadPrograms({});
  if (status.ok() || !refused_) return status;
  if (LoadPrograms({.broadcast = false}).ok()) {
    broadcast_detail_ = std::string(status.message());
    return absl::OkStatus();
  }
  if (LoadPrograms({.xdp = false}).ok()) {
    xdp_detail_ = std::string(status.message());
    return absl::OkStatus();
  }
  return status;
}

absl::Status BpfKernel::LoadPrograms(Wanted wanted) {
  if (skeleton_ != nullptr) node_bpf__destroy(skeleton_);
  net::KeepBpfLog();
  skeleton_ = node_bpf__open();
  if (skeleton_ == nullptr) return net::BpfLoadError(errno);
  loaded_ = wanted;
  bpf_program__set_autoload(skeleton_->progs.hr_node_xdp, wanted.xdp);
  bpf_program__set_autoload(skeleton_->progs.hr_node_broadcast, wanted.broadcast);
  hr_node_config& config = skeleton_->rodata->node_config;
  config.cluster_id = options_.cluster_id;
  config.address = options_.address;
  config.self = options_.self;
  config.port_be = htons(options_.port);
  if (options_.pin) {
    const auto adopted = AdoptPins();
    if (!adopted.ok()) return adopted.status();
    adopted_ = *adopted;
  }
  const int error = node_bpf__load(skeleton_);
  refused_ = error == -EACCES || error == -EINVAL || error == -E2BIG;  // EPERM: a capability is missing
  return error == 0 ? absl::OkStatus() : net::BpfLoadError(-error);
}

absl::StatusOr<bool> BpfKernel::KeepPins() {
  if (!options_.pin || HasPins(options_.bpffs, options_.instance)) return false;
  if (absl::Status status = net::RemovePinDir(options_.bpffs, options_.instance); !status.ok()) return status;
  if (absl::Status status = MakePinFolder(); !status.ok()) return status;
  if (absl::Status status = MakePins(); !status.ok()) return status;
  return true;
}

absl::Status BpfKernel::MakePinFolder() {
  const auto mounted = net::EnsureBpffs(options_.bpffs);
  if (!mounted.ok()) return mounted.status();
  mounted_bpffs_ = mounted_bpffs_ || *mounted;
  const auto folder = net::MakePinDir(options_.bpffs, options_.instance);
  if (folder.ok()) pin_dir_ = *folder;
  return folder.status();
}

// False: there are none. Maps without `about` are of a process that died while it made them; nothing was
// accepted then.
absl::StatusOr<bool> BpfKernel::AdoptPins() {
  if (absl::Status status = MakePinFolder(); !status.ok()) return status;
  const net::UniqueFd about(bpf_obj_get(PinPath(pin_dir_, "about").c_str()));
  if (!about.valid() && errno != ENOENT) return absl::ErrnoToStatus(errno, absl::StrCat("open ", pin_dir_, "/about"));
  if (!about.valid()) {
    if (absl::Status status = net::RemovePinDir(options_.bpffs, options_.instance); !status.ok()) return status;
    if (const auto made = net::MakePinDir(options_.bpffs, options_.instance); !made.ok()) return made.status();
    return false;
  }
  if (absl::Status status = CheckAbout(about.get(), pin_dir_, options_.cluster_id, options_.self); !status.ok())
    return status;
  for (const auto& [name, map] : StateMaps(skeleton_)) {
    const std::string path = PinPath(pin_dir_, name);
    const net::UniqueFd pinned(bpf_obj_get(path.c_str()));
    if (!pinned.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("open the pinned map ", path));
    if (bpf_map__reuse_fd(map, pinned.get()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("adopt ", path));
  }
  return true;
}

absl::Status BpfKernel::CheckAbout(int about_fd, const std::string& pin_dir, uint64_t cluster_id, uint32_t self) {
  const std::string remedy =
      absl::StrCat("start what made them once more, or remove the folder ", pin_dir, " with what only it holds");
  bpf_map_info info{};
  uint32_t info_bytes = sizeof(info);
  hr_node_about about{};
  const uint32_t zero = 0;
  if (bpf_obj_get_info_by_fd(about_fd, &info, &info_bytes) != 0)
    return absl::ErrnoToStatus(errno, "describe a pinned map");
  if (info.value_size != sizeof(about) || bpf_map_lookup_elem(about_fd, &zero, &about) != 0)
    return absl::FailedPreconditionError(absl::StrCat("the pinned maps are of an unknown layout: ", remedy));
  if (about.abi_version != HR_NODE_ABI_VERSION)
    return absl::FailedPreconditionError(absl::StrCat("the pinned maps are of layout ", about.abi_version, ", wanted ",
                                                      HR_NODE_ABI_VERSION, ": ", remedy));
  if (about.self != self || about.cluster_id != cluster_id)
    return absl::FailedPreconditionError(
        absl::StrCat("the pinned maps are of node ", about.self, " of cluster ", about.cluster_id, ": ", remedy));
  return absl::OkStatus();
}

absl::Status BpfKernel::MakePins() {
  for (const auto& [name, map] : StateMaps(skeleton_)) {
    const std::string path = PinPath(pin_dir_, name);
    if (bpf_obj_pin(bpf_map__fd(map), path.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("pin ", path));
  }
  const hr_node_about about = {
      .abi_version = HR_NODE_ABI_VERSION, .self = options_.self, .cluster_id = options_.cluster_id};
  const int about_fd = bpf_map__fd(skeleton_->maps.about);
  const std::string path = PinPath(pin_dir_, "about");
  const uint32_t zero = 0;
  if (bpf_map_update_elem(about_fd, &zero, &about, BPF_ANY) != 0 || bpf_obj_pin(about_fd, path.c_str()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("pin ", path));
  return absl::OkStatus();
}

void BpfKernel::Control(hr_node_control& request) { RunControl(skeleton_->progs.hr_node_control, request); }

// The order of the two is what matters, so both are the strictest there is.
void BpfKernel::SetAwake(bool awake) {
  __atomic_store_n(const_cast<__u64*>(&doorbell_->awake), awake ? 1 : 0, __ATOMIC_SEQ_CST);
}

void BpfKernel::SetSent(uint64_t index, uint64_t round) {
  doorbell_->sent_index = index;
  doorbell_->sent_round = round;
}

uint64_t BpfKernel::Moved() { return __atomic_load_n(const_cast<__u64*>(&doorbell_->moved), __ATOMIC_SEQ_CST); }

int BpfKernel::state_map() const { return bpf_map__fd(skeleton_->maps.node); }
int BpfKernel::numbers_map() const { return bpf_map__fd(skeleton_->maps.numbers); }
int BpfKernel::keys_map() const { return bpf_map__fd(skeleton_->maps.node_keys); }

absl::Status BpfKernel::SetKeys(const std::vector<hr_node_key>& keys) { return WriteKeys(keys_map(), keys); }

void BpfKernel::SetIncarnation(uint32_t slot, uint64_t incarnation, uint64_t floor) {
  hr_node_window_control request{};
  request.slot = slot;
  request.incarnation = incarnation;
  request.floor = floor;
  RunControl(skeleton_->progs.hr_node_window, request);
  HEDGEROW_CHECK(request.result == HR_NODE_DONE);
}

hr_node_window BpfKernel::ReadWindow(uint32_t slot) const {
  struct {
    uint32_t lock, pad;
    hr_node_window window;
  } at{};
  HEDGEROW_CHECK(bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.windows), &slot, &at) == 0);
  return at.window;
}

void BpfKernel::SetMember(uint32_t slot, const hr_node_peer& peer) {
  const int fd = bpf_map__fd(skeleton_->maps.members);
  HEDGEROW_CHECK(slot < HR_NODE_MEMBERS && bpf_map_update_elem(fd, &slot, &peer, BPF_ANY) == 0);
  const bool reachable = peer.node != 0 && peer.node != options_.self && (peer.flags & HR_NODE_PEER_MAC) != 0;
  reachable_ = reachable ? reachable_ | 1u << slot : reachable_ & ~(1u << slot);
}

void BpfKernel::SetXdpHook(const hr_node_hook& hook) {
  const uint32_t zero = 0;
  HEDGEROW_CHECK(bpf_map_update_elem(bpf_map__fd(skeleton_->maps.xdp_hook), &zero, &hook, BPF_ANY) == 0);
}

hr_node_peer BpfKernel::Member(uint32_t slot) const {
  hr_node_peer peer{};
  HEDGEROW_CHECK(bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.members), &slot, &peer) == 0);
  return peer;
}

uint64_t BpfKernel::DrawPacketNumber() { return AddOne(&numbers_->packet_number); }
uint64_t BpfKernel::DrawAnnounceSequence() { return AddOne(&numbers_->announce_sequence); }

hr_node_stats BpfKernel::Counters() const {
  const int cpus = libbpf_num_possible_cpus();
  if (cpus <= 0) return {};  // /sys cannot be read: libbpf asks again the next time
  std::vector<hr_node_stats> values(static_cast<size_t>(cpus));
  const uint32_t zero = 0;
  HEDGEROW_CHECK(bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.node_stats), &zero, values.data()) == 0);
  hr_node_stats sum{};
  for (const hr_node_stats& value : values)
    for (int i = 0; i < HR_NODE_EVENT_COUNT; ++i) sum.events[i] += value.events[i];
  return sum;
}

}  // namespace hedgerow::offload
