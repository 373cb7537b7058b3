// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/testing/watch_live.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "build_paths.h"
#include "net/netlink/link.h"
#include "net/network_namespace.h"

namespace hedgerow::offload {
namespace {

constexpr size_t kEthernet_bytes = 14;
constexpr size_t kUdp_bytes = 8;
constexpr int kReadyTimeout_ms = 60'000;

uint64_t ClockNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint16_t Big16(const std::vector<uint8_t>& frame, size_t at) {
  return static_cast<uint16_t>(frame[at] << 8 | frame[at + 1]);
}

// Fills in ports and payload of a UDP frame without options or extensions; false for any other.
bool ParseUdp(Heard& heard) {
  const auto& frame = heard.frame;
  if (frame.size() < kEthernet_bytes + 20) return false;
  const uint16_t type = Big16(frame, 12);
  const bool ipv4 = type == ETH_P_IP && frame[14] == 0x45 && frame[14 + 9] == IPPROTO_UDP;
  const bool ipv6 = type == ETH_P_IPV6 && frame[14 + 6] == IPPROTO_UDP;
  if (!ipv4 && !ipv6) return false;
  const size_t udp = kEthernet_bytes + (ipv4 ? 20 : 40);
  if (frame.size() < udp + kUdp_bytes) return false;
  heard.source_port = Big16(frame, udp);
  heard.port = Big16(frame, udp + 2);
  const size_t bytes = Big16(frame, udp + 4);
  if (bytes < kUdp_bytes || frame.size() < udp + bytes) return false;
  heard.payload.assign(frame.begin() + static_cast<ptrdiff_t>(udp + kUdp_bytes),
                       frame.begin() + static_cast<ptrdiff_t>(udp + bytes));
  return true;
}

int Shell(const std::string& command) { return std::system(command.c_str()); }

}  // namespace

uint64_t RealtimeNs() { return ClockNs(CLOCK_REALTIME); }
uint64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }

uint64_t AvailableMegabytes() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  while (info >> key) {
    uint64_t kilobytes = 0;
    if (key == "MemAvailable:" && info >> kilobytes) return kilobytes / 1024;
  }
  return 0;
}

Ear::Ear(int ifindex) : socket_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = ifindex;
  const int on = 1;
  const int bytes = 16 << 20;  // it may have no processor for a while
  if (setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0 ||
      bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      setsockopt(socket_.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) != 0)
    std::abort();
}

bool Ear::HearOne(std::vector<Heard>& heard, int timeout_ms) {
  pollfd wanted = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
  if (poll(&wanted, 1, timeout_ms) <= 0) return false;
  uint8_t bytes[2048];
  alignas(cmsghdr) char control[256];
  sockaddr_ll from{};
  iovec part = {.iov_base = bytes, .iov_len = sizeof(bytes)};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof(from);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket_.get(), &message, 0);
  if (got < 0) return false;
  Heard one;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec at{};
    memcpy(&at, CMSG_DATA(part), sizeof(at));
    one.at_ns = static_cast<uint64_t>(at.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(at.tv_nsec);
  }
  one.frame.assign(bytes, bytes + got);
  if (from.sll_pkttype != PACKET_OUTGOING && ParseUdp(one)) heard.push_back(std::move(one));
  return true;
}

std::vector<Heard> Ear::Listen(int quiet_ms, int longest_ms) {
  std::vector<Heard> heard;
  const uint64_t end_ns = MonotonicNs() + static_cast<uint64_t>(longest_ms) * 1'000'000;
  uint64_t last_ns = MonotonicNs();
  for (;;) {
    const uint64_t now_ns = MonotonicNs();
    if (now_ns >= end_ns || now_ns - last_ns >= static_cast<uint64_t>(quiet_ms) * 1'000'000) return heard;
    const size_t before = heard.size();
    HearOne(heard, 5);
    if (heard.size() != before) last_ns = MonotonicNs();
  }
}

Victim::Victim(const VictimOptions& options) {
  const std::string node = options.ipv6 ? "fd00:77::1" : "10.77.0.1";
  const std::string peer = options.ipv6 ? "fd00:77::2" : "10.77.0.2";
  std::string proxies;
  for (int i = 0; i < options.proxies; ++i) absl::StrAppend(&proxies, i == 0 ? "" : "/", peer, ",", 6000 + i);
  std::vector<std::string> words = {absl::StrCat(HEDGEROW_BUILD_DIR, "/bin/watch_victim"),
                                    options.instance,
                                    absl::StrCat(options.term),
                                    node + ",5001",
                                    node + ",7000",
                                    peer + ",5002/" + peer + ",5003",
                                    proxies,
                                    absl::StrCat(options.threads),
                                    absl::StrCat(options.resident_megabytes),
                                    absl::StrCat(options.lease_ms),
                                    absl::StrCat(options.stall_from_ms),
                                    absl::StrCat(options.stall_until_ms)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::abort();
  to_ = net::UniqueFd(in[1]);
  from_ = net::UniqueFd(out[0]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  if (posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  first_line_ = Read();
  const std::vector<std::string> ready = absl::StrSplit(first_line_, ' ');
  ready_ = ready.size() == 5 && ready[0] == "ready";
  if (!ready_) return;
  watch_ = net::UniqueFd(bpf_map_get_fd_by_id(static_cast<uint32_t>(std::stoul(ready[2]))));
  clock_ = net::UniqueFd(bpf_map_get_fd_by_id(static_cast<uint32_t>(std::stoul(ready[3]))));
  state_ = net::UniqueFd(bpf_map_get_fd_by_id(static_cast<uint32_t>(std::stoul(ready[4]))));
}

Victim::~Victim() {
  if (!waited_) {
    kill(pid_, SIGKILL);
    Wait();
  }
}

std::string Victim::Read() {
  std::string line;
  for (;;) {
    pollfd wanted = {.fd = from_.get(), .events = POLLIN, .revents = 0};
    char byte = 0;
    if (poll(&wanted, 1, kReadyTimeout_ms) <= 0 || read(from_.get(), &byte, 1) != 1 || byte == '\n') return line;
    line.push_back(byte);
  }
}

uint64_t Victim::Command(const std::string& command) {
  const std::string line = command + "\n";
  if (write(to_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 0;
  const std::vector<std::string> answer = absl::StrSplit(Read(), ' ');
  return answer.size() == 2 && answer[0] == command ? std::stoull(answer[1]) : 0;
}

void Victim::Kill(int signal) { kill(pid_, signal); }

int Victim::Wait() {
  if (!waited_) waitpid(pid_, &status_, 0);
  waited_ = true;
  return status_;
}

template <typename T>
T Victim::Read(const net::UniqueFd& map) {
  const uint32_t zero = 0;
  T value{};
  if (bpf_map_lookup_elem(map.get(), &zero, &value) != 0) std::abort();
  return value;
}
template hr_watch Victim::Read(const net::UniqueFd&);
template hr_watch_clock Victim::Read(const net::UniqueFd&);

void Victim::Forge(const hr_watch& watch) {
  const uint32_t zero = 0;
  if (bpf_map_update_elem(watch_.get(), &zero, &watch, BPF_ANY) != 0) std::abort();
}

bool LinkExists(uint32_t id) {
  uint32_t next = 0;
  return bpf_link_get_next_id(id - 1, &next) == 0 && next == id;
}

std::vector<uint32_t> TracepointLinksOf(pid_t pid) {
  std::vector<uint32_t> ids;
  for (const auto& entry : std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fdinfo"))) {
    std::ifstream file(entry.path());
    uint32_t id = 0;
    bool is_signal = false;
    for (std::string line; std::getline(file, line);) {
      if (absl::string_view value = line; absl::ConsumePrefix(&value, "link_id:\t"))
        EXPECT_TRUE(absl::SimpleAtoi(value, &id)) << line;
      is_signal |= absl::StartsWith(line, "tp_name:\tsignal_");
    }
    if (is_signal) ids.push_back(id);
  }
  return ids;
}

int JoinNamespaces(int peer) {
  const std::string there = absl::StrCat("/proc/", getpid(), "/fd/", peer);
  if (Shell("ip link add up0 type veth peer name up1 && ip link set up1 netns " + there +
            " && ip addr add 10.77.0.1/24 dev up0 && ip addr add fd00:77::1/64 dev up0 nodad"
            " && ip link set up0 up") != 0)
    return 0;
  int ifindex = 0;
  const absl::Status status = net::RunInNetworkNamespace(peer, [&]() -> absl::Status {
    // The machine answers nothing of itself here: no ICMP for unbound ports.
    if (Shell("ip addr add 10.77.0.2/24 dev up1 && ip addr add fd00:77::2/64 dev up1 nodad && ip link set up1 "
              "up") != 0)
      return absl::InternalError("no addresses");
    const auto link = net::FindLink("up1");
    if (!link.ok()) return link.status();
    ifindex = link->ifindex;
    return absl::OkStatus();
  });
  if (!status.ok() || !net::SetTxChecksumOffload("up0", false).ok()) return 0;
  // Both families' neighbours are known, as they are between nodes that talk all the time.
  for (const char* address : {"10.77.0.2", "fd00:77::2"})
    // Until one is answered: an IPv6 address has its own route a moment after `ip addr add`.
    if (Shell(absl::StrCat("ping -c 1 -i 0.2 -w 5 ", address, " >/dev/null")) != 0) return 0;
  return ifindex;
}

}  // namespace hedgerow::offload
