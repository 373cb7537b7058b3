// SPDX-License-Identifier: Apache-2.0
#include "steer/cli/commands.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/bpffs.h"
#include "operate/commit.h"
#include "operate/version.h"
#include "steer/api/steer.pb.h"
#include "steer/admin_client.h"
#include "steer/group_object.h"

namespace hedgerow::steer::cli {
namespace {

// A command that asks the supervisor.
operate::Command Asks(const std::string& name, const std::string& words, const std::string& summary,
                      int (*run)(const Call&), const std::vector<std::string>& examples,
                      std::vector<operate::Option> options = {}) {
  options.push_back({"name", "NAME", "the group (may be left out while there is one)"});
  options.push_back({"run-dir", "DIR", absl::StrCat("the folder of all groups (default ", kDefaultRunDir, ")")});
  return {name, words, summary, options, run, examples};
}

// The options of both `run` and `adopt`, but --listen, --transport and --empty.
std::vector<operate::Option> OptionsOfGroup(std::vector<operate::Option> own) {
  const std::vector<operate::Option> shared = {
      {"ipv6-prefix", "BITS", "IPv6 addresses that share so many bits are one source (default 128)"},
      {"devices", "FILE",
       "lines \"NETWORK NUMBER\": the addresses of a device that has several; \"NETWORK NUMBER gateway\": the field names the device"},
      {"gateway-field", "FIELD", "where the datagrams of gateways name their device: 12:4 (OFFSET:BYTES)"},
      {"sessions", "PROTOCOL",
       "the datagrams' protocol: quic, dtls, wireguard, any, or none for one without sessions. A session "
       "stays with its worker when another one is to have its source (default any)"},
      {"drain-timeout", "DURATION",
       "how long sessions stay so; a worker that another one has replaced is killed after this (default 1m)"},
      {"metrics", "LISTEN", "serve /metrics there: 127.0.0.1:9467, unix:/PATH (default: nowhere)"},
      {"metrics-tls", "CERTIFICATE:KEY",
       "with TLS, by these files of PEM. Where other hosts can connect, this and a token are needed"},
      {"metrics-token-file", "FILE", "to those who show the token in it, 32 hexadecimal digits"},
      {"bpffs", "PATH", absl::StrCat("where maps and programs are pinned (default ", net::kDefaultBpffs, ")")},
      {"run-dir", "DIR", absl::StrCat("the folder of all groups (default ", kDefaultRunDir, ")")}};
  own.insert(own.end(), shared.begin(), shared.end());
  return own;
}

std::vector<operate::Option> OptionsOfRun() {
  return OptionsOfGroup(
      {{"listen", "ADDRESS:PORT", "what the group serves: 192.0.2.1:2055, [2001:db8::1]:2055, [::]:2055", true},
       {"workers", "N", "how many workers, 1 to 256", true, 'n'},
       {"transport", "udp|tcp|both", "which sockets a worker gets (default both)"},
       {"name", "NAME", "the group's name (default port-PORT)"},
       {"empty", "POLICY",
        "how packets of a slot without a worker are handled: reject (as if nothing listened) or next (another slot takes them) "
        "(default reject)"},
       {"empty-after", "DURATION",
        "how long a slot may lack its worker before that. Packets wait in its socket meanwhile (default 1s)"},
       {"heartbeat", "DURATION",
        "a worker without WATCHDOG=1 for this time is silent, and its slot empty (default: no heartbeat is expected)"},
       {"stop-timeout", "DURATION",
        "a worker that is asked to end (stop, restart) is killed after this, and its connections with it (default 10s)"},
       {"drain-signal", "SIGNAL",
        "asks a worker to end that `reload` or `resize` has replaced: QUIT for nginx (default TERM)"},
       {"user", "USER", "the workers' user (default: the supervisor's)"},
       {"group", "GROUP", "the workers' group (default: the user's)"},
       {"receive-buffer", "SIZE", "of each UDP and TCP socket: 4MiB (default: the kernel's)"}});
}

std::vector<operate::Option> OptionsOfAdopt() {
  return OptionsOfGroup(
      {{"listen", "ADDRESS:PORT", "the address as the daemon has bound it: 0.0.0.0:2055, [::]:2055", true},
       {"transport", "udp|tcp|both", "which of its sockets (default: those that it has)"},
       {"name", "NAME", "the group's name (default port-PORT)"},
       {"empty", "POLICY",
        "how packets of a slot whose worker or socket is gone are handled: kernel (any socket of the daemon takes them, as without "
        "steering), next (another slot) or reject (as if nothing listened) (default kernel)"},
       {"empty-after", "DURATION", "how long a slot may lack a socket before that (default 1s)"}});
}

}  // namespace

const operate::Program& TheProgram() {
  static const auto* program = new operate::Program{
      .name = "hedgerow-steer",
      .summary = "give each source its own worker of a daemon, on UDP and TCP alike",
      .commands =
          {
              {"run",
               "",
               "make the sockets of all workers, start them, and stay in the foreground",
               OptionsOfRun(),
               RunRun,
               {"hedgerow steer run --listen 192.0.2.1:2055 -n 4 --user nobody -- /usr/local/sbin/collector --instance %s",
                "hedgerow steer run --listen [::]:4739 --transport udp -n 8 --empty next -- collector"},
               "CMD..."},
              {"adopt",
               "[PID...]",
               "steer the processes of a running daemon that sets SO_REUSEPORT itself, and stay in the foreground; without a PID the daemon that has the port",
               OptionsOfAdopt(),
               RunAdopt,
               {"hedgerow steer adopt --listen 0.0.0.0:2055 $(pidof nfacctd)",
                "hedgerow steer adopt --listen 0.0.0.0:53 --transport udp"}},
              {"bind",
               "",
               "start a daemon that binds by itself, with the sockets of LISTEN_FDS in place of its own",
               {},
               RunBind,
               {"hedgerow steer run --listen 0.0.0.0:2055 --transport udp -n 4 -- hedgerow-steer bind -- nfcapd -p 2055 -w /var/cache/nfdump/%s"},
               "CMD..."},
              Asks("show", "", "show slots, workers, counters and problems", RunShow,
                   {"hedgerow steer show", "hedgerow steer show --watch", "hedgerow steer show --json"},
                   {{"watch", "", "again each second, on a screen of its own; q or Ctrl-C ends"}}),
              Asks("explain", "ADDRESS", "show which worker the kernel gives this source to, and why", RunExplain,
                   {"hedgerow steer explain 192.0.2.7", "hedgerow steer explain 2001:db8::7 --json"},
                   {{"payload", "HEX", "the datagram's, for gateways whose field names the device"}}),
              Asks("resize", "N", "change the number of workers; as few sources as possible move", RunResize,
                   {"hedgerow steer resize 6"}),
              Asks("drain", "SLOT", "give a slot's sources to the others; its open connections stay", RunDrain,
                   {"hedgerow steer drain 2"}),
              Asks("undrain", "SLOT", "give a drained slot its share again", RunUndrain, {"hedgerow steer undrain 2"}),
              Asks("weights", "W...", "change the slots' shares, one number for each", RunWeights,
                   {"hedgerow steer weights 1 1 2 2"}),
              Asks("restart", "SLOT", "end a slot's worker (SIGTERM) and start it again; its sources' packets wait",
                   RunRestart, {"hedgerow steer restart 0"}),
              Asks("reload", "[SLOT]",
                   "start another worker beside a slot's, and give it the sources once it is ready; the former one "
                   "ends its sessions. Without SLOT one slot after the other. A worker that does not become ready is "
                   "ended, and nothing has changed",
                   RunReload, {"hedgerow steer reload", "hedgerow steer reload 0"}),
              Asks("stop", "", "end the supervisor and its workers (an adopted daemon goes on), and remove everything",
                   RunStop, {"hedgerow steer stop"}),
              Asks("clean", "",
                   "remove the group of a dead supervisor, its workers included; refused while a supervisor runs",
                   RunClean, {"hedgerow steer clean --name port-2055"},
                   {{"bpffs", "PATH", "where the pins are, if the group's folder is lost"}}),
              {"version", "", "print the version", {}, RunVersion},
              operate::HelpCommand(),
          },
      .options = {{"json", "",
                   "print a JSON object, on failure as well; `run` and `adopt`: a line when they are ready"}},
      .notes =
          {"`hedgerow-steer help COMMAND` lists the options of one command; `hedgerow steer COMMAND` is the same program.",
           "A worker gets its slot's sockets as systemd hands them over (LISTEN_FDS, sd_listen_fds(3)): with both transports UDP is "
           "descriptor 3 and TCP descriptor 4, named udp and tcp in LISTEN_FDNAMES. It may send READY=1 and WATCHDOG=1 to "
           "NOTIFY_SOCKET (sd_notify(3)). Its slot's number is in HEDGEROW_STEER_SLOT; in CMD's words %s is that number, and %% is %.",
           "A worker that ends is started again, after a pause of at most 5 s if it ends repeatedly. Its packets wait in its sockets "
           "meanwhile. SIGTERM and SIGINT end the supervisor and its workers; SIGHUP reloads all slots. A supervisor that is killed leaves "
           "workers and sockets as they are, and the next `run` with the same name takes them over.",
           "`adopt` leaves workers and sockets the daemon's. A worker that restarts with new sockets takes the slot that became empty, "
           "within a second. Its packets meanwhile go by --empty. When `adopt` ends, the kernel spreads packets as before.",
           "When CMD binds a socket to the address and port of a socket that was handed over, `bind` puts the latter in its place (a "
           "seccomp filter, seccomp_unotify(2)). Other sockets are bound unchanged."},
      .exit_codes = {{"0", "done; `run` and `adopt`: ended by a signal or `stop`"},
                     {"1", "failure; the message has the reason"},
                     {"2", "usage error"},
                     {"3", "the supervisor is not running"},
                     {"4", "a capability is missing, or this user may not open the socket"}},
      .files = {{absl::StrCat(kDefaultRunDir, "/NAME/"), "a group's sockets and its record"},
                {absl::StrCat(net::kDefaultBpffs, "/hedgerow-steer/NAME/"), "its maps and programs"}},
      .see_also = {"hedgerow(8)"}};
  return *program;
}

absl::StatusOr<Places> FindGroup(const Arguments& arguments) {
  Places places{.run_dir = arguments.Get("run-dir", kDefaultRunDir), .name = arguments.Get("name")};
  if (!places.name.empty()) {
    const absl::Status good = CheckGroupName(places.name);
    return good.ok() ? absl::StatusOr<Places>(places) : good;
  }
  const std::vector<std::string> names = ListGroups(places.run_dir);
  if (names.empty())
    return absl::UnavailableError(
        absl::StrCat("no group runs here (", places.run_dir, "): `hedgerow steer run` starts one"));
  if (names.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("which group? There are ", absl::StrJoin(names, ", "), ": give --name"));
  }
  places.name = names[0];
  return places;
}

int RunVersion(const Call& call) {
  v1::Version report;
  report.set_version(operate::kVersion);
  report.set_commit(operate::kCommit);
  report.set_commit_date(operate::kCommitDate);
  report.set_layout(HR_STEER_LAYOUT);
  return call.Print(report, absl::StrCat("hedgerow-steer ", operate::kVersion, " (map layout ", HR_STEER_LAYOUT,
                                         ", commit ", operate::kCommit, " of ", operate::kCommitDate, ")\n"));
}

}  // namespace hedgerow::steer::cli
