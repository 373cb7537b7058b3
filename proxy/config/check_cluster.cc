// SPDX-License-Identifier: Apache-2.0
//
// Rules about clusters and nodes; see the header. A key never becomes part of
// a message.

#include "proxy/config/check.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "bpf/abi/base_abi.h"
#include "proxy/config/built_in_profiles.h"

namespace hedgerow::config {
namespace {

class ClusterChecker : Checks {
 public:
  ClusterChecker(const v1::Config& config, const Locations& locations, Diagnostics& errors)
      : Checks(locations, errors), config_(config) {}

  void Run() {
    for (int i = 0; i < config_.services_size(); ++i) {
      const std::string path = absl::StrCat("services[", i, "]");
      const v1::Service& service = config_.services(i);
      Nodes(service, path);
      if (!service.has_cluster()) continue;
      const std::string cluster_path = absl::StrCat(path, ".cluster");
      OneKey(cluster_path);
      SameCluster(service.cluster(), cluster_path);
      FewPorts(service.cluster(), cluster_path);
    }
  }

 private:
  // A key that the decoder refused is empty by now; that it was given is what counts here.
  void OneKey(const std::string& path) {
    const bool key = locations_.Has(absl::StrCat(path, ".key"));
    const bool file = locations_.Has(absl::StrCat(path, ".key_file"));
    if (!key && !file) Add(path, "got a cluster without a key, expected key or key_file");
    if (key && file) Add(absl::StrCat(path, ".key_file"), "got a key_file beside a key, expected one of the two");
  }

  // A cluster has one key for this proxy, one epoch, and speaks to one port of it.
  void SameCluster(const v1::ClusterConfig& cluster, const std::string& path) {
    if (cluster.id() == 0) return;
    const auto [entry, inserted] = clusters_.try_emplace(cluster.id(), Seen{&cluster, path});
    if (inserted) return;
    const Seen& seen = entry->second;
    const v1::ClusterConfig& first = *seen.cluster;
    const auto differs = [&](absl::string_view key) {
      Add(absl::StrCat(path, ".", key),
          absl::StrCat("got another ", key, " than ", seen.path, " in line ", locations_.Find(seen.path).line,
                       ", expected the same, since both are of cluster ", cluster.id()));
    };
    if (HasKey(cluster) && HasKey(first) && (cluster.key() != first.key() || cluster.key_file() != first.key_file())) {
      differs(cluster.key_file().empty() ? "key" : "key_file");
    }
    if (cluster.epoch() != first.epoch()) differs("epoch");
    const bool ports = cluster.announce_port() != 0 && first.announce_port() != 0;
    if (ports && cluster.announce_port() != first.announce_port()) differs("announce_port");
  }

  static bool HasKey(const v1::ClusterConfig& cluster) { return !cluster.key().empty() || !cluster.key_file().empty(); }

  // The kernel programs compare with each of them.
  void FewPorts(const v1::ClusterConfig& cluster, const std::string& path) {
    if (cluster.announce_port() == 0 || !ports_.insert(cluster.announce_port()).second) return;
    if (ports_.size() != HR_ANNOUNCE_PORTS + 1) return;
    Add(absl::StrCat(path, ".announce_port"),
        absl::StrCat("got a ", HR_ANNOUNCE_PORTS + 1, "th different port, expected at most ", HR_ANNOUNCE_PORTS,
                     " in all services"));
  }

  static bool NamesLeaders(const v1::Profile& profile) {
    return std::any_of(profile.negative_replies().begin(), profile.negative_replies().end(),
                       [](const v1::NegativeReply& reply) { return reply.leader_offset() != 0; });
  }

  void Nodes(const v1::Service& service, const std::string& path) {
    absl::flat_hash_map<uint32_t, std::string> seen;
    for (int i = 0; i < service.backends_size(); ++i) {
      const uint32_t node = service.backends(i).node();
      const std::string node_path = absl::StrCat(path, ".backends[", i, "].node");
      if (node == 0) continue;
      const v1::Profile* profile = EffectiveProfile(service);
      if (profile != nullptr && !NamesLeaders(*profile)) {
        Add(node_path, absl::StrCat("got ", node,
                                    ", expected none with a profile whose negative_replies have no leader_offset, "
                                    "since no reply names a node"));
        continue;
      }
      const auto [entry, inserted] = seen.try_emplace(node, node_path);
      if (inserted) continue;
      Add(node_path, absl::StrCat("got ", node, ", expected a node that no other backend of this service is (",
                                  entry->second, " in line ", locations_.Find(entry->second).line, " is the same)"));
    }
  }

  struct Seen {
    const v1::ClusterConfig* cluster;
    std::string path;
  };

  const v1::Config& config_;
  absl::flat_hash_map<int64_t, Seen> clusters_;
  std::set<uint32_t> ports_;
};

}  // namespace

void CheckClusters(const v1::Config& config, const Locations& locations, Diagnostics& errors) {
  ClusterChecker(config, locations, errors).Run();
}

}  // namespace hedgerow::config
