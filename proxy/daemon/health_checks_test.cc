// SPDX-License-Identifier: Apache-2.0
//
// A service's `check` against servers on loopback.
#include "proxy/daemon/health_checks.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
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
      asked_from = ntohs(reinterpret_cast<const sockaddr_in*>(&from)->sin_port);
      if (rcode < 0) continue;
      query[2] = static_cast<char>(query[2] | 0x80);
      query[3] = static_cast<char>(rcode);
      sendto(socket.get(), query.data(), static_cast<size_t>(bytes), 0, reinterpret_cast<sockaddr*>(&from), size);
    }
  }
  net::UniqueFd socket;
  uint16_t port = 0, asked_from = 0;
  int rcode = 0;
  std::string last;
};

class HealthChecksTest : public testing::Test {
 protected:
  void Make(const std::string& check) {
    config_ = *config::LoadText(
        absl::StrCat("services:\n  - name: dns\n    vip: 10.99.0.53\n    port: 53\n    profile: ", profile_, "\n",
                     check, "    backends:\n      - {name: a, address: 127.0.0.1, port: ", ports_[0],
                     "}\n      - {name: b, address: 127.0.0.1, port: ", ports_[1], "}\n"),
        "c.yaml");
    checks_ = std::make_unique<HealthChecks>(config_);
    seen_.services.assign(1, {.name = "dns"});
    seen_.services[0].backends.resize(2);
    seen_.services[0].backends[0].name = "a";
    seen_.services[0].backends[1].name = "b";
    facts_.paths = {{.name = "dns", .source = "127.0.0.1", .vip_route = "", .backends = {}}};
  }
  // So many seconds later.
  const std::vector<size_t>& After(int looks) {
    for (int i = 0; i < looks; ++i) {
      now_ns_ += 1'000'000'000;
      EXPECT_TRUE(checks_->Look(facts_, fake_, &seen_, now_ns_).ok());
      a_.Serve();
      b_.Serve();
    }
    return fake_.failing["dns"];
  }

  Server a_, b_;
  std::string profile_ = "dns";
  std::array<uint16_t, 2> ports_ = {a_.port, b_.port};
  v1::Config config_;
  DaemonFacts facts_;
  FakeDataPlane fake_;
  Snapshot seen_;
  int64_t now_ns_ = 1'000'000'000;
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

TEST_F(HealthChecksTest, ADrainedBackendThatAnswersDoesNotMakeTheOthersFail) {
  Make("    check: {fall: 1}\n");
  a_.rcode = -1;
  seen_.services[0].backends[1].drained = true;
  EXPECT_THAT(After(4), IsEmpty()) << "else it got all requests";
  seen_.services[0].backends[1].drained = false;
  EXPECT_THAT(After(1), ElementsAre(0));
  seen_.services[0].backends[1].unrouted = true;
  EXPECT_THAT(After(1), IsEmpty());
}

TEST_F(HealthChecksTest, AVerdictOutlivesAReloadAndCountsOfRemovedBackendsDoNot) {
  Make("    check: {fall: 1}\n");
  a_.rcode = -1;
  EXPECT_THAT(After(2), ElementsAre(0));
  facts_.checks[{"gone", "a"}] = {1, 1};
  Make("    check: {fall: 3}\n");
  seen_.services[0].backends[0].failing = true;
  EXPECT_THAT(After(1), ElementsAre(0)) << "before anything is asked again";
  a_.rcode = 0;
  EXPECT_THAT(After(3), IsEmpty()) << "and answers end it";
  EXPECT_EQ(facts_.checks.count({"gone", "a"}), 0u);
  EXPECT_EQ(facts_.checks.count({"dns", "a"}), 1u);
}

TEST_F(HealthChecksTest, AQuestionIsGivenItsSecondWhenALookWasLate) {
  Make("    check: {fall: 1}\n");
  a_.rcode = -1;
  After(1);
  now_ns_ -= 800'000'000;  // so soon after the one before
  EXPECT_THAT(After(1), IsEmpty());
  EXPECT_EQ(facts_.checks.count({"dns", "a"}), 0u);
  EXPECT_EQ(facts_.checks.at({"dns", "b"}), (std::array<uint64_t, 2>{1, 0})) << "an answer needs no second";
  EXPECT_THAT(After(1), ElementsAre(0));
}

TEST_F(HealthChecksTest, WhatCannotBeAskedIsSaidAndIsNoFailure) {
  Make("    check: {fall: 1}\n");
  After(1);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const absl::Status said = checks_->Look(facts_, fake_, &seen_, now_ns_ += 1'000'000'000);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(said.message(), testing::HasSubstr("service dns: its check has no socket"));
  EXPECT_THAT(After(1), IsEmpty());
  EXPECT_EQ(facts_.checks.at({"dns", "a"}), (std::array<uint64_t, 2>{1, 0}));
}

TEST_F(HealthChecksTest, QuestionsAreAsFarApartAsWritten) {
  Make("    check: {every: 5s}\n");
  After(11);
  EXPECT_EQ(facts_.checks.at({"dns", "a"}), (std::array<uint64_t, 2>{2, 0}));
}

TEST_F(HealthChecksTest, AConnectionThatIsRefusedFailsAndOneThatIsAcceptedIsAnAnswer) {
  std::array<net::UniqueFd, 2> listening;
  for (size_t i = 0; i < 2; ++i) {
    listening[i].Reset(socket(AF_INET, SOCK_STREAM, 0));
    const net::SocketAddress any(*net::IpAddress::Parse("127.0.0.1"), 0);
    ASSERT_EQ(bind(listening[i].get(), any.get(), any.bytes), 0);
    ports_[i] = net::OwnEnd(listening[i].get())->port;
  }
  listen(listening[1].get(), 16);  // the other one has the port, and refuses
  profile_ = "one-way";
  Make("    check: {fall: 2, tcp: on}\n");
  EXPECT_THAT(After(2), IsEmpty());
  EXPECT_THAT(After(1), ElementsAre(0));
  listen(listening[0].get(), 16);
  EXPECT_THAT(After(3), IsEmpty());
  EXPECT_EQ(facts_.checks.at({"dns", "b"})[1], 0u);
  EXPECT_EQ(a_.last + b_.last, "") << "no datagram";
}

// Another host guesses the port that a check is sent from.
TEST_F(HealthChecksTest, AForgedErrorHidesNoAnswer) {
  Make("    check: {fall: 1}\n");
  After(1);
  struct {
    icmphdr header{};
    iphdr quoted{};
    udphdr ports{};
  } error;
  error.header.type = ICMP_DEST_UNREACH;
  error.header.code = ICMP_PORT_UNREACH;
  error.quoted.version = 4;
  error.quoted.ihl = 5;
  error.quoted.protocol = IPPROTO_UDP;
  error.quoted.saddr = error.quoted.daddr = htonl(INADDR_LOOPBACK);
  error.ports.source = htons(a_.asked_from);
  error.ports.dest = htons(a_.port);
  uint32_t sum = 0;
  std::array<uint16_t, sizeof(error) / 2> words{};
  std::memcpy(words.data(), &error, sizeof(error));
  for (const uint16_t word : words) sum += word;
  sum = (sum >> 16) + (sum & 0xffff);
  error.header.checksum = static_cast<uint16_t>(~(sum + (sum >> 16)));
  const net::UniqueFd raw(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
  if (!raw.valid()) GTEST_SKIP() << "raw sockets are root's";
  const net::SocketAddress here(*net::IpAddress::Parse("127.0.0.1"), 0);
  ASSERT_EQ(sendto(raw.get(), &error, sizeof(error), 0, here.get(), here.bytes), static_cast<ssize_t>(sizeof(error)));
  EXPECT_THAT(After(1), IsEmpty());
  EXPECT_EQ(facts_.checks.at({"dns", "a"}), (std::array<uint64_t, 2>{1, 0}));
}

TEST_F(HealthChecksTest, WithoutACheckNothingIsAsked) {
  Make("");
  After(3);
  EXPECT_EQ(a_.last, "");
  EXPECT_TRUE(facts_.checks.empty());
}

}  // namespace
}  // namespace hedgerow
