// SPDX-License-Identifier: Apache-2.0
//
// Create() loads the object, completes its maps, and pins everything; then both it and Open() work with what is pinned.
#include "steer/kernel_group.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bpf/steer/bucket.h"
#include "net/bpf_log.h"
#include "net/mapped.h"
#include "net/unique_fd.h"
#include "net/wait_for_programs.h"
#include "steer.skel.h"
#include "steer/kernel_pins.h"

namespace hedgerow::steer {
namespace {

constexpr char kConfigPin[] = "config";
constexpr uint32_t kZero = 0;

const char* NameOf(Transport transport) { return transport == Transport::kUdp ? "UDP" : "TCP"; }

struct SkeletonCloser {
  void operator()(steer_bpf* skeleton) const { steer_bpf__destroy(skeleton); }
};
using Skeleton = std::unique_ptr<steer_bpf, SkeletonCloser>;

absl::StatusOr<Skeleton> OpenSkeleton() {
  net::KeepBpfLog();
  Skeleton skeleton(steer_bpf__open());
  if (skeleton == nullptr) return net::BpfLoadError(errno);
  return skeleton;
}

// libbpf calls the map of constants by a part of the object's name and a dot, which a bpffs does not take.
std::string PinOf(const steer_bpf& skeleton, const bpf_map* map) {
  return map == skeleton.maps.rodata ? kConfigPin : bpf_map__name(map);
}

// An array's value of 4 bytes, as it lies in memory: the kernel rounds it up to 8.
struct TableElement {
  uint32_t word;
  uint32_t pad;
};

// One element of a per-CPU array, summed. T consists of 64-bit counters.
template <typename T>
absl::Status AddPerCpu(int map, uint32_t index, T& sum) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  const int cpus = libbpf_num_possible_cpus();
  if (cpus <= 0) return absl::InternalError("cannot learn the number of CPUs");
  std::vector<T> values(static_cast<size_t>(cpus));
  if (bpf_map_lookup_elem(map, &index, values.data()) != 0) return absl::ErrnoToStatus(errno, "reading counters");
  auto* const words = reinterpret_cast<uint64_t*>(&sum);
  for (const T& value : values) {
    const auto* const added = reinterpret_cast<const uint64_t*>(&value);
    for (size_t i = 0; i < sizeof(T) / sizeof(uint64_t); ++i) words[i] += added[i];
  }
  return absl::OkStatus();
}

absl::Status CheckSpec(const GroupSpec& spec) {
  const hr_steer_config& config = spec.config;
  if (config.ipv6_prefix < 1 || config.ipv6_prefix > 128)
    return absl::InvalidArgumentError(absl::StrCat("an IPv6 prefix has 1 to 128 bits, not ", config.ipv6_prefix));
  if (config.field_bytes > 16) return absl::InvalidArgumentError(absl::StrCat("a gateway's field has at most 16 bytes, not ", config.field_bytes));
  if (config.field_bytes != 0 && config.field_offset > 0xffff)
    return absl::InvalidArgumentError(absl::StrCat("no datagram has a field at offset ", config.field_offset));
  if (spec.devices.size() > HR_STEER_DEVICES)
    return absl::ResourceExhaustedError(absl::StrCat(spec.devices.size(), " networks with a device id, and a group has at most ", HR_STEER_DEVICES));
  std::set<std::tuple<uint32_t, uint32_t, uint64_t, uint64_t>> networks;
  for (const Device& device : spec.devices) {
    const uint32_t bits = device.network.prefix_bits - 32;
    if ((device.network.family != 4 || bits > 32) && (device.network.family != 6 || bits > 128))
      return absl::InvalidArgumentError(absl::StrCat("the network of device ", device.device.id, " is neither IPv4 nor IPv6"));
    __u64 words[2] = {device.network.words[0], device.network.words[1]};
    hr_steer_cut(words, bits);
    // A trie would take the last one without a word.
    if (!networks.emplace(device.network.family, bits, words[0], words[1]).second)
      return absl::InvalidArgumentError(absl::StrCat("the network of device ", device.device.id, " is there twice"));
  }
  for (const hr_steer_entry& entry : spec.table) {
    if (entry.slot >= HR_STEER_SLOTS || entry.other_slot >= HR_STEER_SLOTS || entry.empty > HR_STEER_OTHER)
      return absl::InvalidArgumentError(absl::StrCat("the table names slot ", entry.slot, " or ", entry.other_slot, ", and slots end at ", HR_STEER_SLOTS - 1));
  }
  return absl::OkStatus();
}

absl::Status FillMaps(const steer_bpf& skeleton, const GroupSpec& spec) {
  for (uint32_t bucket = 0; bucket < HR_STEER_BUCKETS; ++bucket) {
    if (bpf_map_update_elem(bpf_map__fd(skeleton.maps.steer_table), &bucket, &spec.table[bucket], BPF_ANY) != 0)
      return absl::ErrnoToStatus(errno, "writing the table");
  }
  const int devices = bpf_map__fd(skeleton.maps.steer_devices);
  for (const Device& device : spec.devices) {
    if (bpf_map_update_elem(devices, &device.network, &device.device, BPF_ANY) != 0) return absl::ErrnoToStatus(errno, "writing the devices");
  }
  if (bpf_map_freeze(devices) != 0) return absl::ErrnoToStatus(errno, "freezing the devices");
  return absl::OkStatus();
}

absl::Status PinAll(const steer_bpf& skeleton, const std::string& folder) {
  const auto pin = [&](int fd, const std::string& name) {
    const std::string path = absl::StrCat(folder, "/", name);
    return bpf_obj_pin(fd, path.c_str()) == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, absl::StrCat("pinning ", path));
  };
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton.obj) {
    if (absl::Status status = pin(bpf_map__fd(map), PinOf(skeleton, map)); !status.ok()) return status;
  }
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton.obj) {
    if (absl::Status status = pin(bpf_program__fd(program), bpf_program__name(program)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<net::UniqueFd> OpenPin(const std::string& folder, const std::string& pin) {
  net::UniqueFd fd(bpf_obj_get(absl::StrCat(folder, "/", pin).c_str()));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("opening the pin ", folder, "/", pin));
  return fd;
}

absl::Status OtherLayout(const std::string& folder, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(folder, " was made by another build of hedgerow-steer: ", what,
                                                    ". Stop the group with that build, or remove it (hedgerow steer clean)"));
}

// A map of the folder, if it is what this build's programs work with.
absl::StatusOr<net::UniqueFd> OpenMap(const steer_bpf& skeleton, const bpf_map* map, const std::string& folder) {
  const std::string pin = PinOf(skeleton, map);
  auto fd = OpenPin(folder, pin);
  if (absl::IsNotFound(fd.status())) return OtherLayout(folder, absl::StrCat("it has no ", pin));
  if (!fd.ok()) return fd.status();
  bpf_map_info info{};
  uint32_t bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd->get(), &info, &bytes) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("looking at ", folder, "/", pin));
  if (info.type != bpf_map__type(map) || info.key_size != bpf_map__key_size(map) || info.value_size != bpf_map__value_size(map) ||
      info.max_entries != bpf_map__max_entries(map)) {
    return OtherLayout(folder, absl::StrCat(pin, " has another shape"));
  }
  return fd;
}

// Of the constants. The layout is their first word in every build.
absl::StatusOr<hr_steer_config> ReadConfig(const std::string& folder, const net::UniqueFd& map) {
  bpf_map_info info{};
  uint32_t bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(map.get(), &info, &bytes) != 0) return absl::ErrnoToStatus(errno, "looking at the constants");
  std::vector<char> value(std::max<size_t>(info.value_size, sizeof(hr_steer_config)));
  if (bpf_map_lookup_elem(map.get(), &kZero, value.data()) != 0) return absl::ErrnoToStatus(errno, "reading the constants");
  hr_steer_config config{};
  memcpy(&config, value.data(), sizeof(config));
  if (config.layout != HR_STEER_LAYOUT)
    return OtherLayout(folder, absl::StrCat("its layout is ", config.layout, ", and this build's is ", HR_STEER_LAYOUT));
  return config;
}

struct Program {
  net::UniqueFd fd{};
  uint32_t id = 0;
};

absl::StatusOr<Program> OpenProgram(const std::string& folder, const bpf_program* program) {
  const std::string pin = bpf_program__name(program);
  auto fd = OpenPin(folder, pin);
  if (absl::IsNotFound(fd.status())) return OtherLayout(folder, absl::StrCat("it has no ", pin));
  if (!fd.ok()) return fd.status();
  bpf_prog_info info{};
  uint32_t bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd->get(), &info, &bytes) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("looking at ", folder, "/", pin));
  if (info.type != bpf_program__type(program)) return OtherLayout(folder, absl::StrCat(pin, " is a program of another kind"));
  return Program{*std::move(fd), info.id};
}

class PinnedGroup : public KernelGroup {
 public:
  static absl::StatusOr<std::unique_ptr<KernelGroup>> Open(const std::string& folder) {
    auto group = std::unique_ptr<PinnedGroup>(new PinnedGroup());
    if (absl::Status status = group->OpenAll(folder); !status.ok()) return status;
    return std::unique_ptr<KernelGroup>(std::move(group));
  }

  const hr_steer_config& config() const override { return config_; }

  absl::StatusOr<std::vector<Device>> Devices() const override {
    std::vector<Device> devices;
    Device device;
    int error = bpf_map_get_next_key(devices_.get(), nullptr, &device.network);
    for (; error == 0; error = bpf_map_get_next_key(devices_.get(), &device.network, &device.network)) {
      if (bpf_map_lookup_elem(devices_.get(), &device.network, &device.device) != 0) return absl::ErrnoToStatus(errno, "reading the devices");
      devices.push_back(device);
    }
    if (errno != ENOENT) return absl::ErrnoToStatus(errno, "reading the devices");
    return devices;
  }

  absl::Status Attach(Transport transport, int socket) override {
    const int fd = OfTransport(programs_, transport).fd.get();
    if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &fd, sizeof(fd)) == 0) return absl::OkStatus();
    const absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("attaching the program to a ", NameOf(transport), " socket"));
    return errno == EINVAL ? absl::InvalidArgumentError(absl::StrCat(std::string(status.message()), ": it needs SO_REUSEPORT first")) : status;
  }

  absl::Status Insert(Transport transport, int slot, int socket) override {
    int protocol = 0;
    socklen_t bytes = sizeof(protocol);
    if (absl::Status status = CheckSlot(slot); !status.ok()) return status;
    if (getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) != 0) return absl::ErrnoToStatus(errno, "looking at a socket");
    if (protocol != (transport == Transport::kUdp ? IPPROTO_UDP : IPPROTO_TCP))
      return absl::InvalidArgumentError(absl::StrCat("slot ", slot, ": not a ", NameOf(transport), " socket"));
    const auto key = static_cast<uint32_t>(slot);
    const uint64_t value = static_cast<uint64_t>(socket);
    if (bpf_map_update_elem(OfTransport(sockets_, transport).get(), &key, &value, BPF_NOEXIST) == 0) return absl::OkStatus();
    const std::string where = absl::StrCat("slot ", slot, ": ");
    switch (errno) {
      case EEXIST:
        return absl::AlreadyExistsError(absl::StrCat(where, "it has a ", NameOf(transport), " socket already"));
      case EBUSY:
        return absl::FailedPreconditionError(absl::StrCat(where, "the ", NameOf(transport), " socket is in a group's array already"));
      case EINVAL:
        return absl::InvalidArgumentError(absl::StrCat(
            where, transport == Transport::kUdp ? "the UDP socket is not bound" : "the TCP socket does not listen", ", or is without SO_REUSEPORT"));
      default:
        return absl::ErrnoToStatus(errno, absl::StrCat(where, "inserting a ", NameOf(transport), " socket"));
    }
  }

  absl::Status Remove(Transport transport, int slot) override {
    if (absl::Status status = CheckSlot(slot); !status.ok()) return status;
    const auto key = static_cast<uint32_t>(slot);
    if (bpf_map_delete_elem(OfTransport(sockets_, transport).get(), &key) == 0 || errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("slot ", slot, ": removing its ", NameOf(transport), " socket"));
  }

  absl::StatusOr<bool> HasSocket(Transport transport, int slot) const override {
    if (absl::Status status = CheckSlot(slot); !status.ok()) return status;
    const auto key = static_cast<uint32_t>(slot);
    uint64_t cookie = 0;
    if (bpf_map_lookup_elem(OfTransport(sockets_, transport).get(), &key, &cookie) == 0) return true;
    if (errno == ENOENT) return false;
    return absl::ErrnoToStatus(errno, absl::StrCat("slot ", slot, ": looking for its ", NameOf(transport), " socket"));
  }

  // Stores of a word each: an update by bpf(2) copies bytes, of which a program could see some.
  absl::Status WriteTable(const std::array<hr_steer_entry, HR_STEER_BUCKETS>& table) override {
    GroupSpec spec;
    spec.config = config_;
    spec.table = table;
    if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
    for (uint32_t bucket = 0; bucket < HR_STEER_BUCKETS; ++bucket) table_.At(bucket)->word = table[bucket].word;
    return absl::OkStatus();
  }

  absl::StatusOr<std::array<hr_steer_entry, HR_STEER_BUCKETS>> ReadTable() const override {
    std::array<hr_steer_entry, HR_STEER_BUCKETS> table{};
    for (uint32_t bucket = 0; bucket < HR_STEER_BUCKETS; ++bucket) table[bucket].word = table_.At(bucket)->word;
    return table;
  }

  absl::Status SetRecording(bool on) override {
    if (absl::Status status = WaitWhereFreed(); !status.ok()) return status;
    if (on) state_->has_pins = 1;
    state_->recording = on ? 1 : 0;
    if (absl::Status status = net::WaitForPrograms(); !status.ok()) return status;
    if (!on) LookForPins();
    return absl::OkStatus();
  }

  absl::Status Pin(const hr_steer_source& source, uint8_t slot) override {
    const uint32_t value = slot;
    uint32_t present = 0;
    if (absl::Status status = CheckSlot(slot); !status.ok()) return status;
    const bool known = bpf_map_lookup_elem(pins_.get(), &source, &present) == 0;
    if (!known || present != value) {
      if (absl::Status status = WaitWhereFreed(); !status.ok()) return status;
      if (bpf_map_update_elem(pins_.get(), &source, &value, BPF_ANY) != 0) {
        if (errno == E2BIG || errno == ENOMEM)
          return absl::ResourceExhaustedError(absl::StrCat("no place for more than ", HR_STEER_PINS, " sources that stay with their connections"));
        return absl::ErrnoToStatus(errno, "pinning a source");
      }
      freed_ = freed_ || known;
    }
    state_->has_pins = 1;
    return absl::OkStatus();
  }

  absl::Status Unpin(const hr_steer_source& source) override {
    if (bpf_map_delete_elem(pins_.get(), &source) == 0) {
      freed_ = true;
    } else if (errno != ENOENT) {
      return absl::ErrnoToStatus(errno, "unpinning a source");
    }
    LookForPins();
    return absl::OkStatus();
  }

  // Programs may insert meanwhile, and a key that is deleted under the iteration would begin it anew; so a bound.
  absl::StatusOr<std::vector<std::pair<hr_steer_source, uint8_t>>> Pins() const override {
    std::vector<std::pair<hr_steer_source, uint8_t>> pins;
    hr_steer_source source{};
    int error = bpf_map_get_next_key(pins_.get(), nullptr, &source);
    for (int i = 0; error == 0 && i < 2 * HR_STEER_PINS; ++i) {
      uint32_t slot = 0;
      if (bpf_map_lookup_elem(pins_.get(), &source, &slot) == 0) pins.emplace_back(source, static_cast<uint8_t>(slot));
      error = bpf_map_get_next_key(pins_.get(), &source, &source);
    }
    if (error != 0 && errno != ENOENT) return absl::ErrnoToStatus(errno, "reading the sources that stay with their connections");
    return pins;
  }

  absl::StatusOr<GroupCounts> Counts() const override {
    GroupCounts counts;
    counts.slots.resize(HR_STEER_SLOTS);
    counts.buckets.resize(HR_STEER_BUCKETS);
    absl::Status status = AddPerCpu(counts_.get(), 0, counts.all);
    for (uint32_t slot = 0; status.ok() && slot < HR_STEER_SLOTS; ++slot) status = AddPerCpu(slot_counts_.get(), slot, counts.slots[slot]);
    for (uint32_t bucket = 0; status.ok() && bucket < HR_STEER_BUCKETS; ++bucket)
      status = AddPerCpu(bucket_counts_.get(), bucket, counts.buckets[bucket]);
    if (!status.ok()) return status;
    return counts;
  }

  absl::StatusOr<uint32_t> ProgramOf(int socket) const override {
    struct stat info {};
    if (fstat(socket, &info) != 0) return absl::ErrnoToStatus(errno, "looking at a socket");
    if (!S_ISSOCK(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat("descriptor ", socket, " is no socket"));
    const uint64_t arguments[1] = {static_cast<uint64_t>(socket)};
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = arguments, .ctx_size_in = sizeof(arguments));
    if (bpf_prog_test_run_opts(program_of_.fd.get(), &options) != 0) return absl::ErrnoToStatus(errno, "reading a socket's program");
    return options.retval;
  }

  uint32_t OwnProgram(Transport transport) const override { return OfTransport(programs_, transport).id; }

 private:
  PinnedGroup() = default;

  template <typename T>
  static const T& OfTransport(const std::array<T, 2>& both, Transport transport) {
    return both[transport == Transport::kUdp ? 0 : 1];
  }

  // The sink's place is one of them.
  static absl::Status CheckSlot(int slot) {
    if (slot >= 0 && slot < HR_STEER_SOCKETS) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("slot ", slot, " of ", HR_STEER_SLOTS));
  }

  absl::Status OpenAll(const std::string& folder) {
    const auto skeleton = OpenSkeleton();
    if (!skeleton.ok()) return skeleton.status();
    auto config = OpenPin(folder, kConfigPin);
    if (absl::IsNotFound(config.status())) return OtherLayout(folder, "it has no constants");
    if (!config.ok()) return config.status();
    const auto constants = ReadConfig(folder, *config);
    if (!constants.ok()) return constants.status();
    config_ = *constants;

    const auto& maps = (*skeleton)->maps;
    net::UniqueFd table, state, rodata;
    for (const auto& [map, fd] :
         {std::pair(maps.steer_udp_sockets, &sockets_[0]), std::pair(maps.steer_tcp_sockets, &sockets_[1]), std::pair(maps.steer_table, &table),
          std::pair(maps.steer_state, &state), std::pair(maps.steer_devices, &devices_), std::pair(maps.steer_pins, &pins_),
          std::pair(maps.steer_slot_counts, &slot_counts_), std::pair(maps.steer_bucket_counts, &bucket_counts_),
          std::pair(maps.steer_counts, &counts_), std::pair(maps.rodata, &rodata)}) {
      auto opened = OpenMap(**skeleton, map, folder);
      if (!opened.ok()) return opened.status();
      *fd = *std::move(opened);
    }
    const auto& progs = (*skeleton)->progs;
    for (const auto& [program, pinned] : {std::pair(progs.hr_steer_udp, &programs_[0]), std::pair(progs.hr_steer_tcp, &programs_[1]),
                                          std::pair(progs.hr_steer_program_of, &program_of_)}) {
      auto opened = OpenProgram(folder, program);
      if (!opened.ok()) return opened.status();
      *pinned = *std::move(opened);
    }
    auto mapped_table = net::Mapped<TableElement>::Open(table.get(), HR_STEER_BUCKETS);
    if (!mapped_table.ok()) return mapped_table.status();
    table_ = *std::move(mapped_table);
    auto mapped_state = net::Mapped<hr_steer_state>::Open(state.get(), 1);
    if (!mapped_state.ok()) return mapped_state.status();
    state_ = *std::move(mapped_state);
    return absl::OkStatus();
  }

  // An element that the hash map has given up is used by its next insertion, while a program that has found it may still read it.
  absl::Status WaitWhereFreed() {
    if (!freed_) return absl::OkStatus();
    const absl::Status status = net::WaitForPrograms();
    freed_ = !status.ok();
    return status;
  }

  // Packets pay for pins only while there are any.
  void LookForPins() {
    hr_steer_source source{};
    if (state_->recording != 0) return;
    state_->has_pins = bpf_map_get_next_key(pins_.get(), nullptr, &source) == 0 ? 1 : 0;
  }

  hr_steer_config config_{};
  std::array<net::UniqueFd, 2> sockets_{};
  std::array<Program, 2> programs_{};
  Program program_of_{};
  net::UniqueFd devices_, pins_, slot_counts_, bucket_counts_, counts_;
  net::Mapped<TableElement> table_{};
  net::Mapped<hr_steer_state> state_{};
  bool freed_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelGroup>> KernelGroup::Create(const std::string& bpffs, const std::string& name, const GroupSpec& spec) {
  if (absl::Status status = CheckGroupName(name); !status.ok()) return status;
  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
  const auto skeleton = OpenSkeleton();
  if (!skeleton.ok()) return skeleton.status();
  hr_steer_config& constants = (*skeleton)->rodata->steer_config;
  constants = spec.config;
  constants.layout = HR_STEER_LAYOUT;
  constants.has_devices = spec.devices.empty() ? 0 : 1;
  const absl::Status made = MakeGroupPins(bpffs, name, [&](const std::string& folder) {
    if (const int error = steer_bpf__load(skeleton->get()); error != 0) return net::BpfLoadError(-error);
    if (absl::Status status = FillMaps(**skeleton, spec); !status.ok()) return status;
    return PinAll(**skeleton, folder);
  });
  if (!made.ok()) return made;
  return PinnedGroup::Open(GroupPinDir(bpffs, name));
}

absl::StatusOr<std::unique_ptr<KernelGroup>> KernelGroup::Open(const std::string& bpffs, const std::string& name) {
  if (absl::Status status = CheckGroupName(name); !status.ok()) return status;
  const std::string folder = GroupPinDir(bpffs, name);
  if (access(folder.c_str(), F_OK) != 0) {
    return errno == ENOENT ? absl::NotFoundError(absl::StrCat("there is no group '", name, "' below ", bpffs))
                           : absl::ErrnoToStatus(errno, absl::StrCat("looking at ", folder));
  }
  return PinnedGroup::Open(folder);
}

absl::Status KernelGroup::Remove(const std::string& bpffs, const std::string& name) { return RemoveGroupPins(bpffs, name); }

}  // namespace hedgerow::steer
