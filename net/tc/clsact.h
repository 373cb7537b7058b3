// SPDX-License-Identifier: Apache-2.0
//
// The classic way to attach a TC program: a clsact qdisc and cls_bpf filters in direct-action mode. It works on
// every kernel we know and is the fallback where TCX is missing. Filters carry a name of ours, so that they are
// recognised. Used by tc_attach, clean and doctor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/tc/tcx.h"

namespace hedgerow::net {

enum class IngressQdisc {
  kNone,
  kClsact,
  kIngressOnly,  // the older `ingress` qdisc, which excludes clsact and has no egress hook
};
absl::StatusOr<IngressQdisc> FindIngressQdisc(int ifindex);

// AlreadyExists when there is one.
absl::Status CreateClsact(int ifindex);
// Removes the qdisc if no filter is left on it. It does not check the owner, so call it only for a qdisc of our
// own making. True: removed.
absl::StatusOr<bool> DeleteClsactIfUnused(int ifindex);

struct ClsactFilter {
  int ifindex = 0;
  Direction direction = Direction::kIngress;
  uint16_t priority = 0;  // lower runs earlier
  uint32_t handle = 0;    // identifies the filter within its priority
  std::string name{};     // "hedgerow:INSTANCE:ROLE" for ours
  std::string kind = "bpf";
  uint32_t program_id = 0;  // 0 when the kernel does not tell
};

// AlreadyExists: a filter with this handle and priority is there; the message names it.
absl::Status AddClsactFilter(const ClsactFilter& filter, int program_fd);
// Replaces the program of an existing filter in place.
absl::Status ReplaceClsactFilter(const ClsactFilter& filter, int program_fd);
// OK when there is none.
absl::Status DeleteClsactFilter(const ClsactFilter& filter);
// Every filter of the hook, foreign ones too, in the order the kernel runs priorities.
absl::StatusOr<std::vector<ClsactFilter>> ListClsactFilters(int ifindex, Direction direction);

}  // namespace hedgerow::net
