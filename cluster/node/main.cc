// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node: one node of the cluster in the foreground, and the commands that ask a running one.
// docs/cluster.md tells how to set it up.

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cluster/node/admin/admin_server.h"
#include "cluster/node/admin/commands.h"
#include "cluster/node/identity/commands_recovery.h"
#include "cluster/node/config/config.h"
#include "cluster/node/host/deadline.h"
#include "cluster/node/identity/lost_node.h"
#include "cluster/node/status/metrics.h"
#include "cluster/node/status/status_message.h"
#include "cluster/node/node.h"
#include "cluster/node/identity/rejoin.h"
#include "cluster/node/host/scheduling.h"
#include "cluster/node/starting_node.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "config/await_files.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/steady_wait.h"
#include "net/unique_fd.h"
#include "operate/auxiliary.h"
#include "operate/file_confinement.h"
#include "operate/file_limit.h"
#include "operate/log.h"
#include "operate/problem_log.h"
#include "operate/service_manager.h"
#include "operate/signals.h"

namespace hedgerow::node {
namespace {

constexpr uint64_t kFiles = 256;

// What the thread of signals acts on. Before there is anything to end in order, SIGTERM and SIGINT end the process as
// by default: a start that reads a large log, or hangs in a disk, must not keep it. A signal that comes between two
// parts is kept.
struct Running {
  absl::Mutex mutex;
  std::function<void()> stop ABSL_GUARDED_BY(mutex);
  NodeControl* keys ABSL_GUARDED_BY(mutex) = nullptr;  // that SIGHUP reads again
  bool in_order ABSL_GUARDED_BY(mutex) = false;
};
Running& running = *new Running;  // the thread of signals uses it to the process's end
std::atomic<bool> stop_asked = false;

void StopBy(std::function<void()> stop, NodeControl* keys = nullptr) {
  const absl::MutexLock lock(&running.mutex);
  running.stop = std::move(stop);
  running.keys = keys;
  running.in_order = true;
  if (stop_asked && running.stop) running.stop();
}

// Before a start that takes its time; false: a stop was asked for already.
bool EndsByDefault() {
  const absl::MutexLock lock(&running.mutex);
  running.in_order = false;
  return !stop_asked;
}

void OnSignal(int number) {
  const absl::MutexLock lock(&running.mutex);
  if (number == SIGHUP) {
    if (running.keys == nullptr) return LogInfo("SIGHUP is ignored: the node is not there yet, or LOST");
    const absl::Status reloaded = running.keys->ReloadKeys(/*force=*/false).status();
    return reloaded.ok() ? LogInfo("SIGHUP: the key files are read again")
                         : LogWarning("SIGHUP: the keys stay as they are: ", reloaded.message());
  }
  LogInfo("signal ", number, ": ending");
  if (!running.in_order) {
    signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    raise(number);
  }
  stop_asked = true;
  if (running.stop) running.stop();
}

[[noreturn]] void TakeSignals(const net::UniqueFd& signals) {
  for (;;) {
    pollfd ready{.fd = signals.get(), .events = POLLIN, .revents = 0};
    poll(&ready, 1, -1);
    while (const std::optional<int> number = operate::NextSignal(signals.get())) OnSignal(*number);
  }
}

int Fail(const absl::Status& status) {
  LogError(status.message());
  return operate::ExitCodeOf(status);
}

// Debian builds Abseil with its checks on: each lock of an absl::Mutex then asks a graph of all locks, under
// one lock for the whole process, whether it could deadlock (6 to 8 % of a node's time, sampled). The tests of
// the parts keep it.
void LeaveDeadlocksToTests() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

// Where an operator asks, for as long as it stands. None of the three keeps the node from serving.
struct OperatorService {
  using Admin = operate::Auxiliary<operate::AdminSocket>;
  operate::Auxiliary<operate::HttpServer> metrics;
  Admin admin, monitor;

  OperatorService(const NodeConfig& config, NodeControl& control)
      : metrics("metrics",
                [config, &control] {
                  return ServeMetrics(config.metrics_listen, config.metrics_access, control, FactsOf(config));
                }),
        admin("admin socket", [config, &control] { return ServeAdmin(config.admin_socket, control, FactsOf(config)); }),
        monitor("monitoring socket", [config, &control] { return ServeMonitor(config, control, FactsOf(config)); }) {}
};

// What stands between an operator and the node from the start on: it answers before the node is there, and passes on
// what it is asked from then on.
struct FrontDoor {
  explicit FrontDoor(const NodeConfig& config) : control(config) {
    problems = std::thread([this, facts = FactsOf(config)] { LogProblems(facts); });
    service.emplace(config, control);
    control.AlsoReport([this](NodeStatus& status) {
      for (const std::string& problem :
           {service->metrics.problem(), service->admin.problem(), service->monitor.problem()})
        if (!problem.empty()) status.not_served.push_back(problem);
      if (const operate::HttpServer* metrics = service->metrics.server()) status.metrics = metrics->address();
    });
  }

  ~FrontDoor() { Close(); }

  void LogProblems(const NodeFacts& facts) {
    static auto& log = *new operate::ProblemLog;  // one door follows the other
    do {
      const absl::StatusOr<NodeStatus> status = control.Status();
      std::vector<std::string> now = {std::string(status.status().message())};
      if (status.ok()) {
        const v1::NodeStatus message = ToMessage(*status, facts);
        now.assign(message.problems().begin(), message.problems().end());
      }
      log.Update(now, net::MonotonicNow());
    } while (!closed.WaitFor(absl::Seconds(1)));
  }

  // Before what answers behind it ends.
  void Close() {
    if (problems.joinable()) {
      closed.Notify();
      problems.join();
    }
    control.AlsoReport({});
    service.reset();
  }

  StartingNode control;
  std::optional<OperatorService> service;
  net::SteadyNotification closed;
  std::thread problems;  // logs them, each second
};

absl::StatusOr<std::unique_ptr<FrontDoor>> OpenFrontDoor(const NodeConfig& config) {
  auto door = std::make_unique<FrontDoor>(config);
  // A process that answers there is this node, or another one in whose place an operator would ask this one.
  if (const absl::Status admin = door->service->admin.status(); absl::IsAlreadyExists(admin)) return admin;
  return door;
}

// Stays up for status requests, since no restart brings back what is lost. Returns the id under which the node
// comes back; nothing if it was stopped.
std::optional<Rejoin> RunLost(const NodeConfig& config, const absl::Status& why, FrontDoor& door) {
  LostNode node(config, std::string(why.message()), &door.control.progress());
  door.control.Become(node);
  StopBy([&node] { node.RequestStop(); });
  LogError("node ", config.self.value(), " of cluster ", config.cluster_id,
           " is LOST, takes part in nothing and waits to be asked: ", why.message());
  node.Run();
  StopBy({});
  door.Close();
  return node.rejoin();
}

// Its sockets and its log are free again when this returns.
absl::Status Serve(const NodeConfig& config, std::unique_ptr<Node> node, FrontDoor& door) {
  door.control.Become(*node);
  if (const absl::Status shortened = ShortenSlices(); !shortened.ok()) {
    LogWarning("the loop waits longer for busy processors than it would have to: ", shortened.message());
  }
  StopBy([&node] { node->RequestStop(); }, node.get());
  const std::string serves = absl::StrCat("node ", config.self.value(), " of cluster ", config.cluster_id,
                                          " serves on ", config.serve.ToString());
  LogInfo(serves);
  operate::NotifyServiceManager(absl::StrCat("STATUS=", serves));
  const absl::Status status = node->Run();
  StopBy({});
  if (stop_asked) operate::BoundTheEnd();
  door.Close();
  return status;
}

// What may come by itself: room on the disk, the file system of the data folder, an address that DHCP gives later, a
// port that another program has (docs/adr/0058). A lost promise does not.
bool MayCome(const absl::Status& status) {
  return !storage::IsLost(status) &&
         (absl::IsResourceExhausted(status) || absl::IsUnavailable(status) || absl::IsInternal(status));
}

// A node that ended instead would be down for good once systemd's start limit is reached. Cancelled: it was stopped
// meanwhile.
absl::StatusOr<std::unique_ptr<Node>> CreateOnceItCan(const NodeConfig& config, StartingNode& start) {
  constexpr absl::Duration kRetry = absl::Seconds(1);
  constexpr absl::Duration kStopCheck = absl::Milliseconds(50);
  absl::Status reported;
  while (EndsByDefault()) {
    absl::StatusOr<std::unique_ptr<Node>> node = Node::Create(config, &start.progress());
    if (!MayCome(node.status())) return node;
    start.SetWaits(node.status());
    StopBy({});
    if (node.status() != reported) {
      reported = node.status();
      LogWarning("waits, and tries again every second: ", reported.message());
      operate::NotifyServiceManager(absl::StrCat("STATUS=waits: ", reported.message()));
    }
    for (const Deadline retry(kRetry); !stop_asked && !retry.passed();) absl::SleepFor(kStopCheck);
  }
  return absl::CancelledError("stopped while it waited");
}

// Runs one incarnation after the other, each as the member that it is then. OK: it was stopped.
absl::Status RunAs(const NodeConfig& of_the_file) {
  while (true) {
    NodeConfig config = of_the_file;
    absl::StatusOr<std::unique_ptr<FrontDoor>> door = OpenFrontDoor(config);  // before anything in the folder is read
    if (!door.ok()) return door.status();
    if (absl::Status followed = FollowRejoin(config); !followed.ok()) return followed;
    (*door)->control.SetNode(config.self);
    absl::StatusOr<std::unique_ptr<Node>> node = CreateOnceItCan(config, (*door)->control);
    if (absl::IsCancelled(node.status())) return absl::OkStatus();
    const bool ran = node.ok();
    const absl::Status status = ran ? Serve(config, *std::move(node), **door) : node.status();
    if (!storage::IsLost(status)) return status;
    if (ran) door = OpenFrontDoor(config);
    if (!door.ok()) return door.status();
    const std::optional<Rejoin> rejoin = RunLost(config, status, **door);
    if (!rejoin.has_value()) return absl::OkStatus();
    if (absl::Status begun = BeginRejoin(config, of_the_file.self, *rejoin); !begun.ok()) return begun;
    LogInfo("what was node ", config.self.value(), " is node ", rejoin->as.value(), " from now on");
  }
}

// A node that may mount file systems (root's) mounts and unmounts the BPF file system, which Landlock refuses to a
// process that it confines: it keeps its rights. So does one whose data folder cannot be made yet, as on a full disk.
absl::Status Confine(const NodeConfig& config) {
  const auto missing = net::MissingCapabilities(std::array{net::Capability::kSysAdmin});
  if (!missing.ok() || missing->empty()) return absl::UnimplementedError("this node may mount file systems");
  if (absl::Status made = storage::MakeFolder(config.data_dir); !made.ok()) return made;
  using Kind = operate::FileAccess::Kind;
  std::vector<operate::FileAccess> allowed = {{config.data_dir, Kind::kWrite}, {net::kDefaultBpffs, Kind::kWrite}};
  for (const std::string& file : config.read_from) operate::AllowReading(file, allowed);
  operate::AllowMaking(config.admin_socket, allowed);
  if (const std::string socket = MonitorSocketOf(config); !socket.empty()) operate::AllowMaking(socket, allowed);
  if (const std::string socket = operate::UnixPathOf(config.metrics_listen); !socket.empty())
    operate::AllowMaking(socket, allowed);
  return operate::ConfineFiles(allowed);
}

int Run(const std::string& config_file) {
  LeaveDeadlocksToTests();
  net::UniqueFd signals = operate::HearSignals();
  if (!signals.valid()) return Fail(absl::ErrnoToStatus(errno, "wait for signals"));
  NodeConfig config;
  const absl::Status loaded = config::AwaitFiles(config_file, signals.get(), [&](config::Diagnostics& errors) {
    config = LoadNodeConfig(config_file, errors, operate::Reader::kServes);
  });
  if (absl::IsCancelled(loaded)) return kExitOk;
  if (!loaded.ok()) {
    LogError(loaded.message());
    return kExitUsage;
  }
  if (const absl::Status limit = operate::EnsureFileLimit(kFiles); !limit.ok()) LogWarning(limit.message());
  if (const absl::Status given = GiveSessionOwnNice(); !given.ok())
    LogWarning("the nice value counts among this node's own threads only: ", given.message());
  const absl::Status confined = Confine(config);
  LogInfo("files are ", confined.ok() ? "confined to the node's own folders (Landlock)"
                                      : absl::StrCat("not confined: ", confined.message()));
  operate::StartLogThread();
  std::thread([signals = std::move(signals)] { TakeSignals(signals); }).detach();
  const absl::Status status = RunAs(config);
  return status.ok() ? 0 : Fail(status);
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[0] == "run" && arguments[1] == "--config") return Run(arguments[2]);
  return operate::Run(WithRecovery(TheProgram()), arguments, std::cout, std::cerr);
}

}  // namespace
}  // namespace hedgerow::node

int main(int argc, char** argv) {
  hedgerow::operate::BeginProgram();
  return hedgerow::node::Main({argv + 1, argv + argc});
}
