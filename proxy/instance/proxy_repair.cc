// SPDX-License-Identifier: Apache-2.0
//
// Looks after what a proxy has made, and restores what was removed from outside. Part of ProxyInstance, called by the
// guardian; see proxy_instance.h.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"

namespace hedgerow {

absl::Status ProxyInstance::FollowMtu() {
  uint32_t smallest = 0;
  for (const auto& [ifindex, link] : topology_.uplinks) {
    const auto now = net::FindLink(ifindex);
    if (!now.ok()) continue;  // gone; the others count
    smallest = smallest == 0 ? now->mtu_bytes : std::min(smallest, now->mtu_bytes);
  }
  if (smallest == 0) return absl::OkStatus();
  for (const net::LinkInfo* end : {&links_.proxy.link, &links_.proxy.peer}) {
    const absl::Status status = net::SetLinkMtu(end->name, smallest);
    if (!status.ok()) return Annotate(status, absl::StrCat("the MTU of ", end->name));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ProxyInstance::IsAttached(const net::Attachment& attachment) const {
  if (attachment.mechanism() != net::Mechanism::kClsact)
    return true;  // removing a qdisc leaves a link's program attached
  const net::AttachSpec& spec = attachment.spec();
  if (!net::FindLink(spec.ifindex).ok()) return true;
  const auto filters = net::ListClsactFilters(spec.ifindex, spec.direction);
  if (!filters.ok()) return filters.status();
  const std::string name = absl::StrCat(net::FilterNamePrefix(spec.instance), spec.role);
  return std::any_of(filters->begin(), filters->end(), [&](const auto& filter) { return filter.name == name; });
}

absl::StatusOr<int> ProxyInstance::RestoreAttachments() {
  int restored = 0;
  const std::vector<ProgramInfo> programs = data_plane_->object().Programs();
  for (const auto& attachment : attachments_) {
    const auto attached = IsAttached(*attachment);
    if (!attached.ok()) return attached.status();
    if (*attached) continue;
    const auto program = std::find_if(programs.begin(), programs.end(), [&](const ProgramInfo& each) {
      return each.name == attachment->spec().role;
    });
    auto again = net::Attachment::Attach(attachment->spec(), program->fd);
    if (!again.ok()) {
      return Annotate(again.status(),
                      absl::StrCat("somebody removed our program from ", attachment->ToString()));
    }
    attachment->Release().IgnoreError();  // what it stood for is gone
    *attachment = *std::move(again);
    ++restored;
  }
  return restored;
}

ProxyInstance::Restored ProxyInstance::Restore() {
  Restored restored;
  const auto keep = [&restored](const absl::Status& status, absl::string_view what,
                                ProblemCode code = ProblemCode::kOwnLink) {
    if (!status.ok()) restored.problems.push_back({code, absl::StrCat(what, ": ", std::string(status.message()))});
    return status.ok();
  };
  for (const net::LinkInfo* own :
       {&links_.proxy.link, &links_.proxy.peer, &links_.clock.link, &links_.clock.peer}) {
    const auto now = net::FindLink(own->ifindex);
    if (!keep(now.status(), absl::StrCat("our interface ", own->name)) || now->up()) continue;
    if (keep(net::SetLinkUp(own->name), absl::StrCat("setting ", own->name, " up"))) ++restored.links;
  }
  const auto present = net::ListVipRoutes(links_.proxy.link.ifindex);
  if (!keep(present.status(), "listing our routes", ProblemCode::kVipRouteLost)) return restored;
  for (const net::VipRoute& route : routes_) {
    if (std::find(present->begin(), present->end(), route) != present->end()) continue;
    const std::string what = absl::StrCat("restoring the route to ", route.vip.ToString());
    if (!keep(net::AddSourceAddress(route.ifindex, route.source), what, ProblemCode::kVipRouteLost)) continue;
    if (keep(net::AddVipRoute(route), what, ProblemCode::kVipRouteLost)) ++restored.routes;
  }
  return restored;
}

}  // namespace hedgerow
