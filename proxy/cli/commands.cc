// SPDX-License-Identifier: Apache-2.0
//
// The table of commands and what they share; see the header.

#include <sys/utsname.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bpf/abi/base_abi.h"
#include "operate/commit.h"
#include "operate/unit.h"
#include "operate/version.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "config/format.h"
#include "proxy/config/load.h"
#include "proxy/start/vips.h"

namespace hedgerow::cli {
namespace {

// With a command, main.cc has become hedgerow-node, or hedgerow-steer.
int RunCluster(const Call& call) { return call.UsageError("cluster wants a command of hedgerow-node"); }
int RunSteer(const Call& call) { return call.UsageError("steer wants a command of hedgerow-steer"); }

operate::Option ConfigOption() { return {"config", "FILE", "the configuration, hedgerow.yaml(5)", true}; }

// Of the commands that ask the daemon; `more` stand before them.
std::vector<operate::Option> DaemonOptionsAnd(std::vector<operate::Option> more) {
  more.push_back({"socket", "PATH", absl::StrCat("the daemon's socket (default ", kDefaultSocket, ")")});
  more.push_back({"config", "FILE", "a configuration that names the socket, instead of --socket"});
  return more;
}

std::vector<operate::Option> DaemonOptions() { return DaemonOptionsAnd({}); }

}  // namespace

const operate::Program& TheProgram() {
  static const auto* program = new operate::Program{
      .name = "hedgerow",
      .summary = "set up, watch and change a proxy that hedges UDP requests in the kernel",
      .commands =
          {
              {"validate",
               "",
               "check a configuration; touches nothing",
               {ConfigOption()},
               RunValidate,
               {"hedgerow validate --config /etc/hedgerow/hedgerow.yaml"}},
              {"plan",
               "",
               "show what `up` would make on this machine, or `reload` would change; makes nothing",
               {ConfigOption()},
               RunPlan,
               {"hedgerow plan --config /etc/hedgerow/hedgerow.yaml"}},
              {"up",
               "",
               "start the daemon and wait until it serves",
               {ConfigOption(), {"log", "FILE", "the daemon's log (default /var/log/hedgerow/INSTANCE.log)"}},
               RunUp,
               {"hedgerow up --config /etc/hedgerow/hedgerow.yaml"}},
              {"status",
               "",
               "show how the services are doing",
               DaemonOptions(),
               RunStatus,
               {"hedgerow status", "hedgerow status --json"}},
              {"check",
               "[SERVICE|VIP[:PORT]]",
               "send a harmless request to each backend directly, through the proxy and by a hedge, and say what works",
               DaemonOptionsAnd({{"payload", "HEX", "the request, in place of the profile's (1 to 512 bytes)"},
                                 {"timeout", "DURATION", "wait so long for each of two tries (default 1s)"}}),
               RunCheck,
               {"hedgerow check", "hedgerow check 10.99.0.53:53", "hedgerow check app --payload 0a1f00"}},
              {"leader",
               "show [SERVICE] | set SERVICE BACKEND | unset SERVICE",
               "show, pin or unpin the leader",
               DaemonOptions(),
               RunLeader,
               {"hedgerow leader show", "hedgerow leader set dns b"}},
              {"bypass",
               "SERVICE on|off",
               "on: no hedging, traffic flows to the leader",
               DaemonOptions(),
               RunBypass,
               {"hedgerow bypass dns on"}},
              {"dry-run",
               "SERVICE on|off",
               "on: would-be hedges are counted against a simulated budget, and nothing is sent twice",
               DaemonOptions(),
               RunDryRun,
               {"hedgerow dry-run dns on"}},
              {"drain",
               "BACKEND [SERVICE]",
               "send a backend no new requests while another backend is available",
               DaemonOptions(),
               RunDrain,
               {"hedgerow drain b", "hedgerow drain b dns"}},
              {"undrain", "BACKEND [SERVICE]", "end a drain", DaemonOptions(), RunUndrain, {"hedgerow undrain b"}},
              {"reload",
               "",
               "apply what the configuration file says now, or show what that would change",
               {{"dry-run", "", "check and show the changes; apply nothing"},
                {"preview", "", "the same as --dry-run"},
                {"socket", "PATH", absl::StrCat("the daemon's socket (default ", kDefaultSocket, ")")},
                {"config", "FILE", "names the socket, instead of --socket; with --dry-run the file that is looked at"}},
               RunReload,
               {"hedgerow reload --dry-run", "hedgerow reload"}},
              {"cluster",
               "COMMAND [OPTIONS]",
               "run a hedgerow-node command on the cluster: status, members, snapshot, ...",
               {},
               RunCluster,
               {"hedgerow cluster status", "hedgerow cluster help"}},
              {"steer",
               "COMMAND [OPTIONS]",
               "run a hedgerow-steer command: give each source its own worker of a daemon of several processes",
               {},
               RunSteer,
               {"hedgerow steer run --listen 192.0.2.1:2055 -n 4 -- collector", "hedgerow steer show",
                "hedgerow steer help"}},
              {"down", "", "remove everything and end the daemon", DaemonOptions(), RunDown, {"hedgerow down"}},
              {"clean",
               "",
               "remove what a crashed daemon left, without a daemon",
               DaemonOptionsAnd({{"instance", "NAME", "the instance (default: the configuration's, else default)"}}),
               RunClean,
               {"hedgerow clean --instance default"}},
              {"top",
               "[SERVICE...]",
               "show the activity of each service, backend and kernel program, once a second; q ends it",
               DaemonOptionsAnd(
                   {{"once", "", "print one snapshot and end"},
                    {"no-program-times", "",
                     "do not have the kernel time its BPF programs, which costs each run some tens of ns"}}),
               RunTop,
               {"hedgerow top", "hedgerow top dns --once"}},
              {"trace",
               "",
               "follow single requests on their way through the kernel, one a line, until Ctrl-C",
               DaemonOptionsAnd(
                   {{"service", "S", "only this service"},
                    {"backend", "B", "only requests that went to this backend"},
                    {"client", "ADDRESS[/BITS]", "only clients of this address or network"},
                    {"port", "N", "only clients of this port"},
                    {"key", "HEX", "only requests whose correlation bytes are these"},
                    {"hedged", "", "only requests that were sent twice"},
                    {"slower-than", "DURATION", "only requests that took longer: 5ms"},
                    {"rate", "N", "at most N requests a second (default 1000)"},
                    {"count", "N", "end after N requests; with --follow: events"},
                    {"for", "DURATION", "end after this time: 10s"},
                    {"follow", "", "print every event when it happens"},
                    {"pcap", "FILE",
                     "write the events to a new capture file, for Wireshark and tcpdump; -: to standard output, in place of lines"}}),
               RunTrace,
               {"hedgerow trace --service dns --hedged --count 10", "hedgerow trace --slower-than 5ms --for 10s",
                "hedgerow trace --pcap - | tcpdump -r -"}},
              {"dns",
               "adopt | release",
               "hedge what this host's resolver asks its servers, without a change of its files, or give that back",
               {{"dry-run", "", "show servers, what they answer and the configuration; change nothing"},
                {"same-answers", "", "adopt servers that answer differently, too"},
                {"servers", "A,B", "these, in place of resolv.conf's"},
                {"names", "N,M", "names to compare the servers' answers by, beside the search domains"},
                {"instance", "NAME", "of the configuration that is written (default: default)"},
                {"config", "FILE", "where it is written (default /etc/hedgerow/hedgerow.yaml)"}},
               RunDns,
               {"hedgerow dns adopt --dry-run", "hedgerow dns adopt", "hedgerow dns release"}},
              {"doctor",
               "",
               "show what this machine, this user and a configuration lack, and what is open",
               {{"config", "FILE", "the configuration that is judged as well"}},
               RunDoctor,
               {"hedgerow doctor", "hedgerow doctor --config /etc/hedgerow/hedgerow.yaml"}},
              {"sysdump",
               "",
               "write an archive for a report of a fault: status, maps, links, qdiscs, a trace, logs, the configuration without keys",
               {{"out", "FILE", "the archive, a new file (default hedgerow-sysdump-TIME.tar.gz)"},
                {"socket", "PATH", absl::StrCat("the daemon's socket (default ", kDefaultSocket, ")")},
                {"config", "FILE", "the configuration in it (default: the daemon's), which also names the socket"}},
               RunSysdump,
               {"hedgerow sysdump", "hedgerow sysdump --out /root/proxy.tar.gz"}},
              {"version", "", "print the versions of program and kernel part", {}, RunVersion},
              operate::HelpCommand(),
          },
      .options = {{"json", "", "print a JSON object, on failure as well; `top` and `trace`: one a line"}},
      .notes = {"`hedgerow help COMMAND` lists the options of one command."},
      .exit_codes = {{"0", "done"},
                     {"1", "failure; the message has the reason"},
                     {"2", "usage or configuration error"},
                     {"3", "the daemon is not running"},
                     {"4", "a capability is missing, or this user may not open the socket"}},
      .files = {{"/etc/hedgerow/hedgerow.yaml", "the configuration that the unit hedgerowd.service serves"},
                {kDefaultSocket, "the daemon's socket"},
                {"/sys/fs/bpf/hedgerow", "the kernel part's maps, programs and links"}},
      .see_also = {"hedgerowd(8)", "hedgerow-node(8)", "hedgerow-steer(8)", "hkv(1)"}};
  return *program;
}

absl::StatusOr<v1::Config> RequireConfig(const Arguments& arguments) {
  const std::string path = arguments.Get("config");
  if (path.empty()) return absl::InvalidArgumentError("hedgerow: --config FILE is missing");
  auto config = config::LoadFile(path);
  if (config.ok()) MoveOwnAddresses(*config);
  return config;
}

absl::StatusOr<std::string> SocketPath(const Arguments& arguments) {
  if (arguments.Has("socket")) return arguments.Get("socket");
  if (!arguments.Has("config")) return kDefaultSocket;
  const absl::StatusOr<v1::Config> config = RequireConfig(arguments);
  if (!config.ok()) return config.status();
  return config->admin().socket();
}

absl::StatusOr<std::string> InstanceName(const Arguments& arguments) {
  if (arguments.Has("instance")) {
    const auto name = config::Canonical(config::FORMAT_INSTANCE, arguments.Get("instance"));
    if (name.has_value()) return *name;
    return absl::InvalidArgumentError(absl::StrCat("hedgerow: --instance: got \"", arguments.Get("instance"),
                                                   "\", expected 1 to 15 of the characters a-z, 0-9 and -"));
  }
  if (!arguments.Has("config")) return "default";
  const absl::StatusOr<v1::Config> config = RequireConfig(arguments);
  if (!config.ok()) return config.status();
  return config->instance();
}

std::vector<std::string> ClosedToTheUnit(const Arguments& arguments, const v1::Config& config) {
  std::error_code error;
  const std::string file = std::filesystem::absolute(arguments.Get("config"), error).lexically_normal().string();
  if (!absl::StartsWith(file, "/etc/hedgerow/")) return {};
  std::vector<std::string> files = config::FilesOf(config);
  files.insert(files.begin(), file);
  return operate::WhyNotReadBy("hedgerow", files);
}

int RunVersion(const Call& call) {
  utsname kernel{};
  uname(&kernel);
  v1::VersionReport report;
  report.set_version(operate::kVersion);
  report.set_kernel(kernel.release);
  report.set_abi_version(HR_ABI_VERSION);
  report.set_commit(operate::kCommit);
  report.set_commit_date(operate::kCommitDate);
  return call.Print(report, absl::StrCat("hedgerow ", operate::kVersion, " (map layout ", HR_ABI_VERSION, ", commit ",
                                         operate::kCommit, " of ", operate::kCommitDate, ")\n"));
}

}  // namespace hedgerow::cli
