// SPDX-License-Identifier: Apache-2.0
#include "proxy/config/advice.h"

#include <array>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proxy/config/built_in_profiles.h"

namespace hedgerow::config {
namespace {

struct Word {
  absl::string_view theirs;  // "|" between words for the same
  absl::string_view ours;    // a sentence
};

constexpr std::array kKeys = {
    Word{"weight|weights|shares", "the `weight` of a backend is its share, with `prefer: each` or `prefer: source`"},
    Word{
        "policy|lb_policy|balance|load_balancing|server_policy",
        "`prefer` says which backend gets a request: `primary`, `fastest`, `each` by weight, or one for each `source`"},
    Word{
        "health_check|healthcheck|health_checks|check|checks|interval|rise|fall",
        "`check: {every: 1s, rise: 2, fall: 3}` of a service asks each backend; without it the requests themselves show which one answers"},
    Word{"backup|standby|priority|order", "every backend but the `primary` is a standby"},
    Word{
        "max_fails|fail_timeout|max_failures",
        "failures are not counted: silence is judged by time and by a second witness (`suspect_min`, `election_timeout`)"},
    Word{
        "listen|bind|address|interface_address",
        "clients send to the `vip` and `port` of a service, an address that no host has; which hosts may is `clients`"},
    Word{"cache|packet_cache|cache_size", "nothing is cached; a cache stays in front, and asks the VIP"},
    Word{"server|servers|real_server|member|members",
         "the servers of a service are its `backends`, each with a name, an address and a port"},
    Word{"upstream|upstreams|forward|forwarders|proxy_pass|cluster_name",
         "what requests are sent to are the `backends` of a service, each with a name, an address and a port"},
    Word{"timeout|timeouts|connect_timeout|proxy_timeout",
         "`deadline` is how long a request waits for an answer, `delay` when it is sent to a second backend as well"},
    Word{"retries|retry|tries|num_retries",
         "`attempts` is how often a request may be sent, and `budget` how many may be sent again"},
    Word{"pool|pools|group",
         "a service has one list of `backends`; another pool is another service, with a VIP of its own"},
};

constexpr std::array kProfiles = {
    Word{"radius", "`profile: raw` with the keys of docs/recipes/radius.md"},
    Word{"snmp", "`profile: raw` with the keys of docs/recipes/snmp.md"},
    Word{"sip", "`profile: raw` with the keys of docs/recipes/sip.md"},
    Word{"syslog|statsd|netflow|ipfix|sflow|graphite|collectd", "`profile: one-way`, for datagrams that get no answer"},
    Word{"wireguard|openvpn|quic|dtls|turn|game", "`profile: flow`, for servers that keep state about a client"},
    Word{
        "udp|tcp",
        "`dns` or another protocol's profile, `raw` for a protocol of your own; TCP to the same port goes to the same backends"},
};

template <size_t kWords>
absl::string_view Find(const std::array<Word, kWords>& words, absl::string_view word) {
  for (const Word& each : words)
    if (absl::c_linear_search(std::vector<absl::string_view>(absl::StrSplit(each.theirs, '|')), word)) return each.ours;
  return "";
}

}  // namespace

std::string ForeignWordAdvice(absl::string_view path, absl::string_view word) {
  if (!path.empty() && !absl::EndsWith(path, ".profile")) return "";
  const absl::string_view ours = path.empty() ? Find(kKeys, word) : Find(kProfiles, word);
  return ours.empty() ? "" : absl::StrCat(ours, " (docs/coming-from.md)");
}

std::vector<std::string> KeysWithoutEffect(const v1::Config& config, const Locations& locations) {
  std::vector<std::string> notes;
  for (int i = 0; i < config.services_size(); ++i) {
    const v1::Service& service = config.services(i);
    const v1::Profile* profile = EffectiveProfile(service);
    if (profile == nullptr) continue;
    const bool hedged = !profile->one_way() && !profile->flow();
    const char* why = !hedged                        ? "nothing is hedged without requests and replies"
                      : service.backends_size() == 1 ? "there is one backend"
                      : service.attempts() == 1      ? "with one attempt nothing is hedged"
                                                     : nullptr;
    const bool shares = service.prefer() == v1::PREFER_EACH || service.prefer() == v1::PREFER_SOURCE;
    for (int j = 0; !shares && j < service.backends_size(); ++j)
      if (locations.Has(absl::StrCat("services[", i, "].backends[", j, "].weight")))
        notes.push_back(absl::StrCat("service ", service.name(), ": no effect of the weight of ",
                                     service.backends(j).name(), ": it counts with `prefer: each` and `source`"));
    if (why == nullptr) continue;
    std::vector<std::string> keys;
    for (const char* key : {"delay", "budget", "budget_burst", "adaptive", "idle_copies", "prefer", "max_in_flight"}) {
      const bool of_hedges = !absl::StrContains(key, "prefer") && !absl::StrContains(key, "max_in_flight");
      if (locations.Has(absl::StrCat("services[", i, "].", key)) &&
          (of_hedges || (!hedged && !shares) || service.backends_size() == 1))
        keys.push_back(key);
    }
    if (!keys.empty())
      notes.push_back(
          absl::StrCat("service ", service.name(), ": no effect of ", absl::StrJoin(keys, ", "), ": ", why));
  }
  return notes;
}

}  // namespace hedgerow::config
