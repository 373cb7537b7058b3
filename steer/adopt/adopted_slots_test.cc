// SPDX-License-Identifier: Apache-2.0
//
// A daemon's sockets take slots and keep them; a worker that restarts takes the slot that became empty. The kernel part
// is a fake that knows sockets by their cookie; tests/e2e/test_steer_daemons.py has the kernel's, under real daemons.
#include "steer/adopt/adopted_slots.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_join.h"
#include "net/namespace_test.h"
#include "steer/adopt/daemon_test.h"

namespace hedgerow::steer {
namespace {

using net::FailsWith;
using net::IsOk;
using testing::ElementsAre;
using testing::HasSubstr;

uint64_t Cookie(int socket) {
  uint64_t cookie = 0;
  socklen_t bytes = sizeof(cookie);
  EXPECT_EQ(getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &bytes), 0);
  return cookie;
}

class FakeGroup : public KernelGroup {
 public:
  std::map<std::pair<Transport, int>, uint64_t> sockets;
  std::vector<std::string> calls;          // "insert udp 0", "attach udp"
  std::map<Transport, uint32_t> programs;  // of the kernel's groups
  std::set<std::pair<Transport, int>> busy;
  const hr_steer_config& config() const override { return config_; }
  absl::StatusOr<std::vector<Device>> Devices() const override { return std::vector<Device>(); }
  absl::Status Attach(Transport transport, int) override {
    programs[transport] = OwnProgram(transport);
    calls.push_back(absl::StrCat("attach ", Name(transport)));
    return absl::OkStatus();
  }
  absl::Status Insert(Transport transport, int slot, int socket) override {
    if (busy.contains({transport, slot})) return absl::FailedPreconditionError("the UDP socket is in another group");
    calls.push_back(absl::StrCat("insert ", Name(transport), " ", slot));
    sockets[{transport, slot}] = Cookie(socket);
    return absl::OkStatus();
  }
  absl::Status Remove(Transport transport, int slot) override {
    sockets.erase({transport, slot});
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> CookieOf(Transport transport, int slot) const override {
    return sockets.contains({transport, slot});
  }
  absl::Status WriteTable(const std::array<hr_steer_entry, HR_STEER_BUCKETS>&, const Generations&, bool) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::array<hr_steer_entry, HR_STEER_BUCKETS>> ReadTable() const override {
    return std::array<hr_steer_entry, HR_STEER_BUCKETS>{};
  }
  absl::Status SetRecording(bool) override { return absl::OkStatus(); }
  absl::Status Pin(const hr_steer_source&, uint8_t) override { return absl::OkStatus(); }
  absl::Status Unpin(const hr_steer_source&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<std::pair<hr_steer_source, uint8_t>>> Pins() const override {
    return std::vector<std::pair<hr_steer_source, uint8_t>>();
  }
  absl::StatusOr<GroupCounts> Counts() const override { return GroupCounts(); }
  absl::StatusOr<uint32_t> ProgramOf(int socket) const override {
    int type = 0;
    socklen_t bytes = sizeof(type);
    getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &bytes);
    const auto program = programs.find(type == SOCK_DGRAM ? Transport::kUdp : Transport::kTcp);
    return program == programs.end() ? 0 : program->second;
  }
  absl::StatusOr<std::vector<uint32_t>> ClassicFilterOf(int socket) const override {
    if (*ProgramOf(socket) != HR_STEER_CLASSIC_PROGRAM) return std::vector<uint32_t>();
    return std::vector<uint32_t>{6, 2};  // the third socket
  }
  uint32_t OwnProgram(Transport transport) const override { return transport == Transport::kUdp ? 7 : 8; }

 private:
  static const char* Name(Transport transport) { return transport == Transport::kUdp ? "udp" : "tcp"; }
  hr_steer_config config_{};
};

AdoptedWorker Worker(pid_t pid, uint64_t udp, uint64_t tcp, bool certain = true) {
  AdoptedWorker worker{.process = {.pid = pid, .start_ticks = static_cast<uint64_t>(pid)}, .certain = certain};
  if (udp != 0) worker.udp = AdoptedSocket{.cookie = udp, .holder = pid};
  if (tcp != 0) worker.tcp = AdoptedSocket{.cookie = tcp, .holder = pid};
  return worker;
}

std::vector<std::string> Text(const std::vector<Slot>& slots) {
  std::vector<std::string> lines;
  for (const Slot& slot : slots)
    lines.push_back(absl::StrCat(slot.worker.pid, ": ", slot.udp.cookie, " ", slot.tcp.cookie));
  return lines;
}

TEST(Place, FillsEmptySlotsInOrder) {
  const Placement placement = Place(std::vector<Slot>(2), {Worker(10, 1, 2), Worker(11, 3, 4)});
  EXPECT_THAT(Text(placement.slots), ElementsAre("10: 1 2", "11: 3 4"));
  EXPECT_EQ(placement.fills.size(), 4u);
  EXPECT_EQ(placement.slots[0].restarts, 0u);
}

TEST(Place, KeepsASocketInItsSlotWhenItsReaderChanges) {
  const Placement before = Place(std::vector<Slot>(2), {Worker(10, 1, 2), Worker(11, 3, 4)});
  const Placement after = Place(before.slots, {Worker(20, 3, 4), Worker(21, 1, 2)});
  EXPECT_THAT(Text(after.slots), ElementsAre("21: 1 2", "20: 3 4"));
  EXPECT_TRUE(after.fills.empty());
  EXPECT_EQ(after.slots[0].restarts, 1u);
}

TEST(Place, GivesAWorkerWithNewSocketsTheSlotThatBecameEmpty) {
  Placement placement = Place(std::vector<Slot>(3), {Worker(10, 1, 2), Worker(11, 3, 4), Worker(12, 5, 6)});
  placement.slots[1].udp = placement.slots[1].tcp = {};
  const Placement after = Place(placement.slots, {Worker(10, 1, 2), Worker(12, 5, 6), Worker(13, 7, 8)});
  EXPECT_THAT(Text(after.slots), ElementsAre("10: 1 2", "13: 7 8", "12: 5 6"));
  ASSERT_EQ(after.fills.size(), 2u);
  EXPECT_EQ(after.fills[0].slot, 1);
}

TEST(Place, GivesAProcessItsFormerSlot) {
  Placement placement = Place(std::vector<Slot>(2), {Worker(10, 1, 2), Worker(11, 3, 4)});
  for (Slot& slot : placement.slots) slot.udp = slot.tcp = {};
  EXPECT_THAT(Text(Place(placement.slots, {Worker(11, 5, 6), Worker(12, 7, 8)}).slots),
              ElementsAre("12: 7 8", "11: 5 6"));
}

TEST(Place, PutsANewSocketBesideTheOtherOneOfItsWorker) {
  Placement placement = Place(std::vector<Slot>(2), {Worker(10, 1, 2), Worker(11, 3, 4)});
  placement.slots[1].tcp = {};
  const Placement after = Place(placement.slots, {Worker(10, 1, 2), Worker(11, 3, 9)});
  EXPECT_THAT(Text(after.slots), ElementsAre("10: 1 2", "11: 3 9"));
  EXPECT_EQ(after.fills.size(), 1u);
}

TEST(Place, LetsAWorkerWaitWhileNoSlotIsFree) {
  const Placement before = Place(std::vector<Slot>(1), {Worker(10, 1, 2)});
  const Placement after = Place(before.slots, {Worker(10, 1, 2), Worker(11, 3, 4)});
  EXPECT_THAT(Text(after.slots), ElementsAre("10: 1 2"));
  ASSERT_EQ(after.waiting.size(), 1u);
  EXPECT_EQ(after.waiting[0].pid, 11);
}

TEST(Place, TheNextGenerationTakesTheSlotsAndTheFormerOneKeepsItsSockets) {
  std::vector<Slot> slots(2);
  slots[1].number = 1;
  const std::vector<AdoptedWorker> former = {Worker(10, 1, 2), Worker(11, 3, 4)};
  const Placement before = Place(slots, former);
  std::vector<AdoptedWorker> both = former;
  for (const AdoptedWorker& worker : {Worker(20, 5, 6), Worker(21, 7, 8), Worker(22, 9, 10)}) both.push_back(worker);
  const Placement after = Place(before.slots, both, true);
  EXPECT_THAT(Text(after.slots), ElementsAre("20: 5 6", "21: 7 8", "10: 1 2", "11: 3 4"));
  EXPECT_EQ(after.slots[0].generation, 1);
  EXPECT_EQ(after.slots[3].place(), 1);
  EXPECT_EQ(after.slots[3].role, Role::kFormer);
  EXPECT_EQ(after.waiting.size(), 1u) << "one more than there are slots";
  ASSERT_EQ(after.fills.size(), 4u);
  EXPECT_TRUE(Place(after.slots, both, true).fills.size() == 2) << "it is the first slot's next one";
  std::vector<Slot> full = after.slots;
  for (int generation = 0; generation < HR_STEER_GENERATIONS; ++generation)
    full.push_back({.number = 0, .generation = generation, .role = Role::kFormer});
  EXPECT_EQ(Place(full, both, true).waiting.size(), 1u) << "no place for a further generation";
}

TEST(Place, AWorkerThatIsNotCertainDoesNotReplaceOneThatRuns) {
  Placement placement = Place(std::vector<Slot>(1), {Worker(10, 1, 2)});
  placement.slots[0].worker = Identify(getpid());
  EXPECT_EQ(Place(placement.slots, {Worker(5, 1, 2, false)}).slots[0].worker.pid, getpid());
  ++placement.slots[0].worker.start_ticks;  // it has ended
  EXPECT_EQ(Place(placement.slots, {Worker(5, 1, 2, false)}).slots[0].worker.pid, 5);
}

class AdoptedSlotsTest : public net::NamespaceTest {
 protected:
  static SocketSearch Search(std::vector<pid_t> pids) {
    return {.pids = std::move(pids), .listen = {net::IpAddress::Parse("127.0.0.1").value(), 2055}};
  }
  std::unique_ptr<AdoptedSlots> Adopt(const SocketSearch& search) {
    const auto workers = FindWorkers(search);
    EXPECT_THAT(workers.status(), IsOk());
    auto adopted = AdoptedSlots::Adopt(&group_, search, *workers);
    EXPECT_THAT(adopted.status(), IsOk());
    return *std::move(adopted);
  }
  std::string Lines(AdoptedSlots& adopted) {
    return absl::StrJoin(adopted.Poll(now_ += absl::Milliseconds(250)), "\n");
  }

  FakeGroup group_;
  absl::Time now_ = absl::FromUnixSeconds(1);
};

bool HoldBoth() { return MakeUdp() >= 0 && MakeTcp() >= 0; }

TEST_F(AdoptedSlotsTest, EverySocketIsInsertedBeforeTheProgramIsAttached) {
  InNamespace([&] {
    const Child first(HoldBoth), second(HoldBoth);
    const auto adopted = Adopt(Search({first.pid(), second.pid()}));
    EXPECT_THAT(group_.calls, ElementsAre("insert udp 0", "insert tcp 0", "insert udp 1", "insert tcp 1", "attach udp",
                                          "attach tcp"));
    EXPECT_EQ(adopted->slots()[0].worker.pid, first.pid());
    EXPECT_EQ(Lines(*adopted), "");
  });
}

TEST_F(AdoptedSlotsTest, AWorkerThatRestartsTakesItsSlotAgain) {
  InNamespace([&] {
    std::optional<Child> first(HoldBoth);
    const Child second(HoldBoth);
    const auto adopted = Adopt(Search({first->pid(), second.pid()}));
    const pid_t former = first->pid();
    first.reset();
    EXPECT_THAT(Lines(*adopted), HasSubstr(absl::StrCat("slot 0: process ", former, " (")));
    EXPECT_TRUE(adopted->slots()[0].empty());
    EXPECT_FALSE(adopted->slots()[1].empty());
    group_.calls.clear();
    const Child again(HoldBoth);
    EXPECT_THAT(Lines(*adopted), HasSubstr(absl::StrCat("slot 0: process ", again.pid(), " (")));
    EXPECT_THAT(group_.calls, ElementsAre("insert udp 0", "insert tcp 0"));
    EXPECT_EQ(adopted->slots()[0].worker.pid, again.pid());
    EXPECT_EQ(adopted->slots()[0].restarts, 1u);
    EXPECT_EQ(Lines(*adopted), "");
  });
}

TEST_F(AdoptedSlotsTest, ADaemonThatWasAwayIsAttachedAnew) {
  InNamespace([&] {
    std::optional<Child> daemon(HoldBoth);
    const auto adopted = Adopt(Search({daemon->pid()}));
    daemon.reset();
    EXPECT_THAT(Lines(*adopted), HasSubstr("closed its UDP socket"));
    group_.programs.clear();  // the kernel's group went with its last socket
    group_.calls.clear();
    const Child again(HoldBoth);
    Lines(*adopted);
    EXPECT_THAT(group_.calls, ElementsAre("insert udp 0", "insert tcp 0", "attach udp", "attach tcp"));
  });
}

// As nginx reloads: the sockets stay, their parent's, and other workers poll them.
TEST_F(AdoptedSlotsTest, WorkersThatAreReplacedOverTheSameSocketsAreFollowed) {
  InNamespace([&] {
    int command[2], done[2];
    ASSERT_EQ(pipe(command), 0);
    ASSERT_EQ(pipe(done), 0);
    const Child master([&] {
      const int udp = MakeUdp(), tcp = MakeTcp();
      if (fork() != 0) return true;
      for (char byte;;) {  // a worker, and for each byte another one in its place
        const pid_t worker = fork();
        if (worker == 0) {
          if (!AddToEpoll({udp, tcp}) || write(done[1], "x", 1) != 1) _exit(1);
          for (;;) pause();
        }
        if (read(command[0], &byte, 1) != 1) _exit(1);
        kill(worker, SIGKILL);
        waitpid(worker, nullptr, 0);
      }
    });
    char byte = 0;
    ASSERT_EQ(read(done[0], &byte, 1), 1);
    const auto adopted = Adopt(Search({master.pid()}));
    const Process before = adopted->slots()[0].worker;
    EXPECT_NE(before.pid, master.pid());
    ASSERT_EQ(write(command[1], "x", 1), 1);
    ASSERT_EQ(read(done[0], &byte, 1), 1);
    std::string lines;
    for (int i = 0; i < 8 && adopted->slots()[0].worker.pid == before.pid; ++i) lines += Lines(*adopted);
    EXPECT_NE(adopted->slots()[0].worker.pid, before.pid) << lines;
    EXPECT_FALSE(adopted->slots()[0].empty());
    EXPECT_EQ(group_.calls.size(), 4u) << "nothing was inserted again";
    for (const Process& process : WithDescendants(*ListProcesses(), {master.pid()})) {
      if (process.pid != master.pid()) kill(process.pid, SIGKILL);
    }
  });
}

TEST_F(AdoptedSlotsTest, AWorkerTooManyIsAProblemUntilASlotIsFree) {
  InNamespace([&] {
    std::optional<Child> first(HoldBoth);
    const Child second(HoldBoth);
    const auto adopted = Adopt(Search({first->pid(), second.pid()}));
    const Child more(HoldBoth);
    Lines(*adopted);
    ASSERT_EQ(adopted->problems().size(), 1u);
    EXPECT_THAT(adopted->problems()[0], HasSubstr(absl::StrCat("process ", more.pid(), " (")));
    first.reset();
    Lines(*adopted);
    EXPECT_TRUE(adopted->problems().empty());
    EXPECT_EQ(adopted->slots()[0].worker.pid, more.pid());
  });
}

TEST_F(AdoptedSlotsTest, ASecondDaemonOfTheSameCommandIsTheNextGenerationAndMoreSlotsTakeTheFormerOne) {
  InNamespace([&] {
    std::optional<Child> former(HoldBoth);
    const auto adopted = Adopt(Search({former->pid()}));
    std::vector<std::string> lines;
    EXPECT_THAT(adopted->Next(lines), FailsWith(absl::StatusCode::kFailedPrecondition, "no process waits for a slot"));
    group_.calls.clear();
    const Child next(HoldBoth);
    EXPECT_THAT(Lines(*adopted), HasSubstr(absl::StrCat("slot 0: process ", next.pid(), " (")));
    EXPECT_THAT(group_.calls, ElementsAre("insert udp 256", "insert tcp 256"));
    ASSERT_EQ(adopted->slots().size(), 2u);
    EXPECT_EQ(adopted->count(), 1u);
    EXPECT_EQ(adopted->slots()[1].worker.pid, former->pid());
    EXPECT_TRUE(adopted->problems().empty());
    EXPECT_EQ(Lines(*adopted), "") << "all of its sockets have places";
    ASSERT_THAT(adopted->Resize(2, lines), IsOk());
    EXPECT_EQ(adopted->count(), 2u);
    EXPECT_EQ(adopted->slots()[1].worker.pid, former->pid());
    EXPECT_TRUE(group_.sockets.contains({Transport::kUdp, 1}));
    EXPECT_FALSE(group_.sockets.contains({Transport::kUdp, 0})) << "its place as the former one";
    former.reset();
    Lines(*adopted);
    EXPECT_TRUE(adopted->slots()[1].empty());
  });
}

TEST_F(AdoptedSlotsTest, AFormerGenerationThatClosesIsForgotten) {
  InNamespace([&] {
    std::optional<Child> former(HoldBoth);
    const auto adopted = Adopt(Search({former->pid()}));
    const Child next(HoldBoth);
    Lines(*adopted);
    former.reset();
    EXPECT_THAT(Lines(*adopted), HasSubstr("closed its UDP socket"));
    ASSERT_EQ(adopted->slots().size(), 1u);
    EXPECT_EQ(adopted->slots()[0].worker.pid, next.pid());
  });
}

TEST(ComeBack, TheNewestFormerOneServesASlotWhoseNextOneHasNoSocket) {
  std::vector<Slot> slots(2);
  slots[0] = {.generation = 1, .weight = 3, .drained = true};
  slots[1] = {.number = 1, .generation = 1, .udp = {.cookie = 9}};
  const auto former = [&](int number, int generation) {
    slots.push_back({.number = number,
                     .generation = generation,
                     .role = Role::kFormer,
                     .udp = {.cookie = static_cast<uint64_t>(10 * number + generation)}});
  };
  for (const int generation : {14, 15, 13, 2}) former(0, generation);
  former(1, 0);
  EXPECT_THAT(ComeBack(slots), ElementsAre(0));
  ASSERT_EQ(slots.size(), 6u);
  EXPECT_EQ(slots[0].udp.cookie, 15u) << "generations go round";
  EXPECT_EQ(slots[0].role, Role::kServing);
  EXPECT_EQ(slots[0].weight, 3);
  EXPECT_TRUE(slots[0].drained);
  EXPECT_EQ(slots[1].udp.cookie, 9u);
  EXPECT_THAT(ComeBack(slots), testing::IsEmpty());
}

TEST_F(AdoptedSlotsTest, WhereTheNextGenerationEndsTheFormerOneServesAgainAlsoForANewSupervisor) {
  for (const bool is_new : {false, true}) {
    InNamespace([&] {
      const Child first(HoldBoth), second(HoldBoth);
      const SocketSearch search = Search({first.pid(), second.pid()});
      auto adopted = Adopt(search);
      std::optional<Child> third(HoldBoth), fourth(HoldBoth);
      Lines(*adopted);
      ASSERT_EQ(adopted->slots().size(), 4u);
      const std::vector<Slot> recorded = adopted->slots();
      third.reset();
      fourth.reset();
      if (is_new) adopted = *AdoptedSlots::Resume(&group_, search, *FindWorkers(search), recorded);
      EXPECT_THAT(Lines(*adopted), HasSubstr(absl::StrCat("slot 0: process ", first.pid(), " (")));
      ASSERT_EQ(adopted->slots().size(), 2u);
      EXPECT_EQ(adopted->slots()[1].worker.pid, second.pid());
      EXPECT_EQ(adopted->slots()[1].generation, 0);
      EXPECT_EQ(adopted->slots()[1].restarts, 2u);
      const Child fifth(HoldBoth), sixth(HoldBoth);
      Lines(*adopted);
      EXPECT_EQ(adopted->slots()[1].worker.pid, sixth.pid()) << "and another one may follow";
      EXPECT_TRUE(adopted->problems().empty());
    });
  }
}

TEST_F(AdoptedSlotsTest, ANextWorkerThatRestartsGetsItsSlotAgain) {
  InNamespace([&] {
    const Child first(HoldBoth), second(HoldBoth);
    const auto adopted = Adopt(Search({first.pid(), second.pid()}));
    std::optional<Child> third(HoldBoth);
    const Child fourth(HoldBoth);
    Lines(*adopted);
    third.reset();
    Lines(*adopted);
    EXPECT_EQ(adopted->slots()[0].worker.pid, first.pid());
    EXPECT_EQ(adopted->slots()[1].worker.pid, fourth.pid());
    third.emplace(HoldBoth);
    Lines(*adopted);
    EXPECT_EQ(adopted->slots()[0].worker.pid, third->pid());
    EXPECT_EQ(adopted->slots().size(), 4u);
    const Child more(HoldBoth);
    Lines(*adopted);
    EXPECT_EQ(adopted->problems().size(), 1u) << "one too many";
  });
}

TEST_F(AdoptedSlotsTest, TheFormerOneServesOnWhereTheNextOnesSocketCannotBeTaken) {
  InNamespace([&] {
    const Child former(HoldBoth);
    const auto adopted = Adopt(Search({former.pid()}));
    group_.busy = {{Transport::kUdp, 256}};
    const Child next(HoldBoth);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(Lines(*adopted), "");
    ASSERT_EQ(adopted->slots().size(), 1u);
    EXPECT_EQ(adopted->slots()[0].worker.pid, former.pid());
    EXPECT_FALSE(group_.sockets.contains({Transport::kTcp, 256})) << "both or none";
    EXPECT_THAT(adopted->problems(), ElementsAre(HasSubstr("is in another group")));
    group_.busy.clear();
    for (int i = 0; i < 4; ++i) Lines(*adopted);
    EXPECT_EQ(adopted->slots()[0].worker.pid, next.pid()) << "tried again each second";
  });
}

TEST_F(AdoptedSlotsTest, AGroupThatAnotherProgramHasOrOthersShareIsRefused) {
  InNamespace([&] {
    const Child daemon(HoldBoth);
    const SocketSearch search = Search({daemon.pid()});
    group_.programs[Transport::kTcp] = 99;
    EXPECT_THAT(AdoptedSlots::Adopt(&group_, search, *FindWorkers(search)).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, "another program (id 99"));
    group_.programs.clear();
    const Child other(HoldBoth);
    EXPECT_THAT(AdoptedSlots::Adopt(&group_, search, *FindWorkers(search)).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, "name it as well, or end it"));
    EXPECT_TRUE(group_.programs.empty());
  });
}

TEST_F(AdoptedSlotsTest, AProgramThatTookThePlaceIsReplacedWhereItIsTheDaemonsOwnAndReportedElse) {
  InNamespace([&] {
    const Child daemon(HoldBoth);
    const auto adopted = Adopt(Search({daemon.pid()}));
    group_.programs[Transport::kUdp] = HR_STEER_CLASSIC_PROGRAM;
    EXPECT_THAT(Lines(*adopted), HasSubstr("the UDP sockets had a classic filter: attached again"));
    EXPECT_EQ(group_.programs[Transport::kUdp], 7u);
    group_.programs[Transport::kTcp] = 99;
    std::string lines;
    for (int i = 0; i < 5; ++i) lines += Lines(*adopted);
    EXPECT_EQ(lines, "");
    EXPECT_THAT(adopted->problems(), ElementsAre(HasSubstr("takeover: the program 99")));
    EXPECT_EQ(group_.programs[Transport::kTcp], 99u);
  });
}

TEST_F(AdoptedSlotsTest, TheDaemonsOwnFilterIsKeptUntilItsGroupHasGone) {
  InNamespace([&] {
    group_.programs[Transport::kUdp] = HR_STEER_CLASSIC_PROGRAM;
    std::optional<Child> daemon(HoldBoth);
    const auto adopted = Adopt(Search({daemon->pid()}));
    EXPECT_THAT(adopted->filters().at(Transport::kUdp), ElementsAre(6u, 2u));
    EXPECT_FALSE(adopted->filters().contains(Transport::kTcp));
    daemon.reset();
    Lines(*adopted);
    group_.programs.clear();  // the kernel's group went with its last socket
    const Child again(HoldBoth);
    Lines(*adopted);
    EXPECT_FALSE(adopted->filters().contains(Transport::kUdp)) << "the next daemon may have none";
  });
}

TEST_F(AdoptedSlotsTest, ADaemonThatIsUpgradedToAnotherPathIsFollowed) {
  InNamespace([&] {
    std::optional<Child> daemon(HoldBoth);
    const auto adopted = Adopt(Search({daemon->pid()}));
    const Child next([] {  // sleep(1) has the sockets when this returns
      int started[2];
      const int udp = MakeUdp(), tcp = MakeTcp();
      if (pipe2(started, O_CLOEXEC) != 0) return false;
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sleep", "sleep", "60", nullptr);
        _exit(1);
      }
      char byte = 0;
      close(started[1]);
      return read(started[0], &byte, 1) == 0 && close(udp) == 0 && close(tcp) == 0;
    });
    ASSERT_TRUE(next.ready());
    Lines(*adopted);
    EXPECT_EQ(adopted->slots()[0].worker.pid, daemon->pid()) << "while the former one lives";
    daemon.reset();
    EXPECT_THAT(Lines(*adopted), HasSubstr("/sleep now"));
    EXPECT_EQ(adopted->slots()[0].worker.name, "sleep");
    EXPECT_FALSE(adopted->slots()[0].empty());
  });
}

// An interpreter's path says nothing: /bin/sleep with two arguments stands for two scripts.
TEST_F(AdoptedSlotsTest, AProcessOfTheSameProgramAndAnotherCommandTakesNoSlotUnlessResizeSaysSo) {
  InNamespace([&] {
    const auto sleeper = [](const char* seconds) {
      return [seconds] {  // the process itself becomes sleep(1), with the sockets
        int started[2];
        if (!HoldBoth() || pipe2(started, O_CLOEXEC) != 0) return false;
        if (fork() == 0) {
          prctl(PR_SET_PDEATHSIG, SIGKILL);
          execl("/bin/sleep", "sleep", seconds, nullptr);
          _exit(1);
        }
        char byte = 0;
        close(started[1]);
        if (read(started[0], &byte, 1) != 0) return false;
        for (int fd = 3; fd < 64; ++fd) {
          int type = 0;
          socklen_t bytes = sizeof(type);
          sockaddr_storage address{};
          socklen_t length = sizeof(address);
          if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 &&
              getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && address.ss_family == AF_INET)
            close(fd);
        }
        return true;
      };
    };
    const Child stays(sleeper("60"));
    std::optional<Child> leaves(sleeper("60"));
    const auto adopted = Adopt(Search({stays.pid(), leaves->pid()}));
    leaves.reset();  // sleep(1) ends a moment after its parent
    for (int i = 0; i < 500 && !adopted->slots()[1].empty(); ++i, absl::SleepFor(absl::Milliseconds(10)))
      Lines(*adopted);
    ASSERT_TRUE(adopted->slots()[1].empty());
    const Child other(sleeper("61"));
    Lines(*adopted);
    EXPECT_TRUE(adopted->slots()[1].empty()) << "the very program with other arguments";
    EXPECT_THAT(adopted->problems(), ElementsAre(HasSubstr("its command is none of the daemon's")));
    const Child back(sleeper("60"));
    Lines(*adopted);
    EXPECT_FALSE(adopted->slots()[1].empty()) << "the worker is back";
    std::vector<std::string> lines;
    ASSERT_THAT(adopted->Resize(3, lines), IsOk());
    EXPECT_FALSE(adopted->slots()[2].empty());
    EXPECT_TRUE(adopted->problems().empty());
  });
}

TEST_F(AdoptedSlotsTest, ANewSupervisorGoesOnWithTheSlotsAsTheyWere) {
  InNamespace([&] {
    std::optional<Child> first(HoldBoth);
    const Child second(HoldBoth);
    std::vector<Slot> slots;
    {
      const auto former = Adopt(Search({first->pid(), second.pid()}));
      slots = former->slots();
    }
    std::swap(slots[0], slots[1]);  // an order that a new search would not give
    std::swap(slots[0].number, slots[1].number);
    group_.calls.clear();
    first.reset();
    const Child again(HoldBoth);
    const SocketSearch search = Search({second.pid(), again.pid()});
    auto adopted = AdoptedSlots::Resume(&group_, search, *FindWorkers(search), slots);
    ASSERT_THAT(adopted.status(), IsOk());
    Lines(**adopted);
    EXPECT_EQ((*adopted)->slots()[0].worker.pid, second.pid());
    EXPECT_EQ((*adopted)->slots()[1].worker.pid, again.pid());
    EXPECT_THAT(group_.calls, ElementsAre("insert udp 1", "insert tcp 1"));
  });
}

TEST_F(AdoptedSlotsTest, NewSlotsTakeWorkersThatWait) {
  InNamespace([&] {
    const Child first(HoldBoth), second(HoldBoth);
    const auto adopted = Adopt(Search({first.pid(), second.pid()}));
    std::optional<Child> more(HoldBoth);
    Lines(*adopted);
    std::vector<std::string> lines;
    EXPECT_THAT(adopted->Resize(4, lines), FailsWith(absl::StatusCode::kFailedPrecondition, "no worker for slot 3"));
    EXPECT_EQ(adopted->slots().size(), 2u);
    EXPECT_FALSE(group_.sockets.contains({Transport::kUdp, 2})) << "a resize that is refused has changed nothing";
    EXPECT_EQ(adopted->problems().size(), 1u);
    ASSERT_THAT(adopted->Resize(3, lines), IsOk());
    EXPECT_TRUE(adopted->problems().empty());
    EXPECT_EQ(adopted->slots()[2].worker.pid, more->pid());
    EXPECT_THAT(adopted->Resize(2, lines),
                FailsWith(absl::StatusCode::kFailedPrecondition, "slot 2 has the sockets of process"));
    more.reset();
    Lines(*adopted);
    EXPECT_THAT(adopted->Resize(2, lines), IsOk());
  });
}

}  // namespace
}  // namespace hedgerow::steer
