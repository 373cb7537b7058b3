// SPDX-License-Identifier: Apache-2.0
//
// The steps from a file to a checked configuration; see the header. The table of keys is in config_keys.cc, the
// rules that span several values are in config_check.cc.

#include "cluster/node/config.h"

#include <algorithm>
#include <functional>
#include <optional>

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/node/config_check.h"
#include "cluster/node/config_keys.h"
#include "cluster/node/config_reader.h"
#include "cluster/raft/check.h"
#include "config/locations.h"
#include "config/source.h"
#include "config/tree.h"
#include "operate/key_file.h"

namespace hedgerow::node {
namespace {

using config::Tree;

// Reads the key that `path` names, if it names one.
void ReadKey(const std::string& path, absl::string_view name, const config::Locations& locations,
             config::Diagnostics& errors, const std::function<void(const wire::Key&)>& take) {
  if (path.empty()) return;
  const absl::StatusOr<std::string> digits = operate::ReadKeyFile(path);
  if (digits.ok()) {
    take(wire::ParseKey(*digits).value());
  } else {
    errors.Add(locations.Find(name), name,
               absl::StrCat("the file ", config::Quote(path), " ", digits.status().message()));
  }
}

NodeConfig Parse(absl::string_view text, config::Locations& locations, config::Diagnostics& errors) {
  NodeConfig config;
  if (!config::CheckText(text, errors)) return config;
  const std::optional<Tree> tree = config::ParseTree(text, errors);
  if (!tree.has_value()) return config;
  KeyFiles files;
  ConfigReader(locations, errors).Map(*tree, "", KeysFor(config, files));
  ReadKey(files.cluster_key, "cluster_key_file", locations, errors,
          [&config](const wire::Key& key) { config.cluster_key = key; });
  ReadKey(files.announce_key, "announce_key_file", locations, errors,
          [&config](const wire::Key& key) { config.announce_key = key; });
  CheckNodeConfig(config, locations, errors);
  CompleteNodeConfig(config, locations);
  return config;
}

// In order. Of MemberConfig or raft::Member.
template <typename Members>
std::vector<uint64_t> IdsOf(const Members& members) {
  std::vector<uint64_t> ids;
  for (const auto& member : members) ids.push_back(member.id.value());
  std::sort(ids.begin(), ids.end());
  return ids;
}

void ListKeys(const std::vector<ConfigKey>& keys, const std::string& parent, std::vector<NodeConfigKey>& out) {
  for (const ConfigKey& key : keys) {
    const std::string path = JoinPath(parent, key.item ? key.name + "[]" : key.name);
    out.push_back({path, key.expected, key.required});
    ListKeys(key.item ? key.item(0) : key.block, path, out);
  }
}

}  // namespace

absl::string_view Name(Durability durability) { return durability == Durability::kDisk ? "disk" : "memory"; }

uint64_t MemcachedRateMax(size_t members, uint64_t window_ns) {
  constexpr uint64_t kFrameIds = 65'536;
  // What committed time may fall behind around an election, and then some.
  constexpr uint64_t kMargin_ns = 2'000'000'000;
  const uint64_t span_ms = (window_ns + kMargin_ns) / 1'000'000;
  return kFrameIds * 1000 / (std::max<uint64_t>(members, 1) * span_ms);
}

const MemberConfig& NodeConfig::own() const {
  const MemberConfig* const found = Find(self);
  HEDGEROW_CHECK(found != nullptr);  // CheckNodeConfig refuses such a configuration
  return *found;
}

const MemberConfig* NodeConfig::Find(raft::NodeId id) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [id](const MemberConfig& m) { return m.id == id; });
  return found == members.end() ? nullptr : &*found;
}

raft::Configuration NodeConfig::Initial() const {
  if (join) return {};
  std::vector<raft::NodeId> ids;
  for (const MemberConfig& member : members) ids.push_back(member.id);
  raft::Configuration initial = raft::Configuration::OfVoters(ids);
  Readdress(initial);
  return initial;
}

void NodeConfig::Readdress(raft::Configuration& configuration) const {
  if (configuration.epoch != 0) return;
  for (raft::Member& member : configuration.members) {
    if (const MemberConfig* const known = Find(member.id); known != nullptr)
      member.address = known->peer.ToString();
  }
}

absl::Status NodeConfig::CheckMembers(const raft::Configuration& began_with,
                                      const raft::Configuration& latest) const {
  if (join) return absl::OkStatus();
  if (began_with.members.empty()) {
    if (!latest.members.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "join: this node has joined a cluster that has not added it yet (its log in ", data_dir,
        " was begun with `join: on`), and the configuration file wants it to begin one: put `join: on` back"));
  }
  const std::vector<uint64_t> said = IdsOf(members), began = IdsOf(began_with.members);
  // Who has left stays in the log's configuration until the next one; in nobody's list.
  std::vector<raft::Member> staying = latest.members;
  std::erase_if(staying, [&latest](const raft::Member& member) {
    return ((latest.leaving >> member.position) & 1) != 0;
  });
  const std::vector<uint64_t> now = IdsOf(staying);
  if (said == began || said == now) return absl::OkStatus();
  const bool changed = now != began;
  return absl::FailedPreconditionError(absl::StrCat(
      "members: the log in ", data_dir, " began with the members ", absl::StrJoin(began, ", "),
      changed ? absl::StrCat(" and has ", absl::StrJoin(now, ", "), " by now") : std::string(),
      ", and the configuration file has ", absl::StrJoin(said, ", "),
      ". A cluster that has begun changes its members with `hedgerow-node members`, never in a file: put ",
      absl::StrJoin(began, ", "), changed ? absl::StrCat(" or ", absl::StrJoin(now, ", ")) : std::string(),
      " back"));
}

NodeConfig ParseNodeConfig(absl::string_view text, config::Diagnostics& errors) {
  config::Locations locations;
  return Parse(text, locations, errors);
}

NodeConfig LoadNodeConfig(const std::string& path, config::Diagnostics& errors) {
  const std::optional<std::string> text = config::ReadSource(path, errors);
  if (!text.has_value()) return NodeConfig();
  config::Locations locations;
  NodeConfig config = Parse(*text, locations, errors);
  struct stat info {};
  for (const char* key : {"cluster_key", "announce_key"}) {
    if (!locations.Has(key) || stat(path.c_str(), &info) != 0) continue;
    const std::string why = operate::WhyNotSecret(info.st_mode);
    if (!why.empty())
      errors.Add(locations.Find(key), key, absl::StrCat("this file ", why, ", or the key in ", key, "_file"));
  }
  return config;
}

absl::StatusOr<NodeConfig> LoadNodeConfig(const std::string& path) {
  config::Diagnostics errors(path);
  NodeConfig config = LoadNodeConfig(path, errors);
  if (!errors.empty()) return errors.ToStatus();
  return config;
}

std::vector<NodeConfigKey> NodeConfigKeys() {
  NodeConfig config;
  KeyFiles files;
  std::vector<NodeConfigKey> out;
  ListKeys(KeysFor(config, files), "", out);
  return out;
}

}  // namespace hedgerow::node
