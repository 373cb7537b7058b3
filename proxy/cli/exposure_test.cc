// SPDX-License-Identifier: Apache-2.0
//
// What doctor takes for open.

#include "proxy/cli/exposure.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

net::IpAddress Address(const char* text) { return *net::IpAddress::Parse(text); }

TEST(ListeningSockets, AreThoseThatTakeFromAnyPeer) {
  const std::vector<ListeningSocket> udp = ListeningSockets(
      "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"
      "  123: 0B004D0A:12C1 00000000:0000 07 00000000:00000000 00:00000000 00000000  998        0 4711 2 0000000000000000 0\n"
      "  124: 0100007F:12C2 0200007F:0035 01 00000000:00000000 00:00000000 00000000    0        0 4712 2 0000000000000000 0\n");
  ASSERT_EQ(udp.size(), 1u);
  EXPECT_EQ(udp[0].address, Address("10.77.0.11"));
  EXPECT_EQ(udp[0].port, 4801);
  EXPECT_EQ(udp[0].inode, 4711u);
  const std::vector<ListeningSocket> tcp = ListeningSockets(
      "   0: 000077FD000000000000000001000000:12C2 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 "
      "00000000     0        0 99 1 0000000000000000 100 0 0 10 0\n");
  ASSERT_EQ(tcp.size(), 1u);
  EXPECT_EQ(tcp[0].address, Address("fd77::1"));
  for (const char* text : {"", "x", "  1: 0B00:1 0 07 0 0 0 0 0 1", "  1: ZZZZZZZZ:12C1 0 07 0 0 0 0 0 1"})
    EXPECT_THAT(ListeningSockets(text), IsEmpty()) << text;
}

TEST(IsPublic, IsWhatOtherNetworksReach) {
  for (const char* inside : {"127.0.0.1", "10.255.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
                             "169.254.1.1", "::1", "fd00::1", "fc00::1", "fe80::1"})
    EXPECT_FALSE(IsPublic(Address(inside))) << inside;
  for (const char* outside :
       {"0.0.0.0", "::", "8.8.8.8", "172.32.0.1", "172.15.0.1", "100.128.0.1", "192.169.0.1", "2001:db8::1"})
    EXPECT_TRUE(IsPublic(Address(outside))) << outside;
}

TEST(OpenKeysIn, NamesKeysThatOthersRead) {
  char pattern[] = "/tmp/hedgerow-exposure-test.XXXXXX";
  const std::string folder = mkdtemp(pattern);
  const auto write = [&](const std::string& name, const std::string& text, mode_t mode) {
    std::ofstream(folder + "/" + name) << text;
    ASSERT_EQ(chmod((folder + "/" + name).c_str(), mode), 0);
  };
  write("open.key", "00112233445566778899aabbccddeeff\n", 0644);
  write("closed.key", "00112233445566778899aabbccddeeff\n", 0640);
  write("hedgerow.yaml", "services: []\n", 0644);
  EXPECT_THAT(OpenKeysIn(folder), ElementsAre(HasSubstr(folder + "/open.key can be read by everybody (mode 0644)")));
  EXPECT_THAT(OpenKeysIn(folder + "/none"), IsEmpty());
  for (const char* name : {"open.key", "closed.key", "hedgerow.yaml"}) unlink((folder + "/" + name).c_str());
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

}  // namespace
}  // namespace hedgerow::cli
