// SPDX-License-Identifier: Apache-2.0
#include "dst/driver/cast.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "dst/driver/roles.h"
#include "net/unique_fd.h"
#include "operate/clock.h"

namespace hedgerow::dst {
namespace {

constexpr char kSwitch[] = "sw";
constexpr char kBridge[] = "br0";
constexpr uint64_t kToolWithin_ns = 5'000'000'000;

std::string FillerOf(uint32_t node) { return absl::StrCat(BackingOf(node), "/filler"); }

}  // namespace

std::string HostOf(uint32_t node) { return absl::StrCat("n", node); }
std::string BackingOf(uint32_t node) { return absl::StrCat("/disks/n", node); }
std::string DataDirOf(uint32_t node) { return absl::StrCat("/data/n", node, "/log"); }
std::string SocketOf(uint32_t node) { return absl::StrCat("/run/n", node, ".sock"); }

void Diary::Note(const std::string& text) {
  const double since_s = (static_cast<double>(operate::Monotonic_ns()) - static_cast<double>(origin_ns_)) / 1e9;
  absl::FPrintF(file_, "%.6f %s\n", since_s, text);
  fflush(file_);
}

void Diary::Trouble(const std::string& text) {
  ++troubles_;
  Note(absl::StrCat("TROUBLE ", text));
  absl::PrintF("trouble: %s\n", text);
  fflush(stdout);
}

void Diary::NoteCost() {
  double up_s = 0, idle_s = 0;
  std::ifstream("/proc/uptime") >> up_s >> idle_s;
  Note(absl::StrFormat("up for %.2f s, at work for %.2f s of it", up_s, up_s - idle_s));
}

Cast::Cast(const std::string& bug, std::string out, Diary& diary) : out_(std::move(out)), diary_(diary) {
  for (uint32_t node = 1; node <= kNodes; ++node) {
    Actor& actor = NodeOf(node);
    actor.name = absl::StrCat("node ", node);
    actor.command = {.host = HostOf(node),
                     .argv = {"hedgerow-node", "run", "--config", absl::StrCat("/dst/node", node, ".yaml")},
                     .output = absl::StrCat(out_, "/node", node, ".log")};
    if (!bug.empty()) actor.command.environment.push_back(absl::StrCat("HEDGEROW_SEEDED_BUG=", bug));
  }
  proxy_.name = "proxy";
  proxy_.command = {.host = "cl",
                    .argv = {"hedgerowd", "--config", "/dst/hedgerow.yaml", "--ready-fd", "1"},
                    .output = absl::StrCat(out_, "/proxy.log")};
}

Cast::~Cast() {
  for (Actor& actor : nodes_) Kill(actor);
  Kill(proxy_);
}

absl::Status Cast::MountUnsyncedDisks() {
  for (uint32_t node = 1; node <= kNodes; ++node) {
    auto disk = UnsyncedDisk::Mount(absl::StrCat(BackingOf(node), "/disk"), absl::StrCat("/data/n", node),
                                    absl::StrCat(out_, "/tools.log"));
    if (!disk.ok()) return disk.status();
    disks_[node - 1] = *std::move(disk);
  }
  return absl::OkStatus();
}

absl::Status Cast::StartActor(Actor& actor) {
  if (actor.pid > 0) return absl::OkStatus();
  diary_.Note(absl::StrCat("start ", actor.name));
  const absl::StatusOr<pid_t> pid = Start(actor.command);
  if (!pid.ok()) return pid.status();
  actor.pid = *pid;
  return absl::OkStatus();
}

absl::Status Cast::StartNode(uint32_t node) { return StartActor(NodeOf(node)); }
absl::Status Cast::StartProxy() { return StartActor(proxy_); }

// It is gone when this returns: an heir must find the ports free.
void Cast::Kill(Actor& actor) {
  if (actor.pid <= 0) return;
  kill(actor.pid, SIGKILL);
  waitpid(actor.pid, nullptr, 0);
  actor.pid = -1;
}

void Cast::Strike(uint32_t node) {
  if (alive(node)) kill(NodeOf(node).pid, SIGKILL);
}

void Cast::KillNode(uint32_t node) {
  diary_.Note(absl::StrCat("kill node ", node));
  Kill(NodeOf(node));
}

// As a host dies: what its kernel held for the next process goes, too.
void Cast::CutPower(uint32_t node, const std::string& torn) {
  Kill(NodeOf(node));
  const absl::StatusOr<std::string> lost = disks_[node - 1]->Cut(torn);
  std::error_code error;
  std::filesystem::remove_all(PinsOf(node, DataDirOf(node)), error);
  if (lost.ok() && !error) return diary_.Note(absl::StrCat("power cut at node ", node, " ", torn, ": ", *lost));
  diary_.Trouble(absl::StrCat("no power cut at node ", node, ": ", lost.status().message(), error.message()));
}

void Cast::KillProxy() {
  diary_.Note("kill proxy");
  Kill(proxy_);
}

void Cast::StopNode(uint32_t node) {
  diary_.Note(absl::StrCat("stop node ", node));
  if (alive(node)) kill(NodeOf(node).pid, SIGSTOP);
}

void Cast::ContinueNode(uint32_t node) {
  diary_.Note(absl::StrCat("continue node ", node));
  if (alive(node)) kill(NodeOf(node).pid, SIGCONT);
}

// A fault that cannot be made would be a seed that says nothing.
void Cast::Tool(std::vector<std::string> argv) {
  const Command command{.host = kSwitch, .argv = std::move(argv), .output = absl::StrCat(out_, "/tools.log")};
  if (absl::Status done = RunToEnd(command, kToolWithin_ns); !done.ok()) {
    diary_.Trouble(std::string(done.message()));
  }
}

void Cast::Cut(uint32_t node) {
  diary_.Note(absl::StrCat("cut node ", node));
  Tool({"ip", "link", "set", "dev", HostOf(node), "nomaster"});
}

// Seen from the switch, what a host sends comes in by its port. The hooks are there since the beginning
// (guest/stage.sh).
void Cast::CutOneWay(uint32_t node, bool outward) {
  diary_.Note(absl::StrCat("cut node ", node, outward ? " out" : " in"));
  Tool({"tc", "filter", "add", "dev", HostOf(node), outward ? "ingress" : "egress", "protocol", "all", "matchall",
        "action", "drop"});
}

void Cast::Heal(uint32_t node) {
  diary_.Note(absl::StrCat("heal node ", node));
  for (const char* hook : {"ingress", "egress"}) Tool({"tc", "filter", "del", "dev", HostOf(node), hook});
  Tool({"ip", "link", "set", "dev", HostOf(node), "master", kBridge});
}

void Cast::NetworkFault(const std::string& host, const std::string& words) {
  diary_.Note(absl::StrCat("network fault at ", host, " ", words));
  std::vector<std::string> argv = {"tc", "qdisc", "replace", "dev", host, "root", "netem"};
  for (absl::string_view word : absl::StrSplit(words, ',')) argv.emplace_back(word);
  Tool(std::move(argv));
}

void Cast::Calm(const std::string& host) {
  diary_.Note(absl::StrCat("calm at ", host));
  Tool({"tc", "qdisc", "replace", "dev", host, "root", "pfifo"});
}

// In pieces that become smaller, since the node writes meanwhile: all that is free at once might not be by
// then.
void Cast::FillDisk(uint32_t node) {
  constexpr off_t kSmallest_bytes = 4096;
  diary_.Note(absl::StrCat("fill disk of node ", node));
  NodeOf(node).disk_full = true;
  const net::UniqueFd filler(open(FillerOf(node).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  bool made = filler.valid();
  off_t filled = 0;
  for (off_t piece = 16 * 1024 * 1024; made && piece >= kSmallest_bytes;) {
    if (fallocate(filler.get(), 0, filled, piece) == 0) {
      filled += piece;
    } else {
      made = errno == ENOSPC;
      piece /= 2;
    }
  }
  if (!made) diary_.Trouble(absl::StrCat("cannot fill ", BackingOf(node), ": ", strerror(errno)));
}

void Cast::FreeDisk(uint32_t node) {
  diary_.Note(absl::StrCat("free disk of node ", node));
  unlink(FillerOf(node).c_str());
  LookAround();
  NodeOf(node).disk_full = false;
}

void Cast::Look(Actor& actor) {
  int status = 0;
  if (actor.pid <= 0 || waitpid(actor.pid, &status, WNOHANG) != actor.pid) return;
  actor.pid = -1;
  const std::string text = absl::StrCat(actor.name, " has ended: ", Ending(status));
  // A log that cannot be written ends a node with an error, which a restart may mend; never with a signal.
  if (actor.disk_full && WIFEXITED(status)) {
    diary_.Note(text);
  } else {
    diary_.Trouble(text);
  }
}

void Cast::LookAround() {
  for (Actor& actor : nodes_) Look(actor);
  Look(proxy_);
}

}  // namespace hedgerow::dst
