// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow steer run`, `adopt` and `bind`: from options to settings.
#include <string.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "config/format.h"
#include "config/scalar.h"
#include "net/bpffs.h"
#include "operate/listen_address.h"
#include "steer/adopt/adopted_group.h"
#include "steer/adopt/bind_in_place.h"
#include "steer/cli/commands.h"
#include "steer/group_object.h"
#include "steer/supervisor.h"

namespace hedgerow::steer::cli {
namespace {

// A word of --empty.
struct Policy {
  absl::string_view name;
  hr_steer_empty empty;
};
// A supervisor's sockets are there without a worker, so that the kernel's own choice would fill queues that no process
// reads.
constexpr Policy kOfRun[] = {{"reject", HR_STEER_REJECT}, {"next", HR_STEER_OTHER}};
// A daemon that starts a worker binds before its socket has a slot, so the kernel's own choice may be the very socket
// that serves.
constexpr Policy kOfAdopt[] = {
    {"kernel", HR_STEER_KERNEL}, {"reject", HR_STEER_REJECT}, {"next", HR_STEER_OTHER_OR_KERNEL}};

absl::Status Wrong(const Arguments& arguments, const std::string& name, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, ": got \"", arguments.Get(name), "\", expected ", expected));
}

absl::Status ReadPolicy(const Arguments& arguments, absl::Span<const Policy> policies, Settings& settings) {
  const std::string text = arguments.Get("empty", std::string(policies.front().name));
  const auto chosen =
      std::find_if(policies.begin(), policies.end(), [&text](const Policy& each) { return each.name == text; });
  if (text == "drop") {
    return Wrong(arguments, "empty", "reject, with a firewall rule that drops its ICMP errors: drop is gone");
  }
  if (chosen == policies.end()) {
    const auto add_name = [](std::string* out, const Policy& each) { absl::StrAppend(out, each.name); };
    return Wrong(
        arguments, "empty",
        absl::StrCat(absl::StrJoin(policies.first(policies.size() - 1), ", ", add_name), " or ", policies.back().name));
  }
  settings.empty = chosen->empty;
  return absl::OkStatus();
}

absl::Status ReadNumber(const Arguments& arguments, const std::string& name, int64_t most, int64_t& value) {
  if (!arguments.Has(name)) return absl::OkStatus();
  const auto number = config::ParseWhole(arguments.Get(name));
  if (!number.has_value() || *number < 1 || *number > most) return Wrong(arguments, name, absl::StrCat("1 to ", most));
  value = *number;
  return absl::OkStatus();
}

absl::Status ReadTimes(const Arguments& arguments, Settings& settings) {
  const std::pair<const char*, absl::Duration*> options[] = {{"empty-after", &settings.empty_after},
                                                             {"heartbeat", &settings.heartbeat},
                                                             {"stop-timeout", &settings.stop_timeout},
                                                             {"drain-timeout", &settings.drain_timeout}};
  for (const auto& [name, value] : options) {
    if (!arguments.Has(name)) continue;
    const auto ns = config::ParseDurationNs(arguments.Get(name));
    if (!ns.has_value() || *ns < 1'000'000 || *ns > 86'400'000'000'000)
      return Wrong(arguments, name, "1ms to 24h: 250ms, 2s");
    *value = absl::Nanoseconds(*ns);
  }
  return absl::OkStatus();
}

// The settings of `run` and `adopt` alike: name, address, folders, policy (the first one by default), sources.
// InvalidArgument names the option.
absl::StatusOr<Settings> CommonSettings(const Arguments& arguments, absl::Span<const Policy> policies) {
  Settings settings;
  if (!arguments.Has("listen")) return absl::InvalidArgumentError("on which address? --listen ADDRESS:PORT");
  const auto listen = Listen::Parse(arguments.Get("listen"));
  if (!listen.ok()) return listen.status();
  settings.listen = *listen;
  const std::string transport = arguments.Get("transport", "both");
  if (transport != "udp" && transport != "tcp" && transport != "both")
    return Wrong(arguments, "transport", "udp, tcp or both");
  settings.udp = transport != "tcp";
  settings.tcp = transport != "udp";
  settings.places = {.run_dir = arguments.Get("run-dir", kDefaultRunDir),
                     .name = arguments.Get("name", absl::StrCat("port-", listen->port))};
  if (const absl::Status good = CheckGroupName(settings.places.name); !good.ok()) return good;
  if (settings.places.run_dir.empty() || settings.places.run_dir[0] != '/')
    return Wrong(arguments, "run-dir", "a path from /");
  settings.bpffs = arguments.Get("bpffs", net::kDefaultBpffs);
  settings.metrics = arguments.Get("metrics");
  if (arguments.Has("metrics") && !operate::IsListenText(settings.metrics))
    return Wrong(arguments, "metrics", "ADDRESS:PORT or unix:/PATH");
  const std::pair<std::string, std::string> tls = absl::StrSplit(arguments.Get("metrics-tls"), absl::MaxSplits(':', 1));
  if (arguments.Has("metrics-tls") && (tls.first.empty() || tls.second.empty()))
    return Wrong(arguments, "metrics-tls", "CERTIFICATE:KEY");
  settings.metrics_access = {.certificate = tls.first, .key = tls.second, .token = arguments.Get("metrics-token-file")};
  if (const std::string why = config::WhyNotListened(settings.metrics, "--metrics-tls", !tls.first.empty(),
                                                     "--metrics-token-file", arguments.Has("metrics-token-file"));
      !why.empty())
    return absl::InvalidArgumentError(absl::StrCat("--metrics: ", why));
  if (const absl::Status read = ReadPolicy(arguments, policies, settings); !read.ok()) return read;
  int64_t prefix = settings.ipv6_prefix;
  if (const absl::Status read = ReadNumber(arguments, "ipv6-prefix", 128, prefix); !read.ok()) return read;
  settings.ipv6_prefix = static_cast<uint32_t>(prefix);
  if (const absl::Status read = ReadTimes(arguments, settings); !read.ok()) return read;
  if (const absl::Status read = ReadSessions(arguments.Get("sessions", "any"), settings); !read.ok()) return read;
  if (arguments.Has("devices")) {
    auto devices = ReadDevices(arguments.Get("devices"));
    if (!devices.ok()) return devices.status();
    settings.devices = *std::move(devices);
  }
  if (arguments.Has("gateway-field")) {
    if (const absl::Status read = ReadGatewayField(arguments.Get("gateway-field"), settings); !read.ok()) return read;
  }
  return settings;
}

absl::StatusOr<Settings> SettingsOfRun(const Arguments& arguments) {
  auto settings = CommonSettings(arguments, kOfRun);
  if (!settings.ok()) return settings;
  if (!arguments.Has("workers")) return absl::InvalidArgumentError("how many workers? -n N");
  int64_t workers = 0;
  if (const absl::Status read = ReadNumber(arguments, "workers", HR_STEER_SLOTS, workers); !read.ok()) return read;
  settings->workers = static_cast<int>(workers);
  if (arguments.Has("receive-buffer")) {
    const auto bytes = config::ParseBytes(arguments.Get("receive-buffer"));
    if (!bytes.has_value() || *bytes < 4096 || *bytes > (int64_t{1} << 31))
      return Wrong(arguments, "receive-buffer", "4KiB to 2GiB: 4MiB");
    settings->receive_buffer = *bytes;
  }
  auto user = FindWorkerUser(arguments.Get("user"), arguments.Get("group"));
  if (!user.ok()) return user.status();
  settings->user = *std::move(user);
  settings->socket_uid = settings->user.uid;  // so that a worker can bind further ones
  settings->command = arguments.command;
  const std::string signal = arguments.Get("drain-signal", "TERM");
  for (settings->drain_signal = 1; settings->drain_signal < NSIG; ++settings->drain_signal) {
    const char* name = sigabbrev_np(settings->drain_signal);
    if (name != nullptr && signal == name) return settings;
  }
  return Wrong(arguments, "drain-signal", "a signal's name: QUIT");
}

}  // namespace

int RunRun(const Call& call) {
  if (call.arguments.words.size() > 1) {
    return call.UsageError(
        absl::StrCat("unknown word ", call.arguments.words[1], "; the workers' command stands behind --"));
  }
  if (call.arguments.command.empty()) return call.UsageError("which command? It stands behind --");
  const auto settings = SettingsOfRun(call.arguments);
  if (!settings.ok()) return FailStart(call, settings.status());
  return ServeGroup(call, *settings, [&settings](EventLoop* loop) -> absl::StatusOr<std::unique_ptr<Group>> {
    return Supervisor::Start(loop, *settings);
  });
}

int RunAdopt(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  auto settings = CommonSettings(call.arguments, kOfAdopt);
  if (!settings.ok()) return FailStart(call, settings.status());
  SocketSearch search{.listen = settings->listen};
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(*word, &pid) || pid <= 0)
      return call.UsageError(absl::StrCat("got \"", *word, "\", expected a pid"));
    search.pids.push_back(pid);
  }
  if (call.arguments.Has("transport")) {
    const std::vector<Transport> transports = settings->transports();
    search.transports = {transports.begin(), transports.end()};
  }
  return ServeGroup(call, *settings, [&](EventLoop* loop) -> absl::StatusOr<std::unique_ptr<Group>> {
    return AdoptedGroup::Start(loop, *settings, search);
  });
}

int RunBind(const Call& call) {
  if (call.arguments.words.size() > 1) {
    return call.UsageError(
        absl::StrCat("unknown word ", call.arguments.words[1], "; the daemon's command stands behind --"));
  }
  if (call.arguments.command.empty()) return call.UsageError("which command? It stands behind --");
  return call.Fail(RunWithSockets(call.arguments.command));
}

}  // namespace hedgerow::steer::cli
