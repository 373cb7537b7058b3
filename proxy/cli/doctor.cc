// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow doctor`: what this machine, this user and this configuration lack, and what is open (exposure.h).
// It tries things in a network namespace of its own and changes nothing.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/scalar.h"
#include "operate/file_rights.h"
#include "net/netlink/link.h"
#include "net/netlink/uplink_route.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/cli/exposure.h"
#include "proxy/start/delay_measurement.h"
#include "proxy/start/firewall_rules.h"
#include "proxy/start/topology.h"
#include "net/capabilities.h"
#include "net/kernel_probe.h"
#include "net/netlink/in_place.h"
#include "net/netlink/route.h"
#include "net/network_namespace.h"
#include "net/networks.h"
#include "net/tc/hook_programs.h"

namespace hedgerow::cli {
namespace {

class Doctor {
 public:
  void Capabilities() {
    const auto missing = net::MissingCapabilities(net::kCapabilitiesAlways);
    if (!missing.ok()) return Add("capabilities", "warning", std::string(missing.status().message()));
    if (missing->empty()) return Add("capabilities", "ok", "everything the daemon needs");
    Add("capabilities", "problem", absl::StrCat("missing: ", absl::StrJoin(*missing, ", ")));
  }

  void Kernel() {
    for (const net::ProbeResult& probe : net::ProbeKernel()) {
      const bool lacking = probe.found == net::Found::kNo;
      Add(probe.name == "kernel" ? probe.name : absl::StrCat("kernel ", probe.name),
          lacking && probe.required             ? "problem"
          : lacking                             ? "absent"
          : probe.found == net::Found::kUnknown ? "unknown"
                                                : "ok",
          absl::StrCat(std::string(net::ToString(probe.found)), probe.detail.empty() ? "" : ", ", probe.detail,
                       probe.offers.empty() ? "" : absl::StrCat(" (", probe.offers, ")")));
    }
  }

  // The delays that a queueing discipline really gave, or why it gave none.
  void Measured(absl::string_view check, const absl::StatusOr<DelayMeasurement>& measured) {
    if (!measured.ok()) {
      return Add(check, absl::IsPermissionDenied(measured.status()) ? "unknown" : "warning",
                 std::string(measured.status().message()));
    }
    std::vector<std::string> periods;
    for (const DelayMeasurement::Period& period : measured->periods) {
      periods.push_back(absl::StrCat(config::FormatDurationNs(static_cast<int64_t>(period.nominal_ns)), " took ",
                                     config::RoundedDurationNs(static_cast<int64_t>(period.median_ns))));
    }
    Add(check, "ok", absl::StrJoin(periods, ", "));
  }

  // What each kind of clock really does here. One that works is enough.
  void Clocks() {
    bool any = false, unsure = false;
    for (const net::ClockKind kind : {net::ClockKind::kFq, net::ClockKind::kHtb}) {
      const absl::StatusOr<DelayMeasurement> measured = TryClockKind(kind);
      if (absl::IsNotFound(measured.status())) continue;  // the kernel lacks it, which Kernel() says
      any |= measured.ok();
      unsure |= absl::IsPermissionDenied(measured.status());
      Measured(absl::StrCat("clock ", std::string(net::ToString(kind))), measured);
    }
    if (!any && !unsure) Add("clock", "problem", "no kind of clock works on this kernel");
  }

  // Instances that left something behind and whose daemon is gone.
  void Leftovers() {
    const auto instances = InstancesWithoutDaemon();
    if (!instances.ok()) return Add("leftovers", "unknown", std::string(instances.status().message()));
    for (const std::string& instance : *instances) {
      Add("leftovers", "warning",
          absl::StrCat("instance ", instance, " left something behind; `hedgerow clean --instance ", instance, "`"));
    }
    if (instances->empty()) Add("leftovers", "ok", "none");
  }

  void Configuration(const v1::Config& config) {
    const Topology topology = ResolveHere(config);
    for (const Problem& problem : topology.problems) Add("configuration", "problem", problem.ToString());
    std::vector<std::string> uplinks;
    for (const auto& [ifindex, link] : topology.uplinks) {
      uplinks.push_back(absl::StrCat(link.name, " (mtu ", link.mtu_bytes, ")"));
    }
    for (const Problem& problem : CheckUplinks(topology)) Add("configuration", "warning", problem.ToString());
    Programs(topology, config);
    if (topology.problems.empty()) {
      Add("configuration", "ok", absl::StrCat("every backend is reached, by ", absl::StrJoin(uplinks, ", ")));
    }
    for (const v1::Service& service : config.services()) Clients(service, topology, config.interface());
    const auto any = [&config](bool (*is)(const v1::Service&)) {
      return std::any_of(config.services().begin(), config.services().end(), is);
    };
    const bool lent = any([](const v1::Service& each) { return each.also_at_size() > 0; });
    if (lent || any([](const v1::Service& each) { return each.in_place(); })) InPlace(lent);
  }

  // What other hosts and users can reach or change here. `config` may be null.
  void Exposure(const v1::Config* config, const std::string& file) {
    Keys(config, file);
    Spoofing(config);
    Forwarding();
    if (config != nullptr) Firewall(*config);
    Ports();
  }

  void Add(absl::string_view check, absl::string_view result, absl::string_view detail) {
    v1::Finding& finding = *report_.add_findings();
    finding.set_check(std::string(check));
    finding.set_result(std::string(result));
    finding.set_detail(std::string(detail));
  }

  v1::DoctorReport Take() {
    report_.set_ok(true);
    for (const v1::Finding& finding : report_.findings()) {
      if (finding.result() == "problem") report_.set_ok(false);
    }
    return std::move(report_);
  }

 private:
  // Whether the kernel takes the rules, in a network namespace made for it. `lent`: those that translate, too.
  void InPlace(bool lent) {
    const absl::Status status = net::RunInNewNetworkNamespace([lent] {
      const net::Endpoint vip = {net::IpAddress::Parse("192.0.2.1").value(), 53};
      net::InPlaceRules rules{.instance = "probe",
                              .interface = "hr0",
                              .known = {vip},
                              .live = {vip},
                              .bridged = {{vip, {}}},
                              .lent = {},
                              .lent_to = {}};
      if (lent) rules.lent[vip] = vip.address;
      return net::PutInPlaceRules(rules);
    });
    if (status.ok()) return Add("in_place", "ok", "the kernel takes the rules that VIPs in place need");
    Add("in_place", absl::IsPermissionDenied(status) ? "unknown" : "problem", std::string(status.message()));
  }

  // A backend answers a client of its own network itself, past this host, and under its own address.
  void Clients(const v1::Service& service, const Topology& topology, const std::string& interface) {
    for (const std::string& text : service.clients()) {
      const auto network = net::Network::Parse(text);
      if (!network.ok()) continue;
      const std::optional<std::string> uplink = UplinkTo(*network, topology);
      if (!uplink.has_value()) continue;
      Add("clients", "warning",
          absl::StrCat(
              "service ", service.name(), ": hosts of ", text, " are reached by ", *uplink,
              ", as the backends are, which may answer them past this host. Masquerade what they send through it (`iifname ",
              *uplink, " oifname ", interface, " masquerade` in nft)",
              network->address.is_v4() ? "" : " and list this host's address",
              "; macvlan and ipvlan containers there need nothing"));
    }
  }

  // Of the network's first addresses one may be its own name, and another this host's.
  static std::optional<std::string> UplinkTo(const net::Network& network, const Topology& topology) {
    std::vector<uint8_t> host(network.address.wire().begin(), network.address.wire().end());
    const int hosts = network.bits < network.address.prefix_bits() ? 3 : 1;
    for (int i = 0; i < hosts; ++i, ++host.back()) {
      const auto route = net::LookUpRoute(*net::IpAddress::FromBytes(host));
      if (route.ok() && route->reach == net::Reach::kRouted && topology.uplinks.contains(route->ifindex))
        return topology.uplinks.at(route->ifindex).name;
    }
    return std::nullopt;
  }

  void Keys(const v1::Config* config, const std::string& file) {
    std::vector<std::string> open;
    for (const char* folder : {"/etc/hedgerow", "/etc/hedgerow-node"}) {
      for (std::string& why : OpenKeysIn(folder)) open.push_back(std::move(why));
    }
    if (config != nullptr) {
      struct stat info {};
      // Its owner may be the daemon's user, which is not known here.
      const std::string strange =
          stat(file.c_str(), &info) == 0 ? operate::WhyNotFollowed(info, file, info.st_uid) : std::string();
      if (!strange.empty()) open.push_back(absl::StrCat(file, " ", strange));
      for (const v1::Service& service : config->services()) {
        std::string why = WhyKeyIsOpen(service.cluster().key_file());
        if (!why.empty() && std::find(open.begin(), open.end(), why) == open.end()) open.push_back(std::move(why));
      }
    }
    for (const std::string& why : open) Add("keys", "problem", why);
    if (!open.empty()) return;
    if (geteuid() == 0) return Add("keys", "ok", "no other user reads a key or changes a configuration");
    Add("keys", "unknown", "only root can look at all of them");
  }

  // What stands before the reply program, or would: where it is not attached, a program of the hook goes before it or
  // behind it as `tcx_order` says, and a filter by its priority.
  void Programs(const Topology& topology, const v1::Config& config) {
    bool any = false;
    const bool tcx = config.attach() != v1::ATTACH_CLSACT && net::TcxSupported().value_or(false);
    for (const auto& [ifindex, link] : topology.uplinks) {
      const auto programs = net::ListHook(ifindex, net::Direction::kIngress);
      if (!programs.ok()) {
        Add("programs", "warning", absl::StrCat(link.name, ": ", std::string(programs.status().message())));
        continue;
      }
      const bool attached = std::any_of(programs->begin(), programs->end(),
                                        [](const net::HookProgram& each) { return each.IsHedgerows(); });
      if (!attached && tcx && config.tcx_order() == v1::TCX_ORDER_FIRST) continue;
      for (const net::HookProgram& program : *programs) {
        if (program.IsHedgerows()) break;
        if (!attached && tcx && program.mechanism == net::Mechanism::kClsact) break;  // TCX runs before filters
        any = true;
        Add("programs", "warning",
            absl::StrCat(link.name, ": ", program.ToString(),
                         " runs before the reply program. Answers reach it only if that ",
                         "program returns TC_ACT_UNSPEC for them; `up` tests it"));
      }
    }
    if (!any) Add("programs", "ok", "none runs before the reply program");
  }

  static std::vector<std::string> UplinkNames(const v1::Config& config) {
    std::vector<std::string> names;
    for (const auto& [ifindex, link] : ResolveHere(config).uplinks)
      if (ifindex != net::kLoopbackIfindex) names.push_back(link.name);  // rules and settings of lo are of another kind
    return names;
  }

  // IPv6 has no such setting.
  void Spoofing(const v1::Config* config) {
    const std::vector<std::string> names = config == nullptr ? std::vector<std::string>{} : UplinkNames(*config);
    bool any = false;
    for (const std::string& name : names) {
      if (net::ReversePathFilterOf(name) != 0) continue;
      any = true;
      Add("rp_filter", "warning",
          absl::StrCat(name,
                       " takes packets under addresses that are reached by other links, or by none: a host there can ",
                       "speak as another one (`sysctl -w net.ipv4.conf.", name,
                       ".rp_filter=1`, and that line in a file of /etc/sysctl.d; 2 where routes differ by direction)"));
    }
    if (!any && !names.empty()) Add("rp_filter", "ok", absl::StrCat("on at ", absl::StrJoin(names, ", ")));
  }

  void Forwarding() {
    std::vector<std::string> families;
    if (net::NetworkSetting("ipv4/ip_forward").value_or(0) != 0) families.push_back("IPv4");
    if (net::NetworkSetting("ipv6/conf/all/forwarding").value_or(0) != 0) families.push_back("IPv6");
    if (families.empty()) return Add("forwarding", "ok", "off");
    Add("forwarding", "warning",
        absl::StrCat("this host forwards ", absl::StrJoin(families, " and "),
                     " packets: hosts that send to it may reach VIPs and backends through it"));
  }

  // Netfilter sees a proxied packet under the VIP's name on its way out, and the answer under the VIP's name on its way
  // in.
  void Firewall(const v1::Config& config) {
    static constexpr size_t kShown = 5;
    const absl::StatusOr<std::string> rules = FirewallRules();
    if (!rules.ok())
      return Add("firewall", "warning", absl::StrCat("not looked at: ", std::string(rules.status().message())));
    std::vector<net::IpAddress> backends;
    for (const v1::Service& service : config.services()) {
      for (const v1::Backend& backend : service.backends()) {
        const auto address = net::IpAddress::Parse(backend.address());
        if (address.ok()) backends.push_back(*address);
      }
    }
    const auto tell = [this](const std::vector<std::string>& found, absl::string_view what) {
      for (size_t i = 0; i < std::min(found.size(), kShown); ++i)
        Add("firewall", "warning", absl::StrCat("the rule \"", found[i], "\" ", what));
      if (found.size() > kShown)
        Add("firewall", "warning", absl::StrCat("and ", found.size() - kShown, " more such rules"));
    };
    const std::vector<std::string> found = RulesThatName(*rules, backends);
    tell(
        found,
        "names a backend and does not see what the proxy sends there: in the rules these packets carry the VIP. Name the VIP "
        "as well");
    bool alone = false;
    for (const std::string& uplink : UplinkNames(config)) {
      const std::vector<std::string> naming = RulesThatNameAlone(*rules, uplink, config.interface());
      alone |= !naming.empty();
      if (config.vip_route() == v1::VIP_ROUTE_INTERFACE) {
        tell(naming,
             absl::StrCat("names the uplink ", uplink,
                          ", and does not hold for packets to a VIP and its answers: they leave and ", "come in by ",
                          config.interface(), ". Name ", config.interface(), " as well, or set `vip_route: uplink`"));
      } else if (!naming.empty()) {
        Add("firewall", "ok",
            absl::StrCat(naming.size(), " rules name the uplink ", uplink, ": `vip_route` is ",
                         config.vip_route() == v1::VIP_ROUTE_UPLINK
                             ? "uplink"
                             : "auto, so VIPs are routed by it where that is needed"));
        TellForwarded(config, RulesForForwarded(*rules, uplink, config.interface()));
      }
    }
    if (found.empty() && !alone) Add("firewall", "ok", "no rule names a backend or an uplink");
  }

  // The daemon reads the rules for what is forwarded at its start: they may have been loaded since.
  void TellForwarded(const v1::Config& config, const std::vector<std::string>& needed) {
    const auto leading = net::ListLeadingRoutes();
    if (needed.empty() || !leading.ok() || !net::FindLink(config.interface()).ok()) return;
    for (const v1::Service& service : config.services()) {
      const auto vip = net::IpAddress::Parse(service.vip());
      if (!vip.ok() || !MayForwardTo(service)) continue;
      const bool led =
          std::any_of(leading->begin(), leading->end(), [&](const net::VipRoute& each) { return each.vip == *vip; });
      if (!led)
        Add("firewall", "warning",
            absl::StrCat(
                "what this host forwards to service ", service.name(), " is routed by ", config.interface(),
                ", for which the rule \"", needed.front(),
                "\" does not hold: restart the daemon, which then looks at the rules, or set `vip_route: uplink`"));
    }
  }

  void Ports() {
    std::vector<std::string> found = PublicPortsOf("hedgerowd");
    for (std::string& port : PublicPortsOf("hedgerow-node")) found.push_back(std::move(port));
    for (const std::string& port : found)
      Add("ports", "warning", absl::StrCat(port, ", which other networks may reach"));
    if (found.empty())
      Add("ports", "ok", "none of the programs that this user may look at listens on a public address");
  }

  v1::DoctorReport report_;
};

}  // namespace

int RunDoctor(const Call& call) {
  Doctor doctor;
  std::optional<v1::Config> config;
  if (call.arguments.Has("config")) {
    absl::StatusOr<v1::Config> read = RequireConfig(call.arguments);
    if (!read.ok()) return call.Fail(read.status());
    config = *std::move(read);
    doctor.Configuration(*config);
    for (const std::string& why : ClosedToTheUnit(call.arguments, *config)) doctor.Add("files", "problem", why);
  }
  doctor.Capabilities();
  doctor.Kernel();
  doctor.Clocks();
  doctor.Leftovers();
  doctor.Exposure(config.has_value() ? &*config : nullptr, call.arguments.Get("config"));
  const v1::DoctorReport report = doctor.Take();
  size_t width = 0;
  int unknown = 0;
  for (const v1::Finding& finding : report.findings()) {
    width = std::max(width, finding.check().size());
    unknown += finding.result() == "unknown";
  }
  std::string text;
  for (const v1::Finding& finding : report.findings()) {
    absl::StrAppendFormat(&text, "%-8s %-*s %s\n", finding.result(), static_cast<int>(width), finding.check(),
                          finding.detail());
  }
  if (unknown > 0 && geteuid() != 0) {
    absl::StrAppend(&text, unknown, " checks need more rights than this user has: run `sudo hedgerow doctor",
                    config.has_value() ? absl::StrCat(" --config ", call.arguments.Get("config")) : "", "`\n");
  }
  return call.Print(report, text, report.ok() ? kExitOk : kExitFailure);
}

}  // namespace hedgerow::cli
