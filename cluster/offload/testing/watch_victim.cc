// SPDX-License-Identifier: Apache-2.0
//
// The process that watch_live_test lets die: a node's process as far as the watch is concerned. It starts a
// watch, says in the shared state that it leads, keeps its lease, and does on command what kills a process.
// Test code only.
//
//   watch_victim INSTANCE TERM SOURCE SERVE PEERS PROXIES THREADS RESIDENT_MB LEASE_MS LATE_FROM_MS
//   LATE_UNTIL_MS
//
// SOURCE and the lists of PEERS are ADDRESS,PORT separated by "/". Commands come on standard input, one a line;
// answers go to standard output. Ready: "ready PID WATCH_MAP CLOCK_MAP STATE_MAP" with the maps' ids.
#include <bpf/bpf.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "cluster/offload/watch.h"

namespace {

using hedgerow::offload::Endpoint;
using hedgerow::offload::Watch;
using hedgerow::offload::WatchSpec;

constexpr int kLoopPause_ms = 2;

uint64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

Endpoint ParseEndpoint(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  Endpoint endpoint;
  endpoint.address = hedgerow::net::IpAddress::Parse(parts.at(0)).value();
  endpoint.port = static_cast<uint16_t>(std::stoi(parts.at(1)));
  return endpoint;
}

std::vector<Endpoint> ParseEndpoints(const std::string& text) {
  std::vector<Endpoint> endpoints;
  for (const auto part : absl::StrSplit(text, '/', absl::SkipEmpty()))
    endpoints.push_back(ParseEndpoint(std::string(part)));
  return endpoints;
}

uint32_t MapId(int fd) {
  bpf_map_info info{};
  uint32_t bytes = sizeof(info);
  return bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 ? info.id : 0;
}

// The process's side of the shared state. The control program is the real node's; nothing else writes here.
struct State {
  bpf_spin_lock lock;
  uint32_t pad;
  hr_node_shared shared;
};

class Victim {
 public:
  Victim(const WatchSpec& spec, uint64_t term, uint64_t lease_ns) : lease_ns_(lease_ns) {
    auto started = Watch::Start(spec);
    if (!started.ok()) {
      std::cout << "refused " << started.status() << std::endl;
      _exit(3);
    }
    watch_ = *std::move(started);
    for (const std::string& problem : watch_->FindRoutes()) std::cerr << "untold " << problem << std::endl;
    state_.shared.incarnation = spec.incarnation;
    state_.shared.raft.term = term;
    state_.shared.self = 0;
    state_.shared.config_epoch = 5;
    const hedgerow::raft::NodeId order[] = {hedgerow::raft::NodeId(3), hedgerow::raft::NodeId(2)};
    watch_->SetSuccessors(hedgerow::raft::Term(term), order);
  }

  void Lead(bool leads) {
    state_.shared.role = leads ? HR_NODE_LEADER : HR_NODE_FOLLOWER;
    Turn();
  }

  // The plan stays that of the old one.
  void NewTerm() { ++state_.shared.raft.term; }
  void AdoptBy(uint64_t incarnation) { state_.shared.incarnation = incarnation; }

  // A turn of the loop.
  void Turn() {
    const uint32_t zero = 0;
    state_.shared.lease_until_ns = lease_ns_ == 0 ? 0 : MonotonicNs() + lease_ns_;
    if (bpf_map_update_elem(watch_->maps().state, &zero, &state_, BPF_F_LOCK) != 0) std::abort();
    if (state_.shared.role == HR_NODE_LEADER) watch_->Tend(MonotonicNs());
  }

  Watch& watch() { return *watch_; }

 private:
  uint64_t lease_ns_;
  std::unique_ptr<Watch> watch_;
  State state_{};
};

void* Sleep(void*) {
  for (;;) pause();
}

void* SleepALittle(void*) {
  usleep(200'000);
  syscall(SYS_exit, 0);
  return nullptr;
}

void Tell(const std::string& word) { std::cout << word << " " << MonotonicNs() << std::endl; }

// What ends the process, or looks as if it did.
void Obey(const std::string& command, Victim& victim) {
  if (command == "lead") victim.Lead(true);
  if (command == "follow") victim.Lead(false);
  if (command == "adopted") victim.AdoptBy(4711);
  if (command == "new-term") victim.NewTerm();
  Tell(command);
  if (command == "segv") {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer handles it
    *static_cast<volatile char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) = 1;
  }
  if (command == "abort") std::abort();
  if (command == "exit") exit(0);
  if (command == "thread") std::thread([] {}).join();
  if (command == "spin") {
    for (;;) asm volatile("");
  }
  if (command == "exec") execl("/bin/sleep", "sleep", "5", nullptr);
  if (command == "last-thread") {
    // The first thread ends at once, the last one in 200 ms: only then is the process dead. It ends by itself
    // alone.
    pthread_t last;
    pthread_create(&last, nullptr, SleepALittle, nullptr);
    syscall(SYS_exit, 0);  // not pthread_exit, which would unwind the stack and end the watch in good order
  }
}

void Occupy(size_t megabytes) {
  if (megabytes == 0) return;
  const size_t bytes = megabytes << 20;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  for (size_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(memory)[at] = 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 12) return 2;
  WatchSpec spec;
  spec.instance = argv[1];
  spec.incarnation = 0x1234567890abcdefull;
  spec.self = hedgerow::raft::NodeId(1);
  spec.cluster_id = 42;
  const hr_siphash_key cluster_key = {.k0 = 1, .k1 = 2};
  spec.cluster_keys = {{.key = cluster_key, .id = hr_key_id(&cluster_key), .reserved = 0}};
  spec.peer_address = ParseEndpoint(argv[3]);
  spec.serve = ParseEndpoint(argv[4]);
  spec.peers = ParseEndpoints(argv[5]);
  for (const Endpoint& proxy : ParseEndpoints(argv[6]))
    spec.proxies.push_back({.address = proxy, .key = {.k0 = uint64_t{100} + proxy.port, .k1 = 4}});
  spec.stall_from_ns = std::stoull(argv[10]) * 1'000'000;
  spec.stall_until_ns = std::stoull(argv[11]) * 1'000'000;
  signal(SIGTERM, [](int) {});  // handled: no death
  Occupy(std::stoul(argv[8]));
  Victim victim(spec, std::stoull(argv[2]), std::stoull(argv[9]) * 1'000'000);
  for (int i = 1; i < std::stoi(argv[7]); ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, Sleep, nullptr) != 0) return 4;
  }
  const Watch::Maps maps = victim.watch().maps();
  std::cout << "ready " << getpid() << " " << MapId(maps.watch) << " " << MapId(maps.clock) << " " << MapId(maps.state)
            << std::endl;
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  for (;;) {
    if (poll(&input, 1, kLoopPause_ms) > 0 && (input.revents & (POLLIN | POLLHUP))) {
      std::string command;
      if (!std::getline(std::cin, command)) break;
      Obey(command, victim);
    }
    victim.Turn();
  }
  return 0;
}
