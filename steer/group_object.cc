// SPDX-License-Identifier: Apache-2.0
#include "steer/group_object.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "net/bpf_log.h"
#include "net/bpffs.h"
#include "steer.skel.h"

namespace hedgerow::steer {
namespace {

constexpr char kConfigPin[] = "config";
constexpr uint32_t kZero = 0;

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

absl::Status FillMaps(const steer_bpf& skeleton, const GroupSpec& spec) {
  for (uint32_t bucket = 0; bucket < HR_STEER_BUCKETS; ++bucket) {
    if (bpf_map_update_elem(bpf_map__fd(skeleton.maps.steer_table), &bucket, &spec.table[bucket], BPF_ANY) != 0)
      return absl::ErrnoToStatus(errno, "writing the table");
  }
  const int devices = bpf_map__fd(skeleton.maps.steer_devices);
  for (const Device& device : spec.devices) {
    if (bpf_map_update_elem(devices, &device.network, &device.device, BPF_ANY) != 0)
      return absl::ErrnoToStatus(errno, "writing the devices");
  }
  if (bpf_map_freeze(devices) != 0) return absl::ErrnoToStatus(errno, "freezing the devices");
  return absl::OkStatus();
}

absl::Status PinAll(const steer_bpf& skeleton, const std::string& folder) {
  const auto pin = [&](int fd, const std::string& name) {
    const std::string path = absl::StrCat(folder, "/", name);
    return bpf_obj_pin(fd, path.c_str()) == 0 ? absl::OkStatus()
                                              : absl::ErrnoToStatus(errno, absl::StrCat("pinning ", path));
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

absl::Status OtherLayout(const std::string& folder, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat(folder, " was made by another build of hedgerow-steer: ", what, ". `hedgerow steer clean --name ",
                   folder.substr(folder.rfind('/') + 1),
                   "` ends its workers, but no adopted daemon, and removes it; the next start makes it anew"));
}

// What is pinned, with the kernel's information about it.
template <typename Info>
absl::StatusOr<net::UniqueFd> OpenPin(const std::string& folder, const std::string& pin, Info& info) {
  const std::string path = absl::StrCat(folder, "/", pin);
  net::UniqueFd fd(bpf_obj_get(path.c_str()));
  uint32_t bytes = sizeof(info);
  if (!fd.valid() && errno == ENOENT) return OtherLayout(folder, absl::StrCat("it has no ", pin));
  if (!fd.valid() || bpf_obj_get_info_by_fd(fd.get(), &info, &bytes) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("opening the pin ", path));
  return fd;
}

// A map of the folder, if it is what this build's programs work with.
absl::StatusOr<net::UniqueFd> OpenMap(const steer_bpf& skeleton, const bpf_map* map, const std::string& folder) {
  const std::string pin = PinOf(skeleton, map);
  bpf_map_info info{};
  auto fd = OpenPin(folder, pin, info);
  if (fd.ok() && (info.type != bpf_map__type(map) || info.key_size != bpf_map__key_size(map) ||
                  info.value_size != bpf_map__value_size(map) || info.max_entries != bpf_map__max_entries(map)))
    return OtherLayout(folder, absl::StrCat(pin, " has another shape"));
  return fd;
}

// The constants. The layout is their first word in every build.
absl::StatusOr<hr_steer_config> ReadConfig(const std::string& folder) {
  bpf_map_info info{};
  const auto map = OpenPin(folder, kConfigPin, info);
  if (!map.ok()) return map.status();
  std::vector<char> value(std::max<size_t>(info.value_size, sizeof(hr_steer_config)));
  if (bpf_map_lookup_elem(map->get(), &kZero, value.data()) != 0)
    return absl::ErrnoToStatus(errno, "reading the constants");
  hr_steer_config config{};
  memcpy(&config, value.data(), sizeof(config));
  if (config.layout != HR_STEER_LAYOUT)
    return OtherLayout(folder,
                       absl::StrCat("its layout is ", config.layout, ", and this build's is ", HR_STEER_LAYOUT));
  return config;
}

absl::StatusOr<Program> OpenProgram(const std::string& folder, const bpf_program* program) {
  bpf_prog_info info{};
  auto fd = OpenPin(folder, bpf_program__name(program), info);
  if (!fd.ok()) return fd.status();
  if (info.type != bpf_program__type(program))
    return OtherLayout(folder, absl::StrCat(bpf_program__name(program), " is a program of another kind"));
  return Program{*std::move(fd), info.id};
}

constexpr size_t kMaxName = 64;
constexpr int kLockTries = 10;

std::string Parent(const std::string& bpffs) { return absl::StrCat(bpffs, "/hedgerow-steer"); }

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error && error != std::errc::no_such_file_or_directory)
    return absl::ErrnoToStatus(error.value(), absl::StrCat("removing ", path));
  return absl::OkStatus();
}

// The parent folder, locked: only one process at a time makes or removes groups. A folder that the holder
// before us removed is made anew.
absl::StatusOr<net::UniqueFd> LockParent(const std::string& parent) {
  for (int attempt = 0; attempt < kLockTries; ++attempt) {
    if (mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST)
      return absl::ErrnoToStatus(errno, absl::StrCat("making ", parent));
    net::UniqueFd fd(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() && errno == ENOENT) continue;
    if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", parent));
    if (absl::Status status = net::CheckPinFolder(parent); !status.ok()) return status;
    if (flock(fd.get(), LOCK_EX) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("locking ", parent));
    struct stat locked {
    }, there{};
    if (fstat(fd.get(), &locked) == 0 && stat(parent.c_str(), &there) == 0 && locked.st_ino == there.st_ino) return fd;
  }
  return absl::UnavailableError(absl::StrCat(parent, ": other processes make and remove it all the time"));
}

}  // namespace

absl::Status LoadAndPinGroup(const GroupSpec& spec, const std::string& folder) {
  const auto skeleton = OpenSkeleton();
  if (!skeleton.ok()) return skeleton.status();
  hr_steer_config& constants = (*skeleton)->rodata->steer_config;
  constants = spec.config;
  constants.layout = HR_STEER_LAYOUT;
  constants.has_devices = spec.devices.empty() ? 0 : 1;
  if (spec.config.openers == 0) bpf_map__set_max_entries((*skeleton)->maps.steer_flows, 1);
  if (const int error = steer_bpf__load(skeleton->get()); error != 0) return net::BpfLoadError(-error);
  if (absl::Status status = FillMaps(**skeleton, spec); !status.ok()) return status;
  return PinAll(**skeleton, folder);
}

absl::StatusOr<GroupObject> OpenGroupObject(const std::string& folder) {
  GroupObject group;
  const auto skeleton = OpenSkeleton();
  if (!skeleton.ok()) return skeleton.status();
  const auto constants = ReadConfig(folder);
  if (!constants.ok()) return constants.status();
  group.config = *constants;

  const auto& maps = (*skeleton)->maps;
  for (const auto& [map, fd] :
       {std::pair(maps.steer_udp_sockets, &group.sockets[0]), std::pair(maps.steer_tcp_sockets, &group.sockets[1]),
        std::pair(maps.steer_table, &group.table), std::pair(maps.steer_state, &group.state),
        std::pair(maps.steer_devices, &group.devices), std::pair(maps.steer_pins, &group.pins),
        std::pair(maps.steer_slot_counts, &group.slot_counts), std::pair(maps.steer_counts, &group.counts)}) {
    auto opened = OpenMap(**skeleton, map, folder);
    if (!opened.ok()) return opened.status();
    *fd = *std::move(opened);
  }
  const auto& progs = (*skeleton)->progs;
  for (const auto& [program, pinned] :
       {std::pair(progs.hr_steer_udp, &group.programs[0]), std::pair(progs.hr_steer_tcp, &group.programs[1]),
        std::pair(progs.hr_steer_program_of, &group.program_of)}) {
    auto opened = OpenProgram(folder, program);
    if (!opened.ok()) return opened.status();
    *pinned = *std::move(opened);
  }
  if (group.config.openers == 0) return group;
  auto flows = OpenMap(**skeleton, maps.steer_flows, folder);
  if (!flows.ok()) return flows.status();
  group.flows = *std::move(flows);
  return group;
}

absl::Status CheckGroupName(const std::string& name) {
  const bool known = std::all_of(name.begin(), name.end(),
                                 [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
  if (!name.empty() && name.size() <= kMaxName && known) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no name of a group: letters, digits, '-' and '_', at most ", kMaxName, " of them"));
}

std::string GroupPinDir(const std::string& bpffs, const std::string& name) {
  return absl::StrCat(Parent(bpffs), "/", name);
}

absl::Status MakeGroupPins(const std::string& bpffs, const std::string& name,
                           const std::function<absl::Status(const std::string&)>& pin) {
  if (const auto mounted = net::EnsureBpffs(bpffs); !mounted.ok()) return mounted.status();
  const auto lock = LockParent(Parent(bpffs));
  if (!lock.ok()) return lock.status();
  const std::string path = GroupPinDir(bpffs, name);
  const std::string unfinished = absl::StrCat(path, "+");  // no group has such a name
  if (access(path.c_str(), F_OK) == 0)
    return absl::AlreadyExistsError(absl::StrCat("the group '", name, "' has pins in ", path));
  absl::Status status = RemoveTree(unfinished);
  if (status.ok() && mkdir(unfinished.c_str(), 0700) != 0)
    status = absl::ErrnoToStatus(errno, absl::StrCat("making ", unfinished));
  if (status.ok()) status = pin(unfinished);
  if (status.ok() && rename(unfinished.c_str(), path.c_str()) != 0)
    status = absl::ErrnoToStatus(errno, absl::StrCat("making ", path));
  if (status.ok()) return status;
  RemoveTree(unfinished).IgnoreError();
  rmdir(Parent(bpffs).c_str());  // fails while another group is there, and shall
  net::ReleaseBpffs(bpffs).IgnoreError();
  return status;
}

absl::Status RemoveGroupPins(const std::string& bpffs, const std::string& name) {
  if (absl::Status status = CheckGroupName(name); !status.ok()) return status;
  if (access(Parent(bpffs).c_str(), F_OK) != 0) return absl::OkStatus();
  {
    const auto lock = LockParent(Parent(bpffs));
    if (!lock.ok()) return lock.status();
    // Unfinished again first: the next start must find no half of a group where this is cut short.
    const std::string path = GroupPinDir(bpffs, name), unfinished = absl::StrCat(path, "+");
    absl::Status status = RemoveTree(unfinished);
    if (status.ok() && rename(path.c_str(), unfinished.c_str()) != 0 && errno != ENOENT)
      status = absl::ErrnoToStatus(errno, absl::StrCat("removing ", path));
    if (status.ok()) status = RemoveTree(unfinished);
    if (!status.ok()) return status;
    rmdir(Parent(bpffs).c_str());
  }
  return net::ReleaseBpffs(bpffs).status();
}

}  // namespace hedgerow::steer
