// SPDX-License-Identifier: Apache-2.0
//
// hr-flood: sends spoofed UDP frames out of one interface at a fixed rate, through an AF_PACKET socket, so that
// no address, route or reverse-path filter of the sending host stands in their way, but every program at the
// interface's hooks does. With --unprivileged the user nobody sends the same payloads by an ordinary socket that is
// bound to the interface, which takes no privilege since Linux 5.7. Bounded in rate and time; prints what it sent when
// it ends. For the lab's namespaces: chaos/flood.py starts it, and it refuses to run anywhere else.
#include <grp.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/flood/frame.h"
#include "bench/load/pacing.h"
#include "bench/load/program.h"
#include "bench/load/udp_socket.h"
#include "bench/serve/server_loop.h"
#include "operate/hex.h"

ABSL_FLAG(std::string, interface, "", "out of which frames go");
ABSL_FLAG(std::string, destination_mac, "", "whom they are for on that link");
ABSL_FLAG(std::string, source, "10.200.0.1", "first of the addresses they seem to come from");
ABSL_FLAG(uint32_t, sources, 60000, "how many such addresses");
ABSL_FLAG(uint32_t, source_port, 0, "0: any");
ABSL_FLAG(std::string, destination, "", "IPv4 address");
ABSL_FLAG(uint32_t, destination_port, 0, "0: any");
ABSL_FLAG(std::string, payload, "", "hexadecimal digits");
ABSL_FLAG(uint32_t, vary_offset, 0, "of the payload: where bytes are others in every frame");
ABSL_FLAG(uint32_t, vary_bytes, 0, "how many");
ABSL_FLAG(bool, bypass_qdisc, false, "past the interface's queueing discipline and what is attached to its egress");
ABSL_FLAG(bool, unprivileged, false, "as the user nobody, by an ordinary socket: addresses and ports are the kernel's");
ABSL_FLAG(double, rate, 1000, "frames per second");
ABSL_FLAG(double, seconds, 10, "stops by itself after this time");
ABSL_FLAG(uint64_t, seed, 1, "the same seed makes the same frames");

namespace hedgerow::bench {
namespace {

constexpr double kMaxRate = 1'000'000;
constexpr size_t kMaxPayloadBytes = 1400;
constexpr size_t kBatch = 64;
constexpr int64_t kTurnNs = 500'000;

// A lab's hosts are the named namespaces hr-TAG-HOST (deploy/lab/names.py): nothing is ever flooded anywhere
// else.
bool InALab() {
  struct stat own {};
  if (stat("/proc/self/ns/net", &own) != 0) return false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/run/netns", error)) {
    struct stat host {};
    if (entry.path().filename().string().rfind("hr-", 0) == 0 && stat(entry.path().c_str(), &host) == 0 &&
        host.st_ino == own.st_ino && host.st_dev == own.st_dev)
      return true;
  }
  return false;
}

absl::StatusOr<FrameSpec> SpecFromFlags() {
  FrameSpec spec;
  auto mac = ParseMac(absl::GetFlag(FLAGS_destination_mac));
  if (!mac.ok()) return mac.status();
  auto source = ParseIpv4(absl::GetFlag(FLAGS_source));
  if (!source.ok()) return source.status();
  auto destination = ParseIpv4(absl::GetFlag(FLAGS_destination));
  if (!destination.ok()) return destination.status();
  spec.destination_mac = *mac;
  spec.source = *source;
  spec.destination = *destination;
  spec.sources = absl::GetFlag(FLAGS_sources);
  const std::string payload = operate::BytesOfHex(absl::GetFlag(FLAGS_payload));
  spec.payload.assign(payload.begin(), payload.end());
  spec.vary_offset = absl::GetFlag(FLAGS_vary_offset);
  spec.vary_bytes = absl::GetFlag(FLAGS_vary_bytes);
  const uint32_t from = absl::GetFlag(FLAGS_source_port), to = absl::GetFlag(FLAGS_destination_port);
  if (spec.sources == 0 || from > 65535 || to > 65535 || spec.payload.size() > kMaxPayloadBytes ||
      spec.vary_offset + spec.vary_bytes > spec.payload.size())
    return absl::InvalidArgumentError(absl::StrCat("at least one source, ports up to 65535, at most ", kMaxPayloadBytes,
                                                   " bytes, and varying bytes within them"));
  spec.source_port = static_cast<uint16_t>(from);
  spec.destination_port = static_cast<uint16_t>(to);
  return spec;
}

// The user nobody's datagram socket, bound to the interface, and as connected as it gets.
absl::StatusOr<int> OpenAsNobody(const std::string& interface, const FrameSpec& spec) {
  constexpr uid_t kNobody = 65534;
  if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
      setresuid(kNobody, kNobody, kNobody) != 0)
    return absl::ErrnoToStatus(errno, "to become nobody");
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "a datagram socket");
  if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, interface.c_str(), static_cast<socklen_t>(interface.size() + 1)) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("bind to ", interface));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(spec.destination);
  to.sin_port = htons(spec.destination_port);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return absl::ErrnoToStatus(errno, "connect");
  return fd;
}

// A packet socket bound to the interface, and the interface's own hardware address as the frames' source.
absl::StatusOr<int> Open(const std::string& interface, FrameSpec& spec) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "a packet socket");
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  if (ioctl(fd, SIOCGIFHWADDR, &request) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("interface ", interface));
  std::memcpy(spec.source_mac.data(), request.ifr_hwaddr.sa_data, spec.source_mac.size());
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_IP);
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("bind to ", interface));
  const int bypass = absl::GetFlag(FLAGS_bypass_qdisc) ? 1 : 0;
  if (bypass != 0 && setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &bypass, sizeof(bypass)) != 0)
    return absl::ErrnoToStatus(errno, "PACKET_QDISC_BYPASS");
  const int bytes = 8 << 20;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
  return fd;
}

// Frames in fixed buffers, sent by one call.
class Sender {
 public:
  // `skip`: bytes of each frame that the kernel makes.
  Sender(int fd, FrameSpec spec, uint64_t seed, size_t skip) : fd_(fd), maker_(std::move(spec), seed) {
    for (size_t i = 0; i < kBatch; ++i) {
      buffers_[i].resize(maker_.FrameBytes());
      parts_[i] = {buffers_[i].data() + skip, buffers_[i].size() - skip};
      messages_[i] = {};
      messages_[i].msg_hdr.msg_iov = &parts_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
  }

  void Send(size_t count) {
    for (size_t i = 0; i < count; ++i) maker_.Make(buffers_[i]);
    for (size_t done = 0; done < count;) {
      const int taken = sendmmsg(fd_, &messages_[done], static_cast<unsigned>(count - done), 0);
      if (taken > 0) {
        sent_ += static_cast<uint64_t>(taken);
        done += static_cast<size_t>(taken);
      } else {
        ++failed_;  // one that the kernel would not take (ENOBUFS); the next may go
        ++done;
      }
    }
  }

  uint64_t sent() const { return sent_; }
  uint64_t failed() const { return failed_; }

 private:
  int fd_;
  FrameMaker maker_;
  std::array<std::vector<uint8_t>, kBatch> buffers_;
  std::array<iovec, kBatch> parts_{};
  std::array<mmsghdr, kBatch> messages_{};
  uint64_t sent_ = 0, failed_ = 0;
};

absl::Status Run() {
  if (!InALab()) return absl::InvalidArgumentError("it runs in a host of a lab only");
  auto spec = SpecFromFlags();
  if (!spec.ok()) return spec.status();
  const double rate = absl::GetFlag(FLAGS_rate);
  if (!(rate > 0) || rate > kMaxRate) return absl::InvalidArgumentError("--rate is above 0 and at most 1000000");
  const bool unprivileged = absl::GetFlag(FLAGS_unprivileged);
  const std::string interface = absl::GetFlag(FLAGS_interface);
  auto fd = unprivileged ? OpenAsNobody(interface, *spec) : Open(interface, *spec);
  if (!fd.ok()) return fd.status();
  Sender sender(*fd, *std::move(spec), absl::GetFlag(FLAGS_seed), unprivileged ? FrameMaker::kHeaderBytes : 0);
  AskForExactTimers();
  StopOnSignals();
  SayReady();
  const int64_t start_ns = MonotonicNs();
  const int64_t end_ns = start_ns + static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e9);
  const Pacing pacing(start_ns, rate);
  uint64_t made = 0;
  while (!MustStop(end_ns)) {
    const uint64_t due = pacing.DueCount(MonotonicNs());
    // Late by more than a tenth of a second: what was missed is not made up for in one burst.
    made = std::max(made, due - std::min(due, static_cast<uint64_t>(rate / 10)));
    while (made < due && !StopRequested()) {
      const size_t count = std::min<uint64_t>(kBatch, due - made);
      sender.Send(count);
      made += count;
    }
    const timespec turn = {0, kTurnNs};
    nanosleep(&turn, nullptr);
  }
  absl::PrintF("{\"sent\":%d,\"failed\":%d,\"seconds\":%.3f}\n", sender.sent(), sender.failed(),
               static_cast<double>(MonotonicNs() - start_ns) / 1e9);
  close(*fd);
  return absl::OkStatus();
}

}  // namespace
}  // namespace hedgerow::bench

int main(int argc, char** argv) {
  return hedgerow::bench::RunProgram(argc, argv, "Sends spoofed UDP frames within a lab.", hedgerow::bench::Run);
}
