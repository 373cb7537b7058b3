// SPDX-License-Identifier: Apache-2.0
//
// What doctor takes for open.

#include "proxy/cli/exposure.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "net/socket_address.h"
#include "net/unique_fd.h"

namespace hedgerow::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

net::IpAddress Address(const char* text) { return *net::IpAddress::Parse(text); }

TEST(PublicPortsOf, AreSocketsOfAProgramThatTakeFromAnyPeer) {
  std::ifstream name("/proc/self/comm");
  std::string own;
  name >> own;
  const auto bound = [](const char* to) {
    const net::SocketAddress address(Address(to), 0);
    net::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd.get(), address.get(), address.bytes), 0);
    return fd;
  };
  const net::UniqueFd open = bound("0.0.0.0"), inside = bound("127.0.0.1");
  EXPECT_THAT(PublicPortsOf(own), ElementsAre(HasSubstr(absl::StrCat(" (pid ", getpid(), ") listens on udp 0.0.0.0:",
                                                                     net::OwnEnd(open.get())->port))));
  EXPECT_THAT(PublicPortsOf("another"), IsEmpty());
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
