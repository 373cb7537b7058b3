// SPDX-License-Identifier: Apache-2.0
//
// The process of a supervisor from start to end: capabilities, signals, the group, administration and metrics.
#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "config/json.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/unique_fd.h"
#include "operate/auxiliary.h"
#include "operate/instance_lock.h"
#include "operate/log.h"
#include "operate/service_manager.h"
#include "operate/signals.h"
#include "steer/admin.h"
#include "steer/cli/commands.h"
#include "steer/metrics.h"

namespace hedgerow::steer::cli {
namespace {

constexpr std::array kNeeded = {net::Capability::kBpf, net::Capability::kNetAdmin, net::Capability::kPerfmon};

// Keeps the capabilities that the supervisor uses; a worker that it starts as root has root's. Before any thread
// starts, because capabilities are a thread's.
void DropCapabilities(bool mounted_bpffs) {
  // KILL, SETUID, SETGID: workers. CHOWN, DAC_OVERRIDE: their notify socket. NET_BIND_SERVICE: a low port of a new
  // slot. SYS_PTRACE, DAC_READ_SEARCH: /proc of the holders of a socket. BPF, NET_ADMIN, PERFMON: maps, programs,
  // HOLDER (bpf/steer).
  uint64_t kept = 1ull << CAP_KILL | 1ull << CAP_CHOWN | 1ull << CAP_SETUID | 1ull << CAP_SETGID |
                  1ull << CAP_NET_BIND_SERVICE | 1ull << CAP_SYS_PTRACE | 1ull << CAP_DAC_OVERRIDE |
                  1ull << CAP_DAC_READ_SEARCH | 1ull << CAP_NET_ADMIN | 1ull << 38 /* CAP_PERFMON */ |
                  1ull << 39 /* CAP_BPF */;
  if (mounted_bpffs) kept |= 1ull << CAP_SYS_ADMIN;  // to unmount it
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return;
  for (int word = 0; word < 2; ++word) {
    const auto mask = static_cast<uint32_t>(kept >> (32 * word));
    sets[word].effective &= mask;
    sets[word].permitted &= mask;
    sets[word].inheritable = 0;
  }
  if (syscall(SYS_capset, &header, sets) != 0) LogWarning("cannot drop capabilities");
}

absl::Status Serve(const Call& call, const Settings& settings, const StartGroup& start) {
  if (const absl::Status allowed = net::RequireCapabilities(kNeeded); !allowed.ok()) return allowed;
  const net::UniqueFd signals = operate::HearSignals();
  if (!signals.valid()) return absl::ErrnoToStatus(errno, "wait for signals");
  const auto lock = InstanceLock::Acquire(settings.places.run_dir, settings.places.name, "group");
  if (!lock.ok()) return lock.status();
  const auto mounted = net::EnsureBpffs(settings.bpffs);
  if (!mounted.ok()) return mounted.status();
  const absl::Cleanup unmount = [&] {
    const absl::Status released = *mounted ? net::ReleaseBpffs(settings.bpffs).status() : absl::OkStatus();
    if (!released.ok()) LogWarning(released.message());
  };
  DropCapabilities(*mounted);
  operate::StartLogThread();
  auto loop = EventLoop::Create();
  if (!loop.ok()) return loop.status();
  auto group = start(loop->get());
  if (!group.ok()) return group.status();
  const absl::Status watched = (*loop)->Watch(signals.get(), [&] {
    bool any = false;
    for (; const std::optional<int> number = operate::NextSignal(signals.get()); any = true) {
      if (*number == SIGHUP) {
        const auto reloads = (*group)->Reload(std::nullopt);
        LogInfo("signal ", *number, ": ", reloads.ok() ? "all slots are being reloaded" : reloads.status().message());
      } else {
        (*group)->BeginStop();
      }
    }
    return any;
  });
  if (!watched.ok()) return watched;
  const absl::Cleanup unbounded = [] { alarm(0); };  // the group's own end, behind the servers', is never cut short
  operate::Auxiliary<operate::HttpServer> metrics(
      "metrics", [&]() -> absl::StatusOr<std::unique_ptr<operate::HttpServer>> {
        if (settings.metrics.empty()) return nullptr;
        return ServeMetrics(settings.metrics, settings.metrics_access, **loop, **group);
      });
  if (metrics.server() != nullptr) LogInfo("metrics: ", operate::PageText(metrics.server()->address(), "/metrics"));
  const operate::Auxiliary<operate::AdminSocket> admin("administration socket",
                                                       [&] { return ServeAdmin(settings.places, **loop, **group); });
  if (absl::IsAlreadyExists(admin.status())) return admin.status();
  const operate::Auxiliary<operate::AdminSocket> monitor(
      "monitoring socket", [&] { return ServeMonitor(settings.places, **loop, **group); });
  (*group)->AlsoReport([&] { return std::vector{metrics.problem(), admin.problem(), monitor.problem()}; });
  const auto shown = (*group)->Show();
  call.out << (call.arguments.json() && shown.ok() ? ToJsonLine(*shown)
                                                   : absl::StrCat("ready: ", (*group)->Text(), "\n"));
  call.out.flush();
  call.out.clear();  // the group serves, whether this line was taken or not
  operate::NotifyServiceManager("READY=1");
  (*loop)->Run();
  operate::NotifyServiceManager("STOPPING=1");
  operate::BoundTheEnd();
  return absl::OkStatus();
}

}  // namespace

// An exit code of 1, unlike that of an option that is wrong, has the unit start the group again: what is NotFound may
// come by itself (docs/adr/0058).
int FailStart(const Call& call, const absl::Status& status) {
  operate::NotifyServiceManager(absl::StrCat("STATUS=", status.message()));
  return call.Fail(status);
}

int ServeGroup(const Call& call, const Settings& settings, const StartGroup& start) {
  const absl::Status ended = Serve(call, settings, start);
  return ended.ok() ? kExitOk : FailStart(call, ended);
}

}  // namespace hedgerow::steer::cli
