// SPDX-License-Identifier: Apache-2.0
//
// Which socket the kernel gives datagrams and connections to, and that `Explain` says the same, with real
// sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cstring>
#include <map>
#include <set>
#include <span>

#include "bpf/tests/checksum.h"
#include "absl/strings/str_cat.h"
#include "steer/group_sockets_test.h"
#include "steer/table.h"

namespace hedgerow::steer {
namespace {

using net::IsOk;

constexpr int kSlots = 4;

struct Family {
  const char* name;
  const char* listen;
  std::string (*source)(int);
};
const Family kFamilies[] = {{"Ipv4", kAny4, Source4}, {"Ipv6", kAny6, Source6}, {"Ipv4OnIpv6", kAny6, Source4}};

Device NetworkOf(const std::string& ip, uint32_t bits, uint64_t id, bool gateway = false) {
  Device device;
  const bool ipv4 = ip.find(':') == std::string::npos;
  device.network.family = ipv4 ? 4 : 6;
  device.network.prefix_bits = 32 + bits;
  EXPECT_EQ(inet_pton(ipv4 ? AF_INET : AF_INET6, ip.c_str(), device.network.words), 1);
  device.device.id = id;
  device.device.is_gateway = gateway;
  return device;
}

class GroupChoice : public GroupTest {
 protected:
  // The bucket's slot has no worker.
  static void MakeVacant(KernelGroup& group, int slot, hr_steer_empty empty, uint8_t other = 0) {
    auto table = *group.ReadTable();
    for (hr_steer_entry& entry : table) {
      if (entry.slot != slot) continue;
      entry.is_vacant = 1;
      entry.empty = static_cast<uint8_t>(empty);
      entry.other_slot = other;
    }
    ASSERT_THAT(group.WriteTable(table, {}, false), IsOk());
  }
  // A source whose slot it is.
  static std::string SourceAt(const KernelGroup& group, int slot, int from = 0) {
    for (int i = from;; ++i) {
      if (Explained(group, Source4(i)).slot == slot) return Source4(i);
    }
  }
};

class OneSlot : public GroupChoice, public ::testing::WithParamInterface<Family> {};

TEST_P(OneSlot, ASourceMeetsTheExplainedSlotFromEachPortOnUdpAndTcp) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, GetParam().listen, kSlots);
    std::map<int, int> sources;
    for (int i = 0; i < 400 && !HasFailure(); ++i) {
      const std::string source = GetParam().source(i);
      const int slot = Explained(*group, source).slot;
      ++sources[slot];
      EXPECT_EQ(sockets.Udp(source), slot) << source;
      EXPECT_EQ(sockets.Udp(source, "x", static_cast<uint16_t>(1024 + i * 97 % 60000)), slot) << source;
      EXPECT_EQ(sockets.Tcp(source), slot) << source;
      if (i % 10 == 0) EXPECT_EQ(sockets.Tcp(source), slot) << source;
    }
    EXPECT_EQ(sources.size(), size_t{kSlots});
    const auto counts = group->Counts();
    ASSERT_THAT(counts.status(), IsOk());
    // Of TCP each connection once, whatever else of it reaches the listener.
    uint64_t by_slot = 0;
    for (const hr_steer_slot_counts& slot : counts->slots) by_slot += slot.selected_udp + slot.selected_tcp;
    EXPECT_EQ(by_slot, 3u * 400 + 40);
    for (int slot = 0; slot < kSlots; ++slot) {
      EXPECT_EQ(counts->slots[static_cast<size_t>(slot)].selected_udp, 2u * static_cast<unsigned>(sources[slot]));
      EXPECT_GE(counts->slots[static_cast<size_t>(slot)].selected_tcp, static_cast<unsigned>(sources[slot]));
      EXPECT_EQ(counts->slots[static_cast<size_t>(slot)].empty_udp, 0u);
    }
    EXPECT_EQ(counts->all.unreadable, 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(, OneSlot, ::testing::ValuesIn(kFamilies), [](const auto& info) { return info.param.name; });

TEST_F(GroupChoice, AnIpv6PrefixIsOneSource) {
  InGroupNamespace([&] {
    GroupSpec spec = SpecOf(kSlots);
    spec.config.ipv6_prefix = 64;
    const auto group = MakeGroup(spec);
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny6, kSlots);
    std::set<int> met;
    for (int prefix = 1; prefix <= 99; ++prefix) {  // enough that no slot is missed: 19 missed one now and then
      const std::string network = "fd77:0:0:" + std::to_string(prefix);
      const int slot = sockets.Udp(network + "::1");
      met.insert(slot);
      EXPECT_EQ(sockets.Udp(network + ":ffff::2"), slot);
      EXPECT_EQ(sockets.Tcp(network + ":1:2:3:4"), slot);
      EXPECT_EQ(Explained(*group, network + "::9").slot, slot);
    }
    EXPECT_EQ(met.size(), size_t{kSlots});
  });
}

TEST_F(GroupChoice, TheAddressesOfADeviceMeetOneSlotAndTheLongestNetworkCounts) {
  InGroupNamespace([&] {
    GroupSpec spec = SpecOf(kSlots);
    // 40 devices with an IPv4 network, an IPv6 network, and one address within device 0's network that is of
    // another.
    for (uint64_t id = 0; id < 40; ++id) {
      spec.devices.push_back(NetworkOf("198.19." + std::to_string(id) + ".0", 24, id));
      spec.devices.push_back(NetworkOf("fd77:0:" + std::to_string(id) + "::", 48, id));
    }
    spec.devices.push_back(NetworkOf("198.19.0.77", 32, 39));
    const auto group = MakeGroup(spec);
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(group->Devices()->size(), 81u);
    GroupSockets sockets(*group, kAny6, kSlots);
    std::map<int, int> slot_of;
    for (int id = 0; id < 40; ++id) {
      const std::string ipv4 = "198.19." + std::to_string(id) + ".", ipv6 = "fd77:0:" + std::to_string(id) + "::";
      const int slot = slot_of[id] = sockets.Udp(ipv4 + "1");
      EXPECT_EQ(sockets.Tcp(ipv4 + "200"), slot);
      EXPECT_EQ(sockets.Udp(ipv6 + "1"), slot);
      EXPECT_EQ(sockets.Tcp(ipv6 + "ffff"), slot);
      for (const std::string& ip : {ipv4 + "9", ipv6 + "9"}) EXPECT_EQ(Explained(*group, ip).slot, slot) << ip;
    }
    EXPECT_EQ(sockets.Udp("198.19.0.77"), slot_of[39]);
    // An address of no device goes by itself.
    EXPECT_EQ(sockets.Udp("198.18.77.1"), Explained(*group, "198.18.77.1").slot);
    EXPECT_EQ(Explained(*group, "198.18.77.1").source.kind, uint64_t{HR_STEER_IPV4});
  });
}

TEST_F(GroupChoice, AGatewaysDatagramsGoByTheirField) {
  InGroupNamespace([&] {
    GroupSpec spec = SpecOf(kSlots);
    spec.devices = {NetworkOf("198.19.0.0", 24, 1, true), NetworkOf("fd77:0:1::", 48, 1, true),
                    NetworkOf("198.19.1.0", 24, 2)};
    spec.config.field_offset = 12;
    spec.config.field_bytes = 4;
    const auto group = MakeGroup(spec);
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny6, kSlots);
    const int by_id = Explained(*group, "198.19.0.1").slot;
    std::set<int> met;
    for (char i = 0; i < 60; ++i) {
      const std::string payload = std::string("############ab") + i + "d and more";
      const Choice choice = Explained(*group, "198.19.0.1", payload);
      EXPECT_EQ(choice.source.kind, uint64_t{HR_STEER_FIELD});
      met.insert(choice.slot);
      EXPECT_EQ(sockets.Udp(Source4(i), payload), choice.slot);
      EXPECT_EQ(sockets.Udp("fd77:0:1::9", payload), choice.slot);
      EXPECT_EQ(sockets.Udp("198.19.1.9", payload), Explained(*group, "198.19.1.9").slot) << "no gateway";
    }
    EXPECT_EQ(met.size(), size_t{kSlots});
    EXPECT_EQ(sockets.Udp("198.19.0.1", std::string(15, '#')), by_id) << "too short for the field";
    EXPECT_EQ(sockets.Udp("198.19.0.1", ""), by_id);
    EXPECT_EQ(sockets.Tcp("198.19.0.1"), by_id);
  });
}

TEST_F(GroupChoice, AVacantSlotIsRejectedOnBothTransports) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, kSlots);
    const std::string source = SourceAt(*group, 2), other = SourceAt(*group, 1);
    MakeVacant(*group, 2, HR_STEER_REJECT);
    EXPECT_EQ(sockets.Udp(source), kRefused);
    EXPECT_EQ(sockets.Tcp(source), kRefused);
    EXPECT_EQ(sockets.Udp(other), 1);
    EXPECT_EQ(sockets.Tcp(other), 1);
    const auto counts = group->Counts();
    EXPECT_EQ(counts->slots[2].empty_udp, 1u);
    EXPECT_EQ(counts->slots[2].empty_tcp, 1u);
    EXPECT_EQ(counts->slots[2].selected_udp, 0u);
  });
}

TEST_F(GroupChoice, ASlotWithoutASocketIsRejectedOnIpv6Too) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(1));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny6, 1);
    EXPECT_EQ(sockets.Udp(Source6(1)), 0);
    EXPECT_EQ(sockets.Tcp(Source6(1)), 0);
    ASSERT_THAT(group->Remove(Transport::kUdp, 0), IsOk());
    ASSERT_THAT(group->Remove(Transport::kTcp, 0), IsOk());
    EXPECT_EQ(*group->CookieOf(Transport::kUdp, 0), 0u);
    EXPECT_EQ(sockets.Udp(Source6(1)), kRefused);
    EXPECT_EQ(sockets.Tcp(Source6(1)), kRefused);
    EXPECT_EQ(sockets.Udp(Source4(1)), kRefused);
    EXPECT_EQ(sockets.Tcp(Source4(1)), kRefused);
    ASSERT_THAT(group->Insert(Transport::kUdp, 0, sockets.socket(Transport::kUdp, 0)), IsOk());
    EXPECT_EQ(sockets.Udp(Source6(1)), 0) << "and it comes back";
  });
}

TEST_F(GroupChoice, AnotherSlotTakesAVacantSlotsSources) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, kSlots);
    const std::string source = SourceAt(*group, 3);
    MakeVacant(*group, 3, HR_STEER_OTHER, 1);
    EXPECT_EQ(sockets.Udp(source), 1);
    EXPECT_EQ(sockets.Tcp(source), 1);
    EXPECT_EQ(Explained(*group, source).slot, 1);
    EXPECT_EQ(group->Counts()->slots[1].selected_udp, 1u);
    EXPECT_EQ(group->Counts()->slots[3].empty_udp, 1u);
    ASSERT_THAT(group->Remove(Transport::kUdp, 1), IsOk());
    EXPECT_EQ(sockets.Udp(source), kRefused) << "the other slot has no socket either";
  });
}

// Its array knows one socket of three: an overlapping restart, or a supervisor that has died.
TEST_F(GroupChoice, WhereTheKernelIsToChooseASocketInNoSlotIsFound) {
  for (const hr_steer_empty policy : {HR_STEER_KERNEL, HR_STEER_OTHER_OR_KERNEL, HR_STEER_REJECT, HR_STEER_OTHER}) {
    InGroupNamespace([&] {
      const auto group = MakeGroup(SpecOf(3, policy));
      ASSERT_NE(group, nullptr);
      GroupSockets sockets(*group, kAny4, 3);
      const std::string source = SourceAt(*group, 1);
      for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
        for (const int slot : {1, 2}) ASSERT_THAT(group->Remove(transport, slot), IsOk());
        sockets.Close(transport, 0);
      }
      const bool is_open = (policy & HR_STEER_KERNEL) != 0;
      EXPECT_EQ(sockets.Udp(source) >= 1, is_open) << policy;
      EXPECT_EQ(sockets.Tcp(source) >= 1, is_open) << policy;
      MakeVacant(*group, 1, policy, 2);
      EXPECT_EQ(sockets.Udp(source) >= 1, is_open) << policy;
      EXPECT_EQ(group->Counts()->slots[1].empty_udp, 2u);
      EXPECT_EQ(group->Counts()->slots[1].selected_udp, 0u) << "which one the kernel chose is not known";
      ASSERT_THAT(group->Insert(Transport::kUdp, 2, sockets.socket(Transport::kUdp, 2)), IsOk());
      if ((policy & HR_STEER_OTHER) != 0) EXPECT_EQ(sockets.Udp(source), 2) << "another slot comes first";
      EXPECT_THAT(KernelGroup::Remove(bpffs(), "test"), IsOk());
    });
  }
}

TEST_F(GroupChoice, APinnedSourceStaysOnBothTransportsUntilItIsUnpinned) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, kSlots);
    const std::string source = SourceAt(*group, 3), other = SourceAt(*group, 2);
    const Choice choice = Explained(*group, source);
    ASSERT_THAT(group->Pin(choice.source, 1), IsOk());
    EXPECT_EQ(group->Pins()->size(), 1u);
    EXPECT_EQ(sockets.Udp(source), 1);
    EXPECT_EQ(group->Counts()->all.pinned, 1u);
    EXPECT_EQ(sockets.Tcp(source), 1);
    EXPECT_GE(group->Counts()->all.pinned, 2u);
    EXPECT_EQ(Explained(*group, source).slot, 1);
    EXPECT_TRUE(Explained(*group, source).pinned);
    EXPECT_EQ(sockets.Udp(other), 2);
    ASSERT_THAT(group->Pin(choice.source, 0), IsOk());
    EXPECT_EQ(sockets.Udp(source), 0);
    ASSERT_THAT(group->Remove(Transport::kUdp, 0), IsOk());
    EXPECT_EQ(sockets.Udp(source), 3) << "a pin to a slot without a socket has no effect";
    ASSERT_THAT(group->Unpin(choice.source), IsOk());
    ASSERT_THAT(group->Unpin(choice.source), IsOk());
    EXPECT_EQ(sockets.Tcp(source), 3);
    EXPECT_TRUE(group->Pins()->empty());
  });
}

TEST_F(GroupChoice, AConnectionDuringAChangeIsRecordedAndUdpFollowsIt) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, kSlots);
    const std::string early = SourceAt(*group, 2), recorded = SourceAt(*group, 2, 50),
                      udp_only = SourceAt(*group, 2, 100);
    EXPECT_EQ(sockets.Tcp(early), 2);
    EXPECT_TRUE(group->Pins()->empty()) << "nothing is recorded before";
    ASSERT_THAT(group->SetRecording(true), IsOk());
    EXPECT_EQ(sockets.Tcp(recorded), 2);
    EXPECT_EQ(sockets.Tcp(recorded), 2);
    EXPECT_EQ(sockets.Udp(udp_only), 2);
    auto table = *group->ReadTable();
    for (hr_steer_entry& entry : table) entry.slot = entry.slot == 2 ? 0 : entry.slot;
    ASSERT_THAT(group->WriteTable(table, {}, false), IsOk());
    EXPECT_EQ(sockets.Udp(recorded), 2) << "at once, and before the change is over";
    EXPECT_EQ(sockets.Tcp(recorded), 2);
    ASSERT_THAT(group->SetRecording(false), IsOk());
    const auto pins = group->Pins();
    ASSERT_EQ(pins->size(), 1u);
    EXPECT_EQ((*pins)[0].second, 2);
    EXPECT_EQ(sockets.Udp(recorded), 2);
    EXPECT_EQ(sockets.Tcp(recorded), 2);
    EXPECT_EQ(Explained(*group, recorded).slot, 2);
    EXPECT_EQ(sockets.Udp(udp_only), 0);
    EXPECT_EQ(sockets.Udp(early), 0);
    EXPECT_EQ(sockets.Tcp(early), 0);
    EXPECT_EQ(group->Pins()->size(), 1u) << "and nothing is recorded after";
    ASSERT_THAT(group->Unpin((*pins)[0].first), IsOk());
    EXPECT_EQ(sockets.Udp(recorded), 0);
  });
}

TEST_F(GroupChoice, AFlowStaysWithTheSocketThatItBeganWithWhileAChangeLasts) {
  for (const Family& family : kFamilies) {
    InGroupNamespace([&] {
      SCOPED_TRACE(family.name);
      GroupSpec spec = SpecOf(3);
      spec.config.openers = 1;
      spec.config.opener[0] = {.mask = {0xff, 0}, .value = {'O', 0}};
      const auto group = MakeGroup(spec);
      ASSERT_NE(group, nullptr);
      GroupSockets sockets(*group, family.listen, 4);
      // The last one is the next generation of slot 1.
      constexpr int kNext = 3;
      for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
        ASSERT_THAT(group->Remove(transport, kNext), IsOk());
        ASSERT_THAT(group->Insert(transport, PlaceOf(1, 1), sockets.socket(transport, kNext)), IsOk());
      }
      int i = 0;
      while (Explained(*group, family.source(i)).slot != 1) ++i;
      const std::string source = family.source(i), opens(16, 'O'), goes_on(16, 'd');
      const auto to = [&](const std::string& payload, uint16_t port) { return sockets.Udp(source, payload, port); };
      EXPECT_EQ(to(opens, 4001), 1);
      EXPECT_EQ(to(opens.substr(1), 4001), 1);
      EXPECT_EQ(to(opens, 4001), 1);
      EXPECT_EQ(to(goes_on, 4001), 1);
      EXPECT_EQ(group->Counts()->all.opened, 1u) << "a flow opens once, with a datagram that is long enough";

      Generations generations{};
      generations[1] = 1;
      auto table = *group->ReadTable();
      ASSERT_THAT(group->WriteTable(table, generations, true), IsOk());
      EXPECT_TRUE(group->IsChanging());
      EXPECT_EQ(group->ReadGenerations(), generations);
      EXPECT_EQ(to(goes_on, 4001), 1);
      EXPECT_EQ(to(opens, 4001), 1) << "of a handshake that is under way";
      EXPECT_EQ(to(goes_on, 4002), 1) << "it began before this group did";
      EXPECT_EQ(to(opens, 4003), kNext);
      EXPECT_EQ(to(goes_on, 4003), kNext);
      EXPECT_EQ(sockets.Tcp(source), kNext);
      EXPECT_EQ(group->Counts()->all.kept, 3u);
      EXPECT_EQ(group->Counts()->all.opened, 2u);

      for (hr_steer_entry& entry : table) entry.slot = entry.slot == 1 ? 0 : entry.slot;
      ASSERT_THAT(group->WriteTable(table, generations, true), IsOk());
      EXPECT_EQ(to(goes_on, 4003), kNext) << "a second change, within the first";
      EXPECT_EQ(to(goes_on, 4001), 1);
      EXPECT_EQ(to(goes_on, 4002), 1) << "without a record it is where the oldest table says";
      EXPECT_EQ(to(opens, 4004), 0);
      sockets.Close(Transport::kUdp, 1);
      EXPECT_EQ(to(goes_on, 4001), 0) << "its worker has ended";
      EXPECT_EQ(to(opens, 4001), 0);
      EXPECT_EQ(group->Counts()->all.opened, 4u);
      group->EndChange();
      EXPECT_FALSE(group->IsChanging());
      EXPECT_EQ(to(goes_on, 4003), 0) << "by the table alone";
      EXPECT_THAT(KernelGroup::Remove(bpffs(), "test"), IsOk());
    });
  }
}

TEST_F(GroupChoice, AFlowThatWasHeardBeforeAChangeStaysWithItsWorkerUnlessThatEnds) {
  InGroupNamespace([&] {
    GroupSpec spec = SpecOf(2);
    spec.config.openers = 1;
    spec.config.opener[0] = {.mask = {0xff, 0}, .value = {'O', 0}};
    spec.config.any = 1;
    const auto group = MakeGroup(spec);
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, 2);
    const std::string source = SourceAt(*group, 1), opens(16, 'O');
    const auto to = [&](uint16_t port, const std::string& payload = "x") { return sockets.Udp(source, payload, port); };
    group->Tick();
    EXPECT_EQ(to(4001), 1);
    EXPECT_EQ(to(4002, opens), 1);
    auto table = *group->ReadTable();
    for (hr_steer_entry& entry : table) entry.slot = 0;
    ASSERT_THAT(group->WriteTable(table, {}, true), IsOk());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(to(4001), 1) << "heard";
      EXPECT_EQ(to(4002), 1) << "opened";
      EXPECT_EQ(to(4003), 0) << "new, and still so when it comes again";
      EXPECT_EQ(to(4004, opens), 0);
    }
    group->Leave({1});
    EXPECT_EQ(to(4001), 0) << "its worker is asked to end";
    EXPECT_EQ(to(4002), 1) << "a session";
    EXPECT_EQ(to(4003), 0);
    group->EndChange();
    EXPECT_EQ(to(4001), 0);
    EXPECT_EQ(to(4002), 0);
    usleep(100'000);  // the time of a record is that of a change to 17 ms

    for (hr_steer_entry& entry : table) entry.slot = 1;
    ASSERT_THAT(group->WriteTable(table, {}, true), IsOk());
    EXPECT_EQ(to(4001), 0) << "it has moved since it was first heard";
    EXPECT_EQ(to(4002), 0) << "and so has one that opened earlier";
  });
}

TEST_F(GroupChoice, AFlowThatBeginsWithinAChangeStaysInAFurtherOneUnlessItsWorkerEnds) {
  InGroupNamespace([&] {
    GroupSpec spec = SpecOf(3);
    spec.config.openers = 1;
    spec.config.opener[0] = {.mask = {0xff, 0}, .value = {'O', 0}};
    spec.config.any = 1;
    const auto group = MakeGroup(spec);
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, 3);
    const std::string source = SourceAt(*group, 0), opens(16, 'O');
    const auto to = [&](uint16_t port, const std::string& payload = "x") { return sockets.Udp(source, payload, port); };
    const auto write = [&](uint8_t slot) {
      auto table = *group->ReadTable();
      for (hr_steer_entry& entry : table) entry.slot = slot;
      ASSERT_THAT(group->WriteTable(table, {}, true), IsOk());
    };
    group->Tick();
    EXPECT_EQ(to(4001), 0);
    write(1);
    EXPECT_EQ(to(4002), 1);
    EXPECT_EQ(to(4003, opens), 1);
    EXPECT_EQ(to(4004), 1);
    EXPECT_EQ(group->Counts()->all.opened, 1u) << "a session";
    write(2);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(to(4001), 0) << "heard before the first change";
      EXPECT_EQ(to(4002), 1);
      EXPECT_EQ(to(4003), 1);
      EXPECT_EQ(to(4005), 2);
    }
    EXPECT_EQ(to(4004, opens), 2) << "a session begins anew";
    group->Leave({1});
    EXPECT_EQ(to(4002), 2) << "its worker is asked to end";
    EXPECT_EQ(to(4003), 1) << "a session";
    EXPECT_EQ(to(4005), 2);
    group->EndChange();
    usleep(100'000);  // the time of a record is that of a change to 17 ms

    write(1);
    EXPECT_EQ(to(4002), 2) << "noted while the former change lasted";
    EXPECT_EQ(to(4005), 2);
    EXPECT_EQ(to(4006), 1);
  });
}

TEST_F(GroupChoice, WithoutSessionsTheNextGenerationTakesAllAtOnce) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(3));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, 4);
    ASSERT_THAT(group->Remove(Transport::kUdp, 3), IsOk());
    ASSERT_THAT(group->Insert(Transport::kUdp, PlaceOf(1, 15), sockets.socket(Transport::kUdp, 3)), IsOk());
    const std::string source = SourceAt(*group, 1);
    Generations generations{};
    generations[1] = 15;
    ASSERT_THAT(group->WriteTable(*group->ReadTable(), generations, true), IsOk());
    EXPECT_FALSE(group->IsChanging());
    EXPECT_EQ(sockets.Udp(source, std::string(16, 'O')), 3);
    const std::string pinned = SourceAt(*group, 0);
    ASSERT_THAT(group->Pin(Explained(*group, pinned).source, 1), IsOk());
    EXPECT_EQ(sockets.Udp(pinned), 3) << "a pin names the slot";
  });
}

// A TCP packet of no connection.
void SendBare(const std::string& source_ip, uint8_t flags) {
  const net::UniqueFd fd(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP));
  const SocketAddress from = AddressOf(source_ip, 0), to = AddressOf(kTarget4, 0);
  ASSERT_EQ(bind(fd.get(), from.get(), from.bytes), 0) << strerror(errno);
  tcphdr header{};
  header.th_sport = htons(4000);
  header.th_dport = htons(kPort);
  header.th_off = sizeof(header) / 4;
  header.th_flags = flags;
  const auto bytes = [](const auto& value, size_t at, size_t count) {
    return std::span(reinterpret_cast<const uint8_t*>(&value) + at, count);
  };
  constexpr size_t kAddressAt = offsetof(sockaddr_in, sin_addr);
  const uint32_t pseudo = packets::PseudoHeaderSum(bytes(from.storage, kAddressAt, 4), bytes(to.storage, kAddressAt, 4),
                                                   sizeof(header), IPPROTO_TCP);
  header.th_sum = htons(static_cast<uint16_t>(~packets::FoldedSum(bytes(header, 0, sizeof(header)), pseudo)));
  ASSERT_EQ(sendto(fd.get(), &header, sizeof(header), 0, to.get(), to.bytes), ssize_t{sizeof(header)})
      << strerror(errno);
}

TEST_F(GroupChoice, AConnectionIsCountedByItsSynAndAllButAResetIsRecorded) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, kSlots);
    ASSERT_THAT(group->SetRecording(true), IsOk());
    const auto selected = [&] {
      uint64_t sum = 0;
      const auto counts = group->Counts();
      for (const hr_steer_slot_counts& slot : counts->slots) sum += slot.selected_tcp;
      return sum;
    };
    const auto wait_pins = [&](size_t count) {
      for (int i = 0; i < kPatience_ms && group->Pins()->size() < count; ++i) usleep(1000);
      EXPECT_EQ(group->Pins()->size(), count);
    };
    SendBare("198.18.0.2", TH_RST);
    SendBare("198.18.0.3", TH_SYN);
    wait_pins(1);
    EXPECT_EQ(selected(), 1u);
    SendBare("198.18.0.2", TH_ACK);  // with a cookie it would be a connection, whose SYN was counted
    wait_pins(2);
    EXPECT_EQ(selected(), 1u);
  });
}

TEST_F(GroupChoice, ARecordThatFindsNoPlaceIsCountedAndTheConnectionGoesOn) {
  InGroupNamespace([&] {
    const auto group = MakeGroup(SpecOf(kSlots));
    ASSERT_NE(group, nullptr);
    GroupSockets sockets(*group, kAny4, kSlots);
    hr_steer_source source{HR_STEER_DEVICE, {0, 0}};
    for (; source.words[0] < HR_STEER_PINS; ++source.words[0]) ASSERT_THAT(group->Pin(source, 0), IsOk());
    EXPECT_EQ(group->Pin(source, 0).code(), absl::StatusCode::kResourceExhausted);
    ASSERT_THAT(group->SetRecording(true), IsOk());
    EXPECT_EQ(group->Counts()->all.pins_full, 1u) << "by this process";
    EXPECT_EQ(sockets.Tcp(SourceAt(*group, 2)), 2);
    EXPECT_EQ(group->Counts()->all.pins_full, 2u) << "and by the program";
    // A source that has a place, though its slot has no socket, needs none.
    const std::string known = SourceAt(*group, 3);
    ASSERT_THAT(group->Unpin({HR_STEER_DEVICE, {0, 0}}), IsOk());
    ASSERT_THAT(group->Pin(Explained(*group, known).source, 9), IsOk());
    EXPECT_EQ(sockets.Tcp(known), 3);
    EXPECT_EQ(group->Counts()->all.pins_full, 2u);
  });
}

}  // namespace
}  // namespace hedgerow::steer
