// SPDX-License-Identifier: Apache-2.0
//
// The order: VIPs in place are given back and programs leave the hooks first, so that no packet meets half a machine;
// then routes, interfaces, and at last the pins, by which everything else is found again if this run dies half-way.
#include "net/clean.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "net/bpffs.h"
#include "net/tc/clsact.h"
#include "net/netlink/in_place.h"
#include "net/netlink/link.h"
#include "net/netlink/route.h"
#include "net/netlink/uplink_route.h"
#include "net/tc/tc_attach.h"
#include "net/tc/tcx.h"

namespace hedgerow::net {
namespace {

class Cleaner {
 public:
  Cleaner(const std::string& instance, const std::string& bpffs) : instance_(instance), bpffs_(bpffs) {}

  CleanReport Run() {
    const auto links = ListLinks();
    if (links.ok()) {
      links_ = *links;
    } else {
      report_.failures.push_back(links.status().ToString());
    }
    GiveBackInPlace(instance_).IgnoreError();
    DetachTcxLinks();
    RemoveFilters();
    RemoveMarkedQdiscs();
    for (const LinkInfo& link : links_) {
      if (BelongsTo(link, instance_)) RemoveRoutes(link);
    }
    RemoveWhatServedThem();
    RemoveLinks();
    NoteIfAny(RemoveInPlaceRules(instance_), absl::StrCat("nftables hedgerow-", instance_));
    RemovePins();
    return std::move(report_);
  }

 private:
  // Records the outcome of removing one thing.
  void Note(const absl::Status& status, const std::string& what) {
    if (status.ok()) {
      report_.removed.push_back(what);
    } else {
      report_.failures.push_back(absl::StrCat(what, ": ", status.message()));
    }
  }
  // The same for what may not have been there: false.
  void NoteIfAny(const absl::StatusOr<bool>& removed, const std::string& what) {
    if (!removed.ok() || *removed) Note(removed.status(), what);
  }
  std::string LinkName(int ifindex) const {
    const auto found =
        std::find_if(links_.begin(), links_.end(), [&](const LinkInfo& l) { return l.ifindex == ifindex; });
    return found != links_.end() ? found->name : absl::StrCat("interface number ", ifindex);
  }

  void DetachTcxLinks() {
    std::error_code error;
    std::filesystem::recursive_directory_iterator pins(PinDir(bpffs_, instance_), error);
    for (; !error && pins != std::filesystem::recursive_directory_iterator(); pins.increment(error)) {
      if (pins->is_directory()) continue;
      const auto link = TcxLink::OpenPinned(pins->path().string());
      if (!link.ok()) continue;  // A map or a program.
      const auto info = link->Info();
      if (!info.ok() || info->ifindex == 0) continue;  // Its interface is gone: only the pin is left.
      Note(link->Detach(), absl::StrCat("program ", ProgramName(info->program_id), " at tcx ",
                                        ToString(info->direction), " of ", LinkName(info->ifindex)));
    }
  }

  void RemoveFilters() {
    for (const LinkInfo& link : links_) {
      for (const Direction direction : {Direction::kIngress, Direction::kEgress}) {
        const auto filters = ListClsactFilters(link.ifindex, direction);
        if (!filters.ok()) {
          report_.failures.push_back(absl::StrCat("filters of ", link.name, ": ", filters.status().message()));
          continue;
        }
        for (const ClsactFilter& filter : *filters) {
          if (!absl::StartsWith(filter.name, FilterNamePrefix(instance_))) continue;
          Note(DeleteClsactFilter(filter),
               absl::StrCat("filter ", filter.name, " at clsact ", ToString(direction), " of ", link.name));
        }
      }
    }
  }

  void RemoveMarkedQdiscs() {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(PinDir(bpffs_, instance_), error)) {
      const auto ifindex = ClsactMarkerIfindex(entry.path().filename().string());
      if (!ifindex) continue;
      NoteIfAny(DeleteClsactIfUnused(*ifindex), absl::StrCat("clsact qdisc of ", LinkName(*ifindex)));
    }
  }

  void RemoveRoutes(const LinkInfo& link) {
    const auto routes = ListVipRoutes(link.ifindex);
    if (!routes.ok()) {
      report_.failures.push_back(absl::StrCat("routes of ", link.name, ": ", routes.status().message()));
      return;
    }
    for (const VipRoute& route : *routes)
      Note(DeleteVipRoute(route), absl::StrCat("route ", route.vip.ToString(), " dev ", link.name));
    removed_.insert(removed_.end(), routes->begin(), routes->end());
  }

  // The rules and the routes by uplinks of VIPs that have no route by any instance's interface: they outlive that
  // interface, and bear no instance's name. Another instance's VIP may be without its route for a moment, so where
  // there is one, only those of the routes that were removed here go.
  void RemoveWhatServedThem() {
    const auto standing = ListVipRoutes();
    const auto rules = ListVipRules();
    const auto routes = ListUplinkRoutes();
    for (const absl::Status& status : {standing.status(), rules.status(), routes.status()}) {
      if (status.ok()) continue;
      report_.failures.push_back(absl::StrCat("routes and rules of VIPs: ", status.message()));
      return;
    }
    const auto instances = ListPinnedInstances(bpffs_);
    const bool alone = instances.ok() && std::all_of(instances->begin(), instances->end(),
                                                     [&](const std::string& each) { return each == instance_; });
    const auto is_over = [&](const IpAddress& vip) {
      const auto has = [&vip](const VipRoute& each) { return each.vip == vip; };
      return std::any_of(removed_.begin(), removed_.end(), has) ||
             (alone && std::none_of(standing->begin(), standing->end(), has));
    };
    for (const VipRule& rule : *rules) {
      if (is_over(rule.vip))
        Note(DeleteVipRule(rule), absl::StrCat("routing rule ", rule.priority, " to ", rule.vip.ToString()));
    }
    for (const VipRoute& route : *routes) {
      if (is_over(route.vip))
        Note(DeleteUplinkRoute(route), absl::StrCat("route ", route.vip.ToString(), " dev ", LinkName(route.ifindex)));
    }
  }

  void RemoveLinks() {
    for (const LinkInfo& link : links_) {
      // A veth takes its other end along, so look again before each.
      if (!BelongsTo(link, instance_) || LinkIsGone(link.ifindex)) continue;
      Note(DeleteOwnedLink(link.name, instance_), absl::StrCat("interface ", link.name));
    }
  }

  void RemovePins() {
    const std::string path = PinDir(bpffs_, instance_);
    std::error_code error;
    if (std::filesystem::exists(path, error)) Note(RemovePinDir(bpffs_, instance_), absl::StrCat("pins ", path));
    NoteIfAny(ReleaseBpffs(bpffs_), absl::StrCat("bpffs ", bpffs_));
  }

  const std::string instance_;
  const std::string bpffs_;
  std::vector<LinkInfo> links_;
  std::vector<VipRoute> removed_;
  CleanReport report_;
};

}  // namespace

CleanReport Clean(const std::string& instance, const std::string& bpffs) { return Cleaner(instance, bpffs).Run(); }

absl::StatusOr<std::vector<std::string>> FindInstances(const std::string& bpffs) {
  std::set<std::string> instances;
  const auto pinned = ListPinnedInstances(bpffs);
  if (!pinned.ok()) return pinned.status();
  instances.insert(pinned->begin(), pinned->end());
  const auto links = ListLinks();
  if (!links.ok()) return links.status();
  for (const LinkInfo& link : *links) {
    if (const auto owner = OwnerOf(link)) instances.insert(*owner);
  }
  return std::vector<std::string>(instances.begin(), instances.end());
}

}  // namespace hedgerow::net
