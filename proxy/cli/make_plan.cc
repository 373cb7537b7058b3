// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/make_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "config/scalar.h"
#include "proxy/cli/status_text.h"
#include "proxy/kernel_part/map_sizes.h"
#include "proxy/config/built_in_profiles.h"
#include "proxy/config/emit.h"
#include "proxy/start/spec.h"
#include "net/bpffs.h"

namespace hedgerow::cli {
namespace {

void Links(const v1::Config& config, v1::Plan& plan) {
  const std::string& name = config.interface();
  v1::PlannedLink& proxy = *plan.add_links();
  proxy.set_name(name);
  proxy.set_peer(absl::StrCat(name, "p"));
  proxy.set_purpose("the VIPs are routed to it");
  v1::PlannedLink& clock = *plan.add_links();
  clock.set_name(absl::StrCat(name, "c0"));
  clock.set_peer(absl::StrCat(name, "c1"));
  clock.set_purpose("the kernel clock");
}

void Attachments(const v1::Config& config, const Topology& topology, v1::Plan& plan) {
  const auto add = [&plan](absl::string_view program, const std::string& device, absl::string_view hook) {
    v1::PlannedAttachment& attachment = *plan.add_attachments();
    attachment.set_program(std::string(program));
    attachment.set_device(device);
    attachment.set_hook(std::string(hook));
  };
  const auto on_uplinks = [&](absl::string_view program, absl::string_view hook) {
    for (const auto& [ifindex, link] : topology.uplinks)
      if (ifindex != net::kLoopbackIfindex) add(program, link.name, hook);
  };
  for (const Hook& hook : kHooks) {
    const absl::string_view program = absl::StripPrefix(hook.program, "hr_"),
                            direction = hook.egress ? "egress" : "ingress";
    if (hook.place == Place::kUplinks) on_uplinks(program, direction);
    add(program,
        hook.place == Place::kUplinks  ? "lo"
        : hook.place == Place::kOthers ? "each other interface"
                                       : absl::StrCat(config.interface(), SuffixOf(hook.place)),
        direction);
  }
  on_uplinks("splitter", "egress");
}

void Maps(const v1::Config& config, const Topology& topology, int cpus, v1::Plan& plan) {
  const auto sizes = MapSizes(MakeSpec(config, topology, {}), static_cast<uint32_t>(cpus));
  if (!sizes.ok()) return plan.add_problems(std::string(sizes.status().message()));
  for (const MapSize& size : *sizes) {
    v1::PlannedMap& map = *plan.add_maps();
    map.set_name(size.name);
    map.set_entries(size.entries);
    map.set_bytes(size.bytes);
    plan.set_map_bytes(plan.map_bytes() + size.bytes);
  }
}

// " at first, then adaptive between 1ms and 100ms"
std::string Adaptive(const v1::Service& service) {
  if (!service.has_adaptive()) return "";
  return absl::StrCat(" at first, then adaptive between ", config::FormatDurationNs(service.adaptive().floor_ns()),
                      " and ", config::FormatDurationNs(service.adaptive().cap_ns()));
}

std::string Summary(const v1::Service& service) {
  const std::string cluster = service.has_cluster()
                                  ? absl::StrCat(", cluster ", service.cluster().id(), " announces its leader on port ",
                                                 service.cluster().announce_port())
                                  : "";
  return absl::StrCat(
      service.vip(), " port ", service.port(), ", ", service.profile(), ", hedge after ",
      config::FormatDurationNs(service.delay_ns()), Adaptive(service), ", deadline ",
      config::FormatDurationNs(service.deadline_ns()), ", ", service.attempts(), " attempts, budget ",
      config::FormatPercentPpm(service.budget_ppm()),
      service.idle_copies_ppm() > 0
          ? absl::StrCat(", two copies at once up to a load of ", config::FormatPercentPpm(service.idle_copies_ppm()))
          : "",
      ", suspect after ", config::FormatDurationNs(service.suspect_min_ns()), " to ",
      config::FormatDurationNs(service.suspect_max_ns()), " of silence", cluster,
      service.prefer() == v1::PREFER_FASTEST  ? ", the fastest is asked first"
      : service.prefer() == v1::PREFER_EACH   ? ", each is asked, by weight"
      : service.prefer() == v1::PREFER_SOURCE ? ", each client has its backend, by weight"
                                              : "",
      service.in_place() ? ", in place of what serves its VIP here" : "",
      service.also_at_size() > 0 ? absl::StrCat(", asked at ", absl::StrJoin(service.also_at(), ", ")) : "",
      service.dry_run() == v1::SWITCH_ON ? ", DRY RUN" : "");
}

void Services(const v1::Config& config, const Topology& topology, v1::Plan& plan) {
  std::set<std::string> routed;
  for (int i = 0; i < config.services_size(); ++i) {
    const v1::Service& service = config.services(i);
    const Topology::ServicePath& path = topology.services.at(static_cast<size_t>(i));
    v1::PlannedService& out = *plan.add_services();
    out.set_name(service.name());
    out.set_summary(Summary(service));
    out.set_leader(service.primary());
    if (const v1::Profile* profile = config::EffectiveProfile(service); profile != nullptr)
      out.set_profile(config::EmitYaml(*profile, config::Secrets::kHidden, config::Defaults::kLeftOut));
    for (int j = 0; j < service.backends_size(); ++j) {
      const v1::Backend& backend = service.backends(j);
      const auto uplink = topology.uplinks.find(path.backends.at(static_cast<size_t>(j)).uplink);
      const std::string via = uplink == topology.uplinks.end() ? "?" : uplink->second.name;
      out.add_backends(absl::StrCat(backend.name(), " ", backend.address(), " port ", backend.port(), " via ", via));
      if (uplink != topology.uplinks.end() &&
          std::find(out.uplinks().begin(), out.uplinks().end(), via) == out.uplinks().end()) {
        out.add_uplinks(via);
      }
    }
    if (!routed.insert(service.vip()).second) continue;
    v1::PlannedRoute& route = *plan.add_routes();
    route.set_destination(service.vip());
    route.set_device(config.interface());
    if (path.source.has_value()) route.set_source(path.source->ToString());
    for (const std::string& uplink : out.uplinks()) {  // for clients that are bound to it
      v1::PlannedRoute& bound = *plan.add_routes();
      bound = route;
      bound.set_device(uplink);
    }
  }
}

std::string Megabytes(uint64_t bytes) { return absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6); }

// Each profile once, with the indentation of a service's keys, so that it can be copied and changed.
void Profiles(const v1::Plan& plan, std::string& out) {
  std::map<std::string, std::vector<std::string>> services;
  for (const v1::PlannedService& service : plan.services()) services[service.profile()].push_back(service.name());
  absl::StrAppend(&out, "\nprofiles, as a service's keys\n");
  for (const auto& [profile, names] : services) {
    absl::StrAppend(&out, "    # of ", absl::StrJoin(names, ", "), "\n    profile: raw\n    raw:\n");
    for (const absl::string_view line : absl::StrSplit(profile, '\n', absl::SkipEmpty()))
      absl::StrAppend(&out, "      ", line, "\n");
  }
}

}  // namespace

v1::Plan MakePlan(const v1::Config& config, const std::string& file, const Topology& topology, int cpus) {
  v1::Plan plan;
  plan.set_file(file);
  plan.set_instance(config.instance());
  plan.set_pins(net::PinDir(net::kDefaultBpffs, config.instance()));
  Links(config, plan);
  Attachments(config, topology, plan);
  Maps(config, topology, cpus, plan);
  Services(config, topology, plan);
  for (const Problem& problem : topology.problems) plan.add_problems(problem.ToString());
  plan.set_config(config::EmitYaml(config));
  return plan;
}

std::string PlanText(const v1::Plan& plan) {
  std::string out = absl::StrCat("instance ", plan.instance(), " of ", plan.file(), "; pins in ", plan.pins(), "\n");
  absl::StrAppend(&out, "\nlinks\n");
  for (const v1::PlannedLink& link : plan.links()) {
    absl::StrAppend(&out, "  veth ", link.name(), " and ", link.peer(), ": ", link.purpose(), "\n");
  }
  absl::StrAppend(&out, "\nroutes\n");
  for (const v1::PlannedRoute& route : plan.routes()) {
    absl::StrAppend(&out, "  ", route.destination(), " dev ", route.device(),
                    route.source().empty() ? "" : absl::StrCat(" src ", route.source()), "\n");
  }
  absl::StrAppend(&out, "\nprograms\n");
  for (const v1::PlannedAttachment& attachment : plan.attachments()) {
    absl::StrAppend(&out, "  ", attachment.program(), " on ", attachment.device(), " ", attachment.hook(), "\n");
  }
  absl::StrAppend(&out, "\nmaps, about ", Megabytes(plan.map_bytes()), " of kernel memory\n");
  // `--json` lists every one.
  constexpr uint64_t kSmallBytes = 50'000;
  int small = 0;
  uint64_t small_bytes = 0;
  for (const v1::PlannedMap& map : plan.maps()) {
    if (map.bytes() < kSmallBytes) {
      ++small;
      small_bytes += map.bytes();
      continue;
    }
    absl::StrAppendFormat(&out, "  %-20s %10d entries %10s\n", map.name(), map.entries(), Megabytes(map.bytes()));
  }
  absl::StrAppendFormat(&out, "  %-20s %10d maps    %10s\n", "all others", small, Megabytes(small_bytes));
  absl::StrAppend(&out, "\nservices\n");
  for (const v1::PlannedService& service : plan.services()) {
    absl::StrAppend(&out, "  ", service.name(), ": ", service.summary(), "\n");
    for (const std::string& backend : service.backends()) absl::StrAppend(&out, "    ", backend, "\n");
    absl::StrAppend(&out, "    leader: ", service.leader(), "\n");
  }
  Profiles(plan, out);
  if (plan.has_reload())
    absl::StrAppend(&out, "\nreload, since its daemon runs\n", ReloadText(plan.reload(), /*dry_run=*/true));
  if (plan.problems_size() > 0) {
    absl::StrAppend(&out,
                    "\nProblems here and now (a missing route, source or uplink is followed, and refuses no `up`):\n  ",
                    absl::StrJoin(plan.problems(), "\n  "), "\n");
  }
  return out;
}

}  // namespace hedgerow::cli
