// SPDX-License-Identifier: Apache-2.0
//
// The parts of a run, and what can be done to them: three nodes, the proxy's daemon, the switch. Each method
// does one thing at once and writes it down, with the virtual time; when and to which is the stage's business.

#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "dst/driver/disk.h"
#include "dst/driver/process.h"
#include "operate/clock.h"

namespace hedgerow::dst {

constexpr uint32_t kNodes = 3;

// Where dst/image.py and guest/stage.sh have put things.
std::string HostOf(uint32_t node);     // its namespace, and its port's name in the switch
std::string DataDirOf(uint32_t node);  // of its log
std::string BackingOf(uint32_t node);  // the tmpfs below its disk
std::string SocketOf(uint32_t node);
inline constexpr char kProxySocket[] = "/run/hedgerow/admin.sock";

// The run's diary: one line for each thing that happens, with the time since the load has begun.
class Diary {
 public:
  explicit Diary(const std::string& file) : file_(fopen(file.c_str(), "we")) {}
  ~Diary() {
    if (file_ != nullptr) fclose(file_);
  }
  Diary(const Diary&) = delete;
  Diary& operator=(const Diary&) = delete;

  void BeginAt(uint64_t origin_ns) { origin_ns_ = origin_ns; }
  void Note(const std::string& text);
  // Something that must not happen, whatever the faults: also on standard output, for the host.
  void Trouble(const std::string& text);
  // How much of its time the processor has been at work: what a run costs the host.
  void NoteCost();
  bool sound() const { return troubles_ == 0; }

 private:
  FILE* file_;
  uint64_t origin_ns_ = operate::Monotonic_ns();
  int troubles_ = 0;
};

class Cast {
 public:
  // `bug` is planted into the nodes; what they print goes to `out`.
  Cast(const std::string& bug, std::string out, Diary& diary);
  ~Cast();
  Cast(const Cast&) = delete;
  Cast& operator=(const Cast&) = delete;

  // Disks that can be cut; otherwise a node's folder is in its tmpfs.
  absl::Status MountUnsyncedDisks();
  absl::Status StartNode(uint32_t node);
  absl::Status StartProxy();
  // SIGKILL, without waiting for the end: several die at once, then each is killed or loses its power.
  void Strike(uint32_t node);
  void KillNode(uint32_t node);
  void KillProxy();
  // It and its disk at once; `torn` as UnsyncedDisk's.
  void CutPower(uint32_t node, const std::string& torn);
  void StopNode(uint32_t node);
  void ContinueNode(uint32_t node);

  void Cut(uint32_t node);
  void CutOneWay(uint32_t node, bool outward);
  void Heal(uint32_t node);
  // What the switch sends to the host; `words` are netem's, with commas.
  void NetworkFault(const std::string& host, const std::string& words);
  void Calm(const std::string& host);

  void FillDisk(uint32_t node);
  void FreeDisk(uint32_t node);

  // Takes note of those that have ended, which none may do by itself: but a node whose disk is full.
  void LookAround();
  bool alive(uint32_t node) const { return nodes_[node - 1].pid > 0; }

 private:
  struct Actor {
    std::string name{};
    Command command{};
    pid_t pid = -1;
    bool disk_full = false;
  };

  absl::Status StartActor(Actor& actor);
  void Kill(Actor& actor);
  void Look(Actor& actor);
  Actor& NodeOf(uint32_t node) { return nodes_[node - 1]; }
  void Tool(std::vector<std::string> argv);

  std::string out_;
  Diary& diary_;
  std::array<Actor, kNodes> nodes_;
  Actor proxy_;
  std::array<std::unique_ptr<UnsyncedDisk>, kNodes> disks_;
};

}  // namespace hedgerow::dst
