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
  const net::Attachment* reply = AttachmentOn(uplink, kReplyProgram);
  return reply == nullptr ? std::vector<net::HookProgram>{} : net::ProgramsBefore(*reply);
}

absl::StatusOr<std::string> ProxyInstance::MoveRepliesFirst(int uplink) {
  net::Attachment* reply = AttachmentOn(uplink, kReplyProgram);
  if (reply == nullptr || reply->mechanism() != net::Mechanism::kTcx) return "";
  const auto before = net::ProgramsBefore(*reply);
  if (!before.ok()) return before.status();
  if (before->empty()) return "";
  if (absl::Status status = reply->MoveFirst(ProgramNamed(kReplyProgram).fd); !status.ok()) return status;
  return absl::StrCat(net::LinkName(uplink), ": ", net::Join(*before),
                      " ends packets before the reply program, which was moved before it");
}

}  // namespace hedgerow
