// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow sysdump`: everything that a report of a fault needs, in one archive: what the daemon, the kernel and the
// log say, and the configuration without its keys. What cannot be had is named in the archive, and does not stop the
// rest. The parked copies, which are the clients' data, are left out; a trace has clients' addresses and correlation
// bytes.

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "net/unique_fd.h"
#include "proxy/admin/client.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/config/emit.h"
#include "proxy/config/load.h"

namespace hedgerow::cli {
namespace {

constexpr size_t kMostBytesOfAPart = 8 << 20;  // what is beyond is left out, and said so

struct Part {
  const char* file;
  const char* command;  // of /bin/sh; bounded by 10 s
};

// Of the machine. Programs that are not installed are no error: their part says so.
constexpr std::array kOfTheMachine = {
    Part{"machine.txt", "uname -a; cat /etc/os-release; uptime; nproc; free -m"},
    Part{"links.txt", "ip -details -statistics link show"},
    Part{"addresses.txt", "ip address show"},
    Part{"routes.txt", "ip rule show; ip route show table all; ip -6 rule show; ip -6 route show table all"},
    Part{"neighbours.txt", "ip neighbour show"},
    Part{"qdiscs.txt", "tc -statistics qdisc show"},
    Part{"filters.txt",
         "for link in /sys/class/net/*; do for way in ingress egress; do "
         "tc filter show dev \"${link##*/}\" $way 2>/dev/null | sed \"s/^/${link##*/} $way: /\"; done; done"},
    Part{"programs-on-links.txt", "bpftool net show"},
    Part{"programs.txt", "bpftool prog show"},
    Part{"maps.txt", "bpftool map show"},
    Part{"pins.txt", "find /sys/fs/bpf/hedgerow -ls"},
    Part{"firewall.txt", "nft list ruleset"},
    Part{"network-settings.txt",
         "sysctl -a 2>/dev/null | grep -E '^net\\.(core|ipv4|ipv6)|bpf' | grep -vE 'fastopen_key|stable_secret'"},
    Part{"network-counters.txt", "cat /proc/net/snmp /proc/net/netstat /proc/net/softnet_stat"},
    Part{"journal.txt", "journalctl --no-pager --lines=5000 -u hedgerowd -u 'hedgerowd@*'"},
    Part{"steer.json",
         "for group in /run/hedgerow-steer/*/; do test ! -d \"$group\" || "
         "\"$HEDGEROW_STEER\" show --name \"$(basename \"$group\")\" --json; done"},
    Part{"steer-journal.txt", "journalctl --no-pager --lines=5000 -u 'hedgerow-steer*@*'"},
    Part{"logs.txt",
         "tail -n 5000 /var/log/hedgerow/*.log 2>/dev/null || echo none, for no `hedgerow up` has run here"},
};

// What a command prints, both ways, and how it ended where it did not end well.
std::string OutputOf(const std::string& command) {
  std::string out;
  // `timeout` starts sh itself, so that all of a pipeline ends.
  setenv("HEDGEROW_SYSDUMP_PART", command.c_str(), 1);
  FILE* const pipe = popen("exec 2>&1 </dev/null timeout -k 2 10 sh -c \"$HEDGEROW_SYSDUMP_PART\"", "re");
  if (pipe == nullptr) return absl::StrCat("cannot run it: ", strerror(errno), "\n");
  std::array<char, 1 << 16> buffer;
  bool cut = false;
  while (const size_t read = fread(buffer.data(), 1, buffer.size(), pipe)) {
    const size_t room = kMostBytesOfAPart - std::min(kMostBytesOfAPart, out.size());
    cut = cut || read > room;
    out.append(buffer.data(), std::min(read, room));
  }
  const int ended = pclose(pipe);
  if (cut) absl::StrAppend(&out, "\n[cut here: longer than ", kMostBytesOfAPart >> 20, " MiB]\n");
  if (WIFEXITED(ended) && (WEXITSTATUS(ended) == 124 || WEXITSTATUS(ended) == 128 + SIGKILL))
    absl::StrAppend(&out, "[ended after 10 s]\n");
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 127) absl::StrAppend(&out, "[a program is not installed]\n");
  return out;
}

// Ctrl-C: the part that runs ends by itself, no further one begins, and the folder goes.
volatile sig_atomic_t interrupted = 0;

void NoteInterrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction present {};
    if (sigaction(each, nullptr, &present) == 0 && present.sa_handler != SIG_IGN)
      sigaction(each, &action, nullptr);  // nohup's stays
  }
}

// The archive's folder while it is filled.
class Dump {
 public:
  explicit Dump(std::string folder) : folder_(std::move(folder)) {}

  void Add(const std::string& file, const std::string& text) {
    std::ofstream part(absl::StrCat(folder_, "/", file));
    part << text;
    part.close();
    if (status_.ok() && !part) status_ = absl::ErrnoToStatus(errno, absl::StrCat("writing ", folder_, "/", file));
    report_.add_parts(file);
  }
  // The first part that could not be written.
  const absl::Status& status() const { return status_; }
  // A command of this program, as a user types it.
  void AddOwn(const std::string& file, const std::vector<std::string>& argv) {
    if (interrupted) return;
    std::ostringstream out;
    std::ostringstream err;
    const int exit_code = operate::Run(TheProgram(), argv, out, err);
    Add(file,
        absl::StrCat(out.str(), err.str(), exit_code == kExitOk ? "" : absl::StrCat("[exit code ", exit_code, "]\n")));
  }
  v1::SysdumpReport& report() { return report_; }

 private:
  const std::string folder_;
  absl::Status status_;
  v1::SysdumpReport report_;
};

// The configuration's file: what --config names, else the one that the daemon serves. Empty: neither is known.
std::string ConfigFile(const Call& call, const absl::StatusOr<v1::Status>& status) {
  if (call.arguments.Has("config")) return call.arguments.Get("config");
  return status.ok() ? status->config_file() : "";
}

// A file with errors may have a key in any place, and an error quotes what stands there: only the places are told.
// `sound`: it has none.
std::string ConfigWithoutKeys(const std::string& file, bool& sound) {
  if (file.empty()) return "no --config, and no daemon that names its file\n";
  config::Diagnostics errors(file);
  const v1::Config config = config::LoadFile(file, errors);
  sound = errors.empty();
  if (errors.empty())
    return absl::StrCat("# ", file, " with all defaults\n", config::EmitYaml(config, config::Secrets::kHidden));
  std::string text = absl::StrCat("# ", file, " has errors and is left out for the keys in it:\n");
  for (const config::Diagnostic& error : errors.InOrder())
    absl::StrAppend(&text, "# line ", error.mark.line, ", column ", error.mark.column, ": ", error.path, "\n");
  return text;
}

absl::Status Pack(const std::string& parent, const std::string& name, const std::string& out,
                  const net::UniqueFd& archive) {
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "starting tar");
  if (pid == 0) {
    if (dup2(archive.get(), STDOUT_FILENO) < 0) _exit(127);
    execlp("tar", "tar", "--create", "--gzip", "--directory", parent.c_str(), name.c_str(), nullptr);
    _exit(127);
  }
  int ended = 0;
  if (waitpid(pid, &ended, 0) == pid && WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("tar could not write ", out));
}

}  // namespace

int RunSysdump(const Call& call) {
  const std::string socket =
      SocketPath(call.arguments).value_or(kDefaultSocket);  // a configuration with errors names none
  const std::string name =
      absl::StrCat("hedgerow-sysdump-", absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()));
  const std::string out = call.arguments.Get("out", absl::StrCat(name, ".tar.gz"));
  NoteInterrupts();
  // Before anything is gathered. A new file of this user's: one that another user has put there, or a link, is refused.
  const net::UniqueFd archive(open(out.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!archive.valid()) {
    return call.Fail(kExitFailure, absl::StrCat("cannot make ", out, ": ", strerror(errno),
                                                errno == EEXIST ? "; --out names a file that is not there yet" : ""));
  }
  absl::Cleanup remove_archive = [&out] { unlink(out.c_str()); };
  char pattern[] = "/tmp/hedgerow-sysdump.XXXXXX";
  if (mkdtemp(pattern) == nullptr) return call.Fail(absl::ErrnoToStatus(errno, "making a folder in /tmp"));
  const absl::Cleanup remove = [&pattern] {
    std::error_code ignored;
    std::filesystem::remove_all(pattern, ignored);
  };
  const std::string folder = absl::StrCat(pattern, "/", name);
  if (mkdir(folder.c_str(), 0700) != 0) return call.Fail(absl::ErrnoToStatus(errno, "making a folder in /tmp"));

  Dump dump(folder);
  const absl::StatusOr<AdminClient> daemon = AdminClient::Connect(socket);
  const absl::StatusOr<v1::Status> status =
      daemon.ok() ? daemon->Ask(&AdminClient::Stub::GetStatus) : absl::StatusOr<v1::Status>(daemon.status());
  // A daemon that hangs is waited for once.
  const bool hangs = absl::IsDeadlineExceeded(status.status());
  const auto add_of_daemon = [&](const std::string& part, const std::vector<std::string>& argv) {
    if (!hangs) return dump.AddOwn(part, argv);
    if (!interrupted) dump.Add(part, absl::StrCat(std::string(status.status().message()), "\n"));
  };
  const std::string file = ConfigFile(call, status);
  bool sound = false;
  dump.Add("config.yaml", ConfigWithoutKeys(file, sound));
  // Groups of `hedgerow steer` are asked by their own program, which stands beside this one.
  std::error_code unknown;
  setenv("HEDGEROW_STEER",
         (std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path() / "hedgerow-steer").c_str(), 1);
  dump.AddOwn("version.txt", {"version"});
  dump.AddOwn("doctor.txt",
              sound ? std::vector<std::string>{"doctor", "--config", file} : std::vector<std::string>{"doctor"});
  add_of_daemon("status.txt", {"status", "--socket", socket});
  add_of_daemon("status.json", {"status", "--json", "--socket", socket});
  add_of_daemon("leader.txt", {"leader", "show", "--socket", socket});
  add_of_daemon("top.txt", {"top", "--once", "--no-program-times", "--socket", socket});
  add_of_daemon("trace.txt", {"trace", "--for", "2s", "--count", "500", "--rate", "250", "--socket", socket});
  for (const Part& part : kOfTheMachine)
    if (!interrupted) dump.Add(part.file, OutputOf(part.command));
  if (interrupted) return call.Fail(kExitFailure, "interrupted; nothing was written");
  if (!dump.status().ok()) return call.Fail(dump.status());
  if (const absl::Status packed = Pack(pattern, name, out, archive); !packed.ok()) return call.Fail(packed);
  std::move(remove_archive).Cancel();
  dump.report().set_file(out);
  return call.Print(dump.report(), absl::StrCat(out, ": ", dump.report().parts_size(),
                                                " parts; it has clients' addresses (trace.txt) and no keys\n"));
}

}  // namespace hedgerow::cli
