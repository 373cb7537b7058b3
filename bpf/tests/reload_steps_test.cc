// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What packets meet in the midst of a reload: before each single write to what the programs see, and after the
// last, requests are sent, hedged and answered, and leaders announced. Whatever the order of the writes is to
// be good for (proxy/kernel_part/config_writer.cc) is a test here.
#include <functional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "bpf/tests/reconfigure_fixture.h"

namespace hedgerow::packets {
namespace {

constexpr char kD4[] = "10.77.0.14";
constexpr uint32_t kD = 40;  // a number that nobody has

class ReloadStepsTest : public ReconfigureTest {
 protected:
  // Room for all that is asked along the way.
  void SetUp() override {
    PacketTest::SetUp();
    if (IsSkipped()) return;
    DataPlaneSpec spec = Spec();
    spec.max_requests = 512;
    spec.max_parked = 256;
    Start(spec);
  }
  // Backend 0, another service's, looks fastest: whoever meets a place without its number strays there. Then
  // comes who is added, so that he is asked as soon as he is there.
  void Rank() {
    for (const uint32_t id : {uint32_t{kRaw4A}, uint32_t{kRaw4B}, uint32_t{kRaw4C}})
      BackendState(id).answer_ewma_ns = kMillisecond;
    BackendState(kD).answer_ewma_ns = kMillisecond / 2;
  }

  // Looks before each write of `work`, and after the last.
  void LookThrough(const std::function<absl::Status()> &work, const std::function<void()> &look) {
    int steps = 0;
    plane().config().OnWrite([&](absl::string_view what) {
      SCOPED_TRACE(testing::Message() << "before write " << ++steps << ", to " << what);
      look();
      return absl::OkStatus();
    });
    const absl::Status status = work();
    ASSERT_TRUE(status.ok()) << status;
    plane().config().OnWrite(nullptr);
    SCOPED_TRACE("after the last write");
    look();
    EXPECT_GT(steps, 3) << "it writes nothing";
  }
  void Reload(const DataPlaneSpec &spec, const std::function<void()> &look) {
    LookThrough([&] { return plane().config().Reconfigure(spec); }, look);
  }

  struct Asked {
    std::string to;  // "10.77.0.11:9000"; empty: the splitter knows no such service
    uint32_t request = 0;
    uint16_t port = 0;
    Bytes payload;
    const char *vip = nullptr;
  };
  static std::string Endpoint(const PacketView &packet) {
    return packet.destination + ":" + std::to_string(packet.destination_port);
  }
  // A request from a port of its own.
  Asked Ask(Bytes payload = Pattern(8, 1), const char *vip = kRaw4, uint32_t service = kRaw4Service) {
    Rank();
    Asked asked;
    asked.port = next_port_++;
    asked.payload = std::move(payload);
    asked.vip = vip;
    const RunResult run = Split(PacketBuilder(kClient4, vip).Udp(asked.port, kRawPort, asked.payload).Build());
    if (run.verdict == kUntouched || run.changes.contains("host.refusals")) return asked;  // no service
    EXPECT_EQ(run.verdict, kRedirected);
    asked.to = Endpoint(Read(run.packet));
    asked.request = FindRequest(service, kClient4, asked.port, CutTo(asked.payload, 4));
    return asked;
  }
  RunResult Answer(const Asked &asked, const std::string &by) {
    return Reply(PacketBuilder(by, kClient4).Udp(kRawPort, asked.port, asked.payload).Build());
  }
  void ExpectAnswered(const Asked &asked, const std::string &by) {
    const RunResult run = Answer(asked, by);
    EXPECT_EQ(run.verdict, kRedirected) << "the answer of " << by;
    EXPECT_EQ(Read(run.packet).source, asked.vip) << "the answer of " << by;
  }
  static std::string HostOf(const std::string &endpoint) { return endpoint.substr(0, endpoint.find(':')); }

  uint16_t next_port_ = 20000;
};

// One leaves, who leads; one comes, to a place that is not the next. A copy of every request waits, is sent to
// somebody else of the two configurations, and his answer finds its way.
TEST_F(ReloadStepsTest, EveryRequestIsHedgedAndAnswered) {
  DataPlaneSpec spec = WithIds();
  Raw(spec).backends.erase(Raw(spec).backends.begin());
  Raw(spec).backends.push_back(Another(Raw(spec), kD4, kD, 4));
  Raw(spec).config.delay_ns *= 2;
  Raw(spec).primary = 2;
  const std::set<std::string> ours = {"10.77.0.11:9000", "10.77.0.12:9000", "10.77.0.13:9000", "10.77.0.14:9000"};
  std::set<std::string> asked;
  Reload(spec, [&] {
    const Asked one = Ask();
    EXPECT_TRUE(ours.contains(one.to)) << one.to;
    ASSERT_NE(one.request, 0u) << "no copy of it waits";
    FireNow(one.request);
    const std::vector<Captured> copies = Clones(HR_MARK_HEDGE, 1);
    ASSERT_EQ(copies.size(), 1u);
    const std::string second = Endpoint(Read(copies[0].packet));
    EXPECT_TRUE(ours.contains(second)) << second;
    EXPECT_NE(second, one.to);
    ExpectAnswered(one, HostOf(second));
    EXPECT_EQ(Answer(one, HostOf(one.to)).verdict, kDropped) << "the loser's";
    asked.insert(one.to);
  });
  EXPECT_EQ(asked, (std::set<std::string>{"10.77.0.11:9000", "10.77.0.12:9000", "10.77.0.14:9000"}))
      << "the leaders, and between them the first place of the new configuration";
  EXPECT_EQ(Ask().to, "10.77.0.14:9000");
}

// Somebody who is dead is taken out of the configuration. He is asked by nobody, whoever else is there.
TEST_F(ReloadStepsTest, ADeadLeaderThatIsRemovedIsAskedByNobody) {
  for (const size_t others : {1, 2}) {
    SCOPED_TRACE(testing::Message() << others << " others");
    SetUp();
    DataPlaneSpec spec = WithIds();
    Raw(spec).backends.resize(1 + others);
    Reconfigure(spec);
    BackendState(kRaw4A).health = HR_DOWN;
    Raw(spec).backends.erase(Raw(spec).backends.begin());
    Reload(spec, [&] {
      BackendState(kRaw4A).probe_counter = 1;  // no probe of him
      const Asked one = Ask();
      EXPECT_TRUE(one.to == "10.77.0.12:9000" || one.to == "10.77.0.13:9000") << one.to;
    });
  }
}

TEST_F(ReloadStepsTest, ADrainedLeaderThatIsRemovedIsAskedByNobody) {
  ASSERT_TRUE(plane().policy().SetDrained("raw4", "a", true).ok());
  DataPlaneSpec spec = WithIds();
  Raw(spec).backends.erase(Raw(spec).backends.begin());
  Reload(spec, [&] {
    const Asked one = Ask();
    EXPECT_TRUE(one.to == "10.77.0.12:9000" || one.to == "10.77.0.13:9000") << one.to;
  });
  EXPECT_EQ(ServicePolicy(kRaw4Service).drained, 0u);
}

// Before, byte 4 says whether a request may be sent twice, and afterwards byte 6. What neither allows is never
// sent twice, also where half of the one and half of the other would allow it.
TEST_F(ReloadStepsTest, WhatNeitherConfigurationDuplicatesIsNotDuplicated) {
  const auto with = [&](const char *match) {
    DataPlaneSpec spec = WithIds();
    Raw(spec).config.profile = PairedBy(4, absl::StrCat("operations: [{match: [", match, "]}]"));
    return spec;
  };
  Reconfigure(with(R"({offset: 4, bytes: "01"})"));
  bool waited_before = false, waits_after = false;
  Reload(with(R"({offset: 6, bytes: "02"})"), [&] {
    for (const Bytes &neither : {Bytes{1, 0, 0, 0, 2, 0, 0, 0}, Bytes{2, 0, 0, 0, 0, 0, 1, 0}}) {
      const Asked one = Ask(neither);
      EXPECT_EQ(one.to, "10.77.0.11:9000");
      EXPECT_EQ(one.request, 0u) << "a copy of it waits";
      ExpectAnswered(one, kA4);
    }
    waited_before = waited_before || Ask({3, 0, 0, 0, 1, 0, 0, 0}).request != 0;
    waits_after = Ask({4, 0, 0, 0, 0, 0, 2, 0}).request != 0;
  });
  EXPECT_TRUE(waited_before && waits_after);
}

TEST_F(ReloadStepsTest, AVipThatPassesOnIsNeverNobodys) {
  DataPlaneSpec spec = WithIds();
  ServiceSpec &successor = Raw(spec);
  successor.name = "successor";
  successor.id = 12;
  successor.primary = 0;
  successor.backends = {Another(successor, kD4, kD, 0), Another(successor, "10.77.0.15", kD + 1, 1)};
  Reload(spec, [&] {
    const Asked one = Ask();
    ASSERT_TRUE(one.to == "10.77.0.11:9000" || one.to == "10.77.0.14:9000") << one.to;
    ExpectAnswered(one, HostOf(one.to));
  });
  EXPECT_EQ(Ask().to, "10.77.0.14:9000");
}

// A cluster announces all the time, also while its service is being added: he leads, or who is configured, and
// it is no reason to fail.
TEST_F(ReloadStepsTest, AnAddedServiceIsAllThereWhenItIsFound) {
  DataPlaneSpec spec = WithIds();
  ServiceSpec added = spec.services[kHkv4Service];
  added.name = "new";
  added.vip = "10.99.0.77";
  added.port = kRawPort;
  added.id = 12;
  added.config.profile = PairedBy(4);
  added.backends = {Another(added, kD4, kD, 0), Another(added, "10.77.0.15", kD + 1, 1)};
  for (BackendSpec &backend : added.backends) backend.port = kRawPort;
  added.primary = 0;
  spec.services.push_back(added);
  uint64_t sequence = 0;
  int found = 0;
  Reload(spec, [&] {
    Announce(Seal(Leading(kCluster4, "10.77.0.15", kRawPort, 5, ++sequence), kKey4));
    const Asked one = Ask(Pattern(8, 1), "10.99.0.77", 12);
    if (one.to.empty()) return;
    ++found;
    ASSERT_TRUE(one.to == "10.77.0.14:9000" || one.to == "10.77.0.15:9000") << one.to;
    EXPECT_NE(one.request, 0u);
    ExpectAnswered(one, HostOf(one.to));
  });
  EXPECT_GE(found, 1);
  EXPECT_EQ(Ask(Pattern(8, 1), "10.99.0.77", 12).to, "10.77.0.15:9000") << "who was announced";
}

// One node goes and one comes, and both say all the time that they lead.
TEST_F(ReloadStepsTest, WhoIsAnnouncedMeanwhileLeadsToNobodyElse) {
  DataPlaneSpec spec = WithIds();
  ServiceSpec &hkv = spec.services[kHkv4Service];
  BackendSpec added = Another(hkv, kD4, kD, 3);
  added.node = 4;
  hkv.backends.erase(hkv.backends.begin() + 1);
  hkv.backends.push_back(added);
  const std::set<std::string> ours = {"10.77.0.11:4801", "10.77.0.12:4801", "10.77.0.13:4801", "10.77.0.14:4801"};
  uint64_t term = 5;
  Reload(spec, [&] {
    for (const char *leader : {kD4, kB4}) {
      Announce(Seal(Leading(kCluster4, leader, kHkvPort, ++term, 1), kKey4));
      const RunResult run = Split(HkvRequest4(term));
      ASSERT_EQ(run.verdict, kRedirected);
      const PacketView sent = Read(run.packet);
      EXPECT_TRUE(ours.contains(Endpoint(sent))) << Endpoint(sent);
      EXPECT_EQ(Reply(HkvReply4(term, sent.destination.c_str())).verdict, kRedirected)
          << "the answer of " << sent.destination;
    }
  });
  const hr_leader_view leader = LeaderOf(kHkv4Service);
  EXPECT_EQ(leader.leader, 2) << "d: nobody believes b any more";
}

// A nack names the node that comes to a place where somebody else was.
TEST_F(ReloadStepsTest, WhoIsNotShownYetIsNamedByNobody) {
  DataPlaneSpec spec = WithIds();
  std::vector<BackendSpec> &backends = spec.services[kHkv4Service].backends;
  backends.erase(backends.begin() + 1);
  Reconfigure(spec);
  BackendSpec added = Another(spec.services[kHkv4Service], kD4, kD, 1);
  added.node = 4;
  spec.services[kHkv4Service].backends.push_back(added);
  uint64_t seq = 0;
  bool named = false;
  Reload(spec, [&] {
    Split(HkvRequest4(++seq));
    const uint32_t request = FindHkv(seq);
    ASSERT_NE(request, 0u);
    Reply(HkvReply4(seq, kA4, kHkvNotLeader, added.node));
    named = Request(request).hint == added.slot + 1;
    EXPECT_TRUE(!named || (ServiceConfig(kHkv4Service).present & 0b010) != 0);
  });
  EXPECT_TRUE(named);
}

// A connection of before is his until he is forgotten; then it meets whoever leads, who knows it not. Requests
// notice nothing of either.
TEST_F(ReloadStepsTest, AConnectionStaysWithWhoIsRemovedUntilHeIsForgotten) {
  const auto tcp = [](uint8_t flags) {
    return PacketBuilder(kClient4, kRaw4).Tcp(kClientPort, kRawPort, flags).Build();
  };
  Split(tcp(kTcpSyn));
  DataPlaneSpec spec = WithIds();
  Raw(spec).backends.erase(Raw(spec).backends.begin());
  Reload(spec, [&] {
    EXPECT_EQ(Endpoint(Read(Split(tcp(kTcpAck)).packet)), "10.77.0.11:9000");
    const Bytes answer = PacketBuilder(kA4, kClient4).Tcp(kRawPort, kClientPort, kTcpAck).Build();
    EXPECT_EQ(Read(Reply(answer).packet).source, kRaw4);
  });
  std::set<std::string> met;
  LookThrough(
      [&] {
        return plane().config().Forget({}, {{kRaw4A, kA4, kRawPort}});
      },
      [&] {
        met.insert(Endpoint(Read(Split(tcp(kTcpAck)).packet)));
        const Asked one = Ask();
        EXPECT_EQ(one.to, "10.77.0.12:9000");
        EXPECT_NE(one.request, 0u);
        ExpectAnswered(one, kB4);
      });
  EXPECT_EQ(met, (std::set<std::string>{"10.77.0.11:9000", "10.77.0.12:9000"}));
}

// In the map of leaders stands by now who was announced between the last two looks at it.
TEST_F(ReloadStepsTest, WhoWasAnnouncedLastBeforeHeWasRemovedDoesNotLead) {
  DataPlaneSpec spec = WithIds();
  std::vector<BackendSpec> &backends = spec.services[kHkv4Service].backends;
  backends.erase(backends.begin() + 1);
  uint64_t term = 5;
  Reload(spec, [&] { Announce(Seal(Leading(kCluster4, kB4, kHkvPort, ++term, 1), kKey4)); });
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 0) << "the primary";
}

}  // namespace
}  // namespace hedgerow::packets
