// SPDX-License-Identifier: Apache-2.0
//
// Which program stands at which hook: attaching at a start, taking over what an earlier daemon attached, putting back
// what another program removed, and leaving uplinks. Part of ProxyInstance. The splitters of uplinks are
// proxy_uplink_routes.cc's.

#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "net/netlink/link.h"
#include "net/tc/clsact.h"
#include "operate/file_limit.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"

namespace hedgerow {
namespace {

constexpr int kGuardTurns = 10;  // seconds until each guard has been looked after
constexpr size_t kOtherDescriptors = 512;

net::Mechanism MechanismOf(v1::Attach attach) {
  if (attach == v1::ATTACH_TCX) return net::Mechanism::kTcx;
  return attach == v1::ATTACH_CLSACT ? net::Mechanism::kClsact : net::Mechanism::kAuto;
}

}  // namespace

net::AttachSpec ProxyInstance::AttachSpecOf(const ProgramInfo& program, int ifindex, net::Direction direction) const {
  net::AttachSpec spec;
  spec.ifindex = ifindex;
  spec.direction = direction;
  // A program that ends packets before the guard would let forged ones pass; the guard itself ends no other's.
  const bool first = config_.tcx_order() == v1::TCX_ORDER_FIRST || program.name == kGuardProgram;
  spec.order = first ? net::Order::kFirst : net::Order::kLast;
  spec.mechanism = MechanismOf(config_.attach());
  spec.instance = config_.instance();
  spec.role = program.name;
  spec.pin_dir = pin_folder_;
  return spec;
}

absl::Status ProxyInstance::AttachProgram(const ProgramInfo& program, int ifindex, net::Direction direction) {
  const net::AttachSpec spec = AttachSpecOf(program, ifindex, direction);
  bool anew = false;
  auto attachment = adopting_ ? TakeOver(spec, program, anew) : net::Attachment::Attach(spec, program.fd);
  if (!attachment.ok()) return Annotate(attachment.status(), absl::StrCat("attaching ", program.name));
  attachments_.push_back(std::make_shared<net::Attachment>(*std::move(attachment)));
  if (adopting_) attached_anew_.push_back(anew);
  const std::shared_ptr<net::Attachment> made = attachments_.back();
  undo_.Push(UndoOfAttachment(*made), [made]() -> absl::Status {
    // An interface that is gone took its programs with it.
    if (net::LinkIsGone(made->spec().ifindex)) {
      made->Detach().IgnoreError();
      return absl::OkStatus();
    }
    return made->Detach();
  });
  return absl::OkStatus();
}

absl::Status ProxyInstance::Attach(DaemonFacts& facts) {
  std::vector<Hook> hooks(std::begin(kHooks), std::end(kHooks));
  // Taken over, the clock comes last: what the programs of the version before put on its link may lack what the new one
  // reads there, and the older one reads less.
  if (adopting_)
    std::stable_partition(hooks.begin(), hooks.end(),
                          [](const Hook& hook) { return hook.program != std::string(kClockProgram); });
  for (const Hook& hook : hooks) {
    if (const absl::Status status = AttachOne(hook); !status.ok()) return status;
  }
  NoteFacts(topology_, facts);
  return absl::OkStatus();
}

absl::Status ProxyInstance::AttachOne(const Hook& hook) {
  const ProgramInfo program = ProgramNamed(hook.program);
  if (hook.place == Place::kOthers) return absl::OkStatus();  // KeepGuards()
  if (hook.place != Place::kUplinks) {
    const bool of_clock = hook.place == Place::kClock || hook.place == Place::kClockPeer;
    const net::VethPair& pair = of_clock ? links_.clock : links_.proxy;
    const bool inner = hook.place == Place::kClockPeer || hook.place == Place::kProxyPeer;
    const absl::Status status = AttachProgram(program, inner ? pair.peer.ifindex : pair.link.ifindex,
                                              hook.egress ? net::Direction::kEgress : net::Direction::kIngress);
    return status.ok() && adopting_ && program.name == kSplitterProgram ? AdoptSplitters(program) : status;
  }
  absl::Status status = AttachReplies(program, topology_);
  // The kernel's own errors about what leaves by them are reported there, and backends on this host answer there.
  if (status.ok() && AttachmentOn(net::kLoopbackIfindex, program.name) == nullptr)
    status = AttachProgram(program, net::kLoopbackIfindex, net::Direction::kIngress);
  return status.ok() && adopting_ ? AdoptRetiredReplies(program) : status;
}

// What is attached stays attached; its program is ours afterwards, also where an earlier takeover was cut
// short.
absl::StatusOr<net::Attachment> ProxyInstance::TakeOver(const net::AttachSpec& spec, const ProgramInfo& program,
                                                        bool& anew) {
  auto attachment = net::Attachment::Adopt(spec);
  anew = absl::IsNotFound(attachment.status());
  if (!anew) {
    if (!attachment.ok()) return attachment.status();
    if (const absl::Status status = attachment->Replace(program.fd); !status.ok()) {
      attachment->Release().IgnoreError();
      return status;
    }
    return attachment;
  }
  LogWarning(program.name, " was taken off the ", std::string(net::ToString(spec.direction)), " of interface number ",
             spec.ifindex, "; attached again");
  unlink(net::PinPath(spec).c_str());  // of a link that is attached to nothing
  return net::Attachment::Attach(spec, program.fd);
}

absl::Status ProxyInstance::AttachReplies(const ProgramInfo& program, const Topology& topology) {
  for (const auto& [ifindex, link] : topology.uplinks) {
    // One that has gone since is followed later.
    if (AttachmentOn(ifindex, program.name) != nullptr || net::LinkIsGone(ifindex)) continue;
    const absl::Status status = AttachProgram(program, ifindex, net::Direction::kIngress);
    if (!status.ok()) return Annotate(status, absl::StrCat("uplink ", link.name));
  }
  return absl::OkStatus();
}

// `role`: the program's name.
net::Attachment* ProxyInstance::AttachmentOn(int ifindex, absl::string_view role) const {
  for (const auto& attachment : attachments_) {
    if (attachment->spec().ifindex == ifindex && attachment->spec().role == role) return attachment.get();
  }
  return nullptr;
}

ProgramInfo ProxyInstance::ProgramNamed(absl::string_view name) const {
  const std::vector<ProgramInfo> programs = data_plane_->object().Programs();
  return *std::find_if(programs.begin(), programs.end(), [name](const ProgramInfo& each) { return each.name == name; });
}

// Of every backend that the record knows, those included that are retired.
std::set<int> ProxyInstance::RecordedUplinks() const {
  std::set<int> uplinks;
  for (const v1::RosterService& service : record_->data().roster().services()) {
    for (const v1::RosterBackend& backend : service.backends()) uplinks.insert(backend.uplink());
  }
  uplinks.erase(0);
  return uplinks;
}

// Uplinks of an earlier daemon by which only retired backends are reached: their replies still arrive.
absl::Status ProxyInstance::AdoptRetiredReplies(const ProgramInfo& program) {
  for (const int ifindex : RecordedUplinks()) {
    if (AttachmentOn(ifindex, program.name) != nullptr || net::LinkIsGone(ifindex)) continue;
    const absl::Status status = AttachProgram(program, ifindex, net::Direction::kIngress);
    if (!status.ok()) return Annotate(status, absl::StrCat("interface number ", ifindex));
  }
  return absl::OkStatus();
}

// The splitters that an earlier daemon had on uplinks. Where there is none KeepUplinkRoutes() attaches one.
absl::Status ProxyInstance::AdoptSplitters(const ProgramInfo& program) {
  std::set<int> uplinks = RecordedUplinks();
  for (const auto& [ifindex, link] : topology_.uplinks) uplinks.insert(ifindex);
  for (const int ifindex : uplinks) {
    auto standing = net::Attachment::Adopt(AttachSpecOf(program, ifindex, net::Direction::kEgress));
    if (absl::IsNotFound(standing.status()) || net::LinkIsGone(ifindex)) continue;
    if (standing.ok()) standing->Release().IgnoreError();
    const absl::Status status = AttachProgram(program, ifindex, net::Direction::kEgress);
    if (!status.ok()) return Annotate(status, absl::StrCat("interface number ", ifindex));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ProxyInstance::IsAttached(const net::Attachment& attachment) const {
  const net::AttachSpec& spec = attachment.spec();
  if (net::LinkIsGone(spec.ifindex)) return true;
  // Removing a qdisc leaves a link's program attached. But another interface may have come by this number.
  if (attachment.mechanism() != net::Mechanism::kClsact) return attachment.IsLive();
  const auto filters = net::ListClsactFilters(spec.ifindex, spec.direction);
  if (!filters.ok()) return filters.status();
  const std::string name = absl::StrCat(net::FilterNamePrefix(spec.instance), spec.role);
  return std::any_of(filters->begin(), filters->end(), [&](const auto& filter) { return filter.name == name; });
}

ProxyInstance::Restored ProxyInstance::RestoreAttachments() {
  Restored out;
  ++restores_;
  for (const auto& attachment : attachments_) {
    // Of guards, of which there are as many as a host has containers, a part each time.
    if (attachment->spec().role == kGuardProgram && (attachment->spec().ifindex + restores_) % kGuardTurns != 0)
      continue;
    const auto attached = IsAttached(*attachment);
    if (attached.ok() && *attached) continue;
    absl::Status status = attached.status();
    if (status.ok()) {
      unlink(net::PinPath(attachment->spec()).c_str());  // of a link that is attached to nothing
      auto again = net::Attachment::Attach(attachment->spec(), ProgramNamed(attachment->spec().role).fd);
      if (again.ok()) {
        attachment->Release().IgnoreError();  // what it stood for is gone
        *attachment = *std::move(again);
        ++out.programs;
        continue;
      }
      status = again.status();
    }
    out.serves &= attachment->spec().role == kGuardProgram;
    out.problems.push_back(
        {ProblemCode::kAttachFailed, absl::StrCat("another program removed ours from ", attachment->ToString(), ": ",
                                                  std::string(status.message()))});
  }
  return out;
}

// The guard, in both directions, on each interface that is no uplink and no proxy's own. One that is followed already
// is let go where it has become an uplink or is gone. By TCX alone: a clsact qdisc of ours would keep an `ingress`
// qdisc of others (CNI's bandwidth, libvirt) from their own links. What comes by a child of another interface, or
// through a pair within this namespace, was judged where it came in, and may be an answer of ours on its way.
void ProxyInstance::KeepGuards(const NetworkView& network, const Topology& next, Followed& out) {
  const ProgramInfo guard = ProgramNamed(kGuardProgram);
  std::set<int> wanted;
  const bool by_tcx = std::any_of(attachments_.begin(), attachments_.end(), [](const auto& attachment) {
    return attachment->spec().role == kReplyProgram && attachment->mechanism() == net::Mechanism::kTcx;
  });
  const auto is_judged_before = [](const net::LinkInfo& link) {
    return link.peer_ifindex != 0 || link.kind == "macvlan" || link.kind == "macvtap" || link.kind == "ipvlan" ||
           link.kind == "ipvtap";
  };
  for (const net::LinkInfo& link : network.links) {
    if (by_tcx && !is_judged_before(link) && link.ifindex != net::kLoopbackIfindex &&
        !next.uplinks.contains(link.ifindex) && !network.IsOfAProxy(link.ifindex, config_))
      wanted.insert(link.ifindex);
  }
  std::erase_if(attachments_, [&](const std::shared_ptr<net::Attachment>& attachment) {
    if (attachment->spec().role != guard.name) return false;
    if (wanted.contains(attachment->spec().ifindex)) return false;
    attachment->Detach().IgnoreError();  // a link that is gone took it along
    undo_.Drop(UndoOfAttachment(*attachment));
    return true;
  });
  for (const auto& attachment : attachments_) {
    if (attachment->spec().role == guard.name) wanted.erase(attachment->spec().ifindex);
  }
  // Each holds a descriptor. Where the limit is lower, attaching says so.
  operate::EnsureFileLimit(attachments_.size() + 2 * wanted.size() + kOtherDescriptors).IgnoreError();
  for (const int ifindex : wanted) {
    for (const net::Direction direction : {net::Direction::kIngress, net::Direction::kEgress}) {
      const absl::Status status = AttachProgram(guard, ifindex, direction);
      const auto link = net::FindLink(ifindex);
      if (!status.ok() && link.ok())
        out.problems.push_back(
            {ProblemCode::kAttachFailed, absl::StrCat("interface ", link->name, ": ", std::string(status.message()))});
    }
  }
}

void ProxyInstance::DetachUnusedUplinks() {
  std::erase_if(attachments_, [&](const std::shared_ptr<net::Attachment>& attachment) {
    const net::AttachSpec& spec = attachment->spec();
    const bool on_uplink = (spec.role == kReplyProgram && spec.ifindex != net::kLoopbackIfindex) ||
                           (spec.role == kSplitterProgram && spec.ifindex != links_.proxy.link.ifindex);
    if (!on_uplink || topology_.uplinks.contains(spec.ifindex)) return false;
    absl::Status status = attachment->Detach();
    // An interface that is gone took its programs with it; else this would be tried, and told, every second.
    if (net::LinkIsGone(spec.ifindex)) status = absl::OkStatus();
    if (!status.ok()) LogError(std::string(status.message()));
    if (status.ok()) undo_.Drop(UndoOfAttachment(*attachment));
    return status.ok();
  });
}

// At clsact hooks, as RemoveUnusedPins() does for TCX: of an uplink that was left before this daemon came.
void ProxyInstance::RemoveStrayFilters() {
  const auto links = net::ListLinks();
  if (!links.ok()) return LogError(std::string(links.status().message()));
  const std::string prefix = net::FilterNamePrefix(config_.instance());
  for (const net::LinkInfo& link : *links) {
    for (const net::Direction direction : {net::Direction::kIngress, net::Direction::kEgress}) {
      const auto filters = net::ListClsactFilters(link.ifindex, direction);
      if (!filters.ok()) continue;  // it is gone
      for (const net::ClsactFilter& filter : *filters) {
        if (!absl::StartsWith(filter.name, prefix)) continue;
        const bool known = std::any_of(attachments_.begin(), attachments_.end(), [&](const auto& each) {
          return each->spec().ifindex == link.ifindex && each->spec().direction == direction &&
                 filter.name == absl::StrCat(prefix, each->spec().role);
        });
        if (known) continue;
        if (const absl::Status status = net::DeleteClsactFilter(filter); !status.ok())
          LogError(std::string(status.message()));
        net::DeleteClsactIfUnused(link.ifindex).IgnoreError();
      }
    }
  }
}

}  // namespace hedgerow
