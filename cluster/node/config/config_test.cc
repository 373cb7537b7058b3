// SPDX-License-Identifier: Apache-2.0
//
// What a sound configuration becomes, what is filled in, which files are refused for their mode, and that
// docs/node-config.md explains every key.

#include "cluster/node/config/config.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cluster/api/node_config.pb.h"
#include "cluster/node/config/setting_text.h"
#include "config/schema.h"
#include "config/schema_testing.h"
#include "operate/tls_testing.h"

namespace hedgerow::node {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kKeyDigits[] = "00112233445566778899aabbccddeeff";

constexpr char kSmallest[] = R"(cluster_id: 7
cluster_key: 00112233445566778899aabbccddeeff
node: 1
members: [{id: 1, peer: "10.0.0.1:4802", serve: "10.0.0.1:4801"}]
)";

NodeConfig Sound(absl::string_view text) {
  config::Diagnostics errors("n.yaml");
  NodeConfig config = ParseNodeConfig(text, errors);
  EXPECT_THAT(errors.Lines(), IsEmpty());
  return config;
}

TEST(NodeConfig, MetricsMayBeServedOnIPv6sLoopback) {
  const NodeConfig config = Sound(absl::StrCat(kSmallest, "metrics_listen: \"[::1]:9465\"\n"));
  EXPECT_EQ(config.metrics_listen, "[::1]:9465");
}

TEST(NodeConfig, TheSmallestFileGetsTheDefaults) {
  const NodeConfig config = Sound(kSmallest);
  EXPECT_EQ(config.cluster_id, 7u);
  EXPECT_EQ(config.cluster_keys, *wire::ParseKey(kKeyDigits));
  EXPECT_FALSE(config.announce_keys.has_value());
  EXPECT_EQ(config.self, raft::NodeId(1));
  EXPECT_EQ(config.durability, Durability::kDisk);
  EXPECT_EQ(config.data_dir, "/var/lib/hedgerow-node");
  EXPECT_EQ(config.serve, *NetAddress::Parse("10.0.0.1:4801"));
  EXPECT_EQ(config.admin_socket, "/run/hedgerow-node/admin.sock");
  EXPECT_EQ(config.metrics_listen, "127.0.0.1:9465");
  EXPECT_THAT(config.proxies, IsEmpty());
  EXPECT_EQ(config.election_floor_ns, 20'000'000u);
  EXPECT_EQ(config.election_cap_ns, 2'000'000'000u);
  EXPECT_EQ(config.settings, kv::Settings());
  EXPECT_THAT(config.settings_in_file, IsEmpty());
  EXPECT_TRUE(config.offloads.heartbeat && config.offloads.vote && config.offloads.append);
  EXPECT_TRUE(config.offloads.quorum && config.offloads.broadcast && config.offloads.watchdog);
  EXPECT_EQ(config.offloads.xdp, XdpMode::kAuto);
  EXPECT_EQ(config.spin_ns, 50'000u);
  EXPECT_EQ(config.waiting_max, 16'384u);
  EXPECT_EQ(config.snapshots.every_entries, 1'000'000u);
  EXPECT_EQ(config.snapshots.every_bytes, 256u << 20);
  EXPECT_EQ(config.snapshots.tail_entries, 100'000u);
  EXPECT_EQ(config.snapshots.tail_bytes, 32u << 20);
  EXPECT_EQ(config.snapshots.rate_bytes_per_s, 64u << 20);
  EXPECT_FALSE(config.memcached.on());
}

TEST(NodeConfig, AMemcachedFrontEndNeedsAnAddressAndNothingElse) {
  const NodeConfig config = Sound(absl::StrCat(kSmallest, "memcached: {listen: \"10.0.0.1:11211\"}\n"));
  EXPECT_TRUE(config.memcached.on());
  EXPECT_EQ(config.memcached.value_max_bytes, 32'768u);
  EXPECT_EQ(config.settings.memcached, kv::MemcachedLimits());
  EXPECT_EQ(config.memcached.rate_per_s, 0u) << "as much as the window allows";
  EXPECT_EQ(MemcachedRateMax(1, 5'000'000'000), 9362u) << "65,536 ids in 7 s at one member";
  EXPECT_FALSE(config.memcached.once_in_window);
  EXPECT_EQ(MemcachedRateMax(3, 5'000'000'000), 3120u);
  EXPECT_EQ(MemcachedRateMax(7, 60'000'000'000), 151u);
}

raft::Configuration Members(const std::vector<uint64_t>& ids, uint32_t epoch) {
  std::vector<raft::NodeId> nodes;
  for (const uint64_t id : ids) nodes.push_back(raft::NodeId(id));
  raft::Configuration configuration = raft::Configuration::OfVoters(nodes);
  configuration.epoch = epoch;
  return configuration;
}

NodeConfig WithMembers(const std::vector<uint64_t>& ids, bool join = false) {
  NodeConfig config;
  config.join = join;
  config.data_dir = "/the/log";
  for (const uint64_t id : ids) config.members.push_back({.id = raft::NodeId(id)});
  return config;
}

TEST(NodeConfig, TheMembersOfAClusterThatHasBegunAreNotTheFilesToChange) {
  const raft::Configuration began = Members({1, 2, 3}, 0);
  EXPECT_TRUE(WithMembers({1, 2, 3}).CheckMembers(began, began).ok());
  EXPECT_EQ(WithMembers({1, 2, 3, 4, 5}).CheckMembers(began, began).message(),
            "members: the log in /the/log began with the members 1, 2, 3, and the configuration file has 1, 2, "
            "3, 4, 5. "
            "A cluster that has begun changes its members with `hedgerow-node members`, never in a file: put "
            "1, 2, 3 back");
  EXPECT_FALSE(WithMembers({1}).CheckMembers(began, began).ok());
  const raft::Configuration now = Members({1, 3, 4}, 5);
  EXPECT_TRUE(WithMembers({1, 2, 3}).CheckMembers(began, now).ok()) << "as it was";
  EXPECT_TRUE(WithMembers({1, 3, 4}).CheckMembers(began, now).ok()) << "as the log has it by now";
  EXPECT_EQ(WithMembers({1, 4}).CheckMembers(began, now).message(),
            "members: the log in /the/log began with the members 1, 2, 3 and has 1, 3, 4 by now, and the "
            "configuration file "
            "has 1, 4. A cluster that has begun changes its members with `hedgerow-node members`, never in a "
            "file: put "
            "1, 2, 3 or 1, 3, 4 back");
}

// It is in the log's configuration until the next change, and an operator strikes it from the file at once.
TEST(NodeConfig, AFormerMemberNeedNotStandInTheFile) {
  const raft::Configuration began = Members({1, 2, 3}, 0);
  raft::Configuration now = Members({1, 2, 3, 4}, 4);
  now.voters = 0b1101;
  now.leaving = 0b0010;
  EXPECT_TRUE(WithMembers({1, 3, 4}).CheckMembers(began, now).ok());
  EXPECT_TRUE(WithMembers({1, 2, 3}).CheckMembers(began, now).ok()) << "as it was";
  const absl::Status refused = WithMembers({1, 2, 3, 4}).CheckMembers(began, now);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("put 1, 2, 3 or 1, 3, 4 back"));
}

TEST(NodeConfig, ANodeThatJoinsDoesNotBeginAClusterInstead) {
  const raft::Configuration nobody;
  EXPECT_TRUE(WithMembers({4}, true).CheckMembers(nobody, nobody).ok());
  EXPECT_EQ(WithMembers({4}).CheckMembers(nobody, nobody).message(),
            "join: this node has joined a cluster that has not added it yet (its log in /the/log was begun with "
            "`join: on`), and the configuration file wants it to begin one: put `join: on` back");
  EXPECT_TRUE(WithMembers({4}).CheckMembers(nobody, Members({1, 2, 3, 4}, 2)).ok()) << "it was added since";
  EXPECT_TRUE(WithMembers({1}, true).CheckMembers(Members({1, 2, 3}, 0), Members({1, 2, 3}, 0)).ok());
}

TEST(NodeConfig, AddressesAreTheFilesUntilMembersHaveChanged) {
  NodeConfig config = WithMembers({1, 2});
  config.members[1].peer = NetAddress::Parse("10.0.0.2:4802").value();
  raft::Configuration members = Members({1, 2, 3}, 0);
  members.members[1].address = "10.0.0.99:1";
  members.members[2].address = "10.0.0.3:4802";
  config.Readdress(members);
  EXPECT_EQ(members.members[1].address, "10.0.0.2:4802");
  EXPECT_EQ(members.members[2].address, "10.0.0.3:4802") << "the file does not know it";
  members.epoch = 1;
  members.members[1].address = "10.0.0.99:1";
  config.Readdress(members);
  EXPECT_EQ(members.members[1].address, "10.0.0.99:1");
}

TEST(NodeConfig, AJoinerOfARecoveredClusterNamesItsRecoveryGeneration) {
  NodeConfig config = Sound(R"(
cluster_id: 7
cluster_key: 00112233445566778899aabbccddeeff
node: 4
join: on
beginning: 3/ffffffffffffffff
members: [{id: 4, peer: "10.0.0.4:4802", serve: "10.0.0.4:4801"}]
)");
  EXPECT_TRUE(config.join);
  EXPECT_EQ(config.cluster_epoch, 3u);
  EXPECT_EQ(config.recovery_nonce, ~uint64_t{0});
}

TEST(NodeConfig, EveryKeyArrives) {
  const NodeConfig config = Sound(R"(
cluster_id: 9223372036854775807
cluster_key: "00112233445566778899AABBCCDDEEFF"
announce_key: ffeeddccbbaa99887766554433221100
node: 4294967295
durability: memory
data_dir: /srv/node
serve: "[::]:4801"
admin_socket: /run/n/a.sock
metrics_listen: ""
members:
  - {id: 4294967295, peer: "[fd00::3]:4802", serve: "[fd00::3]:4801"}
  - {id: 2, peer: "[fd00::2]:4802", serve: "[fd00::2]:4801"}
proxies: [{name: web-1, address: "10.0.0.9:4803"}, {name: "2", address: "[fd00::9]:4803"}]
election: {floor: 5ms, cap: 0.5s}
sessions: {timeout: 90min, max: 10}
offloads: {heartbeat: off, append: off, watchdog: off, xdp: generic}
spin: 0us
waiting_max: 64
snapshots: {every_entries: 5000, every_bytes: 65536, tail_entries: 0, tail_bytes: 3KiB, rate: 2GiB}
clients: [10.0.0.0/8, "fd00::1"]
peer_clients: []
memory: {limit_mib: 512}
sources: {trusted: [192.0.2.0/24], answer_rate: 1MiB, open_rate: 5}
memcached: {listen: "[::]:11211", clients: ["2001:db8::/32"], value_max: 100, memory_mib: 64, window: 4s, window_max: 5000, rate: 500, once_in_window: on}
)");
  EXPECT_EQ(config.cluster_id, uint64_t{INT64_MAX});
  EXPECT_EQ(config.cluster_keys, *wire::ParseKey(kKeyDigits));
  ASSERT_TRUE(config.announce_keys.has_value());
  EXPECT_NE(*config.announce_keys, config.cluster_keys);
  EXPECT_EQ(config.self, raft::NodeId(4294967295));
  EXPECT_EQ(config.durability, Durability::kMemory);
  EXPECT_EQ(config.data_dir, "/srv/node");
  EXPECT_EQ(config.serve.ToString(), "[::]:4801");
  ASSERT_EQ(config.clients.list().size(), 2u);
  EXPECT_EQ(config.clients.list()[1].ToString(), "fd00::1/128");
  ASSERT_TRUE(config.peer_clients.has_value());
  EXPECT_TRUE(config.peer_clients->list().empty());
  ASSERT_EQ(config.memcached.clients.list().size(), 1u);
  EXPECT_EQ(config.memcached.clients.list()[0].ToString(), "2001:db8::/32");
  EXPECT_EQ(config.admin_socket, "/run/n/a.sock");
  EXPECT_EQ(config.metrics_listen, "");
  EXPECT_EQ(config.Initial().SlotOf(raft::NodeId(4294967295)), 1u);
  EXPECT_EQ(config.Initial().voters, 0b11u);
  EXPECT_EQ(config.own().peer.ToString(), "[fd00::3]:4802");
  ASSERT_EQ(config.proxies.size(), 2u);
  EXPECT_EQ(config.proxies[0].name, "web-1");
  EXPECT_EQ(config.proxies[1].address.ToString(), "[fd00::9]:4803");
  EXPECT_EQ(config.election_floor_ns, 5'000'000u);
  EXPECT_EQ(config.election_cap_ns, 500'000'000u);
  EXPECT_EQ(config.settings.sessions.timeout_ns, 5'400'000'000'000u);
  EXPECT_EQ(config.settings.sessions.sessions_max, 10u);
  EXPECT_EQ(config.settings.version, 0u) << "what a file says is no setting yet";
  EXPECT_EQ(config.settings_in_file.size(), 6u);
  EXPECT_EQ(config.settings.memory_bytes, 512u << 20);
  EXPECT_TRUE(config.sources.trusted.Contains(NetAddress::Parse("192.0.2.7:1").value().bytes));
  EXPECT_EQ(config.sources.answer_bytes_per_s, 1u << 20);
  EXPECT_EQ(config.sources.opens_per_s, 5u);
  EXPECT_FALSE(config.offloads.heartbeat || config.offloads.append || config.offloads.watchdog);
  EXPECT_TRUE(config.offloads.vote && config.offloads.quorum && config.offloads.broadcast);
  EXPECT_EQ(config.offloads.xdp, XdpMode::kGeneric);
  EXPECT_EQ(config.spin_ns, 0u);
  EXPECT_EQ(config.waiting_max, 64u);
  EXPECT_EQ(config.snapshots.every_entries, 5000u);
  EXPECT_EQ(config.snapshots.every_bytes, 65'536u);
  EXPECT_EQ(config.snapshots.tail_entries, 0u);
  EXPECT_EQ(config.snapshots.tail_bytes, 3072u);
  EXPECT_EQ(config.snapshots.rate_bytes_per_s, uint64_t{2} << 30);
  EXPECT_EQ(config.memcached.listen.ToString(), "[::]:11211");
  EXPECT_EQ(config.memcached.value_max_bytes, 100u);
  EXPECT_EQ(config.settings.memcached.memory_bytes, 64u << 20);
  EXPECT_EQ(config.settings.memcached.window.window_ns, 4'000'000'000u);
  EXPECT_EQ(config.settings.memcached.window.requests_max, 5000u);
  EXPECT_EQ(config.memcached.rate_per_s, 500u);
  EXPECT_TRUE(config.memcached.once_in_window);
}

TEST(NodeConfig, ThreeNodesOnOneHostAreSound) {
  const NodeConfig config = Sound(absl::StrCat("cluster_id: 1\ncluster_key: ", kKeyDigits, R"(
node: 2
members:
  - {id: 1, peer: "127.0.0.1:4811", serve: "127.0.0.1:4801"}
  - {id: 2, peer: "127.0.0.1:4812", serve: "127.0.0.1:4802"}
  - {id: 3, peer: "127.0.0.1:4813", serve: "127.0.0.1:4803"}
)"));
  EXPECT_EQ(config.serve.port, 4802);
  EXPECT_EQ(config.clients, net::PrivateNetworks());
  EXPECT_EQ(config.memcached.clients, net::PrivateNetworks());
  EXPECT_FALSE(config.peer_clients.has_value());
}

class NodeConfigFileTest : public testing::Test {
 protected:
  NodeConfigFileTest() {
    char pattern[] = "/tmp/hedgerow-node-config-test.XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~NodeConfigFileTest() override {
    for (const char* name : {"/n.yaml", "/key", "/announce"}) unlink((folder_ + name).c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0);
  }
  std::string Write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string WithKeyFiles() {
    std::string text = kSmallest;
    text.replace(text.find("cluster_key: "), strlen("cluster_key: ") + strlen(kKeyDigits),
                 absl::StrCat("cluster_key_file: ", folder_, "/key\nannounce_key_file: ", folder_, "/announce"));
    return text;
  }
  std::string folder_;
};

TEST_F(NodeConfigFileTest, AFileWithAKeyIsForItsOwnerAndGroupOnly) {
  for (const mode_t mode : {0600, 0640, 0400, 0440}) {
    EXPECT_TRUE(LoadNodeConfig(Write("n.yaml", kSmallest, mode)).ok()) << mode;
  }
  const std::string path = Write("n.yaml", kSmallest, 0644);
  EXPECT_EQ(LoadNodeConfig(path).status().message(),
            absl::StrCat(path,
                         ":2:14: cluster_key: this file can be read by everybody (mode 0644), expected mode 0600 "
                         "or 0640: run `chmod g-w,o-rwx ",
                         path, "`, or put the key into a file of its own"));
  EXPECT_THAT(std::string(LoadNodeConfig(Write("n.yaml", kSmallest, 0660)).status().message()),
              HasSubstr("can be changed by others than its owner (mode 0660)"));
}

TEST_F(NodeConfigFileTest, KeysMayStandInFilesOfTheirOwn) {
  Write("key", absl::StrCat(kKeyDigits, "\n"), 0600);
  Write("announce", "ffeeddccbbaa99887766554433221100\n", 0640);
  // The configuration itself holds no secret then.
  const absl::StatusOr<NodeConfig> config = LoadNodeConfig(Write("n.yaml", WithKeyFiles(), 0644));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->cluster_keys, *wire::ParseKey(kKeyDigits));
  EXPECT_EQ(config->announce_keys, *wire::ParseKey("ffeeddccbbaa99887766554433221100"));
}

TEST_F(NodeConfigFileTest, WhatIsWrongWithAKeyFileIsSaidAtItsKey) {
  Write("key", absl::StrCat(kKeyDigits, "\n"), 0604);
  const std::string path = Write("n.yaml", WithKeyFiles(), 0644);
  EXPECT_EQ(LoadNodeConfig(path).status().message(),
            absl::StrCat(path, ":2:19: cluster_key_file: the file \"", folder_,
                         "/key\" can be read by everybody (mode ", "0604), expected mode 0600 or 0640: run `chmod ",
                         "g-w,o-rwx ", folder_, "/key`\n", path, ":3:20: announce_key_file: the file \"", folder_,
                         "/announce\" cannot be opened: No such file or directory"));
}

TEST_F(NodeConfigFileTest, CertificatesAreReadAndMustNameTheNode) {
  const operate::TestAuthority authority("an authority");
  const operate::TlsPaths files =
      operate::WriteTlsFiles(folder_ + "/tls", authority.Sign("n1.example.com"), authority.Pem());
  const auto with = [&](const std::string& name) {
    return absl::StrCat(kSmallest, "peer_tls: {certificate_file: \"", files.certificate, "\", key_file: \"", files.key,
                        "\", authority_file: \"", files.authority, "\"", name, "}\n");
  };
  const absl::StatusOr<NodeConfig> config =
      LoadNodeConfig(Write("n.yaml", with(", name: \"n{node}.example.com\""), 0600));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->peer_tls->files, files);
  EXPECT_EQ(config->peer_tls->name, "n{node}.example.com");
  for (const std::string& path : {files.certificate, files.key, files.authority})
    EXPECT_THAT(config->read_from, Contains(path));
  const auto error = [&](const std::string& name) {
    return std::string(LoadNodeConfig(Write("n.yaml", with(name), 0600)).status().message());
  };
  EXPECT_THAT(error(""),
              HasSubstr(absl::StrCat("peer_tls: the file ", files.certificate,
                                     " is for another name: got a certificate for n1.example.com, ",
                                     "expected one for node-1.hedgerow: have it signed with this subjectAltName")));
  EXPECT_THAT(error(", name: \"n1.example.com\""),
              HasSubstr("peer_tls.name: got \"n1.example.com\", expected a DNS name"));
  EXPECT_THAT(error(", name: \"N{node} x\""), HasSubstr("peer_tls.name: got \"N{node} x\", expected a DNS name"));
  std::filesystem::remove(files.key);
  EXPECT_THAT(error(""), HasSubstr("peer_tls: the file " + files.key + " cannot be opened"));
  std::filesystem::remove_all(folder_ + "/tls");
}

TEST_F(NodeConfigFileTest, TheFilesOfTheMetricsPageAreRead) {
  const operate::TestAuthority authority("an authority");
  const operate::TlsPaths files =
      operate::WriteTlsFiles(folder_ + "/tls", authority.Sign("any.example.com"), authority.Pem());
  const std::string token = Write("token", absl::StrCat(kKeyDigits, "\n"), 0600);
  const std::string text =
      absl::StrCat(kSmallest, "metrics_listen: \"10.0.0.1:9465\"\nmetrics_tls: {certificate_file: \"",
                   files.certificate, "\", key_file: \"", files.key, "\"}\nmetrics_token_file: \"", token, "\"\n");
  const absl::StatusOr<NodeConfig> config = LoadNodeConfig(Write("n.yaml", text, 0600));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->metrics_listen, "10.0.0.1:9465");
  EXPECT_TRUE(config->metrics_access.encrypted());
  for (const std::string& path : {files.certificate, files.key, token}) EXPECT_THAT(config->read_from, Contains(path));
  std::filesystem::remove(token);
  std::filesystem::remove(files.key);
  const std::string error(LoadNodeConfig(Write("n.yaml", text, 0600)).status().message());
  EXPECT_THAT(error, HasSubstr("metrics_tls: the file " + files.key + " cannot be opened"));
  EXPECT_THAT(error, HasSubstr("metrics_token_file: the file " + token + " cannot be opened"));
  std::filesystem::remove_all(folder_ + "/tls");
}

TEST_F(NodeConfigFileTest, ANodeFollowsNoFileOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root (to give files away)";
  const std::string key = Write("key", absl::StrCat(kKeyDigits, "\n"), 0600);
  Write("announce", "ffeeddccbbaa99887766554433221100\n", 0640);
  const std::string path = Write("n.yaml", WithKeyFiles(), 0644);
  EXPECT_TRUE(LoadNodeConfig(path, operate::Reader::kServes).ok());
  ASSERT_EQ(chown(key.c_str(), 65534, 65534), 0);
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  EXPECT_TRUE(LoadNodeConfig(path).ok()) << "which only shows it";
  const std::string refused(LoadNodeConfig(path, operate::Reader::kServes).status().message());
  EXPECT_THAT(refused, HasSubstr(path + ": the file belongs to user 65534"));
  EXPECT_THAT(refused, HasSubstr("key\" belongs to user 65534"));
  ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(key.c_str(), 0, 0), 0);
  ASSERT_EQ(chmod(path.c_str(), 0646), 0);
  EXPECT_THAT(std::string(LoadNodeConfig(path, operate::Reader::kServes).status().message()),
              HasSubstr("run `chmod go-w " + path + "`"));
}

TEST_F(NodeConfigFileTest, AMissingFileSaysSo) {
  EXPECT_EQ(LoadNodeConfig(folder_ + "/none").status().message(),
            folder_ + "/none: cannot be opened: No such file or directory");
}

TEST(NodeConfigSchema, EveryKeyHasATypeARangeAndADefaultInside) {
  config::ExpectSoundRules(*v1::NodeConfigFile::descriptor());
}

TEST(NodeConfigSchema, EveryKeyIsDocumentedWithItsDefaultAndRange) {
  config::ExpectDocumented(*v1::NodeConfigFile::descriptor(), {"docs/node-config.md"});
}

// Five keys seed settings. Both tables say what such a value may be.
TEST(NodeConfigSchema, AKeyThatSeedsASettingTakesWhatTheSettingTakes) {
  int seeds = 0;
  config::ForEachKey(*v1::NodeConfigFile::descriptor(),
                     [&](const std::string& path, const google::protobuf::FieldDescriptor& field) {
                       const kv::SettingInfo* const info = kv::FindSetting(path);
                       if (info == nullptr) return;
                       ++seeds;
                       EXPECT_EQ(config::Expectation(field), ExpectedOf(*info)) << path;
                       const config::Rule& rule = config::RuleOf(field);
                       const auto text = [&](int64_t value) { return config::InUnits(field, value); };
                       EXPECT_EQ(ParseSetting(*info, text(rule.min())), info->min) << path;
                       EXPECT_EQ(ParseSetting(*info, text(rule.max())), info->max) << path;
                       EXPECT_EQ(rule.default_value(), "") << path << ": kv::Settings has it";
                     });
  EXPECT_EQ(seeds, 6);
}

// Tests and tools make a NodeConfig without a file.
TEST(NodeConfigSchema, DefaultsAreThoseOfTheStruct) {
  const NodeConfig read = Sound(absl::StrCat(kSmallest, "memcached: {listen: \"10.0.0.1:11211\"}\n"));
  const NodeConfig made;
  EXPECT_EQ(read.join, made.join);
  EXPECT_EQ(read.durability, made.durability);
  EXPECT_EQ(read.data_dir, made.data_dir);
  EXPECT_EQ(read.admin_socket, made.admin_socket);
  EXPECT_EQ(read.metrics_listen, made.metrics_listen);
  EXPECT_EQ(read.election_floor_ns, made.election_floor_ns);
  EXPECT_EQ(read.election_cap_ns, made.election_cap_ns);
  EXPECT_EQ(read.offloads, made.offloads);
  EXPECT_EQ(read.spin_ns, made.spin_ns);
  EXPECT_EQ(read.settings, made.settings);
  EXPECT_EQ(read.waiting_max, made.waiting_max);
  EXPECT_EQ(read.snapshots, made.snapshots);
  EXPECT_EQ(read.memcached.value_max_bytes, made.memcached.value_max_bytes);
  EXPECT_EQ(read.memcached.rate_per_s, made.memcached.rate_per_s);
  EXPECT_EQ(read.memcached.once_in_window, made.memcached.once_in_window);
}

}  // namespace
}  // namespace hedgerow::node
