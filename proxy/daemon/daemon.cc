// SPDX-License-Identifier: Apache-2.0
//
// Wiring the daemon's parts together; see the header. Order of members and
// locals is order of life: what serves others ends before what it uses.

#include "proxy/daemon/daemon.h"

#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "operate/auxiliary.h"
#include "operate/file_confinement.h"
#include "operate/file_limit.h"
#include "operate/version.h"
#include "proxy/admin/server.h"
#include "proxy/config/diff.h"
#include "proxy/config/load.h"
#include "proxy/daemon/event_log.h"
#include "proxy/daemon/guardian.h"
#include "proxy/daemon/self_test.h"
#include "proxy/daemon/vip_routes.h"
#include "operate/instance_lock.h"
#include "operate/log.h"
#include "operate/signals.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/reload_outcome.h"
#include "proxy/start/topology.h"
#include "proxy/start/vips.h"
#include "operate/event_loop.h"
#include "proxy/metrics/exporter.h"
#include "proxy/page/page.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/clean.h"
#include "net/kernel_probe.h"
#include "net/ip_address.h"
#include "net/unique_fd.h"

namespace hedgerow {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr uint64_t kFiles = 256;  // twice what a small configuration has open, most of it maps and programs

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
  return absl::FailedPreconditionError(absl::StrCat("what an earlier daemon of this instance left cannot be removed: ",
                                                    absl::StrJoin(report.failures, "; ")));
}

// Why the kernel part of this record cannot go on and come to be under the configuration; empty when it can.
std::string WhyAnew(const v1::KernelRecord& record, const v1::Config& before, const v1::Config& config) {
  if (record.network_namespace() != NetworkNamespace()) return "it is in another network namespace";
  const std::vector<std::string> obstacles =
      config::Obstacles(config::Diff(before, config, KernelObject::AwaitedPorts(record.load_config())));
  if (!obstacles.empty()) return absl::StrCat("the configuration has changed: ", absl::StrJoin(obstacles, "; "));
  return "";
}

// How the backends were reached when the record was written.
Topology FormerTopology(const v1::KernelRecord& record) {
  Topology topology;
  int next = 0;
  for (const v1::Service& service : record.config().services()) {
    Topology::ServicePath& path = topology.services.emplace_back();
    path.name = service.name();
    const int index = static_cast<int>(topology.services.size()) - 1;
    const auto source =
        net::IpAddress::Parse(index < record.service_sources_size() ? record.service_sources(index) : "");
    if (source.ok()) path.source = *source;
    for (const v1::Backend& backend : service.backends()) {
      BackendPath& reached = path.backends.emplace_back();
      reached.name = backend.name();
      if (next < record.backend_uplinks_size()) reached.uplink = record.backend_uplinks(next++);
    }
  }
  return topology;
}

operate::HttpAccess AccessOf(const v1::Config& config) {
  return {.group = config.admin().monitor_group(),
          .certificate = config.metrics().tls().certificate_file(),
          .key = config.metrics().tls().key_file(),
          .token = config.metrics().token_file()};
}

// A daemon that may mount file systems (root's, by `hedgerow up`) mounts and unmounts the BPF file system, which
// Landlock refuses to a process that it confines: it keeps its rights.
void Confine(const v1::Config& config, const std::string& config_file) {
  const auto missing = net::MissingCapabilities(std::array{net::Capability::kSysAdmin});
  if (!missing.ok() || missing->empty()) return LogInfo("files are not confined: this daemon may mount file systems");
  std::vector<operate::FileAccess> allowed = {{net::kDefaultBpffs, operate::FileAccess::Kind::kWrite}};
  operate::AllowReading(config_file, allowed);
  for (const std::string& file : config::FilesOf(config)) operate::AllowReading(file, allowed);
  operate::AllowMaking(absl::StrCat(kRunFolder, "/lock"), allowed);
  operate::AllowMaking(config.admin().socket(), allowed);
  if (const std::string socket = MonitorSocketOf(config.admin()); !socket.empty())
    operate::AllowMaking(socket, allowed);
  if (const std::string socket = operate::UnixPathOf(config.metrics().listen()); !socket.empty())
    operate::AllowMaking(socket, allowed);
  const absl::Status confined = operate::ConfineFiles(allowed);
  if (confined.ok()) return LogInfo("files are confined to the daemon's own folders (Landlock)");
  LogWarning("files are not confined: ", std::string(confined.message()));
}

class Daemon {
 public:
  // `firewall_rules`: where they decide about the routes to VIPs.
  Daemon(const v1::Config& config, const std::string& config_file, std::string firewall_rules)
      : config_(config), firewall_rules_(std::move(firewall_rules)) {
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
    if (status = StartServers(); !status.ok()) return status;
    if (status = MakeOrAdopt(); !status.ok()) return status;
    status = Serve(signal_fd);
    NoteConfig(config_, MonotonicNs(), absl::Now(), facts_.reload);
    if (status.ok() && wanted_.has_value()) status = GoOverToWanted();
    // What was taken over stays where it is, unless the rules say now that it cannot.
    if (status.ok() && facts_.adoption.how() != "made") {
      if (const absl::Status routed = RouteVips(); !routed.ok()) LogError(std::string(routed.message()));
    }
    // What was taken over goes on as before, with or without us.
    if (!status.ok() && facts_.adoption.how() != "made") instance_->Leave();
    return status;
  }

  // After a failed start: questions that came in meanwhile are answered, so that no handler keeps the servers
  // from ending. The rest goes with the members.
  void Abandon() {
    if (loop_ == nullptr) return;
    loop_->Stop();
    loop_->Run();
  }

  std::string ProblemsAtStart() const { return JoinProblems(topology_.problems, "\n"); }

  // Returns the exit code.
  int Run() {
    loop_->Run();
    if (leaving_) {
      Leave();
    } else {
      TakeDown();
    }
    operate::BoundTheEnd();
    metrics_.reset();
    monitor_.reset();
    admin_.reset();
    return exit_code_;
  }

 private:
  absl::Status Serve(int signal_fd) {
    if (const absl::Status status = Guard(); !status.ok()) return status;
    controller_->Serve(instance_->data_plane().policy(), instance_->data_plane().reader());
    return loop_->Watch(signal_fd, [this, signal_fd] { return OnSignal(signal_fd); });
  }

  absl::Status Guard() {
    auto guardian = Guardian::Start(config_, topology_, *instance_, facts_, problem_log_, *loop_,
                                    [this] { loop_->Post([this] { Relink(); }); });
    if (!guardian.ok()) return guardian.status();
    guardian_ = *std::move(guardian);
    guardian_->OnSnapshot([this](const Snapshot& read) {
      const absl::Time now = absl::Now();
      NoteServers();
      for (const EventLog::Line& line : event_log_.Lines(read, facts_, absl::ToUnixMillis(now))) {
        line.warning ? LogWarning(line.text) : LogInfo(line.text);
      }
      if (history_ != nullptr) history_->Record(config_, facts_, read, now);
    });
    return absl::OkStatus();
  }

  absl::Status Checks() {
    absl::Status status = net::RequireCapabilities(net::kCapabilitiesAlways);
    if (!status.ok()) return status;
    absl::StatusOr<InstanceLock> lock = InstanceLock::Acquire(kRunFolder, config_.instance());
    if (!lock.ok()) return lock.status();
    lock_.emplace(*std::move(lock));
    return CheckKernel();
  }

  // This daemon holds the lock, so everything of this instance was left by a daemon that has ended. A kernel part that
  // serves traffic is taken over, or left alone; only one that serves no traffic is removed.
  absl::Status MakeOrAdopt() {
    facts_.adoption.set_how("made");
    facts_.adoption.set_build(absl::StrCat(absl::Hex(KernelObject::Build(), absl::kZeroPad16)));
    absl::StatusOr<Standing> standing = Inspect(config_.instance());
    if (!standing.ok()) return Unfit(standing.status());
    if (standing->record.has_value()) {
      const absl::StatusOr<std::string> reason = TakeOver(*std::move(standing->record));
      if (!reason.ok()) return reason.status();
      if (reason->empty()) return absl::OkStatus();
      LogWarning("what an earlier daemon left is taken down, and requests in flight with it: ", *reason);
    } else if (standing->half_made) {
      LogWarning("a start that died half-way has left something, which is removed");
    }
    // A proxy that serves is taken over without its administration; none is made that no command would reach.
    if (const absl::Status admin = admin_->status(); !admin.ok()) return admin;
    standing->record.reset();  // its pin goes
    topology_ = ResolveHere(config_);
    if (const absl::Status possible = topology_.ToStatus(); !possible.ok()) return possible;
    absl::Status status = RemoveLeftovers(config_.instance());
    if (!status.ok()) return status;
    absl::StatusOr<std::unique_ptr<ProxyInstance>> instance = ProxyInstance::Start(config_, topology_, facts_);
    if (!instance.ok()) return instance.status();
    instance_ = *std::move(instance);
    facts_.kernel_since_ns = facts_.started_ns;
    if (const absl::Status routed = RouteVips(); !routed.ok()) return routed;
    // A proxy that does not see its packets is worse than none. One that runs already is left to run, with a problem in
    // `status`.
    return SelfTest(*instance_).Once();
  }

  // FailedPrecondition: `vip_route: uplink`, and no VIP can be led by one. With `auto` that is a problem in `status`.
  absl::Status RouteVips() {
    const std::string rule = instance_->MayChooseRoute() ? RuleForForwarded(config_, topology_, firewall_rules_) : "";
    if (!rule.empty()) LogInfo("VIPs are routed by uplinks, for the sake of what is forwarded: ", rule);
    if (rule.empty() && config_.vip_route() != v1::VIP_ROUTE_UPLINK) return absl::OkStatus();
    const std::set<net::IpAddress> vips = instance_->Vips();
    const std::vector<Problem> problems = instance_->RouteByUplink(vips, true);
    const bool led =
        std::any_of(vips.begin(), vips.end(), [&](const net::IpAddress& vip) { return instance_->IsLedByUplink(vip); });
    if (led || problems.empty() || instance_->MayChooseRoute()) return absl::OkStatus();
    return absl::FailedPreconditionError(JoinProblems(problems, "\n"));
  }

  // As it is first; then, as by a reload, it becomes what is wanted now (Start). Why neither can be; empty: it is
  // ours.
  absl::StatusOr<std::string> TakeOver(InstanceRecord record) {
    v1::Config before = record.data().config();
    config::CopyDaemonsOwn(config_, before);
    MoveOwnAddresses(config_, before);
    if (std::string reason = WhyAnew(record.data(), before, config_); !reason.empty()) return reason;
    const absl::StatusOr<NetworkView> network = KernelNetworkView();
    if (!network.ok()) return network.status();
    const DaemonFacts facts = facts_;
    wanted_ = std::exchange(config_, before);
    // The network may have changed meanwhile, or be down: that is followed, and no reason to begin anew.
    topology_ = Succeed(FormerTopology(record.data()), ResolveBackends(before, *network), *network);
    if (const absl::Status status = Adopt(std::move(record)); !status.ok()) return status;
    // A start is not refused for what another start would meet again, such as a backend that changes its service.
    const absl::StatusOr<v1::Roster> roster = instance_->RosterFor(*wanted_);
    if (!absl::IsFailedPrecondition(roster.status())) return "";
    for (const std::string& problem : instance_->TakeDown()) LogError("while taking down: ", problem);
    instance_.reset();
    config_ = *std::exchange(wanted_, std::nullopt);
    facts_ = facts;
    return absl::StrJoin(absl::StrSplit(roster.status().message(), '\n'), "; ");
  }

  absl::Status Adopt(InstanceRecord record) {
    const std::string before = absl::StrCat(record.data().version(), ", build ", absl::Hex(record.data().build()));
    auto instance =
        ProxyInstance::Adopt(config_, topology_, std::move(record), ProxyInstance::Takeover::kSuccession, facts_);
    if (!instance.ok()) return Unfit(instance.status());
    instance_ = *std::move(instance);
    LogInfo("took over the kernel part of an earlier daemon (", before, "), unattended for ",
            absl::FormatDuration(absl::Nanoseconds(facts_.adoption.unattended_ns())),
            facts_.adoption.how() == "upgraded" ? "; its programs are this build's now" : "");
    if (facts_.adoption.hedging_stopped_ns() > 0) {
      LogWarning("no daemon had lived for longer than unattended_timeout: hedging was stopped for ",
                 absl::FormatDuration(absl::Nanoseconds(facts_.adoption.hedging_stopped_ns())), ", and goes on now");
    }
    return absl::OkStatus();
  }

  absl::Status Unfit(const absl::Status& status) const {
    return absl::Status(
        status.code(),
        absl::StrCat(std::string(status.message()), "\nIt is left as it is and works on. `hedgerow clean ",
                     "--instance ", config_.instance(),
                     "` removes it (requests in flight lose their answers); then start again."));
  }

  // Before anything is made: another daemon's socket is found early, and what gRPC does not survive (it aborts
  // when it has no descriptors left) leaves nothing behind.
  absl::Status StartServers() {
    controller_ = std::make_unique<Controller>(config_, facts_, [this] {
      LogInfo("asked to go down");
      std::vector<std::string> problems = TakeDown();
      loop_->Stop();
      return problems;
    });
    controller_->OnReload([this](bool dry_run, const std::string& file) { return Reload(dry_run, file); });
    if (!config_.metrics().listen().empty()) {
      std::vector<operate::HttpRoute> page;
      if (config_.page().serve() == v1::PAGE_SERVE_ON) {
        const int64_t seconds = config_.page().history_ns() / kNsPerSecond;
        history_ = std::make_unique<History>(static_cast<size_t>(seconds), NewBootText());
        page = PageRoutes(*history_, config_.page().steer_groups());
      }
      metrics_.emplace("metrics", [this, config = config_, page] {
        return ServeMetrics(config.metrics().listen(), AccessOf(config), *loop_, *controller_, page);
      });
    }
    admin_.emplace("admin.socket",
                   [this, socket = config_.admin().socket()] { return ServeAdmin(socket, *loop_, *controller_); });
    // The lock is ours: what answers there is another instance, and commands to this one would reach it.
    if (const absl::Status admin = admin_->status(); absl::IsAlreadyExists(admin)) return admin;
    monitor_.emplace("admin.monitor_socket",
                     [this, config = config_.admin()] { return ServeMonitor(config, *loop_, *controller_); });
    NoteServers();
    return absl::OkStatus();
  }

  void NoteServers() {
    facts_.not_served.clear();
    for (const std::string& problem :
         {metrics_.has_value() ? metrics_->problem() : "", admin_->problem(), monitor_->problem()})
      if (!problem.empty()) facts_.not_served.push_back({ProblemCode::kNotServed, problem});
    const operate::HttpServer* server = metrics_.has_value() ? metrics_->server() : nullptr;
    facts_.metrics_address = server == nullptr ? "" : server->address();
    facts_.page_address = history_ == nullptr ? "" : facts_.metrics_address;
  }

  bool OnSignal(int signal_fd) {
    const std::optional<int> signal = operate::NextSignal(signal_fd);
    if (!signal.has_value()) return false;
    if (*signal == SIGHUP) {
      LogInfo("signal ", *signal, ": reloading ", facts_.config_file);
      Reload(/*dry_run=*/false, "").IgnoreError();  // it is logged and counted
      return true;
    }
    // A supervisor stops the daemon, for a restart or an upgrade; a person at the terminal ends the proxy.
    leaving_ = *signal == SIGTERM;
    LogInfo("signal ", *signal, leaving_ ? ": ending; the kernel part works on" : ": going down");
    loop_->Stop();
    return true;
  }

  void GiveUp(const std::string& why) {
    LogError(why, "; taking everything down");
    facts_.problems.push_back({ProblemCode::kGivesUp, why});
    exit_code_ = kExitFailure;
    loop_->Stop();
  }

  // Asked for by an administrator, or by SIGHUP. In a dry run `file` may be another one than ours.
  absl::StatusOr<v1::ReloadReply> Reload(bool dry_run, const std::string& file) {
    if (down_) return absl::FailedPreconditionError("the daemon is going down");
    std::error_code error;
    const bool ours = file.empty() || std::filesystem::equivalent(file, facts_.config_file, error);
    if (!ours && !dry_run) {
      return absl::FailedPreconditionError(absl::StrCat("the daemon's configuration is ", facts_.config_file,
                                                        ", which its next start reads as well; ", file,
                                                        " can be looked at (--dry-run), or put in its place"));
    }
    auto next = config::LoadFile(ours ? facts_.config_file : file, config::KeyFiles::kRead);
    if (next.ok()) MoveOwnAddresses(*next, config_);
    absl::StatusOr<v1::ReloadReply> reply =
        next.ok() ? GoOverTo(*next, dry_run) : absl::StatusOr<v1::ReloadReply>(next.status());
    if (reply.ok()) reply->set_file(ours ? facts_.config_file : file);
    if (dry_run) return reply;
    NoteReload(reply, MonotonicNs(), facts_.reload);
    if (reply.ok() && reply->problems_size() == 0) {
      LogInfo(OutcomeText(reply));
    } else {
      LogError(OutcomeText(reply));
    }
    return reply;
  }

  // All of it or nothing. Nothing is changed before everything that can be known to stand in the way is known.
  absl::StatusOr<v1::ReloadReply> GoOverTo(const v1::Config& next, bool dry_run) {
    v1::ReloadReply reply;
    FillChanges(config::Diff(config_, next, instance_->AwaitedPorts()), reply);
    if (reply.problems_size() > 0 || next.SerializeAsString() == config_.SerializeAsString()) return reply;
    const absl::StatusOr<NetworkView> network = KernelNetworkView();
    if (!network.ok()) return network.status();
    const Topology topology = Succeed(topology_, Resolve(next, *network), *network);
    // What `status` lists already is followed, and stands in no reload's way.
    for (const Problem& problem : topology.problems) {
      const bool known = std::find(facts_.problems.begin(), facts_.problems.end(), problem) != facts_.problems.end();
      if (!known) reply.add_problems(problem.ToString());
    }
    const absl::StatusOr<v1::Roster> roster = instance_->RosterFor(next);
    if (absl::IsFailedPrecondition(roster.status())) {
      for (const absl::string_view line : absl::StrSplit(roster.status().message(), '\n'))
        reply.add_problems(std::string(line));
    } else if (!roster.ok()) {
      return roster.status();
    }
    if (reply.problems_size() > 0 || dry_run) return reply;
    guardian_.reset();  // it looks at the configuration before
    const absl::Status status = instance_->Reconfigure(next, topology, *roster, facts_);
    if (status.ok()) {
      config_ = next;
      topology_ = topology;
      NoteConfig(config_, MonotonicNs(), absl::Now(), facts_.reload);
      reply.set_applied(true);
    }
    if (const absl::Status guarded = Guard(); !guarded.ok()) {
      // This daemon no longer looks after the kernel part, which works on. The next daemon takes it over.
      LogError("after a reload: ", std::string(guarded.message()), "; ending, and the kernel part works on");
      exit_code_ = kExitFailure;
      leaving_ = true;
      loop_->Stop();
      return guarded;
    }
    // Not the file's fault, whatever the system calls it.
    if (absl::IsInvalidArgument(status)) return absl::InternalError(status.message());
    if (!status.ok()) return status;
    instance_->Beat();
    return reply;
  }

  // At a start that took over a kernel part: from the configuration that was in force to ours.
  absl::Status GoOverToWanted() {
    const absl::StatusOr<v1::ReloadReply> reply = GoOverTo(*wanted_, /*dry_run=*/false);
    wanted_.reset();
    if (!reply.ok()) return Unfit(reply.status());
    if (reply->problems_size() > 0) return Unfit(absl::FailedPreconditionError(absl::StrJoin(reply->problems(), "\n")));
    if (reply->applied()) {
      LogInfo("the configuration has changed since: ", reply->changes_size(), " changes are in force");
    }
    return absl::OkStatus();
  }

  // One of our own interfaces is gone: what is left is taken over once more, and what is missing made again.
  // Requests in flight and counters live on in the maps.
  void Relink() {
    if (down_) return;
    guardian_.reset();
    instance_->Leave();
    absl::StatusOr<Standing> standing = Inspect(config_.instance());
    absl::Status status = standing.status();
    if (status.ok() && !standing->record.has_value()) status = absl::NotFoundError("its record is gone");
    if (status.ok()) {
      auto instance = ProxyInstance::Adopt(config_, topology_, *std::move(standing->record),
                                           ProxyInstance::Takeover::kRepair, facts_);
      status = instance.status();
      if (status.ok()) instance_ = *std::move(instance);
    }
    if (status.ok()) status = Guard();
    if (status.ok()) {
      controller_->Serve(instance_->data_plane().policy(), instance_->data_plane().reader());
      LogInfo("whole again");
      return;
    }
    GiveUp(absl::StrCat("our own interface is gone and cannot be made again: ", std::string(status.message())));
    down_ = true;
    const absl::Status removed = RemoveLeftovers(config_.instance());
    if (!removed.ok()) LogError(std::string(removed.message()));
  }

  void Leave() {
    if (down_) return;
    down_ = true;
    Readiness::Stopping();
    if (guardian_ != nullptr) guardian_->Rest();
    instance_->Beat();
    instance_->KeepInPlace().IgnoreError();
    instance_->Leave();
    LogInfo("hedging goes on for ", absl::FormatDuration(absl::Nanoseconds(config_.unattended_timeout_ns())),
            " without a daemon, traffic without end");
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
    problems.empty() ? LogInfo("everything is down") : LogError("not everything is down: `hedgerow clean` removes it");
    return problems;
  }

  v1::Config config_;                 // in force
  std::string firewall_rules_;        // at the start; empty: they decide nothing
  std::optional<v1::Config> wanted_;  // at a start that took another one's kernel part over
  DaemonFacts facts_;
  Topology topology_;
  int exit_code_ = kExitOk;
  bool down_ = false;
  bool leaving_ = false;
  std::optional<InstanceLock> lock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ProxyInstance> instance_;
  std::unique_ptr<Guardian> guardian_;
  std::unique_ptr<Controller> controller_;
  EventLog event_log_;
  operate::ProblemLog problem_log_;
  std::unique_ptr<History> history_;  // what the page shows; null: it is not served
  std::optional<operate::Auxiliary<operate::HttpServer>> metrics_;
  std::optional<operate::Auxiliary<operate::AdminSocket>> admin_;
  std::optional<operate::Auxiliary<operate::AdminSocket>> monitor_;
};

}  // namespace

int RunDaemon(const v1::Config& config, const std::string& config_file, int signals, Readiness& readiness) {
  if (const absl::Status limit = operate::EnsureFileLimit(kFiles); !limit.ok())
    LogWarning(std::string(limit.message()));
  std::string rules = RulesToLookAt(config);  // before the confinement, in which nothing runs a program
  Confine(config, config_file);
  operate::StartLogThread();
  Daemon daemon(config, config_file, std::move(rules));
  const absl::Status status = daemon.Start(signals);
  if (!status.ok()) {
    const bool privilege = absl::IsPermissionDenied(status);
    const int code = privilege ? kExitNotAllowed : kExitFailure;
    LogError(std::string(status.message()));
    daemon.Abandon();
    readiness.Failed(code, std::string(status.message()));
    return code;
  }
  LogInfo("hedgerowd ", operate::kVersion, " serves instance ", config.instance(), " as pid ", getpid());
  readiness.Ready(daemon.ProblemsAtStart());
  return daemon.Run();
}

}  // namespace hedgerow
