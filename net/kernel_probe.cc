// SPDX-License-Identifier: Apache-2.0
#include "net/kernel_probe.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "net/bpf_log.h"
#include "net/tc/clock_qdisc.h"
#include "net/tc/clsact.h"
#include "net/netlink/link.h"
#include "net/network_namespace.h"
#include "net/tc/tcx.h"

namespace hedgerow::net {
namespace {

constexpr int kVersionFloor = 6001;
constexpr char kBtfPath[] = "/sys/kernel/btf/vmlinux";

// The smallest TC program: `return TC_ACT_UNSPEC`.
UniqueFd LoadSmallestProgram() {
  bpf_insn code[2] = {};
  code[0].code = BPF_ALU64 | BPF_MOV | BPF_K;
  code[0].imm = -1;
  code[1].code = BPF_JMP | BPF_EXIT;
  return UniqueFd(bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "probe", "GPL", code, 2, nullptr));
}

void Conclude(ProbeResult& result, const absl::Status& status) {
  if (status.ok()) {
    result.found = Found::kYes;
  } else {
    result.found = absl::IsPermissionDenied(status) ? Found::kUnknown : Found::kNo;
    result.detail = std::string(status.message());
  }
}

ProbeResult ProbeVersion() {
  ProbeResult result{.name = "kernel", .required = true, .offers = "everything; the floor is 6.1"};
  utsname names{};
  if (uname(&names) != 0) return result;
  result.detail = names.release;
  const auto version = ParseKernelVersion(names.release);
  if (version.ok()) result.found = *version >= kVersionFloor ? Found::kYes : Found::kNo;
  return result;
}

ProbeResult ProbeBtf() {
  ProbeResult result{.name = "btf", .required = true, .offers = "loading programs that follow the kernel's own types"};
  if (access(kBtfPath, R_OK) == 0) {
    result.found = Found::kYes;
    result.detail = kBtfPath;
  } else if (errno == ENOENT && access("/sys/kernel", F_OK) == 0) {
    result.found = Found::kNo;
    result.detail = kNoBtf;
  } else {
    result.detail = absl::ErrnoToStatus(errno, kBtfPath).ToString();
  }
  return result;
}

// Whether a loaded program became machine code. Not by the sysctl, which other network namespaces do not show.
ProbeResult ProbeJit() {
  ProbeResult result{.name = "jit",
                     .required = false,
                     .offers = "programs as machine code; without it each packet costs several times more"};
  UniqueFd program = LoadSmallestProgram();
  if (!program.valid()) {
    result.detail = absl::ErrnoToStatus(errno, "load a TC program").ToString();
    return result;
  }
  bpf_prog_info info{};
  uint32_t info_bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(program.get(), &info, &info_bytes) != 0) {
    result.detail = absl::ErrnoToStatus(errno, "describe a TC program").ToString();
    return result;
  }
  result.found = info.jited_prog_len > 0 ? Found::kYes : Found::kNo;
  if (info.jited_prog_len == 0) result.detail = "net.core.bpf_jit_enable is 0, or the caller lacks CAP_BPF";
  return result;
}

ProbeResult ProbeTcx() {
  ProbeResult result{
      .name = "tcx", .required = false, .offers = "attaching in a stated order beside others; otherwise clsact"};
  const auto supported = TcxSupported();
  const bool lacking = supported.ok() && !*supported;
  Conclude(result, lacking ? absl::NotFoundError("it came with 6.6") : supported.status());
  return result;
}

absl::Status TryClsact(int ifindex) {
  UniqueFd program = LoadSmallestProgram();
  if (!program.valid()) return absl::ErrnoToStatus(errno, "load a TC program");
  if (absl::Status status = CreateClsact(ifindex); !status.ok()) return status;
  return AddClsactFilter(
      {.ifindex = ifindex, .direction = Direction::kIngress, .priority = 1, .handle = 1, .name = "probe"},
      program.get());
}

std::vector<ProbeResult> ProbeQdiscs() {
  std::vector<ProbeResult> results = {
      {.name = "clsact", .required = false, .offers = "attaching where there is no TCX"},
      {.name = "htb", .required = false, .offers = "a clock on every kernel"},
      {.name = "fq", .required = false, .offers = "a clock that is exact"},
  };
  const absl::Status status = RunInNewNetworkNamespace([&]() -> absl::Status {
    const auto pair = CreateVethPair({.name = "probe0", .peer_name = "probe1", .instance = "probe"});
    if (!pair.ok()) return pair.status();
    Conclude(results[0], TryClsact(pair->link.ifindex));
    // Removed in between: a kind that differs from the present one's is refused before the kernel looks for it.
    Conclude(results[1], InstallClockQdisc(pair->link.ifindex, {.kind = ClockKind::kHtb}));
    if (absl::Status removed = RemoveClockQdisc(pair->link.ifindex); !removed.ok()) return removed;
    Conclude(results[2], InstallClockQdisc(pair->link.ifindex, {.kind = ClockKind::kFq}));
    return absl::OkStatus();
  });
  if (!status.ok()) {
    for (ProbeResult& result : results) {
      if (result.found == Found::kUnknown) result.detail = std::string(status.message());
    }
  }
  return results;
}

}  // namespace

std::vector<ProbeResult> ProbeKernel() {
  std::vector<ProbeResult> results = {ProbeVersion(), ProbeBtf(), ProbeJit(), ProbeTcx()};
  for (ProbeResult& result : ProbeQdiscs()) results.push_back(std::move(result));
  return results;
}

absl::StatusOr<int> ParseKernelVersion(absl::string_view release) {
  int major = 0;
  int minor = 0;
  const char* end = release.data() + release.size();
  const auto first = std::from_chars(release.data(), end, major);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '.') {
    const auto second = std::from_chars(first.ptr + 1, end, minor);
    if (second.ec == std::errc() && major >= 0 && major < 1000 && minor >= 0 && minor < 1000)
      return major * 1000 + minor;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", release, "' is no kernel version"));
}

absl::string_view ToString(Found found) {
  return found == Found::kYes ? "yes" : found == Found::kNo ? "no" : "unknown";
}

}  // namespace hedgerow::net
