// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node: one node of the cluster in the foreground, and the commands that ask a running one.
// docs/cluster.md tells how to set it up.

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
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
#include "cluster/node/node.h"
#include "cluster/node/identity/rejoin.h"
#include "cluster/node/host/scheduling.h"
#include "cluster/node/starting_node.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "operate/file_confinement.h"
#include "operate/file_limit.h"

namespace hedgerow::node {
namespace {

constexpr uint64_t kFiles = 256;

// For the signal handler; at most one of the two is set. When a node learns that it is LOST, the other kind
// takes its place; a signal that comes in between is kept.
std::atomic<Node*> running_node = nullptr;
std::atomic<LostNode*> lost_node = nullptr;
std::atomic<bool> stop_asked = false;

void OnSignal(int) {
  stop_asked = true;
  if (Node* const node = running_node) node->RequestStop();
  if (LostNode* const node = lost_node) node->RequestStop();
}

void StopOnSignals() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

int Fail(const absl::Status& status) {
  fprintf(stderr, "hedgerow-node: %s\n", std::string(status.message()).c_str());
  return operate::ExitCodeOf(status);
}

// Debian builds Abseil with its checks on: each lock of an absl::Mutex then asks a graph of all locks, under
// one lock for the whole process, whether it could deadlock (6 to 8 % of a node's time, sampled). The tests of
// the parts keep it.
void LeaveDeadlocksToTests() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

// Where an operator asks: metrics and the administration socket, for as long as it stands.
struct OperatorService {
  std::unique_ptr<operate::HttpServer> metrics;
  std::unique_ptr<operate::AdminSocket> admin;
  std::unique_ptr<operate::AdminSocket> monitor;
};

absl::StatusOr<OperatorService> ServeOperator(const NodeConfig& config, NodeControl& control) {
  OperatorService service;
  NodeFacts facts = FactsOf(config);
  auto metrics = ServeMetrics(config.metrics_listen, config.metrics_access, control, facts);
  if (!metrics.ok()) return metrics.status();
  service.metrics = *std::move(metrics);
  if (service.metrics != nullptr) facts.metrics = service.metrics->address();
  auto admin = ServeAdmin(config.admin_socket, control, facts);
  if (!admin.ok()) return admin.status();
  service.admin = *std::move(admin);
  auto monitor = ServeMonitor(config, control, facts);
  if (!monitor.ok()) return monitor.status();
  service.monitor = *std::move(monitor);
  return service;
}

// What stands between an operator and the node from the start on: it answers before the node is there, and passes on what it is
// asked from then on.
struct FrontDoor {
  explicit FrontDoor(const NodeConfig& config) : control(config) {}

  // Before what answers behind it ends.
  void Close() { service = OperatorService(); }

  StartingNode control;
  OperatorService service;
};

absl::StatusOr<std::unique_ptr<FrontDoor>> OpenFrontDoor(const NodeConfig& config) {
  auto door = std::make_unique<FrontDoor>(config);
  absl::StatusOr<OperatorService> service = ServeOperator(config, door->control);
  if (!service.ok()) return service.status();
  door->service = *std::move(service);
  return door;
}

// Stays up for status requests, since no restart brings back what is lost. Returns the id under which the node
// comes back; nothing if it was stopped.
std::optional<Rejoin> RunLost(const NodeConfig& config, const absl::Status& why, FrontDoor& door) {
  LostNode node(config, std::string(why.message()), &door.control.progress());
  door.control.Become(node);
  lost_node = &node;
  StopOnSignals();
  if (stop_asked) node.RequestStop();
  fprintf(stderr,
          "hedgerow-node: node %llu of cluster %llu is LOST, takes part in nothing and waits to be asked: %s\n",
          static_cast<unsigned long long>(config.self.value()),
          static_cast<unsigned long long>(config.cluster_id), std::string(why.message()).c_str());
  node.Run();
  lost_node = nullptr;
  door.Close();
  return node.rejoin();
}

// Its sockets and its log are free again when this returns.
absl::Status Serve(const NodeConfig& config, std::unique_ptr<Node> node, FrontDoor& door) {
  door.control.Become(*node);
  if (const absl::Status shortened = ShortenSlices(); !shortened.ok()) {
    fprintf(stderr, "hedgerow-node: its loop waits longer for busy processors than it would have to: %s\n",
            std::string(shortened.message()).c_str());
  }
  running_node = node.get();
  StopOnSignals();
  if (stop_asked) node->RequestStop();
  fprintf(stderr, "hedgerow-node: node %llu of cluster %llu serves on %s\n",
          static_cast<unsigned long long>(config.self.value()),
          static_cast<unsigned long long>(config.cluster_id), config.serve.ToString().c_str());
  const absl::Status status = node->Run();
  running_node = nullptr;
  door.Close();
  return status;
}

// On a full disk the log may not open. A node that ended would need an operator besides room on the disk, so it
// waits, and its status says so. Cancelled: it was stopped meanwhile.
absl::StatusOr<std::unique_ptr<Node>> CreateOnceThereIsRoom(const NodeConfig& config, StartingNode& start) {
  constexpr absl::Duration kRetry = absl::Seconds(1);
  constexpr absl::Duration kStopCheck = absl::Milliseconds(50);
  absl::StatusOr<std::unique_ptr<Node>> node = Node::Create(config, &start.progress());
  if (!absl::IsResourceExhausted(node.status())) return node;
  start.SetWaitsForRoom(std::string(node.status().message()));
  StopOnSignals();
  fprintf(stderr, "hedgerow-node: waits for room on the disk: %s\n", std::string(node.status().message()).c_str());
  Deadline retry(kRetry);
  while (!stop_asked) {
    absl::SleepFor(kStopCheck);
    if (!retry.passed()) continue;
    node = Node::Create(config, &start.progress());
    if (!absl::IsResourceExhausted(node.status())) return node;
    start.SetWaitsForRoom(std::string(node.status().message()));
    retry = Deadline(kRetry);
  }
  return absl::CancelledError("stopped while the disk was full");
}

// Runs one incarnation after the other, each as the member that it is then. OK: it was stopped.
absl::Status RunAs(const NodeConfig& of_the_file) {
  while (true) {
    NodeConfig config = of_the_file;
    absl::StatusOr<std::unique_ptr<FrontDoor>> door = OpenFrontDoor(config);  // before anything in the folder is read
    if (!door.ok()) return door.status();
    if (absl::Status followed = FollowRejoin(config); !followed.ok()) return followed;
    (*door)->control.SetNode(config.self);
    absl::StatusOr<std::unique_ptr<Node>> node = CreateOnceThereIsRoom(config, (*door)->control);
    if (absl::IsCancelled(node.status())) return absl::OkStatus();
    const bool ran = node.ok();
    const absl::Status status = ran ? Serve(config, *std::move(node), **door) : node.status();
    if (!storage::IsLost(status)) return status;
    if (ran) door = OpenFrontDoor(config);
    if (!door.ok()) return door.status();
    const std::optional<Rejoin> rejoin = RunLost(config, status, **door);
    if (!rejoin.has_value()) return absl::OkStatus();
    if (absl::Status begun = BeginRejoin(config, of_the_file.self, *rejoin); !begun.ok()) return begun;
    fprintf(stderr, "hedgerow-node: what was node %llu is node %llu from now on\n",
            static_cast<unsigned long long>(config.self.value()),
            static_cast<unsigned long long>(rejoin->as.value()));
  }
}

// A node that may mount file systems (root's) mounts and unmounts the BPF file system, which Landlock refuses to a process
// that it confines: it keeps its rights. So does one whose data folder cannot be made yet, as on a full disk.
absl::Status Confine(const NodeConfig& config) {
  const auto missing = net::MissingCapabilities(std::array{net::Capability::kSysAdmin});
  if (!missing.ok() || missing->empty()) return absl::UnimplementedError("this node may mount file systems");
  if (absl::Status made = storage::MakeFolder(config.data_dir); !made.ok()) return made;
  using Kind = operate::FileAccess::Kind;
  std::vector<operate::FileAccess> allowed = {{config.data_dir, Kind::kWrite}, {net::kDefaultBpffs, Kind::kWrite}};
  for (const std::string& file : config.read_from) operate::AllowReading(file, allowed);
  operate::AllowMaking(config.admin_socket, allowed);
  if (!config.monitor_socket.empty()) operate::AllowMaking(config.monitor_socket, allowed);
  if (const std::string socket = operate::UnixPathOf(config.metrics_listen); !socket.empty()) operate::AllowMaking(socket, allowed);
  return operate::ConfineFiles(allowed);
}

int Run(const std::string& config_file) {
  LeaveDeadlocksToTests();
  const absl::StatusOr<NodeConfig> config = LoadNodeConfig(config_file, operate::Reader::kServes);
  if (!config.ok()) {
    fprintf(stderr, "%s\n", std::string(config.status().message()).c_str());
    return kExitUsage;
  }
  if (const absl::Status limit = operate::EnsureFileLimit(kFiles); !limit.ok())
    fprintf(stderr, "hedgerow-node: %s\n", std::string(limit.message()).c_str());
  if (const absl::Status given = GiveSessionOwnNice(); !given.ok()) {
    fprintf(stderr, "hedgerow-node: its nice value counts among its own threads only: %s\n",
            std::string(given.message()).c_str());
  }
  const absl::Status confined = Confine(*config);
  fprintf(stderr, "hedgerow-node: files are %s\n",
          confined.ok() ? "confined to the node's own folders (Landlock)"
                        : absl::StrCat("not confined: ", std::string(confined.message())).c_str());
  const absl::Status status = RunAs(*config);
  return status.ok() ? 0 : Fail(status);
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[0] == "run" && arguments[1] == "--config") return Run(arguments[2]);
  return operate::Run(WithRecovery(TheProgram()), arguments, std::cout, std::cerr);
}

}  // namespace
}  // namespace hedgerow::node

int main(int argc, char** argv) { return hedgerow::node::Main({argv + 1, argv + argc}); }
