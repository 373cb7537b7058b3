// SPDX-License-Identifier: Apache-2.0
//
// Clusters in a configuration: what they become, every way they can be wrong,
// keys in files, and that a key is shown nowhere.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proxy/config/emit.h"
#include "proxy/config/load.h"

namespace hedgerow::config {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

#define KEY "00112233445566778899AAbbccddeeff"

// Line and column of each value matter below.
constexpr char kSound[] = R"(services:
  - name: kv
    vip: 10.99.0.1
    port: 4801
    profile: hkv
    cluster: {id: 7, key: )" KEY R"(, epoch: 2, announce_port: 4900}
    backends:
      - {name: a, address: 10.77.0.11, port: 4801, node: 1}
      - {name: b, address: 10.77.0.12, port: 4801, node: 2}
  - name: kv6
    vip: fd99::1
    port: 4801
    profile: hkv
    cluster: {id: 7, key: )" KEY R"(, epoch: 2, announce_port: 4900}
    backends:
      - {name: a, address: "fd77::b", port: 4801, node: 1}
  - name: dns
    vip: 10.99.0.53
    port: 53
    profile: dns
    cluster: {id: 8, key_file: /etc/hedgerow/dns.key}
    backends:
      - {name: a, address: 10.77.0.11, port: 53}
)";

struct Row {
  const char* name;
  const char* line;      // of kSound, the first that matches
  const char* replaced;  // by this
  const char* error;     // all of it, less "c.yaml:"
};

// gtest would print the pointers.
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

constexpr Row kRows[] = {
    {"IdZero", "id: 7", "id: 0",
     R"(6:19: services[0].cluster.id: got "0", expected a whole number between 1 and 9223372036854775807)"},
    {"IdTooLarge", "id: 7", "id: 9223372036854775808",
     R"(6:19: services[0].cluster.id: got "9223372036854775808", expected a whole number between 1 and )"
     R"(9223372036854775807)"},
    {"IdMissing", "id: 7, ", "",
     R"(6:14: services[0].cluster.id: the key is missing, expected a whole number between 1 and 9223372036854775807)"},
    {"KeyTooShort", "key: " KEY, "key: 00112233445566778899aabbccddeef",
     R"(6:27: services[0].cluster.key: got a value of 31 characters, expected 32 hexadecimal digits, not all 0)"},
    {"KeyOfOtherLetters", "key: " KEY, "key: 00112233445566778899aabbccddeefg",
     R"(6:27: services[0].cluster.key: got a value of 32 characters, expected 32 hexadecimal digits, not all 0)"},
    {"KeyOfZeros", "key: " KEY, "key: \"00000000000000000000000000000000\"",
     R"(6:27: services[0].cluster.key: got a value of 32 characters, expected 32 hexadecimal digits, not all 0)"},
    {"KeyIsAList", "key: " KEY, "key: [1]",
     R"(6:27: services[0].cluster.key: got a list, expected 32 hexadecimal digits, not all 0)"},
    {"NoKey", ", key: " KEY, "", R"(6:14: services[0].cluster: got a cluster without a key, expected key or key_file)"},
    {"KeyAndFile", "key_file: /etc/hedgerow/dns.key", "key: " KEY ", key_file: /etc/hedgerow/dns.key",
     R"(21:71: services[2].cluster.key_file: got a key_file beside a key, expected one of the two)"},
    {"RelativeKeyFile", "key_file: /etc/hedgerow/dns.key", "key_file: dns.key",
     R"(21:32: services[2].cluster.key_file: got "dns.key", expected an absolute path of at most 4000 bytes)"},
    {"KeyForAFile", "key_file: /etc/hedgerow/dns.key", "key_file: " KEY,
     R"x(21:32: services[2].cluster.key_file: got "(32 characters, perhaps a key)", expected an absolute path of at most 4000 bytes)x"},
    {"KeyForAnId", "id: 7", "id: " KEY,
     R"x(6:19: services[0].cluster.id: got "(32 characters, perhaps a key)", expected a whole number between 1 and 9223372036854775807)x"},
    {"KeyInAKeysName", "epoch: 2", "\"key:" KEY "\": 2",
     R"x(6:61: services[0].cluster: unknown key "key:(32 characters, perhaps a key)", expected one of id, key, key_file, epoch, announce_port)x"},
    {"NegativeEpoch", "epoch: 2", "epoch: -1",
     R"(6:68: services[0].cluster.epoch: got "-1", expected a whole number between 0 and 9223372036854775807)"},
    {"PortZero", "announce_port: 4900", "announce_port: 0",
     R"(6:86: services[0].cluster.announce_port: got "0", expected a whole number between 1 and 65535)"},
    {"UnknownKey", "epoch: 2", "epoche: 2",
     R"(6:61: services[0].cluster: unknown key "epoche", did you mean "epoch"?)"},
    {"NoMap", "cluster: {id: 8, key_file: /etc/hedgerow/dns.key}", "cluster: 8",
     R"(21:14: services[2].cluster: got a single value, expected a map with the keys id, key, key_file, epoch, announce_port)"},
    {"AnotherKeyForOneCluster", "id: 8, key_file: /etc/hedgerow/dns.key",
     "id: 7, key: 10112233445566778899aabbccddeeff, epoch: 2, announce_port: 4900",
     R"(21:27: services[2].cluster.key: got another key than services[0].cluster in line 6, expected the same, since )"
     R"(both are of cluster 7)"},
    {"AnotherEpochForOneCluster", "id: 8, key_file: /etc/hedgerow/dns.key", "id: 7, key: " KEY ", announce_port: 4900",
     R"(21:14: services[2].cluster.epoch: got another epoch than services[0].cluster in line 6, expected the same, )"
     R"(since both are of cluster 7)"},
    {"AnotherPortForOneCluster", "id: 8, key_file: /etc/hedgerow/dns.key", "id: 7, key: " KEY ", epoch: 2",
     R"(21:14: services[2].cluster.announce_port: got another announce_port than services[0].cluster in line 6, )"
     R"(expected the same, since both are of cluster 7)"},
    {"NodeTwice", "node: 2", "node: 1",
     R"(9:58: services[0].backends[1].node: got 1, expected a node that no other backend of this service is )"
     R"((services[0].backends[0].node in line 8 is the same))"},
    {"NodeTooLarge", "node: 2", "node: 4294967296",
     R"(9:58: services[0].backends[1].node: got "4294967296", expected a whole number between 0 and 4294967295)"},
    {"NodeWithoutHints", "port: 53}", "port: 53, node: 1}",
     R"(23:56: services[2].backends[0].node: got 1, expected none with a profile whose negative_replies have no )"
     R"(leader_offset, since no reply names a node)"},
    {"HkvWithRawBlock", "cluster: {id: 7, key: " KEY ", epoch: 2, announce_port: 4900}",
     "raw: {request_offset: 0, request_length: 4, reply_offset: 0, reply_length: 4}",
     R"(6:10: services[0].raw: got a raw block, expected one only with profile: raw)"},
};

class ClusterError : public testing::TestWithParam<Row> {};

TEST_P(ClusterError, IsReportedAtItsPlaceWithValueAndExpectation) {
  const Row& row = GetParam();
  std::string text = kSound;
  const size_t at = text.find(row.line);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(row.line).size(), row.replaced);
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  EXPECT_THAT(errors.Lines(), Contains(absl::StrCat("c.yaml:", row.error)));
  EXPECT_LE(errors.Lines().size(), 2u) << "one mistake is one error";
  for (const std::string& line : errors.Lines()) EXPECT_THAT(line, Not(HasSubstr("2233445566"))) << "a key is shown";
}

INSTANTIATE_TEST_SUITE_P(EachRow, ClusterError, testing::ValuesIn(kRows),
                         [](const auto& test) { return std::string(test.param.name); });

v1::Config Load(const std::string& text) {
  absl::StatusOr<v1::Config> config = LoadText(text, "c.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : v1::Config();
}

TEST(Cluster, IsReadWithItsDefaults) {
  const v1::Config config = Load(kSound);
  const v1::ClusterConfig& given = config.services(0).cluster();
  EXPECT_EQ(given.id(), 7);
  EXPECT_EQ(given.key(), "00112233445566778899aabbccddeeff") << "in lower case";
  EXPECT_EQ(given.epoch(), 2);
  EXPECT_EQ(given.announce_port(), 4900u);
  EXPECT_EQ(config.services(0).backends(1).node(), 2u);
  const v1::ClusterConfig& defaults = config.services(2).cluster();
  EXPECT_EQ(defaults.epoch(), 0);
  EXPECT_EQ(defaults.announce_port(), 4803u);
  EXPECT_EQ(defaults.key(), "");
  EXPECT_EQ(config.services(2).backends(0).node(), 0u);
}

TEST(Cluster, IsNotThereUnlessItIsGiven) {
  EXPECT_FALSE(Load(R"(services: [{name: a, vip: 10.99.0.1, port: 1, profile: hkv,
                                   backends: [{name: a, address: 10.77.0.1, port: 1}]}])")
                   .services(0)
                   .has_cluster());
}

TEST(Cluster, TheEffectiveConfigurationHidesItsKey) {
  const v1::Config config = Load(kSound);
  EXPECT_THAT(EmitYaml(config), Not(HasSubstr("2233445566")));
  EXPECT_THAT(EmitYaml(config), HasSubstr("key: \"(hidden)\""));
  EXPECT_THAT(EmitYaml(config), HasSubstr("key_file: \"/etc/hedgerow/dns.key\""));
  EXPECT_EQ(EmitYaml(Load(EmitYaml(config, Secrets::kShown)), Secrets::kShown), EmitYaml(config, Secrets::kShown));
}

TEST(Cluster, PortsAreFew) {
  std::string text = "services:\n";
  for (int i = 1; i <= 5; ++i) {
    absl::StrAppend(&text, "  - {name: s", i, ", vip: 10.99.0.", i, ", port: 1, profile: hkv, cluster: {id: ", i,
                    ", key: " KEY ", announce_port: ", 4800 + i, "}, backends: [{name: a, address: 10.77.0.", i,
                    ", port: 1}]}\n");
  }
  Diagnostics errors("c.yaml");
  LoadText(text, errors);
  EXPECT_THAT(errors.Lines(), ElementsAre(HasSubstr("services[4].cluster.announce_port: got a 5th different port, "
                                                    "expected at most 4 in all services")));
}

class KeyFile : public testing::Test {
 protected:
  KeyFile() {
    char pattern[] = "/tmp/hedgerow-key-test.XXXXXX";
    folder_ = mkdtemp(pattern);
    path_ = folder_ + "/key";
  }
  ~KeyFile() override {
    unlink(path_.c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0);
  }
  void Write(const std::string& content, mode_t mode) {
    const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, mode);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    ASSERT_EQ(fchmod(fd, mode), 0);
    close(fd);
  }
  std::string folder_;
  std::string path_;
};

TEST_F(KeyFile, IsReadWhenAskedForAndReportedAtItsPlace) {
  std::string text = kSound;
  const std::string named = "/etc/hedgerow/dns.key";
  text.replace(text.find(named), named.size(), path_);
  Diagnostics errors("c.yaml");
  LoadText(text, errors, KeyFiles::kRead);
  EXPECT_THAT(errors.Lines(), ElementsAre(absl::StrCat("c.yaml:21:32: services[2].cluster.key_file: the file \"", path_,
                                                       "\" cannot be opened: No such file or directory")));
  Write(KEY, 0660);
  Diagnostics open("c.yaml");
  LoadText(text, open, KeyFiles::kRead);
  EXPECT_THAT(open.Lines(), ElementsAre(HasSubstr("\" can be changed by others than its owner (mode 0660)")));
  Write(KEY "\n", 0640);
  Diagnostics none("c.yaml");
  const v1::Config config = LoadText(text, none, KeyFiles::kRead);
  EXPECT_THAT(none.Lines(), IsEmpty());
  EXPECT_EQ(config.services(2).cluster().key(), "00112233445566778899aabbccddeeff");
  EXPECT_THAT(EmitYaml(config), Not(HasSubstr("2233445566")));
}

// kSound's first two services have their keys in the file itself.
TEST_F(KeyFile, AConfigurationWithAKeyIsForItsOwnerAndGroupOnly) {
  const auto load = [this](mode_t mode, KeyFiles key_files) {
    Write(kSound, mode);
    Diagnostics errors(path_);
    LoadFile(path_, errors, key_files);
    return errors.Lines();
  };
  EXPECT_THAT(load(0640, KeyFiles::kLeave), IsEmpty());
  const std::vector<std::string> open = load(0644, KeyFiles::kLeave);
  ASSERT_THAT(open, Not(IsEmpty()));
  EXPECT_THAT(open[0],
              HasSubstr(absl::StrCat("cluster.key: this file can be read by everybody (mode 0644), expected mode "
                                     "0600 or 0640: run `chmod g-w,o-rwx ",
                                     path_, "`")));
  EXPECT_THAT(load(0666, KeyFiles::kRead), testing::Contains(HasSubstr("run `chmod go-w " + path_ + "`")));
  if (geteuid() != 0) GTEST_SKIP() << "needs root (to give a file away)";
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  Diagnostics shown(path_);
  LoadFile(path_, shown);
  EXPECT_THAT(shown.Lines(), IsEmpty());
  Diagnostics served(path_);
  LoadFile(path_, served, KeyFiles::kRead);
  EXPECT_THAT(served.Lines(), testing::Contains(HasSubstr("the file belongs to user 65534, expected root")));
}

// Whatever it was mistyped like, and wherever an error would be cut.
TEST(Quote, RepeatsNothingThatMayBeAKey) {
  EXPECT_EQ(Quote("/etc/" KEY), "\"/etc/(32 characters, perhaps a key)\"");
  EXPECT_EQ(Quote(std::string(40, '/') + KEY), "\"" + std::string(40, '/') + "(32 characters, perh...\"");
  for (const std::string& text :
       std::vector<std::string>{"0011223344556677o8899aabbccddeef", "00112233445566778899AABBCCDDE"})
    EXPECT_THAT(Quote(text), Not(HasSubstr("0011"))) << text;
  for (const std::string& text :
       std::vector<std::string>{"18446744073709551616", "fd00:1122:3344:5566:7788:99aa:bbcc:ddee",
                                "a-name-of-a-backend", "internationalization1234"})
    EXPECT_EQ(Quote(text), "\"" + text + "\"");
}

}  // namespace
}  // namespace hedgerow::config
