// SPDX-License-Identifier: Apache-2.0
#include "proxy/config/check.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "config/format.h"
#include "config/scalar.h"
#include "config/suggest.h"
#include "config/address.h"
#include "proxy/config/built_in_profiles.h"
#include "proxy/config/check_profile.h"
#include "config/schema.h"

namespace hedgerow::config {
namespace {

// A live server of a protocol with sessions may be silent while its clients send. (WireGuard answers within 10 s at the
// latest, QUIC and the handshakes of DTLS within one.)
constexpr int64_t kFlowSuspectMinNs = 3'000'000'000;
constexpr int64_t kSuspectMostNs = 60'000'000'000;  // of other profiles

// The path under which each value was first seen.
using FirstSeen = absl::flat_hash_map<std::string, std::string>;

std::string EndpointText(const std::string& address, uint32_t port) {
  const absl::StatusOr<net::IpAddress> ip = net::IpAddress::Parse(address);
  return ip.ok() ? FormatEndpoint(ip->ToString(), port) : "";
}

class Checker : Checks {
 public:
  Checker(const v1::Config& config, const Locations& locations, Diagnostics& errors)
      : Checks(locations, errors), config_(config) {}

  void Run() {
    if (!config_.admin().monitor_socket().empty() && config_.admin().monitor_socket() == config_.admin().socket())
      Add("admin.monitor_socket", "got the path of admin.socket, expected one of its own");
    const v1::MetricsConfig& metrics = config_.metrics();
    if (const std::string why = WhyNotListened(metrics.listen(), "metrics.tls", metrics.has_tls(), "metrics.token_file",
                                               !metrics.token_file().empty());
        !why.empty())
      Add("metrics.listen", why);
    for (int i = 0; i < config_.services_size(); ++i) {
      const std::string path = absl::StrCat("services[", i, "]");
      const v1::Service& service = config_.services(i);
      Identity(service, path);
      Timing(service, path);
      Suspicion(service, path);
      Adaptive(service, absl::StrCat(path, ".adaptive.cap"));
      Preference(service, absl::StrCat(path, ".prefer"));
      OfTheVipsFamily(service, service.clients(), "network", absl::StrCat(path, ".clients"));
      OfTheVipsFamily(service, service.also_at(), "address", absl::StrCat(path, ".also_at"));
      for (int j = 0; j < service.also_at_size() && service.port() != 0; ++j)
        Unique(vip_ports_, EndpointText(service.also_at(j), service.port()), absl::StrCat(path, ".also_at[", j, "]"),
               "an address and port that no other service is asked at");
      if (config_.vip_route() == v1::VIP_ROUTE_UPLINK && service.in_place())
        Add(absl::StrCat(path, ".in_place"), "got true, expected false with vip_route: uplink");
      if (config_.vip_route() == v1::VIP_ROUTE_UPLINK && service.also_at_size() > 0)
        Add(absl::StrCat(path, ".also_at"), "got addresses, expected none with vip_route: uplink");
      Question(service, absl::StrCat(path, ".check"));
      Backends(service, path);
    }
    // Once all VIPs are known: a backend of one service may be another's VIP.
    for (int i = 0; i < config_.services_size(); ++i) {
      BackendsAgainstVips(config_.services(i), absl::StrCat("services[", i, "]"));
    }
  }

 private:
  void Identity(const v1::Service& service, const std::string& path) {
    Unique(names_, service.name(), absl::StrCat(path, ".name"), "a name no other service has");
    if (service.vip().empty()) return;
    // One in place may be this host's own, and a server of this host a backend (docs/adr/0063).
    if (!service.in_place()) vips_.try_emplace(service.vip(), absl::StrCat(path, ".vip"));
    if (service.port() == 0) return;
    Unique(vip_ports_, EndpointText(service.vip(), service.port()), absl::StrCat(path, ".vip"),
           "an address and port no other service has");
  }

  void Unique(FirstSeen& seen, const std::string& value, const std::string& path, absl::string_view expected) {
    if (value.empty()) return;
    const auto [entry, inserted] = seen.try_emplace(value, path);
    if (inserted) return;
    const Mark first = locations_.Find(entry->second);
    Add(path, absl::StrCat("got ", Quote(value), ", expected ", expected, " (", entry->second, " in line ", first.line,
                           " is the same)"));
  }

  void Timing(const v1::Service& service, const std::string& path) {
    if (service.delay_ns() == 0 || service.deadline_ns() == 0) return;
    if (service.delay_ns() < service.deadline_ns()) return;
    // Said at the value that was written; both may have been.
    const std::string delay = absl::StrCat(path, ".delay");
    const std::string deadline = absl::StrCat(path, ".deadline");
    if (locations_.Has(delay)) {
      Add(delay, absl::StrCat("got \"", FormatDurationNs(service.delay_ns()), "\", expected less than the deadline of ",
                              FormatDurationNs(service.deadline_ns())));
    } else {
      Add(deadline, absl::StrCat("got \"", FormatDurationNs(service.deadline_ns()),
                                 "\", expected more than the delay of ", FormatDurationNs(service.delay_ns())));
    }
  }

  // Where only the lower one was written the upper one follows it (Complete).
  void Suspicion(const v1::Service& service, const std::string& path) {
    const std::string most = absl::StrCat(path, ".suspect_max");
    const v1::Profile* profile = EffectiveProfile(service);
    for (const auto& [key, value] :
         {std::pair("suspect_min", service.suspect_min_ns()), std::pair("suspect_max", service.suspect_max_ns())})
      if (value > kSuspectMostNs && (profile == nullptr || !profile->flow()))
        Add(absl::StrCat(path, ".", key),
            absl::StrCat("got \"", FormatDurationNs(value), "\", expected at most ", FormatDurationNs(kSuspectMostNs),
                         ": only a profile with flow may have more"));
    if (!locations_.Has(most) || service.suspect_max_ns() == 0 || service.suspect_min_ns() == 0) return;
    if (service.suspect_max_ns() >= service.suspect_min_ns()) return;
    Add(most, absl::StrCat("got \"", FormatDurationNs(service.suspect_max_ns()),
                           "\", expected at least the suspect_min of ", FormatDurationNs(service.suspect_min_ns())));
  }

  void Adaptive(const v1::Service& service, const std::string& cap) {
    const v1::AdaptiveDelay& adaptive = service.adaptive();
    if (adaptive.floor_ns() == 0 || adaptive.cap_ns() == 0) return;
    if (adaptive.cap_ns() < adaptive.floor_ns()) {
      Add(cap, absl::StrCat("got \"", FormatDurationNs(adaptive.cap_ns()), "\", expected at least the floor of ",
                            FormatDurationNs(adaptive.floor_ns())));
    } else if (service.deadline_ns() != 0 && adaptive.cap_ns() >= service.deadline_ns()) {
      Add(cap, absl::StrCat("got \"", FormatDurationNs(adaptive.cap_ns()), "\", expected less than the deadline of ",
                            FormatDurationNs(service.deadline_ns())));
    }
  }

  void Preference(const v1::Service& service, const std::string& path) {
    const bool shares = service.prefer() == v1::PREFER_EACH || service.prefer() == v1::PREFER_SOURCE;
    const auto& backends = service.backends();
    if (shares && std::all_of(backends.begin(), backends.end(), [](const auto& each) { return each.weight() == 0; }))
      Add(path, "every backend has weight 0, expected one with a share at least");
    if (service.prefer() == v1::PREFER_PRIMARY || service.prefer() == v1::PREFER_UNSPECIFIED || !service.has_cluster())
      return;
    static constexpr const char* kWords[] = {"", "", "fastest", "each", "source"};
    Add(path,
        absl::StrCat(
            "got \"", kWords[service.prefer()],
            "\", expected \"primary\" with a cluster (its leader gets the requests; another member would only send them on to "
            "it)"));
  }

  void OfTheVipsFamily(const v1::Service& service, const google::protobuf::RepeatedPtrField<std::string>& listed,
                       absl::string_view what, const std::string& path) {
    const auto vip = net::IpAddress::Parse(service.vip());
    for (int i = 0; vip.ok() && i < listed.size(); ++i) {
      const auto network = net::Network::Parse(listed[i]);
      if (!network.ok() || network->address.is_v4() == vip->is_v4()) continue;
      Add(absl::StrCat(path, "[", i, "]"),
          absl::StrCat("got ", Quote(listed[i]), ", expected an ", vip->is_v4() ? "IPv4 " : "IPv6 ", what,
                       " like the service's vip ", service.vip(), " (dual stack takes two services)"));
    }
  }

  void Question(const v1::Service& service, const std::string& path) {
    if (!service.has_check()) return;
    const std::vector<std::string> labels = absl::StrSplit(service.check().name(), '.', absl::SkipEmpty());
    if (!labels.empty() && service.profile() != "dns")
      Add(absl::StrCat(path, ".name"), "got a name, expected none but with the profile dns");
    if (service.check().name().size() > 253 ||
        absl::c_any_of(labels, [](const auto& each) { return each.size() > 63; }))
      Add(absl::StrCat(path, ".name"), "got a name that is too long for DNS, expected one such as www.example.test");
    if (service.has_cluster()) Add(path, "got a check, expected none with a cluster, which announces its leader");
    const bool tcp = service.check().tcp() == v1::SWITCH_ON;
    if (tcp && !labels.empty()) Add(absl::StrCat(path, ".name"), "got a name, expected none with `tcp: on`");
    if (!tcp && !CheckedProfile(service).has_check())
      Add(path, absl::StrCat("the profile ", service.profile(),
                             " has no harmless request; `raw.check` can name one, and `tcp: on` opens a connection"));
  }

  void Backends(const v1::Service& service, const std::string& path) {
    FirstSeen names;
    FirstSeen endpoints;
    std::vector<std::string> known;
    for (int i = 0; i < service.backends_size(); ++i) {
      const std::string backend_path = absl::StrCat(path, ".backends[", i, "]");
      const v1::Backend& backend = service.backends(i);
      known.push_back(backend.name());
      Unique(names, backend.name(), absl::StrCat(backend_path, ".name"), "a name no other backend of this service has");
      Family(service, backend, absl::StrCat(backend_path, ".address"));
      if (backend.address().empty() || backend.port() == 0) continue;
      const std::string endpoint = EndpointText(backend.address(), backend.port());
      const std::string address_path = absl::StrCat(backend_path, ".address");
      if (endpoints.contains(endpoint)) {
        Unique(endpoints, endpoint, address_path, "an address and port no other backend of this service has");
      } else {
        endpoints.emplace(endpoint, address_path);
        SharedBackend(endpoint, address_path);
      }
    }
    Primary(service, known, absl::StrCat(path, ".primary"));
  }

  // A reply is led back by (client address, client port, backend), so a client
  // socket that uses two services on one backend would be ambiguous.
  void SharedBackend(const std::string& endpoint, const std::string& path) {
    const auto [entry, inserted] = backend_ports_.try_emplace(endpoint, path);
    if (inserted) return;
    Add(path, absl::StrCat("got ", Quote(endpoint), ", expected a backend that no other service uses (", entry->second,
                           " in line ", locations_.Find(entry->second).line,
                           " is the same): a client socket that uses both services "
                           "could not be told which one a reply is for; give the backend a second port or address, or "
                           "the service an instance of its own"));
  }

  void Family(const v1::Service& service, const v1::Backend& backend, const std::string& path) {
    const auto vip = net::IpAddress::Parse(service.vip());
    const auto address = net::IpAddress::Parse(backend.address());
    if (!vip.ok() || !address.ok() || vip->is_v4() == address->is_v4()) return;
    Add(path, absl::StrCat("got ", Quote(backend.address()), ", expected an ", vip->is_v4() ? "IPv4" : "IPv6",
                           " address like the service's vip ", service.vip(), " (dual stack takes two services)"));
  }

  void Primary(const v1::Service& service, const std::vector<std::string>& known, const std::string& path) {
    if (service.primary().empty()) return;
    for (const std::string& name : known) {
      if (name == service.primary()) return;
    }
    const std::string guess = Suggest(service.primary(), known);
    Add(path, absl::StrCat("got ", Quote(service.primary()), ", expected the name of a backend of this service",
                           guess.empty() ? "" : absl::StrCat(", did you mean \"", guess, "\"?")));
  }

  void BackendsAgainstVips(const v1::Service& service, const std::string& path) {
    for (int i = 0; i < service.backends_size(); ++i) {
      const auto vip = vips_.find(service.backends(i).address());
      if (vip == vips_.end()) continue;
      Add(absl::StrCat(path, ".backends[", i, "].address"),
          absl::StrCat("got ", Quote(service.backends(i).address()), ", expected an address that is no vip (",
                       vip->second, " in line ", locations_.Find(vip->second).line,
                       "): requests would come back to the proxy"));
    }
  }

  const v1::Config& config_;
  FirstSeen names_;
  FirstSeen vips_;
  FirstSeen vip_ports_;
  FirstSeen backend_ports_;
};

}  // namespace

void Check(const v1::Config& config, const Locations& locations, Diagnostics& errors) {
  Checker(config, locations, errors).Run();
  CheckClusters(config, locations, errors);
  CheckProfiles(config, locations, errors);
}

void Complete(v1::Config& config, const Locations& locations) {
  for (int i = 0; i < config.services_size(); ++i) {
    v1::Service& service = *config.mutable_services(i);
    const std::string path = absl::StrCat("services[", i, "]");
    if (service.has_raw() && IsPortOfOneWay(service.port()) && !service.raw().flow() &&
        !locations.Has(absl::StrCat(path, ".raw.one_way")))
      service.mutable_raw()->set_one_way(true);
    const v1::Profile* profile = EffectiveProfile(service);
    if (profile != nullptr && profile->flow() && !locations.Has(absl::StrCat(path, ".suspect_min"))) {
      const bool most = locations.Has(absl::StrCat(path, ".suspect_max"));
      service.set_suspect_min_ns(most ? std::min(service.suspect_max_ns(), kFlowSuspectMinNs) : kFlowSuspectMinNs);
    }
    if (service.primary().empty() && service.backends_size() > 0) {
      service.set_primary(service.backends(0).name());
    }
    service.set_suspect_max_ns(std::max(service.suspect_max_ns(), service.suspect_min_ns()));
  }
}

}  // namespace hedgerow::config
