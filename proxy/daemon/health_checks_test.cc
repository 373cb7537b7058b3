// SPDX-License-Identifier: Apache-2.0
//
// A service's `check` against servers on loopback.
#include "proxy/daemon/health_checks.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "net/socket_address.h"
#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Answers each query with this code, or not at all.
struct Server {
  Server() : socket(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    const net::SocketAddress any(*net::IpAddress::Parse("127.0.0.1"), 0);
    EXPECT_EQ(bind(socket.get(), any.get(), any.bytes), 0);
    port = net::OwnEnd(socket.get())->port;
  }
  void Serve() {
    std::array<char, 512> query{};
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    for (ssize_t bytes = 0; (bytes = recvfrom(socket.get(), query.data(), query.size(), 0,
                                              reinterpret_cast<sockaddr*>(&from), &size)) > 0;) {
      last.assign(query.data(), static_cast<size_t>(bytes));
      if (rcode < 0) continue;
      query[2] = static_cast<char>(query[2] | 0x80);
      query[3] = static_cast<char>(rcode);
      sendto(socket.get(), query.data(), static_cast<size_t>(bytes), 0, reinterpret_cast<sockaddr*>(&from), size);
    }
  }
  net::UniqueFd socket;
  uint16_t port = 0;
  int rcode = 0;
  std::string last;
};

class HealthChecksTest : public testing::Test {
 protected:
  void Make(const std::string& check) {
    config_ = *config::LoadText(
        absl::StrCat("services:\n  - name: dns\n    vip: 10.99.0.53\n    port: 53\n    profile: dns\n", check,
                     "    backends:\n      - {name: a, address: 127.0.0.1, port: ", a_.port,
                     "}\n      - {name: b, address: 127.0.0.1, port: ", b_.port, "}\n"),
        "c.yaml");
    checks_ = std::make_unique<HealthChecks>(config_);
    facts_.paths = {{.name = "dns", .source = "127.0.0.1", .vip_route = "", .backends = {}}};
  }
  // So many seconds later.
  const std::vector<size_t>& After(int looks) {
    for (int i = 0; i < looks; ++i) {
      EXPECT_TRUE(checks_->Look(facts_, fake_).ok());
      a_.Serve();
      b_.Serve();
    }
    return fake_.failing["dns"];
  }

  Server a_, b_;
  v1::Config config_;
  DaemonFacts facts_;
  FakeDataPlane fake_;
  std::unique_ptr<HealthChecks> checks_;
};

TEST_F(HealthChecksTest, ABackendFailsAndComesBackAfterSoManyInARow) {
  Make("    check: {rise: 2, fall: 3, name: www.example.test}\n");
  EXPECT_THAT(After(5), IsEmpty());
  EXPECT_EQ(a_.last.substr(2), absl::HexStringToBytes("01000001000000000000"
                                                      "03777777076578616d706c6504746573740000060001"));
  a_.rcode = 2;  // SERVFAIL
  EXPECT_THAT(After(3), IsEmpty()) << "two have failed";
  EXPECT_THAT(After(1), ElementsAre(0));
  a_.rcode = 3;  // NXDOMAIN is an answer
  EXPECT_THAT(After(2), ElementsAre(0)) << "one is answered";
  EXPECT_THAT(After(1), IsEmpty());
  a_.rcode = -1;
  EXPECT_THAT(After(4), ElementsAre(0));
  EXPECT_EQ(facts_.checks.at({"dns", "a"}), (std::array<uint64_t, 2>{8, 7}));
  EXPECT_EQ(facts_.checks.at({"dns", "b"}), (std::array<uint64_t, 2>{15, 0}));
}

TEST_F(HealthChecksTest, ARefusalFailsANameAndNotAHeaderAlone) {
  a_.rcode = 5;
  Make("    check: {fall: 1, name: www.example.test}\n");
  EXPECT_THAT(After(2), ElementsAre(0));
  Make("    check: {fall: 1}\n");
  EXPECT_THAT(After(4), IsEmpty());
}

TEST_F(HealthChecksTest, WhereAllFailNoneIsGoneAround) {
  Make("    check: {fall: 1}\n");
  a_.rcode = b_.rcode = -1;
  EXPECT_THAT(After(4), IsEmpty());
  b_.rcode = 0;
  After(3);
  EXPECT_THAT(After(1), ElementsAre(0));
}

TEST_F(HealthChecksTest, QuestionsAreAsFarApartAsWritten) {
  Make("    check: {every: 5s}\n");
  After(11);
  EXPECT_EQ(facts_.checks.at({"dns", "a"}), (std::array<uint64_t, 2>{2, 0}));
}

TEST_F(HealthChecksTest, WithoutACheckNothingIsAsked) {
  Make("");
  After(3);
  EXPECT_EQ(a_.last, "");
  EXPECT_TRUE(facts_.checks.empty());
}

}  // namespace
}  // namespace hedgerow
