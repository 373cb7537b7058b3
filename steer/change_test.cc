// SPDX-License-Identifier: Apache-2.0
//
// The order of a change, and which sources are pinned, over a kernel part that writes down what it is asked.
#include "steer/change.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "net/namespace_test.h"
#include "net/socket_address.h"

namespace hedgerow::steer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class FakeGroup final : public KernelGroup {
 public:
  FakeGroup() { config_.ipv6_prefix = 128; }
  const hr_steer_config& config() const override { return config_; }
  absl::StatusOr<std::vector<Device>> Devices() const override { return std::vector<Device>{}; }
  absl::Status Attach(Transport, int) override { return absl::OkStatus(); }
  absl::Status Insert(Transport, int, int) override { return absl::OkStatus(); }
  absl::Status Remove(Transport, int) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> CookieOf(Transport, int) const override { return true; }
  absl::Status WriteTable(const TableEntries& table, const Generations& wanted, bool keeps) override {
    steps.push_back("write");
    generations = wanted;
    kept = keeps;
    this->table = table;
    return absl::OkStatus();
  }
  absl::StatusOr<TableEntries> ReadTable() const override { return table; }
  void Leave(const std::set<int>& places) override { left.insert(left.end(), places.begin(), places.end()); }
  absl::Status SetRecording(bool on) override {
    steps.push_back(on ? "record" : "stop");
    return absl::OkStatus();
  }
  absl::Status Pin(const hr_steer_source& source, uint8_t slot) override {
    if (pins.size() == places) return absl::ResourceExhaustedError("full");
    steps.push_back(absl::StrCat("pin ", slot));
    pins.emplace_back(source, slot);
    return absl::OkStatus();
  }
  absl::Status Unpin(const hr_steer_source& source) override {
    steps.push_back("unpin");
    std::erase_if(pins, [&](const auto& each) { return memcmp(&each.first, &source, sizeof(source)) == 0; });
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::pair<hr_steer_source, uint8_t>>> Pins() const override { return pins; }
  absl::StatusOr<GroupCounts> Counts() const override { return GroupCounts{}; }
  absl::StatusOr<uint32_t> ProgramOf(int) const override { return 1; }
  uint32_t OwnProgram(Transport) const override { return 1; }

  std::vector<std::string> steps;
  TableEntries table{};
  std::vector<std::pair<hr_steer_source, uint8_t>> pins;
  size_t places = HR_STEER_PINS;
  Generations generations{};
  bool kept = false;
  std::vector<int> left{};

 private:
  hr_steer_config config_{};
};

const Listen kHere = *Listen::Parse("127.0.0.1:2055");

Weights Even(size_t slots) {
  Weights weights(HR_STEER_SLOTS);
  std::fill_n(weights.begin(), slots, 1.0);
  return weights;
}

std::vector<bool> EmptyAt(int slot) {
  std::vector<bool> empty(HR_STEER_SLOTS);
  if (slot >= 0) empty[static_cast<size_t>(slot)] = true;
  return empty;
}

class ChangeTest : public net::NamespaceTest {
 protected:
  GroupTable Opened(hr_steer_empty policy = HR_STEER_REJECT, bool records = true) {
    group_.table = *GroupTable::Initial(Even(2), policy);
    auto table = GroupTable::Open(&group_, kHere, records, policy, Even(2));
    EXPECT_TRUE(table.ok()) << table.status();
    group_.steps.clear();
    return *std::move(table);
  }
  // A connection from 127.0.1.N.
  net::UniqueFd ConnectFrom(int number) {
    net::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const net::SocketAddress from(*net::IpAddress::Parse(absl::StrCat("127.0.1.", number)), 0),
        to(kHere.address, kHere.port);
    EXPECT_EQ(bind(fd.get(), from.get(), from.bytes), 0);
    EXPECT_EQ(connect(fd.get(), to.get(), to.bytes), 0);
    return fd;
  }
  net::UniqueFd Listening() {
    net::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const net::SocketAddress to(kHere.address, kHere.port);
    EXPECT_EQ(bind(fd.get(), to.get(), to.bytes), 0);
    EXPECT_EQ(listen(fd.get(), 128), 0);
    return fd;
  }
  int SlotNow(int number) const {
    const auto address = *net::IpAddress::Parse(absl::StrCat("127.0.1.", number));
    return SlotOf(Explain(group_.config(), {}, {}, group_.table, address, {}).entry);
  }
  FakeGroup group_;
};

TEST_F(ChangeTest, SourcesWithConnectionsThatMoveArePinnedBeforeTheTableChanges) {
  InNamespace([this] {
    const net::UniqueFd listener = Listening();
    GroupTable table = Opened();
    std::map<int, net::UniqueFd> connections;
    std::map<int, int> before;
    for (int number = 1; number <= 30; ++number) {
      connections[number] = ConnectFrom(number);
      before[number] = SlotNow(number);
    }
    const auto moved = table.SetWeights(Even(3));
    ASSERT_TRUE(moved.ok()) << moved.status();
    EXPECT_EQ(moved->buckets, 341u);
    uint32_t moving = 0;
    for (const auto& [number, slot] : before) moving += SlotNow(number) != slot;
    ASSERT_GT(moving, 0u);
    EXPECT_EQ(moved->pinned, moving);
    EXPECT_EQ(table.pins(), moving);
    ASSERT_EQ(group_.steps.size(), moving + 3);
    EXPECT_EQ(group_.steps.front(), "record");
    EXPECT_EQ(group_.steps[moving + 1], "write");
    EXPECT_EQ(group_.steps.back(), "stop");
    // A pin lasts as long as the connection, and one look longer.
    ASSERT_TRUE(table.Poll().ok());
    EXPECT_EQ(table.pins(), moving);
    for (size_t i = 0; i < before.size(); ++i) const net::UniqueFd closed(accept(listener.get(), nullptr, nullptr));
    connections.clear();
    ASSERT_TRUE(table.Poll().ok());
    EXPECT_EQ(table.pins(), moving);
    ASSERT_TRUE(table.Poll().ok());
    EXPECT_EQ(table.pins(), 0u);
    EXPECT_THAT(group_.pins, IsEmpty());
  });
}

TEST_F(ChangeTest, AChangeIsMadeWithMoreOpenConnectionsThanPlacesForPins) {
  InNamespace([this] {
    const net::UniqueFd listener = Listening();
    GroupTable table = Opened();
    std::vector<net::UniqueFd> connections;
    for (int number = 1; number <= 30; ++number) connections.push_back(ConnectFrom(number));
    group_.places = 3;
    const auto moved = table.SetWeights(Even(3));
    ASSERT_TRUE(moved.ok()) << moved.status();
    EXPECT_EQ(moved->buckets, 341u);
    EXPECT_EQ(moved->pinned, 3u);
    EXPECT_EQ(table.BucketsOf(2), 341u);
  });
}

TEST_F(ChangeTest, AGroupOfOneTransportRecordsNothing) {
  InNamespace([this] {
    GroupTable table = Opened(HR_STEER_REJECT, false);
    ASSERT_TRUE(table.SetWeights(Even(3)).ok());
    EXPECT_THAT(group_.steps, ElementsAre("write"));
    group_.steps.clear();
    ASSERT_TRUE(table.SetWeights(Even(3)).ok());
    EXPECT_THAT(group_.steps, IsEmpty()) << "nothing changes";
    EXPECT_FALSE(table.SetWeights(Weights(HR_STEER_SLOTS)).ok());
    EXPECT_THAT(group_.steps, IsEmpty());
  });
}

TEST_F(ChangeTest, AnEmptySlotIsRelievedOfAllAndGetsBackWhatHasNoConnection) {
  InNamespace([this] {
    const net::UniqueFd listener = Listening();
    GroupTable table = Opened(HR_STEER_OTHER);
    int one = 1, another = 2;
    while (SlotNow(one) != 0) ++one;
    while (SlotNow(another) != 0 || another == one) ++another;
    const net::UniqueFd connection = ConnectFrom(one);
    ASSERT_TRUE(table.SetEmpty(EmptyAt(0)).ok());
    EXPECT_EQ(SlotNow(one), 1);
    EXPECT_THAT(group_.pins, IsEmpty()) << "its worker is gone";
    // As if it had connected meanwhile.
    ASSERT_TRUE(table.SetEmpty(EmptyAt(-1)).ok());
    EXPECT_EQ(SlotNow(another), 0);
    ASSERT_EQ(group_.pins.size(), 1u);
    EXPECT_EQ(group_.pins[0].second, 1) << "where its connection is";
    // That one's end ends the pin as well.
    ASSERT_TRUE(table.SetEmpty(EmptyAt(1)).ok());
    EXPECT_THAT(group_.pins, IsEmpty());
    EXPECT_EQ(table.BucketsOf(0), 512u);
  });
}

TEST_F(ChangeTest, ASlotThatWasEmptyWhenItWentIsServedWhenItComesBack) {
  InNamespace([this] {
    group_.table = *GroupTable::Initial(Even(3), HR_STEER_REJECT);
    for (hr_steer_entry& entry : group_.table) entry.is_vacant = entry.slot == 2;
    auto table = GroupTable::Open(&group_, kHere, true, HR_STEER_REJECT, Even(3));
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_TRUE(table->IsEmpty(2)) << "as the kernel's table has it";
    EXPECT_FALSE(table->IsEmpty(1));
    ASSERT_TRUE(table->SetWeights(Even(2)).ok());
    ASSERT_TRUE(table->SetEmpty(EmptyAt(-1)).ok());
    ASSERT_TRUE(table->SetWeights(Even(3)).ok());
    EXPECT_TRUE(
        std::none_of(group_.table.begin(), group_.table.end(), [](const auto& each) { return each.is_vacant != 0; }));
    EXPECT_EQ(table->BucketsOf(2), 341u);
  });
}

TEST_F(ChangeTest, FlowsAreKeptWhereSharesOrGenerationsChangeAndNotWhereASlotIsEmpty) {
  InNamespace([this] {
    GroupTable table = Opened(HR_STEER_OTHER, false);
    ASSERT_TRUE(table.SetWeights(Even(3)).ok());
    EXPECT_TRUE(group_.kept);
    ASSERT_TRUE(table.SetEmpty(EmptyAt(1)).ok());
    EXPECT_FALSE(group_.kept);
    ASSERT_TRUE(table.SetGeneration(1, 2, true).ok());
    EXPECT_TRUE(group_.kept);
    EXPECT_THAT(group_.left, ElementsAre(1));
    ASSERT_TRUE(table.SetGeneration(2, 1, false).ok());
    EXPECT_THAT(group_.left, ElementsAre(1)) << "the former one of slot 2 stays";
    group_.steps.clear();
    ASSERT_TRUE(table.SetGeneration(1, 2, true).ok());
    EXPECT_THAT(group_.steps, IsEmpty());
    ASSERT_TRUE(table.SetEmpty(EmptyAt(-1)).ok());
    EXPECT_EQ(group_.generations[1], 2) << "every table is written with them";
  });
}

TEST_F(ChangeTest, AChangeThatWasCutShortIsEndedByTheNextSupervisor) {
  InNamespace([this] {
    group_.table = *GroupTable::Initial(Even(3), HR_STEER_REJECT);
    hr_steer_source source{.kind = HR_STEER_IPV4, .words = {0x0101007f, 0}};
    group_.pins.emplace_back(source, uint8_t{1});
    auto table = GroupTable::Open(&group_, kHere, true, HR_STEER_REJECT, Even(2));
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_THAT(group_.steps, ElementsAre("stop")) << "no recording goes on";
    EXPECT_EQ(table->pins(), 1u);
    ASSERT_TRUE(table->SetWeights(Even(2)).ok());
    EXPECT_EQ(table->BucketsOf(2), 0u);
    EXPECT_EQ(table->BucketsOf(0), 512u);
  });
}

}  // namespace
}  // namespace hedgerow::steer
