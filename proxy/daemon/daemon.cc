// SPDX-License-Identifier: Apache-2.0
//
// Wiring the daemon's parts together; see the header. Order of members and
// locals is order of life: what serves others ends before what it uses.

#include "proxy/daemon/daemon.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "operate/version.h"
#include "proxy/admin/server.h"
#include "proxy/daemon/event_loop.h"
#include "proxy/daemon/guardian.h"
#include "proxy/daemon/instance_lock.h"
#include "proxy/daemon/log.h"
#include "proxy/daemon/proxy_instance.h"
#include "proxy/daemon/topology.h"
#include "proxy/metrics/exporter.h"
#include "proxy/page/page.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/clean.h"
#include "net/kernel_probe.h"
#include "net/unique_fd.h"

namespace hedgerow {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Blocked before any thread starts, so that every thread inherits it and signals arrive at the descriptor only.
net::UniqueFd BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);  // the terminal that ran `up` may go
  return net::UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

absl::Status CheckKernel() {
  std::vector<std::string> lacking;
  for (const net::ProbeResult& result : net::ProbeKernel()) {
    if (result.required && result.found == net::Found::kNo) {
      lacking.push_back(absl::StrCat(result.name, " (", result.offers, "): ", result.detail));
    }
  }
  if (lacking.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this kernel lacks ", absl::StrJoin(lacking, "; ")));
}

// The lock is ours, so whatever carries this instance's marks belongs to a daemon that died.
absl::Status RemoveLeftovers(const std::string& instance) {
  const net::CleanReport report = net::Clean(instance, net::kDefaultBpffs);
  for (const std::string& line : report.removed) LogWarning("left by an earlier daemon, removed: ", line);
  if (report.failures.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("what an earlier daemon of this instance left cannot be removed: ",
                   absl::StrJoin(report.failures, "; ")));
}

class Daemon {
 public:
  Daemon(const v1::Config& config, const std::string& config_file) : config_(config) {
    facts_.config_file = config_file;
    facts_.started_ns = MonotonicNs();
    utsname kernel{};
    if (uname(&kernel) == 0) facts_.kernel = kernel.release;
  }

  absl::Status Start(int signal_fd) {
    absl::Status status = Checks();
    if (!status.ok()) return status;
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    if (!loop.ok()) return loop.status();
    loop_ = *std::move(loop);
    topology_ = Resolve(config_, KernelNetworkView());
    if (status = topology_.ToStatus(); !status.ok()) return status;
    if (status = StartServers(); !status.ok()) return status;
    absl::StatusOr<std::unique_ptr<ProxyInstance>> instance = ProxyInstance::Start(config_, topology_, facts_);
    if (!instance.ok()) return instance.status();
    instance_ = *std::move(instance);
    auto guardian = Guardian::Start(config_, topology_, *instance_, facts_, *loop_,
                                    [this](const std::string& why) { GiveUp(why); });
    if (!guardian.ok()) return guardian.status();
    guardian_ = *std::move(guardian);
    if (history_ != nullptr) {
      guardian_->OnSnapshot([this](const Snapshot& read) { history_->Record(config_, facts_, read, absl::Now()); });
    }
    controller_->Serve(instance_->data_plane());
    return loop_->Watch(signal_fd, [this, signal_fd] { OnSignal(signal_fd); });
  }

  // After a failed start: questions that came in meanwhile are answered, so that no handler keeps the servers
  // from ending. The rest goes with the members.
  void Abandon() {
    if (loop_ == nullptr) return;
    loop_->Stop();
    loop_->Run();
  }

  // Returns the exit code.
  int Run() {
    loop_->Run();
    TakeDown();
    metrics_.reset();
    admin_.reset();
    return exit_code_;
  }

 private:
  absl::Status Checks() {
    absl::Status status = net::RequireCapabilities(net::kCapabilitiesAlways);
    if (!status.ok()) return status;
    absl::StatusOr<InstanceLock> lock = InstanceLock::Acquire(kRunFolder, config_.instance());
    if (!lock.ok()) return lock.status();
    lock_.emplace(*std::move(lock));
    if (status = CheckKernel(); !status.ok()) return status;
    return RemoveLeftovers(config_.instance());
  }

  // Before anything is made: a taken port or socket is found early, and what gRPC does not survive (it aborts
  // when it has no descriptors left) leaves nothing behind.
  absl::Status StartServers() {
    controller_ = std::make_unique<Controller>(config_, facts_, [this] {
      LogInfo("asked to go down");
      std::vector<std::string> problems = TakeDown();
      loop_->Stop();
      return problems;
    });
    if (!config_.metrics().listen().empty()) {
      std::vector<operate::HttpRoute> page;
      if (config_.page().serve() == v1::PAGE_SERVE_ON) {
        const int64_t seconds = config_.page().history_ns() / kNsPerSecond;
        history_ = std::make_unique<History>(static_cast<size_t>(seconds), NewBootText());
        page = PageRoutes(*history_);
      }
      auto metrics = ServeMetrics(config_.metrics().listen(), *loop_, *controller_, std::move(page));
      if (!metrics.ok()) return metrics.status();
      metrics_ = *std::move(metrics);
      facts_.metrics_address = metrics_->address();
      if (history_ != nullptr) facts_.page_address = metrics_->address();
    }
    auto admin = ServeAdmin(config_.admin().socket(), *loop_, *controller_);
    if (!admin.ok()) return admin.status();
    admin_ = *std::move(admin);
    return absl::OkStatus();
  }

  void OnSignal(int signal_fd) {
    signalfd_siginfo info{};
    if (read(signal_fd, &info, sizeof(info)) != sizeof(info)) return;
    LogInfo("signal ", info.ssi_signo, ": going down");
    loop_->Stop();
  }

  void GiveUp(const std::string& why) {
    LogError(why, "; taking everything down");
    facts_.problems.push_back(why);
    exit_code_ = kExitFailure;
    loop_->Stop();
  }

  // On the loop's thread, or after its end. Also when nothing was started.
  std::vector<std::string> TakeDown() {
    if (instance_ == nullptr || down_) return {};
    down_ = true;
    Readiness::Stopping();
    if (guardian_ != nullptr) guardian_->Rest();
    const std::vector<std::string> problems = instance_->TakeDown();
    for (const std::string& problem : problems) LogError("while taking down: ", problem);
    if (!problems.empty()) exit_code_ = kExitFailure;
    LogInfo("everything is down");
    return problems;
  }

  const v1::Config& config_;
  DaemonFacts facts_;
  Topology topology_;
  int exit_code_ = kExitOk;
  bool down_ = false;
  std::optional<InstanceLock> lock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ProxyInstance> instance_;
  std::unique_ptr<Guardian> guardian_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<History> history_;  // what the page shows; null: it is not served
  std::unique_ptr<operate::MetricsPage> metrics_;
  std::unique_ptr<operate::AdminSocket> admin_;
};

}  // namespace

int RunDaemon(const v1::Config& config, const std::string& config_file, Readiness& readiness) {
  const net::UniqueFd signals = BlockSignals();
  Daemon daemon(config, config_file);
  const absl::Status status = daemon.Start(signals.get());
  if (!status.ok()) {
    const bool privilege = absl::IsPermissionDenied(status);
    const int code = privilege ? kExitNotAllowed : kExitFailure;
    LogError(std::string(status.message()));
    daemon.Abandon();
    readiness.Failed(code, std::string(status.message()));
    return code;
  }
  LogInfo("hedgerowd ", operate::kVersion, " serves instance ", config.instance(), " as pid ", getpid());
  readiness.Ready();
  return daemon.Run();
}

}  // namespace hedgerow
