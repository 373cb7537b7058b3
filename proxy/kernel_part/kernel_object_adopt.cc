// SPDX-License-Identifier: Apache-2.0
//
// KernelObject's life beyond its process: pinning, and taking over what is pinned. The maps hold all that
// requests in flight need; programs of another build may take the old ones' place on them as long as each map
// has the layout that they would have made. A map that only the newer build has is made anew; see
// docs/adr/0011.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "net/fnv.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "proxy/kernel_part/kernel_object.h"
#include "proxy/kernel_part/map_layout.h"
#include "proxy.skel.h"

namespace hedgerow {
namespace {

std::string MapPath(const std::string& folder, const bpf_map* map) {
  // A bpffs takes no dots, which libbpf's own names (".data.live") have.
  return absl::StrCat(folder, "/map-", absl::StrReplaceAll(bpf_map__name(map), {{".", "_"}}));
}

// The programs' constants, which libbpf keeps in a map as well, belong to the programs; their variables do not.
bool IsShared(const bpf_map* map) {
  return !bpf_map__is_internal(map) || absl::string_view(bpf_map__name(map)).find(".rodata") == absl::string_view::npos;
}

absl::StatusOr<bpf_map_info> InfoOf(int fd, absl::string_view what) {
  bpf_map_info info{};
  uint32_t bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0) return info;
  return absl::ErrnoToStatus(errno, absl::StrCat("describing ", std::string(what)));
}

absl::Status CannotTakeOver(absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("the kernel part that runs cannot be taken over: ", std::string(why)));
}

}  // namespace

uint64_t KernelObject::Build() {
  size_t bytes = 0;
  const void* object = proxy_bpf__elf_bytes(&bytes);
  return net::Fnv1a64(absl::string_view(static_cast<const char*>(object), bytes));
}

// Before anything is taken over: a reused map's type numbers are of the BTF that it was made with.
void KernelObject::NoteLayouts() {
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton_->obj) {
    if (IsShared(map)) layouts_[bpf_map__name(map)] = MapLayout(bpf_object__btf(skeleton_->obj), map);
  }
}

int KernelObject::ProgramFd(const bpf_program* program) const {
  const auto adopted = adopted_programs_.find(bpf_program__name(program));
  return adopted == adopted_programs_.end() ? bpf_program__fd(program) : adopted->second.get();
}

std::string KernelObject::LoadConfigBytes() const {
  const auto* config = &skeleton_->rodata->load_config;
  return std::string(reinterpret_cast<const char*>(config), sizeof(*config));
}

std::set<uint32_t> KernelObject::AwaitedPorts(const std::string& load_config) {
  std::set<uint32_t> ports;
  hr_load_config config{};
  memcpy(&config, load_config.data(),
         std::min(sizeof(config), load_config.size()));  // another build's may end earlier or later
  for (const uint16_t port_be : config.announce_ports_be)
    if (port_be != 0) ports.insert(ntohs(port_be));
  return ports;
}

absl::StatusOr<std::unique_ptr<KernelObject>> KernelObject::Adopt(const DataPlaneSpec& spec, const std::string& folder,
                                                                  const std::string& program_folder,
                                                                  const v1::KernelRecord& pinned) {
  if (pinned.abi_version() != HR_ABI_VERSION) {
    return CannotTakeOver(
        absl::StrCat("its maps are of layout ", pinned.abi_version(), ", this build's of layout ", HR_ABI_VERSION));
  }
  auto opened = Open(spec);
  if (!opened.ok()) return opened.status();
  KernelObject& object = **opened;
  // Where a request stands in the scoreboard depends on it.
  auto& config = object.skeleton_->rodata->load_config;
  config.hash_seed = pinned.hash_seed();
  // Of the first configuration: since then a reload may have changed the smallest delay, which stands in the
  // wheel by now, and announcements are awaited on the same ports as long as the present one needs no other.
  if (!pinned.load_config().empty()) {
    hr_load_config before = config;  // another build's may end earlier or later
    memcpy(&before, pinned.load_config().data(), std::min(sizeof(before), pinned.load_config().size()));
    config.min_delay_ns = before.min_delay_ns;
    config.clock_tag = before.clock_tag;  // the clock packet that circulates bears it
    config.self_test_tag = before.self_test_tag;
    const std::set<uint32_t> needed = AwaitedPorts(object.LoadConfigBytes());
    const std::set<uint32_t> awaited = AwaitedPorts(pinned.load_config());
    if (std::includes(awaited.begin(), awaited.end(), needed.begin(), needed.end()))
      memcpy(&config.announce_ports_be, &before.announce_ports_be, sizeof(before.announce_ports_be));
  }
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, object.skeleton_->obj) {
    if (!IsShared(map)) continue;
    if (absl::Status status = object.TakeMap(map, folder, pinned); !status.ok()) return status;
  }
  const bool same = pinned.build() == Build() && pinned.load_config() == object.LoadConfigBytes();
  if (!same || !object.TakePrograms(program_folder)) {
    if (absl::Status status = object.LoadPrograms(); !status.ok()) return status;
  }
  if (absl::Status status = object.MapMemory(); !status.ok()) return status;
  return opened;
}

absl::Status KernelObject::TakeMap(bpf_map* map, const std::string& folder, const v1::KernelRecord& pinned) {
  const std::string name = bpf_map__name(map);
  const auto known = std::find_if(pinned.maps().begin(), pinned.maps().end(),
                                  [&](const v1::PinnedMapRecord& each) { return each.name() == name; });
  if (known == pinned.maps().end()) return absl::OkStatus();  // it came with this build
  if (known->layout() != layouts_.at(name)) {
    return CannotTakeOver(absl::StrCat("its map ", name, " has another layout than this build's"));
  }
  const std::string path = MapPath(folder, map);
  const net::UniqueFd fd(bpf_obj_get(path.c_str()));
  if (!fd.valid()) return CannotTakeOver(absl::StrCat("its pin ", path, " cannot be opened: ", strerror(errno)));
  const auto info = InfoOf(fd.get(), path);
  if (!info.ok()) return info.status();
  if (info->id != known->id()) {
    return CannotTakeOver(
        absl::StrCat(path, " is another map than its programs use (number ", info->id, ", not ", known->id(), ")"));
  }
  const bool grows = map == skeleton_->maps.service_histograms || map == skeleton_->maps.backend_histograms;
  if (!grows && info->max_entries != bpf_map__max_entries(map)) {
    return CannotTakeOver(absl::StrCat("its map ", name, " has ", info->max_entries, " entries, this build's ",
                                       bpf_map__max_entries(map)));
  }
  if (bpf_map__reuse_fd(map, fd.get()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("taking over ", path));
  return absl::OkStatus();
}

// All of them or none: without its pins a program is loaded anew, which loses nothing.
bool KernelObject::TakePrograms(const std::string& program_folder) {
  std::map<std::string, net::UniqueFd> taken;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton_->obj) {
    const std::string name = bpf_program__name(program);
    net::UniqueFd fd(bpf_obj_get(absl::StrCat(program_folder, "/", name).c_str()));
    bpf_prog_info info{};
    uint32_t bytes = sizeof(info);
    if (!fd.valid() || bpf_obj_get_info_by_fd(fd.get(), &info, &bytes) != 0) return false;
    if (info.type != BPF_PROG_TYPE_SCHED_CLS || name.compare(0, sizeof(info.name) - 1, info.name) != 0) return false;
    taken.emplace(name, std::move(fd));
  }
  adopted_programs_ = std::move(taken);
  return true;
}

absl::Status KernelObject::PinMaps(const std::string& folder) {
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton_->obj) {
    if (!IsShared(map)) continue;
    const std::string path = MapPath(folder, map);
    if (bpf_obj_pin(bpf_map__fd(map), path.c_str()) == 0) continue;
    if (errno != EEXIST) return absl::ErrnoToStatus(errno, absl::StrCat("pinning ", path));
    // Adopted, and so pinned already; or a newer build's map, of an adoption that did not come to its end.
    const auto ours = InfoOf(bpf_map__fd(map), path);
    const net::UniqueFd fd(bpf_obj_get(path.c_str()));
    const auto there = InfoOf(fd.get(), path);
    if (ours.ok() && there.ok() && ours->id == there->id) continue;
    if (unlink(path.c_str()) != 0 || bpf_obj_pin(bpf_map__fd(map), path.c_str()) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("pinning ", path));
  }
  return absl::OkStatus();
}

absl::Status KernelObject::PinPrograms(const std::string& program_folder) {
  if (mkdir(program_folder.c_str(), 0700) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("making ", program_folder));
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton_->obj) {
    const std::string path = absl::StrCat(program_folder, "/", bpf_program__name(program));
    if (bpf_obj_pin(ProgramFd(program), path.c_str()) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("pinning ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> KernelObject::RestorePins(const std::string& folder, const std::string& program_folder) {
  std::vector<std::pair<int, std::string>> pins;
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton_->obj) {
    if (IsShared(map)) pins.emplace_back(bpf_map__fd(map), MapPath(folder, map));
  }
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton_->obj)
      pins.emplace_back(ProgramFd(program), absl::StrCat(program_folder, "/", bpf_program__name(program)));
  int restored = 0;
  if (mkdir(program_folder.c_str(), 0700) != 0 && errno != EEXIST)
    return absl::ErrnoToStatus(errno, absl::StrCat("making ", program_folder));
  for (const auto& [fd, path] : pins) {
    if (access(path.c_str(), F_OK) == 0) continue;
    if (bpf_obj_pin(fd, path.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("pinning ", path));
    ++restored;
  }
  return restored;
}

absl::Status KernelObject::Describe(v1::KernelRecord& record) const {
  record.set_abi_version(HR_ABI_VERSION);
  record.set_build(Build());
  record.set_hash_seed(skeleton_->rodata->load_config.hash_seed);
  record.set_load_config(LoadConfigBytes());
  record.clear_maps();
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton_->obj) {
    if (!IsShared(map)) continue;
    const auto info = InfoOf(bpf_map__fd(map), bpf_map__name(map));
    if (!info.ok()) return info.status();
    v1::PinnedMapRecord& pinned = *record.add_maps();
    pinned.set_name(bpf_map__name(map));
    pinned.set_id(info->id);
    pinned.set_layout(layouts_.at(bpf_map__name(map)));
  }
  return absl::OkStatus();
}

}  // namespace hedgerow
