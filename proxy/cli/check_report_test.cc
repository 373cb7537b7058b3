// SPDX-License-Identifier: Apache-2.0
//
// What `hedgerow check` makes of what came back, and of what did not.
#include "proxy/cli/check_report.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/socket_address.h"
#include "net/unique_fd.h"
#include "operate/hex.h"
#include "proxy/config/built_in_profiles.h"

namespace hedgerow::cli {
namespace {

using testing::HasSubstr;
using Kind = ProbeResult::Kind;

const v1::Profile& Named(const std::string& name) {
  v1::Service service;
  service.set_profile(name);
  return *config::EffectiveProfile(service);
}

ProbeResult Reply(absl::string_view digits) {
  return {.kind = Kind::kReply, .elapsed_ns = 310'000, .reply = operate::BytesOfHex(digits)};
}
const ProbeResult kSilent{};
const ProbeResult kRefused{.kind = Kind::kError, .error = ECONNREFUSED, .elapsed_ns = 200'000};
const ProbeResult kAnswer = Reply("0000818000010001000000000000020001");

// The leader a and the standby b of a DNS service.
v1::CheckReport Report(const ProbeResult& vip, const ProbeResult& a, const ProbeResult& b, bool daemon_runs = true,
                       const std::string& problem = "") {
  const v1::Profile& dns = Named("dns");
  const std::string query = *QueryOf(dns, std::string(kQueryRandomBytes, '\0'));
  v1::CheckReport report;
  v1::CheckedService& service = *report.add_services();
  service.set_service("dns");
  service.set_vip("10.99.0.53");
  service.set_port(53);
  service.set_hedged(true);
  *service.mutable_proxied() = JudgeProbe(ProbedPlace::kVip, dns, query, vip);
  const auto add = [&](const char* name, const char* role, const ProbeResult& result) {
    v1::CheckedBackend& backend = *service.add_backends();
    backend.set_name(name);
    backend.set_address("10.77.0.11");
    backend.set_port(53);
    if (daemon_runs) backend.set_role(role);
    *backend.mutable_direct() = JudgeProbe(ProbedPlace::kBackend, dns, query, result);
  };
  add("a", "leader", a);
  add("b", "standby", b);
  if (!problem.empty()) service.add_problems(problem);
  Conclude(daemon_runs, report);
  return report;
}

std::string FirstLine(const v1::CheckReport& report) {
  const std::string text = CheckText(report);
  return text.substr(0, text.find('\n'));
}

TEST(CheckText, AServiceWhoseClientsGetNothingDoesNotJustWork) {
  const v1::CheckReport report =
      Report(kAnswer, kAnswer, kAnswer, true, "clients_dropped: dns: 40 packets were dropped");
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(FirstLine(report), "dns: works, but other clients get nothing");
  EXPECT_THAT(CheckText(report), HasSubstr("problem: clients_dropped: dns: 40 packets"));
}

TEST(CheckReport, BeginsWithTheVerdict) {
  EXPECT_EQ(FirstLine(Report(kAnswer, kAnswer, kAnswer)), "dns: works");
  EXPECT_EQ(FirstLine(Report(kAnswer, kAnswer, kSilent)), "dns: works, but the standby b fails");
  EXPECT_EQ(FirstLine(Report(kAnswer, kRefused, kAnswer)), "dns: works, but the leader a fails");
  EXPECT_EQ(FirstLine(Report(kSilent, kAnswer, kAnswer)),
            "dns: DOES NOT WORK: the VIP fails, although every backend answers directly");
  EXPECT_EQ(FirstLine(Report(kSilent, kAnswer, kRefused)),
            "dns: DOES NOT WORK: the VIP fails, although the leader a answers directly; the standby b fails");
  EXPECT_EQ(FirstLine(Report(kRefused, kRefused, kSilent)), "dns: DOES NOT WORK: no backend answers");
  const ProbeResult servfail = Reply("0000810200010000000000000000020001");
  EXPECT_EQ(FirstLine(Report(servfail, servfail, servfail)),
            "dns: DOES NOT WORK: it answers that it cannot serve (servfail)");
  EXPECT_EQ(FirstLine(Report(kAnswer, kAnswer, kAnswer, false)), "dns: works, but hedgerowd does not run");
  EXPECT_EQ(FirstLine(Report(kSilent, kAnswer, kAnswer, false)),
            "dns: DOES NOT WORK: the VIP fails, although every backend answers directly; hedgerowd does not run");
}

TEST(CheckReport, ABackendThatWasNotAskedIsNoneThatFailsOrAnswers) {
  const ProbeResult not_asked{.kind = Kind::kNotAsked};
  EXPECT_TRUE(Report(kAnswer, not_asked, not_asked).ok());
  EXPECT_EQ(FirstLine(Report(kAnswer, not_asked, kAnswer)), "dns: works");
  EXPECT_EQ(FirstLine(Report(kSilent, not_asked, not_asked)), "dns: DOES NOT WORK");
  EXPECT_THAT(CheckText(Report(kAnswer, not_asked, kAnswer)), HasSubstr("was not asked: needs root"));
}

TEST(CheckReport, IsWellOnlyWhenEverythingAnswersAndADaemonRuns) {
  EXPECT_TRUE(Report(kAnswer, kAnswer, kAnswer).ok());
  EXPECT_FALSE(Report(kAnswer, kAnswer, kSilent).ok());
  EXPECT_FALSE(Report(kSilent, kAnswer, kAnswer).ok());
  EXPECT_FALSE(Report(kAnswer, kAnswer, kAnswer, false).ok());
}

TEST(CheckReport, IsNotWellWhenNoHedgeAnswers) {
  v1::CheckReport report = Report(kAnswer, kAnswer, kAnswer);
  v1::CheckedService& service = *report.mutable_services(0);
  const std::string query = *QueryOf(Named("dns"), std::string(kQueryRandomBytes, '\0'));
  *service.mutable_hedge() = JudgeProbe(ProbedPlace::kVip, Named("dns"), query, kAnswer);
  Conclude(true, report);
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(CheckText(report),
              HasSubstr("VIP, by a hedge            10.99.0.53:53            answers in 310us: the proxy dropped"));
  *service.mutable_hedge() = JudgeProbe(ProbedPlace::kVip, Named("dns"), query, kSilent);
  Conclude(true, report);
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(FirstLine(report), "dns: works, but no hedge answers");
  service.clear_hedge();
  service.set_no_hedge("no standby answers");
  Conclude(true, report);
  EXPECT_TRUE(report.ok()) << "what was not tested did not fail";
  EXPECT_THAT(CheckText(report), HasSubstr("note: no hedge was tested: no standby answers"));
}

TEST(CheckReport, SaysWhatEachAddressDid) {
  const std::string text = CheckText(Report(kAnswer, Reply("0000810200010000000000000000020001"), kRefused));
  EXPECT_THAT(text, HasSubstr("10.99.0.53:53            answers in 310us\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "a, leader                  10.77.0.11:53            answers after 310us that it cannot serve (servfail); through"));
  EXPECT_THAT(
      text,
      HasSubstr("refuses after 200us: the host is up, but no process has this port; through the proxy nothing yet\n"));
  const std::string others =
      CheckText(Report(kSilent, Reply("0000810500010000000000000000020001"), Reply("aaaa81800000000000000000")));
  EXPECT_THAT(others, HasSubstr("is silent\n"));
  EXPECT_THAT(others, HasSubstr("answers in 310us (refused)"));
  EXPECT_THAT(others, HasSubstr("sends what is no reply to the request (12 bytes: aaaa81800000000000000000)"));
  ProbeResult elsewhere = kAnswer, stray = Reply("aaaa81800000000000000000");
  elsewhere.kind = stray.kind = Kind::kFromElsewhere;
  elsewhere.from = stray.from = {.address = *net::IpAddress::Parse("10.77.0.99"), .port = 53};
  const std::string multihomed = CheckText(Report(kSilent, elsewhere, stray));
  EXPECT_THAT(multihomed, HasSubstr("dns: DOES NOT WORK: no backend answers"));
  EXPECT_THAT(
      multihomed,
      HasSubstr(
          "answers from 10.77.0.99:53, where no answer is looked for: bind the server to the address that is asked; through"));
  EXPECT_THAT(multihomed, HasSubstr("b, standby                 10.77.0.11:53            is silent"))
      << "no reply to the request";
  const std::string barred = CheckText(
      Report({.kind = Kind::kUnsent, .error = EPERM}, kAnswer, {.kind = Kind::kUnsent, .error = ENETUNREACH}));
  EXPECT_THAT(barred, HasSubstr("cannot be sent to from this host (a firewall rule of this host ends it)"));
  EXPECT_THAT(barred, HasSubstr("is unreachable (Network is unreachable)"));
}

TEST(CheckReport, TellsAStandbyThatNamesTheLeaderFromAClusterWithoutOne) {
  const v1::Profile& hkv = Named("hkv");
  const std::string query = *QueryOf(hkv, std::string(kQueryRandomBytes, '\0'));
  std::string reply(32, '\0');
  reply.replace(0, 4, operate::BytesOfHex("48028307"));
  const ProbeResult names{.kind = Kind::kReply, .elapsed_ns = 1000, .reply = reply};
  EXPECT_TRUE(JudgeProbe(ProbedPlace::kBackend, hkv, query, names).ok());
  EXPECT_FALSE(JudgeProbe(ProbedPlace::kVip, hkv, query, names).ok());
}

TEST(CheckReport, TakesSilenceForGoodWhereThereAreNoReplies) {
  EXPECT_TRUE(JudgeProbe(ProbedPlace::kBackend, Named("one-way"), "x", kSilent).ok());
  EXPECT_FALSE(JudgeProbe(ProbedPlace::kBackend, Named("one-way"), "x", kRefused).ok());
  EXPECT_FALSE(JudgeProbe(ProbedPlace::kBackend, Named("flow"), "x", kSilent).ok());
}

TEST(CheckReport, OfSeveralServicesBeginsWithThoseThatNeedALook) {
  v1::CheckReport report = Report(kAnswer, kAnswer, kAnswer);
  *report.add_services() = Report(kAnswer, kSilent, kAnswer).services(0);
  report.mutable_services(1)->set_service("second");
  v1::CheckedService& raw = *report.add_services();
  raw.set_service("third");
  raw.set_unchecked("the profile raw names no harmless request");
  Conclude(true, report);
  EXPECT_EQ(FirstLine(report), "1 of 2 services need a look: second");
  EXPECT_THAT(CheckText(report), HasSubstr("third: not checked: the profile raw names no harmless request\n"));
}

// A server on loopback that answers each datagram but the first `ignored` ones with itself. One that sends from another
// address ignores none.
class Echo {
 public:
  explicit Echo(int ignored, const char* sender = nullptr) : socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const net::SocketAddress any(*net::IpAddress::Parse("127.0.0.1"), 0);
    EXPECT_EQ(bind(socket_.get(), any.get(), any.bytes), 0);
    sockaddr_in bound{};
    socklen_t bytes = sizeof(bound);
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
    port_ = ntohs(bound.sin_port);
    sender_.Reset(sender == nullptr ? -1 : socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (sender != nullptr) {
      const net::SocketAddress other(*net::IpAddress::Parse(sender), port_);
      EXPECT_EQ(bind(sender_.get(), other.get(), other.bytes), 0);
    }
    thread_ = std::thread([this, ignored] {
      for (int i = 0; i <= ignored; ++i) {
        char buffer[64];
        sockaddr_in from{};
        socklen_t size = sizeof(from);
        const ssize_t got =
            recvfrom(socket_.get(), buffer, sizeof(buffer), 0, reinterpret_cast<sockaddr*>(&from), &size);
        if (got > 0 && (i == ignored || sender_.valid()))
          sendto((sender_.valid() ? sender_ : socket_).get(), buffer, static_cast<size_t>(got), 0,
                 reinterpret_cast<sockaddr*>(&from), size);
      }
    });
  }
  ~Echo() { thread_.join(); }
  uint16_t port() const { return port_; }

 private:
  net::UniqueFd socket_, sender_;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST(Probe, GetsRepliesErrorsAndSilenceApartAndTriesTwice) {
  const net::IpAddress here = *net::IpAddress::Parse("127.0.0.1");
  Echo at_once(0), at_second(1);
  const net::UniqueFd mute(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const net::SocketAddress any(here, 0);
  ASSERT_EQ(bind(mute.get(), any.get(), any.bytes), 0);
  sockaddr_in bound{};
  socklen_t bytes = sizeof(bound);
  getsockname(mute.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
  const auto results = ProbeAll({{here, at_once.port(), "one"},
                                 {here, at_second.port(), "two"},
                                 {here, ntohs(bound.sin_port), "three"},
                                 {here, 1, "four"}},
                                absl::Milliseconds(150));
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].kind, Kind::kReply);
  EXPECT_EQ(results[0].reply, "one");
  EXPECT_GT(results[0].elapsed_ns, 0);
  EXPECT_EQ(results[1].kind, Kind::kReply);
  EXPECT_EQ(results[1].reply, "two");
  EXPECT_EQ(results[2].kind, Kind::kSilent);
  EXPECT_EQ(results[3].kind, Kind::kError);
  EXPECT_EQ(results[3].error, ECONNREFUSED);
}

TEST(Probe, NamesTheAddressOfAServerThatAnswersFromAnother) {
  Echo multihomed(1, "127.0.0.2");
  const auto results =
      ProbeAll({{*net::IpAddress::Parse("127.0.0.1"), multihomed.port(), "one"}}, absl::Milliseconds(150));
  EXPECT_EQ(results[0].kind, Kind::kFromElsewhere);
  EXPECT_EQ(results[0].reply, "one");
  EXPECT_EQ(results[0].from,
            (net::SocketEnd{.address = *net::IpAddress::Parse("127.0.0.2"), .port = multihomed.port()}));
}

}  // namespace
}  // namespace hedgerow::cli
