// SPDX-License-Identifier: Apache-2.0
//
// One row for every way a node's configuration can be wrong: a sound file with one line exchanged, and the
// whole error line that must come of it. And what no error may say.

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "cluster/node/config/config.h"

namespace hedgerow::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Line and column of each value matter below.
constexpr char kSound[] = R"(cluster_id: 7
cluster_key: 00112233445566778899aabbccddeeff
announce_key: ffeeddccbbaa99887766554433221100
node: 1
durability: disk
data_dir: /var/lib/hedgerow-node
serve: "10.0.0.1:4801"
admin_socket: /run/hedgerow-node/admin.sock
metrics_listen: "127.0.0.1:9465"
members:
  - {id: 1, peer: "10.0.0.1:4802", serve: "10.0.0.1:4801"}
  - {id: 2, peer: "10.0.0.2:4802", serve: "10.0.0.2:4801"}
  - {id: 3, peer: "10.0.0.3:4802", serve: "10.0.0.3:4801"}
proxies:
  - {name: web1, address: "10.0.0.9:4803"}
  - {name: web2, address: "10.0.0.10:4803"}
election: {floor: 20ms, cap: 2s}
sessions: {timeout: 1h, max: 100000}
offloads: {vote: off, xdp: auto}
spin: 50us
snapshots: {every_bytes: 256MiB, tail_bytes: 32MiB, rate: 64MiB}
)";

struct Row {
  const char* name;
  const char* line;      // of kSound, the first that matches
  const char* replaced;  // by this
  const char* error;     // all of it, less "n.yaml:"
};

// gtest would print the pointers.
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

#define ADDRESS "expected an address and port, such as 10.0.0.1:4802 or [fd00::1]:4802"
#define KEY "expected 32 hexadecimal digits, not all 0, such as `openssl rand -hex 16` prints"

constexpr Row kRows[] = {
    {"ClusterIdZero", "cluster_id: 7", "cluster_id: 0",
     R"(1:13: cluster_id: got "0", expected a whole number between 1 and 9223372036854775807)"},
    {"ClusterIdTooLarge", "cluster_id: 7", "cluster_id: 9223372036854775808",
     R"(1:13: cluster_id: got "9223372036854775808", expected a whole number between 1 and 9223372036854775807)"},
    {"ClusterIdPast64Bits", "cluster_id: 7", "cluster_id: 18446744073709551617",
     R"(1:13: cluster_id: got "18446744073709551617", expected a whole number between 1 and 9223372036854775807)"},
    {"ClusterIdNegative", "cluster_id: 7", "cluster_id: -7",
     R"(1:13: cluster_id: got "-7", expected a whole number between 1 and 9223372036854775807)"},
    {"ClusterIdQuoted", "cluster_id: 7", "cluster_id: \"7\"",
     R"(1:13: cluster_id: got "7", expected a whole number between 1 and 9223372036854775807)"},
    {"ClusterIdMissing", "cluster_id: 7", "# none",
     R"(2:1: cluster_id: the key is missing, expected a whole number between 1 and 9223372036854775807)"},
    {"ClusterIdEmpty", "cluster_id: 7",
     "cluster_id:", R"(1:1: cluster_id: got nothing, expected a whole number between 1 and 9223372036854775807)"},
    {"KeyTooShort", "cluster_key: 00112233445566778899aabbccddeeff", "cluster_key: 00112233445566778899aabbccddee",
     "2:14: cluster_key: got a value of 30 characters, " KEY},
    {"KeyNotHex", "cluster_key: 00112233445566778899aabbccddeeff", "cluster_key: 00112233445566778899aabbccddeefg",
     "2:14: cluster_key: got a value of 32 characters, " KEY},
    {"KeyOfZeros", "cluster_key: 00112233445566778899aabbccddeeff", "cluster_key: 00000000000000000000000000000000",
     "2:14: cluster_key: got a value of 32 characters, " KEY},
    {"KeyIsAList", "cluster_key: 00112233445566778899aabbccddeeff", "cluster_key: [00112233445566778899aabbccddeeff]",
     "2:14: cluster_key: got a list, " KEY},
    {"KeyMissing", "cluster_key: 00112233445566778899aabbccddeeff", "# none",
     R"(1:1: cluster_key: the key is missing, expected cluster_key_file with the path of a file, or cluster_key)"},
    {"AnnounceKeyMissingWithProxies", "announce_key: ffeeddccbbaa99887766554433221100", "# none",
     R"(1:1: announce_key: the key is missing, expected announce_key_file or announce_key, because there are proxies)"},
    {"OneKeyForBoth", "announce_key: ffeeddccbbaa99887766554433221100",
     "announce_key: 00112233445566778899AABBCCDDEEFF",
     R"(3:15: announce_key: got the same key as cluster_key, expected another: what proxies know must not help )"
     R"(against nodes)"},
    {"RelativeKeyFile", "durability: disk", "cluster_key_file: key",
     R"(5:19: cluster_key_file: got "key", expected an absolute path of at most 4000 bytes
n.yaml:5:19: cluster_key_file: expected this or cluster_key, not both)"},
    {"NodeIsNoMember", "node: 1", "node: 4", R"(4:7: node: got 4, expected the id of a member (there are: 1, 2, 3))"},
    {"NodeZero", "node: 1", "node: 0", R"(4:7: node: got "0", expected a whole number between 1 and 4294967295)"},
    {"UnknownDurability", "durability: disk", "durability: tape",
     R"(5:13: durability: got "tape", expected one of disk, memory)"},
    {"RelativeDataDir", "data_dir: /var/lib/hedgerow-node", "data_dir: data",
     R"(6:11: data_dir: got "data", expected an absolute path of at most 4000 bytes)"},
    {"ServeIsNotWhatTheMemberSays", "serve: \"10.0.0.1:4801\"", "serve: \"10.0.0.1:4800\"",
     R"(7:8: serve: got "10.0.0.1:4800", expected 10.0.0.1:4801, as the member 1 says, or 0.0.0.0:4801)"},
    {"ServeEverywhereWithAnotherPort", "serve: \"10.0.0.1:4801\"", "serve: \"0.0.0.0:4800\"",
     R"(1:1: clients: the list is missing, expected the networks of the clients, such as `clients: [10.0.0.0/8, fd00::/8]`, )"
     R"(because serve (0.0.0.0:4800) is every address of this host
n.yaml:7:8: serve: got "0.0.0.0:4800", expected 10.0.0.1:4801, as the member 1 says, or 0.0.0.0:4801)"},
    {"ServeWithoutPort", "serve: \"10.0.0.1:4801\"", "serve: 10.0.0.1", R"(7:8: serve: got "10.0.0.1", )" ADDRESS},
    {"RelativeSocket", "admin_socket: /run/hedgerow-node/admin.sock", "admin_socket: admin.sock",
     R"(8:15: admin_socket: got "admin.sock", expected an absolute path of at most 100 bytes)"},
    {"MetricsNotLoopback", "metrics_listen: \"127.0.0.1:9465\"", "metrics_listen: \"10.0.0.1:9465\"",
     R"(9:17: metrics_listen: got "10.0.0.1:9465", expected a loopback address, or metrics_tls and metrics_token_file beside it, )"
     R"(because other hosts can connect there)"},
    {"MemberIdTwice", "{id: 2,", "{id: 1,",
     R"(12:10: members[1].id: got "1", expected an id no other member has (members[0].id in line 11 is the same))"},
    {"PeerAddressTwice", "peer: \"10.0.0.2:4802\"", "peer: \"10.0.0.3:4802\"",
     R"(13:19: members[2].peer: got "10.0.0.3:4802", expected an address and port that no other entry has )"
     R"((members[1].peer in line 12 is the same))"},
    {"ServeIsAnothersPeer", "serve: \"10.0.0.2:4801\"", "serve: \"10.0.0.3:4802\"",
     R"(13:19: members[2].peer: got "10.0.0.3:4802", expected an address and port that no other entry has )"
     R"((members[1].serve in line 12 is the same))"},
    {"ServeAndPeerAreOne", "serve: \"10.0.0.2:4801\"", "serve: \"10.0.0.2:4802\"",
     R"(12:43: members[1].serve: got "10.0.0.2:4802", expected an address and port that no other entry has )"
     R"((members[1].peer in line 12 is the same))"},
    {"PeersOfTwoFamilies", "peer: \"10.0.0.2:4802\"", "peer: \"[fd00::2]:4802\"",
     R"(12:19: members[1].peer: got "[fd00::2]:4802", expected an IPv4 address like the first member's 10.0.0.1:4802)"},
    {"PeerOnLoopbackAmongHosts", "peer: \"10.0.0.2:4802\"", "peer: \"127.0.0.1:4802\"",
     R"(12:19: members[1].peer: got "127.0.0.1:4802", expected an address that other hosts reach like the first )"
     R"(member's 10.0.0.1:4802)"},
    {"PeerUnspecified", "peer: \"10.0.0.2:4802\"", "peer: \"0.0.0.0:4802\"",
     R"(12:19: members[1].peer: got "0.0.0.0:4802", expected a unicast address (this is an unspecified address))"},
    {"ServeMulticast", "serve: \"10.0.0.2:4801\"", "serve: \"224.0.0.1:4801\"",
     R"(12:43: members[1].serve: got "224.0.0.1:4801", expected a unicast address (this is a multicast address))"},
    {"HostName", "peer: \"10.0.0.2:4802\"", "peer: \"node2:4802\"",
     R"(12:19: members[1].peer: got "node2:4802", )" ADDRESS},
    {"PortZero", "peer: \"10.0.0.2:4802\"", "peer: \"10.0.0.2:0\"",
     R"(12:19: members[1].peer: got "10.0.0.2:0", )" ADDRESS},
    {"PeerMissing", "peer: \"10.0.0.2:4802\", ", "", "12:5: members[1].peer: the key is missing, " ADDRESS},
    {"UnknownKeyWithGuess", "peer: \"10.0.0.2:4802\"", "pear: \"10.0.0.2:4802\"",
     "12:5: members[1].peer: the key is missing, " ADDRESS
     "\nn.yaml:12:13: members[1]: unknown key \"pear\", did you mean \"peer\"?"},
    {"UnknownTopKey", "durability: disk", "frobnicate: 1",
     R"(5:1: unknown key "frobnicate", expected one of cluster_id, cluster_key, cluster_key_file, announce_key, )"
     R"(announce_key_file, node, join, beginning, durability, data_dir, serve, admin_socket, monitor_socket, )"
     R"(monitor_group, metrics_listen, members, proxies, )"
     R"(election, sessions, offloads, spin, waiting_max, snapshots, memcached, clients, peer_clients, anonymous, named_clients, memory, sources, peer_tls, metrics_tls, metrics_token_file)"},
    {"BeginningWithoutJoin", "durability: disk", "beginning: 1/61b68ac4e140c840",
     "5:12: beginning: expected it with `join: on` alone: what a restored log is of stands in the log"},
    {"BeginningOfEpochZero", "durability: disk", "join: on\nbeginning: 0/61b68ac4e140c840",
     R"(6:12: beginning: got "0/61b68ac4e140c840", expected EPOCH/NUMBER as `hedgerow-node status` of a member says )"
     R"(it, such as 1/61b68ac4e140c840)"},
    {"KeyTwice", "durability: disk", "cluster_id: 8", R"(5:1: cluster_id: the key is given twice, expected it once)"},
    {"ProxyNameTwice", "name: web2", "name: web1",
     R"(16:12: proxies[1].name: got "web1", expected a name no other proxy has (proxies[0].name in line 15 is the )"
     R"(same))"},
    {"ProxyAddressTwice", "address: \"10.0.0.10:4803\"", "address: \"10.0.0.9:4803\"",
     R"(16:27: proxies[1].address: got "10.0.0.9:4803", expected an address and port no other proxy has )"
     R"((proxies[0].address in line 15 is the same))"},
    {"ProxyNameInCapitals", "name: web2", "name: WEB2",
     R"(16:12: proxies[1].name: got "WEB2", expected a name of 1 to 31 of the characters a-z, 0-9 and -, not starting )"
     R"(with -)"},
    {"FloorWithoutUnit", "floor: 20ms", "floor: 20",
     R"(17:19: election.floor: got "20", expected a duration between 1ms and 10s, such as 20ms)"},
    {"OffloadNeitherOnNorOff", "vote: off", "vote: true", R"(19:18: offloads.vote: got "true", expected on or off)"},
    {"OffloadUnknown", "vote: off", "votes: off", R"(19:12: offloads: unknown key "votes", did you mean "vote"?)"},
    {"OffloadThatIsGone", "vote: off", "reserve: off",
     R"(19:12: offloads: the key "reserve" is gone, remove it: in disk mode a vote waits for the voter's disk again )"
     R"((docs/adr/0037-a-vote-waits-for-the-disk.md))"},
    {"XdpUnknown", "xdp: auto", "xdp: skb", R"(19:28: offloads.xdp: got "skb", expected one of auto, native, generic)"},
    {"SpinTooLong", "spin: 50us", "spin: 1s",
     R"(20:7: spin: got "1s", expected a duration between 0ns and 10ms, such as 50us)"},
    {"CapBelowFloor", "cap: 2s", "cap: 20ms",
     R"(17:30: election.cap: got "20ms", expected more than the floor of 20ms)"},
    {"FloorAboveTheDefaultCap", "floor: 20ms, cap: 2s", "floor: 3s",
     R"(17:19: election.floor: got "3s", expected less than the cap of 2s)"},
    {"TimeoutTooShort", "timeout: 1h", "timeout: 9s",
     R"(18:21: sessions.timeout: got "9s", expected a duration between 10s and 168h, such as 1h)"},
    {"TimeoutNegative", "timeout: 1h", "timeout: -1h",
     R"(18:21: sessions.timeout: got "-1h", expected a duration between 10s and 168h, such as 1h)"},
    {"TimeoutPast64Bits", "timeout: 1h", "timeout: 99999999999999999h",
     R"(18:21: sessions.timeout: got "99999999999999999h", expected a duration between 10s and 168h, such as 1h)"},
    {"NoSessions", "max: 100000", "max: 0",
     R"(18:30: sessions.max: got "0", expected a whole number between 1 and 1000000)"},
    {"TooManySnapshots", "every_bytes: 256MiB", "every_bytes: 1KiB",
     R"(21:26: snapshots.every_bytes: got "1KiB", expected a size between 64KiB and 64GiB, such as 256MiB)"},
    {"AFractionOfASize", "tail_bytes: 32MiB", "tail_bytes: 1.5MiB",
     R"(21:46: snapshots.tail_bytes: got "1.5MiB", expected a size between 0 and 64GiB, such as 32MiB)"},
    {"ASizePast64Bits", "rate: 64MiB", "rate: 99999999999GiB",
     R"(21:59: snapshots.rate: got "99999999999GiB", expected a size between 64KiB and 64GiB, such as 64MiB)"},
    {"ASizeInAnotherUnit", "rate: 64MiB", "rate: 64MB",
     R"(21:59: snapshots.rate: got "64MB", expected a size between 64KiB and 64GiB, such as 64MiB)"},
    {"EveryEntryASnapshot", "{every_bytes: 256MiB,", "{every_entries: 1,",
     R"(21:28: snapshots.every_entries: got "1", expected a whole number between 100 and 1000000000)"},
    {"BlockIsAScalar", "election: {floor: 20ms, cap: 2s}", "election: fast",
     R"(17:11: election: got a single value, expected a map with the keys floor, cap)"},
};

class NodeConfigErrors : public testing::TestWithParam<Row> {};

TEST_P(NodeConfigErrors, NameThePlaceTheValueAndTheExpectation) {
  const Row& row = GetParam();
  std::string text = kSound;
  const size_t at = text.find(row.line);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, strlen(row.line), row.replaced);
  config::Diagnostics errors("n.yaml");
  ParseNodeConfig(text, errors);
  EXPECT_EQ(absl::StrJoin(errors.Lines(), "\n"), absl::StrCat("n.yaml:", row.error));
}

INSTANTIATE_TEST_SUITE_P(Rows, NodeConfigErrors, testing::ValuesIn(kRows),
                         [](const testing::TestParamInfo<Row>& info) { return std::string(info.param.name); });

std::vector<std::string> ErrorsOf(absl::string_view text) {
  config::Diagnostics errors("n.yaml");
  ParseNodeConfig(text, errors);
  return errors.Lines();
}

TEST(NodeConfigErrors, TheFileThatTheRowsChangeIsSound) { EXPECT_THAT(ErrorsOf(kSound), testing::IsEmpty()); }

TEST(NodeConfigErrors, ComeAllAtOnceInTheOrderOfTheFile) {
  const std::vector<std::string> errors = ErrorsOf(absl::StrReplaceAll(
      kSound, {{"cluster_id: 7", "cluster_id: x"}, {"node: 1", "node: 9"}, {"max: 100000", "max: none"}}));
  EXPECT_THAT(errors, ElementsAre(HasSubstr("1:13: cluster_id"), HasSubstr("4:7: node"), HasSubstr("18:30: sessions")));
}

TEST(NodeConfigErrors, WhatStrangersCanReachNeedsAListOfClients) {
  const auto errors = [](absl::string_view serve, absl::string_view more) {
    return ErrorsOf(absl::StrCat(
        absl::StrReplaceAll(kSound, {{"serve: \"10.0.0.1:4801\"", absl::StrCat("serve: \"", serve, "\"")}}), more));
  };
  EXPECT_THAT(
      errors("203.0.113.1:4801", ""),
      ElementsAre("n.yaml:1:1: clients: the list is missing, expected the networks of the clients, such as `clients: "
                  "[10.0.0.0/8, fd00::/8]`, because serve (203.0.113.1:4801) is no private address: the Internet may "
                  "reach it"));
  EXPECT_THAT(errors("203.0.113.1:4801", "clients: [192.0.2.0/24]\n"), testing::IsEmpty());
  EXPECT_THAT(errors("100.64.0.1:4801", ""), ElementsAre(HasSubstr("clients: the list is missing")));
  std::string everywhere(kSound);
  everywhere.replace(everywhere.find("serve: \"10.0.0.1:4801\""), 22, "serve: \"0.0.0.0:4801\"");
  EXPECT_THAT(ErrorsOf(everywhere), ElementsAre(HasSubstr("serve (0.0.0.0:4801) is every address of this host")));
  EXPECT_THAT(ErrorsOf(absl::StrCat(everywhere, "clients: [10.0.0.0/8]\n")), testing::IsEmpty());
  EXPECT_THAT(ErrorsOf(absl::StrCat(kSound, "memcached: {listen: \"[::]:11211\"}\n")),
              ElementsAre(HasSubstr("memcached.clients: the list is missing")));
  EXPECT_THAT(ErrorsOf(absl::StrCat(kSound, "memcached: {listen: \"[::]:11211\", clients: [10.0.0.0/8]}\n")),
              testing::IsEmpty());
}

TEST(NodeConfigErrors, AListOfClientsHasNetworksOnly) {
  const auto errors = [](absl::string_view line) { return ErrorsOf(absl::StrCat(kSound, line, "\n")); };
  EXPECT_THAT(
      errors("clients: [10.0.0.1/8]"),
      ElementsAre(HasSubstr("clients[0]: got \"10.0.0.1/8\", expected a network, such as 10.0.0.0/8 or fd00::/8 "
                            "(bits beyond the prefix are set; did you mean 10.0.0.0/8?)")));
  EXPECT_THAT(errors("clients: [intranet]"),
              ElementsAre(HasSubstr("clients[0]: got \"intranet\", expected a network")));
  EXPECT_THAT(errors("clients: []"), ElementsAre(HasSubstr("clients: got 0 entries, expected a list of 1 to 64")));
  EXPECT_THAT(errors("clients: any"), ElementsAre(HasSubstr("clients: got a single value, expected a list")));
  EXPECT_THAT(errors("peer_clients: [10.0.0.0/33]"), ElementsAre(HasSubstr("a prefix of IPv4 has 0 to 32 bits")));
}

TEST(NodeConfigErrors, NamedClientsHaveRightsAndNamesOfTheirOwn) {
  const std::string path = testing::TempDir() + "hedgerow-client-key";
  std::ofstream(path) << "a0112233445566778899aabbccddeeff\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const auto errors = [&path](absl::string_view more) {
    return ErrorsOf(absl::StrCat(kSound, absl::StrReplaceAll(more, {{"KEY", path}}), "\n"));
  };
  EXPECT_THAT(errors("anonymous: off\nnamed_clients: [{name: web, key_file: KEY, read: [\"\"]}]"), testing::IsEmpty());
  EXPECT_THAT(errors("named_clients: [{name: web, key_file: KEY}]"),
              ElementsAre(HasSubstr("named_clients[0]: a client without rights, expected prefixes")));
  EXPECT_THAT(errors("named_clients: [{name: web, key_file: KEY, read: [a]}, {name: web, key_file: KEY, read: [b]}]"),
              ElementsAre(HasSubstr("named_clients[1].name: got \"web\", expected a name no other client has"),
                          HasSubstr("named_clients[1].key_file: got the same key as another client")));
  EXPECT_THAT(ErrorsOf(absl::StrCat(
                  absl::StrReplaceAll(kSound, {{"cluster_key: 0011", "cluster_key: a011"}}),
                  absl::StrReplaceAll("named_clients: [{name: web, key_file: KEY, read: [a]}]\n", {{"KEY", path}}))),
              ElementsAre(HasSubstr(
                  "named_clients[0].key_file: got the same key as the cluster, expected one that this client")));
  EXPECT_THAT(errors("named_clients: [{name: web, key_file: /nowhere/key, read: [a]}]"),
              ElementsAre(HasSubstr("named_clients[0].key_file: the file \"/nowhere/key\" cannot be opened")));
  EXPECT_THAT(errors(absl::StrCat("named_clients: [{name: web, key_file: KEY, write: [", std::string(251, 'x'), "]}]")),
              ElementsAre(HasSubstr("named_clients[0].write[0]: got 251 bytes, expected at most the 250 of a key")));
  std::filesystem::permissions(path, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  EXPECT_THAT(errors("named_clients: [{name: web, key_file: KEY, read: [a]}]"),
              ElementsAre(HasSubstr("can be read by everybody (mode 0404), expected mode 0600 or 0640")));
  std::filesystem::remove(path);
}

TEST(NodeConfigErrors, WithoutAnonymousClientsOthersAreStated) {
  EXPECT_THAT(ErrorsOf(absl::StrCat(kSound, "anonymous: off\n")),
              ElementsAre(HasSubstr("anonymous: got \"off\", expected clients in `named_clients`")));
  const std::string path = testing::TempDir() + "hedgerow-client-key-2";
  std::ofstream(path) << "a0112233445566778899aabbccddeeff\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const std::string named =
      absl::StrCat(kSound, "anonymous: off\nnamed_clients: [{name: web, key_file: ", path, ", read: [\"\"]}]\n");
  EXPECT_THAT(ErrorsOf(absl::StrCat(named, "memcached: {listen: \"10.0.0.1:11211\"}\n")),
              ElementsAre(HasSubstr("memcached: got memcached's protocol, by which no client can prove itself")));
  EXPECT_THAT(ErrorsOf(absl::StrCat(named, "memcached: {listen: \"10.0.0.1:11211\", anonymous: on}\n")),
              testing::IsEmpty());
  std::filesystem::remove(path);
}

TEST(NodeConfigErrors, WhatServesEverywhereLeavesNoAddressOfItsPort) {
  std::string text(kSound);
  const std::string serve = "serve: \"10.0.0.1:4801\"", peer = "peer: \"10.0.0.1:4802\"";
  text.replace(text.find(serve), serve.size(), "serve: \"0.0.0.0:4801\"");
  text += "clients: [10.0.0.0/8]\n";
  EXPECT_THAT(ErrorsOf(text), testing::IsEmpty());
  EXPECT_THAT(ErrorsOf(absl::StrCat(text, "memcached: {listen: \"10.0.0.5:4801\"}\n")),
              ElementsAre(HasSubstr("expected another address or port than the node's own 10.0.0.1:4801")));
  text.replace(text.find(peer), peer.size(), "peer: \"10.0.0.9:4801\"");
  EXPECT_THAT(ErrorsOf(text),
              ElementsAre(HasSubstr("expected another port than that of the node's own peer, 10.0.0.9:4801")));
}

TEST(NodeConfigErrors, AMemcachedFrontEndHasAnAddressOfItsOwn) {
  const auto with = [](absl::string_view memcached) {
    return ErrorsOf(absl::StrCat(kSound, "memcached: ", memcached, "\n"));
  };
  EXPECT_THAT(with(R"({listen: "10.0.0.1:11211", rate: 3120})"), testing::IsEmpty());
  EXPECT_THAT(with("{window: 4s}"), ElementsAre(HasSubstr("memcached.listen: the key is missing, " ADDRESS)));
  EXPECT_THAT(with(R"({listen: "10.0.0.1:4801"})"),
              ElementsAre(HasSubstr("expected another address or port than the node's own 10.0.0.1:4801")));
  EXPECT_THAT(with(R"({listen: "0.0.0.0:4802", clients: [10.0.0.0/8]})"),
              ElementsAre(HasSubstr("the node's own 10.0.0.1:4802")));
  EXPECT_THAT(with(R"({listen: "224.0.0.1:11211"})"), ElementsAre(HasSubstr("this is a multicast address")));
  EXPECT_THAT(with(R"({listen: "10.0.0.1:11211", rate: 20001})"),
              ElementsAre(HasSubstr("expected a whole number between 1 and 20000")));
  EXPECT_THAT(with(R"({listen: "10.0.0.1:11211", window: 2s})"),
              ElementsAre(HasSubstr("expected a duration between 3s and 60s, such as 5s")));
  EXPECT_THAT(with(R"({listen: "10.0.0.1:11211", memory_mib: "64"})"),
              ElementsAre(HasSubstr("memcached.memory_mib: got \"64\", expected a whole number between 1 and")));
  EXPECT_THAT(with(R"({listen: "10.0.0.1:11211", value_max: 60001})"),
              ElementsAre(HasSubstr("expected a whole number between 1 and 60000")));
}

TEST(NodeConfigErrors, SocketsFoldersAndTcpPortsAreApart) {
  const auto with = [](const std::string& was, const std::string& is) {
    std::string text(kSound);
    return ErrorsOf(text.replace(text.find(was), was.size(), is));
  };
  EXPECT_THAT(with("data_dir: /var/lib/hedgerow-node", "data_dir: /run/hedgerow-node/../hedgerow-node/admin.sock"),
              ElementsAre(HasSubstr("admin_socket: got the path of data_dir, expected one of its own")));
  EXPECT_THAT(with("metrics_listen: \"127.0.0.1:9465\"", "metrics_listen: \"unix:/run/hedgerow-node/admin.sock\""),
              ElementsAre(HasSubstr("metrics_listen: got the path of admin_socket, expected one of its own")));
  EXPECT_THAT(ErrorsOf(absl::StrCat(kSound, "monitor_socket: /run/hedgerow-node/admin.sock\n")),
              ElementsAre(HasSubstr("monitor_socket: got the path of admin_socket, expected one of its own")));
  // The peers' port is UDP and TCP, the clients' is UDP alone.
  std::string local(kSound);
  for (size_t at; (at = local.find("10.0.0.")) != std::string::npos;) local.replace(at, 7, "127.0.0.");
  const std::string metrics = "127.0.0.1:9465";
  const auto at_port = [&](const std::string& address) {
    std::string text = local;
    return ErrorsOf(text.replace(text.find(metrics), metrics.size(), address));
  };
  EXPECT_THAT(at_port("127.0.0.1:4802"),
              ElementsAre(HasSubstr("expected another address or port than the node's own peer, 127.0.0.1:4802")));
  EXPECT_THAT(at_port("127.0.0.1:4801"), testing::IsEmpty());
  EXPECT_THAT(at_port("127.0.0.2:4802"), testing::IsEmpty()) << "another node's on this host";
}

TEST(NodeConfigErrors, EightMembersAreTooMany) {
  std::string text = "cluster_id: 7\ncluster_key: 00112233445566778899aabbccddeeff\nnode: 1\nmembers:\n";
  for (int i = 1; i <= 8; ++i) {
    absl::StrAppend(&text, "  - {id: ", i, ", peer: \"10.0.0.", i, ":4802\", serve: \"10.0.0.", i, ":4801\"}\n");
  }
  EXPECT_THAT(ErrorsOf(text), ElementsAre("n.yaml:5:3: members: got 8 entries, expected a list of 1 to 7 entries"));
}

TEST(NodeConfigErrors, NoMembersAreTooFew) {
  EXPECT_THAT(ErrorsOf("cluster_id: 7\ncluster_key: 00112233445566778899aabbccddeeff\nnode: 1\nmembers: []\n"),
              ElementsAre("n.yaml:4:10: members: got 0 entries, expected a list of 1 to 7 entries"));
}

// Whatever is wrong with a key or with where it stands, what is printed may end in a log.
TEST(NodeConfigErrors, NeverRepeatAKey) {
  constexpr char kSecret[] = "0badc0de0badc0de0badc0de0badc0d";  // one digit short
  for (const std::string& text : {
           absl::StrCat("cluster_key: ", kSecret, "\n"),
           absl::StrCat("announce_key: ", kSecret, "\n"),
           absl::StrCat("cluster_key: [", kSecret, "]\n"),
           absl::StrCat("cluster_key: {", kSecret, ": 1}\n"),
           absl::StrCat(kSecret, "\n"),  // the key file instead of the configuration
           absl::StrCat("members: ", kSecret, "\n"),
           absl::StrCat("election: ", kSecret, "\n"),
           absl::StrCat("cluster_key: ", kSecret, "\ncluster_key: ", kSecret, "\n"),
       }) {
    const std::vector<std::string> errors = ErrorsOf(text);
    EXPECT_FALSE(errors.empty()) << text;
    for (const std::string& line : errors) EXPECT_FALSE(absl::StrContains(line, "0badc0de")) << line;
  }
}

}  // namespace
}  // namespace hedgerow::node
