// SPDX-License-Identifier: Apache-2.0
//
// hr-dst-driver PLAN OUT: plays one seed inside a machine in virtual time (guest/stage.sh starts it). Exit 0:
// it was played, and nothing happened that must not; 1: something did, which standard output and OUT/diary.txt
// say; 2: there was no experiment.

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dst/driver/cast.h"
#include "dst/driver/plan.h"
#include "dst/driver/roles.h"
#include "operate/clock.h"

namespace hedgerow::dst {
namespace {

constexpr char kVip[] = "10.99.0.48:4801";
constexpr char kServers[] = "10.77.0.11:4801,10.77.0.12:4801,10.77.0.13:4801";
constexpr char kClient[] = "cl";
constexpr uint64_t kMs_ns = 1'000'000;
constexpr uint64_t kLookEvery_ns = 10 * kMs_ns;
constexpr uint64_t kReadyWithin_ns = 30'000 * kMs_ns;
constexpr uint64_t kEndWithin_ns = 20'000 * kMs_ns;
constexpr uint64_t kReadWithin_ns = 120'000 * kMs_ns;
constexpr uint64_t kStatusWithin_ns = 5'000 * kMs_ns;

bool Says(const std::string& file, const std::string& line) {
  std::ifstream in(file);
  for (std::string read; std::getline(in, read);) {
    if (read == line) return true;
  }
  return false;
}

void JumpWallClock(int64_t by_ms) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t at_ns = now.tv_sec * 1'000'000'000 + now.tv_nsec + by_ms * static_cast<int64_t>(kMs_ns);
  now.tv_sec = at_ns / 1'000'000'000;
  now.tv_nsec = at_ns % 1'000'000'000;
  clock_settime(CLOCK_REALTIME, &now);
}

bool IsOneNodes(FaultKind kind) {
  return kind != FaultKind::kProxyKill && kind != FaultKind::kClockJump && kind != FaultKind::kHog;
}

// One run from its beginning to its end: proxy, nodes and load are raised, the plan's faults are done at their
// virtual times, everything is mended, the store is read, and what is to be judged is left in a folder. Errors say that
// there was no experiment; what must not have happened is in the diary.
class Stage {
 public:
  Stage(Plan plan, std::string out);
  ~Stage();

  absl::Status Run();
  bool sound() const { return diary_.sound(); }

 private:
  struct Turn {
    uint64_t at_ns;  // since the load has begun
    size_t fault;    // place in the plan
    bool begins;
  };

  absl::Status Raise();
  absl::Status RaiseLoad();
  void Play();
  void Close();
  std::vector<Turn> Turns() const;
  void Begin(size_t place);
  void End(size_t place);
  void BeginAt(const Fault& fault, uint32_t node);
  void EndAt(const Fault& fault, uint32_t node);
  void NetworkFaultEverywhere(const std::string& words);
  std::vector<uint32_t> Choose(const Fault& fault) const;
  uint32_t Leader() const;
  void WaitUntil(uint64_t at_ns);
  void EndLoad();
  void ReadFinalState();
  void KeepStatus();

  Plan plan_;
  std::string out_;
  Diary diary_;
  Cast cast_;
  uint64_t begun_ns_ = 0;
  pid_t load_ = -1;
  pid_t hog_ = -1;
  std::map<size_t, std::vector<uint32_t>> chosen_{};  // by fault in progress: its nodes
};

Stage::Stage(Plan plan, std::string out)
    : plan_(std::move(plan)),
      out_(std::move(out)),
      diary_(absl::StrCat(out_, "/diary.txt")),
      cast_(plan_.bug, out_, diary_) {}

Stage::~Stage() {
  for (const pid_t pid : {load_, hog_}) {
    if (pid > 0) kill(pid, SIGKILL);
  }
}

absl::Status Stage::Run() {
  if (absl::Status raised = Raise(); !raised.ok()) return raised;
  Play();
  Close();
  return absl::OkStatus();
}

absl::Status Stage::Raise() {
  if (plan_.unsynced) {
    if (absl::Status mounted = cast_.MountUnsyncedDisks(); !mounted.ok()) return mounted;
  }
  diary_.NoteCost();
  // The daemon first: it measures its clock when it starts, and all other processes are busy then.
  if (absl::Status started = cast_.StartProxy(); !started.ok()) return started;
  const uint64_t until_ns = operate::Monotonic_ns() + kReadyWithin_ns;
  while (!Says(absl::StrCat(out_, "/proxy.log"), "ready")) {
    cast_.LookAround();
    if (operate::Monotonic_ns() > until_ns || !sound()) return absl::UnavailableError("the proxy did not come up");
    SleepUntil(operate::Monotonic_ns() + kLookEvery_ns);
  }
  diary_.NoteCost();
  for (uint32_t node = 1; node <= kNodes; ++node) {
    if (absl::Status started = cast_.StartNode(node); !started.ok()) return started;
  }
  return RaiseLoad();
}

// It opens its sessions through the proxy, again and again for a while: when it is ready, all the others are.
absl::Status Stage::RaiseLoad() {
  const std::string said = absl::StrCat(out_, "/load.txt");
  const absl::StatusOr<pid_t> load = Start(
      {.host = kClient,
       .argv = {"hr-kv-chaos", "--mode=hedgerow", absl::StrCat("--servers=", kVip),
                absl::StrCat("--timeout=", plan_.timeout_us, "us"), absl::StrCat("--clients=", plan_.clients),
                absl::StrCat("--sessions=", plan_.sessions), absl::StrCat("--interval=", plan_.interval_us, "us"),
                absl::StrCat("--seed=", plan_.seed),
                absl::StrCat("--seconds=", static_cast<double>(plan_.load_us) / 1e6),
                absl::StrCat("--history=", out_, "/history.csv"), absl::StrCat("--report=", out_, "/report.json")},
       .output = said});
  if (!load.ok()) return load.status();
  load_ = *load;
  const uint64_t until_ns = operate::Monotonic_ns() + kReadyWithin_ns;
  while (!Says(said, "ready")) {
    cast_.LookAround();
    if (waitpid(load_, nullptr, WNOHANG) == load_) load_ = -1;
    if (operate::Monotonic_ns() > until_ns || !sound() || load_ < 0) {
      return absl::UnavailableError("the load got no session");
    }
    SleepUntil(operate::Monotonic_ns() + kMs_ns);
  }
  begun_ns_ = operate::Monotonic_ns();
  diary_.BeginAt(begun_ns_);
  diary_.Note("the load has begun");
  diary_.NoteCost();
  return absl::OkStatus();
}

std::vector<Stage::Turn> Stage::Turns() const {
  std::vector<Turn> turns;
  for (size_t place = 0; place < plan_.faults.size(); ++place) {
    const Fault& fault = plan_.faults[place];
    turns.push_back({.at_ns = fault.at_us * 1000, .fault = place, .begins = true});
    turns.push_back({.at_ns = (fault.at_us + fault.for_us) * 1000, .fault = place, .begins = false});
  }
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.at_ns < b.at_ns; });
  return turns;
}

void Stage::Play() {
  for (const Turn& turn : Turns()) {
    WaitUntil(begun_ns_ + turn.at_ns);
    if (turn.begins) {
      Begin(turn.fault);
    } else {
      End(turn.fault);
    }
  }
}

void Stage::WaitUntil(uint64_t at_ns) {
  do {
    cast_.LookAround();
    SleepUntil(std::min(at_ns, operate::Monotonic_ns() + kLookEvery_ns));
  } while (operate::Monotonic_ns() < at_ns);
}

uint32_t Stage::Leader() const {
  uint32_t leader = 0;
  uint64_t term = 0;
  for (uint32_t node = 1; node <= kNodes; ++node) {
    const std::optional<Standing> standing = StandingOf(node, DataDirOf(node));
    if (!standing.has_value() || !standing->leads || standing->term < term || !cast_.alive(node)) continue;
    leader = node;
    term = standing->term;
  }
  return leader;
}

// Of the nodes without a fault: the one that is meant, or any where it is not among them or not
// known. Empty: none is left.
std::vector<uint32_t> Stage::Choose(const Fault& fault) const {
  std::vector<uint32_t> free;
  for (uint32_t node = 1; node <= kNodes; ++node) {
    const bool taken = std::any_of(chosen_.begin(), chosen_.end(), [this, node](const auto& entry) {
      // A network fault goes with anything.
      return plan_.faults[entry.first].kind != FaultKind::kNetworkFault &&
             std::find(entry.second.begin(), entry.second.end(), node) != entry.second.end();
    });
    if (!taken && cast_.alive(node)) free.push_back(node);
  }
  if (free.empty() || fault.target == Target::kAll) return free;
  const uint32_t leader = Leader();
  const auto is_leader = [leader](uint32_t node) { return node == leader; };
  const bool leader_free = std::any_of(free.begin(), free.end(), is_leader);
  if (fault.target == Target::kLeader && leader_free) return {leader};
  if (fault.target == Target::kFollower && leader_free && free.size() > 1) std::erase_if(free, is_leader);
  return {free[fault.draw % free.size()]};
}

void Stage::Begin(size_t place) {
  const Fault& fault = plan_.faults[place];
  if (fault.kind == FaultKind::kNetworkFault && fault.target == Target::kAll)
    return NetworkFaultEverywhere(fault.argument);
  chosen_[place] = {};
  if (IsOneNodes(fault.kind)) {
    const std::vector<uint32_t> nodes = Choose(fault);
    if (nodes.empty()) diary_.Note(absl::StrCat(Name(fault.kind), ": no node is left"));
    const uint32_t leader = Leader();
    chosen_[place] = nodes;
    if (fault.kind == FaultKind::kKill || fault.kind == FaultKind::kPowerCut) {
      for (const uint32_t node : nodes) cast_.Strike(node);
    }
    for (const uint32_t node : nodes) {
      if (node == leader) diary_.Note(absl::StrCat("node ", node, " leads"));
      BeginAt(fault, node);
    }
    return;
  }
  if (fault.kind == FaultKind::kProxyKill) return cast_.KillProxy();
  diary_.Note(absl::StrCat(Name(fault.kind), " ", fault.argument));
  if (fault.kind == FaultKind::kClockJump) return JumpWallClock(atoll(fault.argument.c_str()));
  if (hog_ > 0) return;
  hog_ = fork();
  for (volatile bool child = hog_ == 0; child;) {
  }
}

void Stage::BeginAt(const Fault& fault, uint32_t node) {
  switch (fault.kind) {
    case FaultKind::kKill: return cast_.KillNode(node);
    case FaultKind::kStop: return cast_.StopNode(node);
    case FaultKind::kCut: return cast_.Cut(node);
    case FaultKind::kCutOut:
    case FaultKind::kCutIn: return cast_.CutOneWay(node, fault.kind == FaultKind::kCutOut);
    case FaultKind::kNetworkFault: return cast_.NetworkFault(HostOf(node), fault.argument);
    case FaultKind::kDiskFull: return cast_.FillDisk(node);
    case FaultKind::kPowerCut: return cast_.CutPower(node, fault.argument);
    default: return;
  }
}

void Stage::End(size_t place) {
  const Fault& fault = plan_.faults[place];
  if (fault.kind == FaultKind::kNetworkFault && fault.target == Target::kAll) return NetworkFaultEverywhere("");
  for (const uint32_t node : chosen_[place]) EndAt(fault, node);
  chosen_.erase(place);
  if (fault.kind == FaultKind::kProxyKill) {
    if (absl::Status started = cast_.StartProxy(); !started.ok()) diary_.Trouble(std::string(started.message()));
  } else if (fault.kind == FaultKind::kClockJump) {
    JumpWallClock(-atoll(fault.argument.c_str()));
  } else if (fault.kind == FaultKind::kHog && hog_ > 0) {
    kill(hog_, SIGKILL);
    waitpid(hog_, nullptr, 0);
    hog_ = -1;
  }
}

void Stage::EndAt(const Fault& fault, uint32_t node) {
  if (fault.kind == FaultKind::kStop) cast_.ContinueNode(node);
  if (fault.kind == FaultKind::kNetworkFault) cast_.Calm(HostOf(node));
  if (fault.kind == FaultKind::kDiskFull) cast_.FreeDisk(node);
  if (fault.kind == FaultKind::kCut || fault.kind == FaultKind::kCutOut || fault.kind == FaultKind::kCutIn) {
    cast_.Heal(node);
  }
  // Killed, or ended for want of room; else it lives, and nothing is started.
  if (absl::Status started = cast_.StartNode(node); !started.ok()) diary_.Trouble(std::string(started.message()));
}

// Without words: calm.
void Stage::NetworkFaultEverywhere(const std::string& words) {
  for (const char* const host : {kClient, "n1", "n2", "n3"}) {
    if (words.empty()) {
      cast_.Calm(host);
    } else {
      cast_.NetworkFault(host, words);
    }
  }
}

void Stage::Close() {
  diary_.Note("the faults are over");
  EndLoad();
  diary_.NoteCost();
  ReadFinalState();
  KeepStatus();
  cast_.LookAround();
  diary_.Note("the end");
}

void Stage::EndLoad() {
  const uint64_t ends_ns = begun_ns_ + (plan_.load_us + plan_.timeout_us) * 1000;
  const absl::StatusOr<int> status =
      WaitFor(load_, ends_ns + kEndWithin_ns - std::min(ends_ns, operate::Monotonic_ns()));
  load_ = -1;
  if (!status.ok()) return diary_.Trouble(absl::StrCat("the load does not end: ", status.status().message()));
  diary_.Note(absl::StrCat("the load has ended: ", Ending(*status)));
  if (*status != 0) diary_.Trouble(absl::StrCat("the load failed: ", Ending(*status)));
}

// Every key from every node: with all of them whole, that must succeed.
void Stage::ReadFinalState() {
  const absl::Status read =
      RunToEnd({.host = kClient,
                .argv = {"hr-kv-chaos", "--mode=final", absl::StrCat("--servers=", kServers),
                         absl::StrCat("--of=", out_, "/history.csv"), absl::StrCat("--history=", out_, "/final.csv")},
                .output = absl::StrCat(out_, "/final.txt")},
               kReadWithin_ns);
  if (!read.ok()) diary_.Trouble(absl::StrCat("the final read: ", read.message()));
  diary_.Note("the store is read");
}

void Stage::KeepStatus() {
  const std::string errors = absl::StrCat(out_, "/tools.log");
  std::vector<Command> asked = {{.argv = {"hedgerow", "status", "--json", "--socket", kProxySocket},
                                 .output = absl::StrCat(out_, "/proxy.json"),
                                 .errors = errors}};
  for (uint32_t node = 1; node <= kNodes; ++node) {
    asked.push_back({.argv = {"hedgerow-node", "status", "--json", "--socket", SocketOf(node)},
                     .output = absl::StrCat(out_, "/node", node, ".json"),
                     .errors = errors});
  }
  for (const Command& command : asked) {
    if (absl::Status told = RunToEnd(command, kStatusWithin_ns); !told.ok()) {
      diary_.Trouble(absl::StrCat(command.argv[0], " has no status: ", told.message()));
    }
  }
}

constexpr int kTrouble = 1, kNoExperiment = 2;

int Fail(const absl::Status& status) {
  std::printf("no experiment: %s\n", std::string(status.message()).c_str());
  return kNoExperiment;
}

}  // namespace
}  // namespace hedgerow::dst

int main(int argc, char** argv) {
  using namespace hedgerow::dst;
  if (argc != 3) {
    std::fprintf(stderr, "usage: hr-dst-driver PLAN OUT\n");
    return kNoExperiment;
  }
  std::ostringstream text;
  text << std::ifstream(argv[1]).rdbuf();
  const absl::StatusOr<Plan> plan = ParsePlan(text.str());
  if (!plan.ok()) return Fail(plan.status());
  Stage stage(*plan, argv[2]);
  if (const absl::Status played = stage.Run(); !played.ok()) return Fail(played);
  return stage.sound() ? 0 : kTrouble;
}
