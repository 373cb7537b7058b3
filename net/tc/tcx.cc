// SPDX-License-Identifier: Apache-2.0
//
// The bpf(2) calls behind TCX. The structs mirror the kernel's `union bpf_attr` of 6.6; the offsets are
// asserted.
#include "net/tc/tcx.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::net {
namespace {

// From include/uapi/linux/bpf.h of 6.6. May go when the floor's headers have them.
constexpr uint32_t kAttachTcxIngress = 46;
constexpr uint32_t kAttachTcxEgress = 47;
constexpr uint32_t kLinkTypeTcx = 11;
constexpr uint32_t kFlagBefore = 1u << 3;
constexpr uint32_t kFlagAfter = 1u << 4;
constexpr int kLoopbackIfindex = 1;  // in every network namespace
constexpr size_t kMaxPrograms = 64;  // the kernel's own limit per hook (BPF_MPROG_MAX)

struct LinkCreate {
  uint32_t program_fd;
  uint32_t target_ifindex;
  uint32_t attach_type;
  uint32_t flags;
  uint32_t relative_fd;
  uint32_t padding;
  uint64_t expected_revision;
};
static_assert(offsetof(LinkCreate, relative_fd) == 16 && offsetof(LinkCreate, expected_revision) == 24);

struct Query {
  uint32_t target_ifindex;
  uint32_t attach_type;
  uint32_t query_flags;
  uint32_t attach_flags;
  uint64_t program_ids;
  uint32_t count;
  uint32_t padding;
  uint64_t program_attach_flags;
  uint64_t link_ids;
  uint64_t link_attach_flags;
  uint64_t revision;
};
static_assert(offsetof(Query, count) == 24 && offsetof(Query, link_ids) == 40 && sizeof(Query) == 64);

struct LinkInfo {  // struct bpf_link_info with its `tcx` member
  uint32_t type;
  uint32_t id;
  uint32_t program_id;
  uint32_t padding;
  uint32_t ifindex;
  uint32_t attach_type;
  uint8_t rest[40];
};
static_assert(offsetof(LinkInfo, ifindex) == 16);

template <typename Attributes>
int64_t Bpf(int command, Attributes& attributes) {
  return syscall(SYS_bpf, command, &attributes, sizeof(attributes));
}

uint32_t AttachType(Direction direction) {
  return direction == Direction::kIngress ? kAttachTcxIngress : kAttachTcxEgress;
}

std::string HookName(int ifindex, Direction direction) {
  return absl::StrCat(ToString(direction), " of interface number ", ifindex);
}

// Without names.
absl::StatusOr<std::vector<TcxProgram>> QueryTcx(int ifindex, Direction direction) {
  std::array<uint32_t, kMaxPrograms> program_ids{};
  std::array<uint32_t, kMaxPrograms> link_ids{};
  Query query{};
  query.target_ifindex = static_cast<uint32_t>(ifindex);
  query.attach_type = AttachType(direction);
  query.program_ids = reinterpret_cast<uint64_t>(program_ids.data());
  query.link_ids = reinterpret_cast<uint64_t>(link_ids.data());
  query.count = kMaxPrograms;
  if (Bpf(BPF_PROG_QUERY, query) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("list the TCX programs on ", HookName(ifindex, direction)));
  }
  std::vector<TcxProgram> programs;
  for (size_t i = 0; i < query.count && i < kMaxPrograms; ++i)
    programs.push_back({.program_id = program_ids[i], .link_id = link_ids[i]});
  return programs;
}

}  // namespace

absl::string_view ToString(Direction direction) { return direction == Direction::kIngress ? "ingress" : "egress"; }

absl::StatusOr<bool> TcxSupported() {
  Query query{};
  query.target_ifindex = kLoopbackIfindex;
  query.attach_type = kAttachTcxIngress;
  if (Bpf(BPF_PROG_QUERY, query) == 0) return true;
  if (errno == EINVAL) return false;  // The attach type means nothing to this kernel.
  return absl::ErrnoToStatus(errno, "ask the kernel for TCX");
}

absl::StatusOr<TcxLink> TcxLink::Attach(int program_fd, int ifindex, Direction direction, Order order) {
  LinkCreate create{};
  create.program_fd = static_cast<uint32_t>(program_fd);
  create.target_ifindex = static_cast<uint32_t>(ifindex);
  create.attach_type = AttachType(direction);
  create.flags = order == Order::kFirst ? kFlagBefore : kFlagAfter;
  const int64_t fd = Bpf(BPF_LINK_CREATE, create);
  if (fd >= 0) return TcxLink(UniqueFd(static_cast<int>(fd)));
  if (errno == EEXIST) {
    return absl::AlreadyExistsError(
        absl::StrCat("this program is attached to ", HookName(ifindex, direction), " already"));
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("attach by TCX to ", HookName(ifindex, direction)));
}

absl::StatusOr<TcxLink> TcxLink::OpenPinned(const std::string& path) {
  UniqueFd fd(bpf_obj_get(path.c_str()));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("open the pinned link ", path));
  TcxLink link(std::move(fd));
  if (absl::Status status = link.Info().status(); !status.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no TCX link: ", status.message()));
  }
  return link;
}

absl::Status TcxLink::Pin(const std::string& path) const {
  if (bpf_obj_pin(fd_.get(), path.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("pin a TCX link at ", path));
}

absl::Status TcxLink::Update(int program_fd) const {
  if (bpf_link_update(fd_.get(), program_fd, nullptr) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "replace the program of a TCX link");
}

absl::Status TcxLink::Detach() const {
  if (bpf_link_detach(fd_.get()) == 0) return absl::OkStatus();
  const absl::Status status = absl::ErrnoToStatus(errno, "detach a TCX link");
  // With the interface gone, or after an earlier detach, there is nothing to take off.
  const auto info = Info();
  return info.ok() && info->ifindex == 0 ? absl::OkStatus() : status;
}

absl::StatusOr<TcxLinkInfo> TcxLink::Info() const {
  LinkInfo info{};
  uint32_t info_bytes = sizeof(info);
  // Whatever fails, the link is there: no caller may take it for one that is not (NotFound).
  const auto failed = [] { return absl::InternalError(absl::StrCat("describe a BPF link: ", strerror(errno))); };
  if (bpf_obj_get_info_by_fd(fd_.get(), &info, &info_bytes) != 0) return failed();
  // A map or program answers with its own struct, whose first number is its own type: tell them apart by the
  // descriptor.
  std::array<char, 64> target{};
  const std::string self = absl::StrCat("/proc/thread-self/fd/", fd_.get());
  if (readlink(self.c_str(), target.data(), target.size() - 1) < 0) return failed();
  // 6.18 writes it with a hyphen, older kernels with an underscore.
  const bool is_link =
      absl::StartsWith(target.data(), "anon_inode:bpf-link") || absl::StartsWith(target.data(), "anon_inode:bpf_link");
  if (!is_link || info.type != kLinkTypeTcx) {
    return absl::FailedPreconditionError(absl::StrCat("it is ", target.data(), " of type ", info.type));
  }
  return TcxLinkInfo{.link_id = info.id,
                     .program_id = info.program_id,
                     .ifindex = static_cast<int>(info.ifindex),
                     .direction = info.attach_type == kAttachTcxEgress ? Direction::kEgress : Direction::kIngress};
}

absl::StatusOr<std::vector<uint32_t>> ListTcxNumbers(int ifindex, Direction direction) {
  std::vector<uint32_t> numbers;
  const auto programs = QueryTcx(ifindex, direction);
  if (!programs.ok()) return programs.status();
  for (const TcxProgram& program : *programs) numbers.push_back(program.program_id);
  return numbers;
}

absl::StatusOr<std::vector<TcxProgram>> ListTcx(int ifindex, Direction direction) {
  auto programs = QueryTcx(ifindex, direction);
  if (!programs.ok()) return programs.status();
  for (TcxProgram& program : *programs) program.name = ProgramName(program.program_id);
  return programs;
}

std::string ProgramName(uint32_t program_id) {
  UniqueFd fd(bpf_prog_get_fd_by_id(program_id));
  if (!fd.valid()) return "";
  bpf_prog_info info{};
  uint32_t info_bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd.get(), &info, &info_bytes) != 0) return "";
  return std::string(info.name, strnlen(info.name, sizeof(info.name)));
}

}  // namespace hedgerow::net
