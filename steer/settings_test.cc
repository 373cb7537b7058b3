// SPDX-License-Identifier: Apache-2.0
#include "steer/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::steer {
namespace {

using testing::HasSubstr;

TEST(Listen, IsAnAddressAndAPort) {
  for (const char* text : {"192.0.2.1:2055", "[2001:db8::1]:4739", "[::]:65535", "0.0.0.0:1"}) {
    const auto listen = Listen::Parse(text);
    ASSERT_TRUE(listen.ok()) << listen.status();
    EXPECT_EQ(listen->ToString(), text);
  }
  EXPECT_TRUE(Listen::Parse("[::]:1")->wildcard());
  EXPECT_FALSE(Listen::Parse("[::1]:1")->wildcard());
  for (const char* text : {"", "192.0.2.1", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:65536", "2001:db8::1:80",
                           "[192.0.2.1]:80", "host:80", ":80", "[fe80::1]:80"}) {
    const auto wrong = Listen::Parse(text);
    EXPECT_TRUE(absl::IsInvalidArgument(wrong.status())) << text;
    EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("expected ADDRESS:PORT"));
  }
}

class DevicesTest : public testing::Test {
 protected:
  DevicesTest() {
    char pattern[] = "/tmp/hedgerow-devices-test.XXXXXX";
    close(mkstemp(pattern));
    file_ = pattern;
  }
  ~DevicesTest() override { unlink(file_.c_str()); }
  absl::StatusOr<std::vector<Device>> Read(const std::string& text) {
    std::ofstream(file_) << text;
    return ReadDevices(file_);
  }
  std::string file_;
};

TEST_F(DevicesTest, ALineIsANetworkItsNumberAndWhetherItIsAGateway) {
  const auto devices = Read("# routers\n192.0.2.0/28 7\n\n2001:db8::/32\t8 gateway # by field\n");
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].network.family, 4u);
  EXPECT_EQ((*devices)[0].network.prefix_bits, 32u + 28);
  EXPECT_EQ((*devices)[0].device.id, 7u);
  EXPECT_FALSE((*devices)[0].device.is_gateway);
  EXPECT_EQ((*devices)[1].network.prefix_bits, 32u + 32);
  EXPECT_TRUE((*devices)[1].device.is_gateway);
}

TEST_F(DevicesTest, AnErrorNamesTheLine) {
  for (const char* text : {"192.0.2.0/28 7\n192.0.2.1/28 8\n", "#\n192.0.2.0/28\n", "\n192.0.2.0/28 seven\n",
                           "\n192.0.2.0/28 7 gate\n", "192.0.2.0/28 7\n192.0.2.0/28 8\n"}) {
    const auto devices = Read(text);
    EXPECT_TRUE(absl::IsInvalidArgument(devices.status())) << text;
    EXPECT_THAT(std::string(devices.status().message()), HasSubstr(file_ + ":2: ")) << text;
  }
}

TEST_F(DevicesTest, WhatMayHaveNoEndIsRefused) {
  EXPECT_THAT(std::string(ReadDevices("/dev/zero").status().message()),
              HasSubstr("cannot read /dev/zero: it is no file"));
  ASSERT_EQ(truncate(file_.c_str(), (16 << 20) + 1), 0);
  EXPECT_THAT(std::string(ReadDevices(file_).status().message()), HasSubstr("more than 16 MiB"));
}

TEST(GatewayField, IsAnOffsetAndANumberOfBytes) {
  Settings settings;
  EXPECT_THAT(std::string(ReadGatewayField("12:4", settings).message()),
              HasSubstr("no line of --devices says gateway"));
  settings.devices = {Device{.device = {.id = 1, .is_gateway = 1}}};
  ASSERT_TRUE(ReadGatewayField("12:4", settings).ok());
  EXPECT_EQ(settings.field_offset, 12u);
  EXPECT_EQ(settings.field_bytes, 4u);
  for (const char* text : {"12", "12:17", "1401:4", "{path: [{skip: 2}], request_length: 4}"})
    EXPECT_THAT(std::string(ReadGatewayField(text, settings).message()), HasSubstr("expected OFFSET:BYTES")) << text;
}

// As the kernel's program does.
bool Opens(const std::vector<hr_steer_opener>& openers, std::string datagram) {
  datagram.resize(16);
  uint64_t words[2];
  memcpy(words, datagram.data(), sizeof(words));
  return std::any_of(openers.begin(), openers.end(), [&](const hr_steer_opener& each) {
    return (words[0] & each.mask[0]) == each.value[0] && (words[1] & each.mask[1]) == each.value[1];
  });
}

Settings SessionsOf(const std::string& text) {
  Settings settings;
  EXPECT_TRUE(ReadSessions(text, settings).ok());
  return settings;
}

TEST(Sessions, AreOpenedByTheFirstDatagramsOfTheirProtocol) {
  const auto quic = SessionsOf("quic").openers, dtls = SessionsOf("dtls").openers,
             wireguard = SessionsOf("wireguard").openers, any = SessionsOf("any").openers;
  const std::string v1("\0\0\0\1", 4), v2("\x6b\x33\x43\xcf", 4), record("\xfe\xfd\0\0\0\0\0\0\0\0\1\0", 12);
  struct {
    const char* what;
    std::string datagram;
    bool is_quic, is_dtls, is_wireguard;
  } const rows[] = {
      {"QUIC 1 Initial", "\xc3" + v1, true, false, false},
      {"QUIC 1 0-RTT", "\xd0" + v1, true, false, false},
      {"QUIC 1 Handshake", "\xe0" + v1, false, false, false},
      {"QUIC 2 Initial", "\xd0" + v2, true, false, false},
      {"QUIC 2 0-RTT", "\xef" + v2, true, false, false},
      {"QUIC 2 Handshake", "\xf0" + v2, false, false, false},
      {"QUIC 2 Retry", "\xc0" + v2, false, false, false},
      {"QUIC short header", "\x43" + v1, false, false, false},
      {"DTLS ClientHello", "\x16" + record + "\1", false, true, false},
      {"DTLS ServerHello", "\x16" + record + "\2", false, false, false},
      {"DTLS of a later epoch", "\x16\xfe\xfd" + std::string("\0\1", 2) + record.substr(4, 8) + "\1", false, false,
       false},
      {"DTLS data", "\x17" + record + "\1", false, false, false},
      {"WireGuard initiation", std::string("\1\0\0\0x", 5), false, false, true},
      {"WireGuard data", std::string("\4\0\0\0x", 5), false, false, false},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(Opens(quic, row.datagram), row.is_quic) << row.what;
    EXPECT_EQ(Opens(dtls, row.datagram), row.is_dtls) << row.what;
    EXPECT_EQ(Opens(wireguard, row.datagram), row.is_wireguard) << row.what;
    EXPECT_EQ(Opens(any, row.datagram), row.is_quic || row.is_dtls || row.is_wireguard) << row.what;
  }
  EXPECT_LE(any.size(), size_t{HR_STEER_OPENERS});
  EXPECT_TRUE(SessionsOf("any").any_session);
  EXPECT_FALSE(SessionsOf("quic").any_session);
  EXPECT_TRUE(SessionsOf("none").openers.empty());
  Settings settings;
  EXPECT_THAT(std::string(ReadSessions("http", settings).message()),
              HasSubstr("expected any, quic, dtls, wireguard or none"));
}

TEST(WorkerUser, IsFoundByNameAndNumber) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  EXPECT_FALSE(FindWorkerUser("", "")->set);
  const auto nobody = FindWorkerUser("nobody", "");
  ASSERT_TRUE(nobody.ok()) << nobody.status();
  EXPECT_EQ(nobody->uid, 65534u);
  EXPECT_EQ(FindWorkerUser("65534", "0")->gid, 0u);
  EXPECT_TRUE(absl::IsNotFound(FindWorkerUser("no-such-user", "").status()));
  EXPECT_TRUE(absl::IsNotFound(FindWorkerUser("", "no-such-group").status()));
}

}  // namespace
}  // namespace hedgerow::steer
