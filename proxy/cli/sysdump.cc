// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow sysdump`: everything that a report of a fault needs, in one archive: what the daemon, the kernel and the log say, and the
// configuration without its keys. What cannot be had is named in the archive, and does not stop the rest. The parked copies, which
// are the clients' data, are left out; a trace has clients' addresses and correlation bytes.

#include <errno.h>
#include <fcntl.h>
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
    Part{"machine.txt", "uname -a; cat /etc/os-release; uptime; nproc; free -m; cat /proc/cmdline"},
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
    Part{"network-settings.txt", "sysctl -a 2>/dev/null | grep -E '^net\\.(core|ipv4|ipv6)|bpf'"},
    Part{"network-counters.txt", "cat /proc/net/snmp /proc/net/netstat /proc/net/softnet_stat"},
    Part{"journal.txt", "journalctl --no-pager --lines=5000 -u hedgerowd -u 'hedgerowd@*'"},
    Part{"logs.txt", "tail -n 5000 /var/log/hedgerow/*.log"},
};

// What a command prints, both ways, and how it ended where it did not end well.
std::string OutputOf(const std::string& command) {
  std::string out;
  // `timeout` starts sh itself, so that all of a pipeline ends.
  setenv("HEDGEROW_SYSDUMP_PART", command.c_str(), 1);
  FILE* const pipe = popen("exec 2>&1 </dev/null timeout 10 sh -c \"$HEDGEROW_SYSDUMP_PART\"", "re");
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
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 124) absl::StrAppend(&out, "[ended after 10 s]\n");
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 127) absl::StrAppend(&out, "[a program is not installed]\n");
  return out;
}

// The archive's folder while it is filled.
class Dump {
 public:
  explicit Dump(std::string folder) : folder_(std::move(folder)) {}

  void Add(const std::string& file, const std::string& text) {
    std::ofstream(absl::StrCat(folder_, "/", file)) << text;
    report_.add_parts(file);
  }
  // A command of this program, as a user types it.
  void AddOwn(const std::string& file, const std::vector<std::string>& argv) {
    std::ostringstream out;
    std::ostringstream err;
    const int exit_code = operate::Run(TheProgram(), argv, out, err);
    Add(file, absl::StrCat(out.str(), err.str(), exit_code == kExitOk ? "" : absl::StrCat("[exit code ", exit_code, "]\n")));
  }
  v1::SysdumpReport& report() { return report_; }

 private:
  const std::string folder_;
  v1::SysdumpReport report_;
};

// The configuration that --config names, else the one that the daemon serves; without keys. A file with errors may have a key in
// any place, so it is left out.
std::string ConfigWithoutKeys(const Call& call, const absl::StatusOr<AdminClient>& daemon) {
  std::string file = call.arguments.Get("config");
  if (file.empty() && daemon.ok()) {
    const absl::StatusOr<v1::Status> status = daemon->Ask(&AdminClient::Stub::GetStatus);
    if (status.ok()) file = status->config_file();
  }
  if (file.empty()) return "no --config, and no daemon that names its file\n";
  const absl::StatusOr<v1::Config> config = config::LoadFile(file);
  if (!config.ok()) return absl::StrCat(file, " cannot be read, and is left out for the keys in it:\n", config.status().message(), "\n");
  return absl::StrCat("# ", file, " with all defaults\n", config::EmitYaml(*config, config::Secrets::kHidden));
}

absl::Status Pack(const std::string& parent, const std::string& name, const std::string& out) {
  const mode_t before = umask(0077);
  const absl::Cleanup restore = [before] { umask(before); };
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "starting tar");
  if (pid == 0) {
    execlp("tar", "tar", "--create", "--gzip", "--file", out.c_str(), "--directory", parent.c_str(), name.c_str(), nullptr);
    _exit(127);
  }
  int ended = 0;
  if (waitpid(pid, &ended, 0) == pid && WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("tar could not write ", out));
}

}  // namespace

int RunSysdump(const Call& call) {
  if (call.arguments.words.size() > 1) return call.UsageError("sysdump takes no words");
  const absl::StatusOr<std::string> socket = SocketPath(call.arguments);
  if (!socket.ok()) return call.Fail(socket.status());
  const std::string name =
      absl::StrCat("hedgerow-sysdump-", absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()));
  const std::string out = call.arguments.Get("out", absl::StrCat(name, ".tar.gz"));
  char pattern[] = "/tmp/hedgerow-sysdump.XXXXXX";
  if (mkdtemp(pattern) == nullptr) return call.Fail(absl::ErrnoToStatus(errno, "making a folder in /tmp"));
  const absl::Cleanup remove = [&pattern] {
    std::error_code ignored;
    std::filesystem::remove_all(pattern, ignored);
  };
  const std::string folder = absl::StrCat(pattern, "/", name);
  if (mkdir(folder.c_str(), 0700) != 0) return call.Fail(absl::ErrnoToStatus(errno, "making a folder in /tmp"));

  Dump dump(folder);
  const absl::StatusOr<AdminClient> daemon = AdminClient::Connect(*socket);
  dump.Add("config.yaml", ConfigWithoutKeys(call, daemon));
  dump.AddOwn("version.txt", {"version"});
  dump.AddOwn("doctor.txt", {"doctor"});
  dump.AddOwn("status.txt", {"status", "--socket", *socket});
  dump.AddOwn("status.json", {"status", "--json", "--socket", *socket});
  dump.AddOwn("leader.txt", {"leader", "show", "--socket", *socket});
  dump.AddOwn("top.txt", {"top", "--once", "--no-program-times", "--socket", *socket});
  dump.AddOwn("trace.txt", {"trace", "--for", "2s", "--count", "500", "--rate", "250", "--socket", *socket});
  for (const Part& part : kOfTheMachine) dump.Add(part.file, OutputOf(part.command));
  if (const absl::Status packed = Pack(pattern, name, out); !packed.ok()) return call.Fail(packed);
  dump.report().set_file(out);
  return call.Print(dump.report(), absl::StrCat(out, ": ", dump.report().parts_size(),
                                                " parts; it has clients' addresses (trace.txt) and no keys\n"));
}

}  // namespace hedgerow::cli
