// SPDX-License-Identifier: Apache-2.0
//
// The reply program's place among the programs of an uplink's ingress. Part of ProxyInstance, called by the self-test.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net/netlink/link.h"
#include "net/tc/hook_programs.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"

namespace hedgerow {

std::vector<uint32_t> ProxyInstance::TcxBeforeOurs() const {
  std::vector<uint32_t> before;
  for (const auto& attachment : attachments_) {
    if (attachment->spec().role != kReplyProgram || attachment->mechanism() != net::Mechanism::kTcx) continue;
    const auto ours = attachment->ProgramId();
    const auto numbers = net::ListTcxNumbers(attachment->spec().ifindex, attachment->spec().direction);
    if (!ours.ok() || !numbers.ok()) continue;
    before.insert(before.end(), numbers->begin(), std::find(numbers->begin(), numbers->end(), *ours));
  }
  return before;
}

absl::StatusOr<std::vector<net::HookProgram>> ProxyInstance::ProgramsBeforeOurs(int uplink) const {
  for (const auto& attachment : attachments_) {
    if (attachment->spec().role == kReplyProgram && attachment->spec().ifindex == uplink) return net::ProgramsBefore(*attachment);
  }
  return std::vector<net::HookProgram>{};
}

absl::StatusOr<std::vector<std::string>> ProxyInstance::MoveRepliesFirst() {
  std::vector<std::string> lines;
  const std::vector<ProgramInfo> programs = data_plane_->object().Programs();
  const auto reply = std::find_if(programs.begin(), programs.end(), [](const auto& each) { return each.name == kReplyProgram; });
  for (const auto& attachment : attachments_) {
    if (attachment->spec().role != kReplyProgram || attachment->mechanism() != net::Mechanism::kTcx) continue;
    const auto before = net::ProgramsBefore(*attachment);
    if (!before.ok()) return before.status();
    if (before->empty()) continue;
    if (absl::Status status = attachment->MoveFirst(reply->fd); !status.ok()) return status;
    const auto link = net::FindLink(attachment->spec().ifindex);
    lines.push_back(absl::StrCat(link.ok() ? link->name : "an uplink", ": ", net::Join(*before),
                                 " ends packets before the reply program, which was moved before it"));
  }
  return lines;
}

}  // namespace hedgerow
