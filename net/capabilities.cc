// SPDX-License-Identifier: Apache-2.0
//
// Reads the capability sets by capget(2), without libcap.
#include "net/capabilities.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::net {

namespace {

std::string Describe(Capability capability) {
  static const std::map<Capability, std::string> kWhatFor = {
      {Capability::kNetAdmin, "CAP_NET_ADMIN (interfaces, routes, qdiscs, attaching TC programs)"},
      {Capability::kNetRaw, "CAP_NET_RAW (measuring the clock with packets of its own)"},
      {Capability::kSysAdmin, "CAP_SYS_ADMIN (mounting a bpffs, trying features in a namespace of their own)"},
      {Capability::kPerfmon, "CAP_PERFMON (programs that keep pointers on their stack)"},
      {Capability::kBpf, "CAP_BPF (maps, loading programs)"}};
  return kWhatFor.at(capability);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MissingCapabilities(std::span<const Capability> wanted) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return absl::ErrnoToStatus(errno, "read the process's capabilities");
  std::vector<std::string> missing;
  for (const Capability capability : wanted) {
    const auto number = static_cast<unsigned>(capability);
    if (!(sets[CAP_TO_INDEX(number)].effective & CAP_TO_MASK(number))) missing.push_back(Describe(capability));
  }
  return missing;
}

absl::Status RequireCapabilities(std::span<const Capability> wanted) {
  const auto missing = MissingCapabilities(wanted);
  if (!missing.ok()) return missing.status();
  if (missing->empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("missing ", absl::StrJoin(*missing, ", "), ": run as root, or grant them"));
}

}  // namespace hedgerow::net
