// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/delay_measurement.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/net_tstamp.h>
#include <net/ethernet.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "config/scalar.h"
#include "net/network_namespace.h"
#include "net/unique_fd.h"
#include "operate/event_loop.h"

namespace hedgerow {
namespace {

// Reserved for experiments (IEEE 802): no other program takes these frames for its own.
constexpr uint16_t kEtherType = 0x88b5;
constexpr size_t kFrameBytes = 60;
// How many times a period is measured: an odd number, and long ones once.
constexpr size_t kGaps = 5;
constexpr uint64_t kLongNs = 100'000'000;
size_t GapsOf(uint64_t period_ns) { return period_ns > kLongNs ? 1 : kGaps; }

// Beyond the period or delay itself.
constexpr uint64_t kPatienceNs = 500'000'000;

uint64_t NowNs() { return static_cast<uint64_t>(MonotonicNs()); }

sockaddr_ll AddressOf(int ifindex) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(kEtherType);
  address.sll_ifindex = ifindex;
  return address;
}

// Receives on the clock's far end; what it sends names the near end. One socket for all periods, without a protocol
// until it is bound: the kernel waits for a grace period (10 to 20 ms) when it closes one, and when it binds one that
// receives already.
absl::StatusOr<net::UniqueFd> PacketSocket(int ifindex) {
  net::UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    if (errno == EPERM) return absl::PermissionDeniedError("missing capability: CAP_NET_RAW (for measuring the clock)");
    return absl::ErrnoToStatus(errno, "opening a packet socket");
  }
  const sockaddr_ll address = AddressOf(ifindex);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::ErrnoToStatus(errno, "binding a packet socket");
  }
  return fd;
}

// Arrival times by the kernel's stamp, because this process may be scheduled late on a busy machine. The stamps
// are switched on by a work queue of the kernel, hence the pause.
absl::Status StampArrivals(int fd) {
  const int on = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) != 0) {
    return absl::ErrnoToStatus(errno, "asking for time stamps");
  }
  absl::SleepFor(absl::Milliseconds(10));
  return absl::OkStatus();
}

uint64_t StampOf(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec stamp{};
    memcpy(&stamp, CMSG_DATA(part), sizeof(stamp));
    return static_cast<uint64_t>(stamp.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(stamp.tv_nsec);
  }
  return 0;
}

struct Arrived {
  uint64_t stamp_ns = 0;  // by the kernel, CLOCK_REALTIME; a departure time, where the frame was given one
  uint64_t seen_ns = 0;   // by us, CLOCK_MONOTONIC: later, and on a busy machine much
};

// The next of our frames. Nothing: none came in time.
std::optional<Arrived> Arrival(int fd, uint64_t period_ns) {
  const uint64_t deadline = NowNs() + period_ns + kPatienceNs;
  while (NowNs() < deadline) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 50) <= 0) continue;
    sockaddr_ll from{};
    char frame[256];
    char control[256];
    iovec data{frame, sizeof(frame)};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof(from);
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(fd, &message, MSG_DONTWAIT) < 0 || from.sll_pkttype == PACKET_OUTGOING) continue;
    const Arrived arrived{.stamp_ns = StampOf(message), .seen_ns = NowNs()};
    if (arrived.stamp_ns != 0) return arrived;
  }
  return std::nullopt;
}

// The clock: frames go in at one end of its link and come out at the other.
struct Ends {
  int fd;
  int near_ifindex;
};

// Sends one frame; with a departure time (CLOCK_MONOTONIC) if that is not 0, which fq keeps to.
absl::Status SendFrame(const Ends& ends, uint64_t departure_ns) {
  char frame[kFrameBytes] = {};
  memset(frame, 0xff, 2 * ETH_ALEN);
  const uint16_t type = htons(kEtherType);
  memcpy(frame + 2 * ETH_ALEN, &type, sizeof(type));
  iovec data{frame, sizeof(frame)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(departure_ns))] = {};
  sockaddr_ll to = AddressOf(ends.near_ifindex);
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = sizeof(to);
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (departure_ns != 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_TXTIME;
    part->cmsg_len = CMSG_LEN(sizeof(departure_ns));
    memcpy(CMSG_DATA(part), &departure_ns, sizeof(departure_ns));
  }
  if (sendmsg(ends.fd, &message, 0) < 0) return absl::ErrnoToStatus(errno, "sending through the clock");
  return absl::OkStatus();
}

// htb: all packets at once; the first passes, each further one a period after the one before.
absl::StatusOr<std::vector<uint64_t>> Gaps(const Ends& ends, uint64_t period_ns) {
  for (size_t i = 0; i < GapsOf(period_ns) + 1; ++i) {
    if (const absl::Status status = SendFrame(ends, 0); !status.ok()) return status;
  }
  std::vector<uint64_t> gaps;
  std::optional<Arrived> last = Arrival(ends.fd, period_ns);
  while (last.has_value() && gaps.size() < GapsOf(period_ns)) {
    const std::optional<Arrived> next = Arrival(ends.fd, period_ns);
    if (!next.has_value()) break;
    gaps.push_back(next->stamp_ns - last->stamp_ns);
    last = next;
  }
  return gaps;
}

// fq: one packet after the other, each held back by a departure time of its own.
absl::StatusOr<std::vector<uint64_t>> Waits(const Ends& ends, uint64_t period_ns) {
  std::vector<uint64_t> waits;
  while (waits.size() < GapsOf(period_ns)) {
    // A frame with a departure time keeps that as its stamp on the other side.
    const uint64_t sent_ns = NowNs();
    if (const absl::Status status = SendFrame(ends, sent_ns + period_ns); !status.ok()) return status;
    const std::optional<Arrived> arrived = Arrival(ends.fd, period_ns);
    if (!arrived.has_value()) break;
    waits.push_back(arrived->seen_ns - sent_ns);
  }
  return waits;
}

absl::Status SetPriority(int fd, uint32_t priority) {
  if (setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority)) != 0) {
    return absl::ErrnoToStatus(errno, "setting a packet's priority");
  }
  return absl::OkStatus();
}

absl::Status AskForDepartures(int fd) {
  const sock_txtime departure{.clockid = CLOCK_MONOTONIC, .flags = 0};
  if (setsockopt(fd, SOL_SOCKET, SO_TXTIME, &departure, sizeof(departure)) != 0) {
    return absl::ErrnoToStatus(errno, "asking for departure times");
  }
  return absl::OkStatus();
}

// One period of a clock. `departures`: by the packets' departure times, as fq.
absl::StatusOr<DelayMeasurement::Period> MeasurePeriod(const Ends& ends, bool departures, uint64_t period_ns) {
  auto measured = departures ? Waits(ends, period_ns) : Gaps(ends, period_ns);
  if (!measured.ok()) return measured.status();
  std::vector<uint64_t>& gaps = *measured;
  if (gaps.size() < GapsOf(period_ns)) {
    return absl::FailedPreconditionError(absl::StrCat("the queueing discipline let only ", gaps.size(), " of ",
                                                      GapsOf(period_ns), " packets through in time"));
  }
  DelayMeasurement::Period period;
  period.nominal_ns = period_ns;
  std::sort(gaps.begin(), gaps.end());
  period.median_ns = gaps[gaps.size() / 2];
  period.samples = gaps.size();
  return period;
}

int64_t ErrorNs(const DelayMeasurement::Period& period) {
  return static_cast<int64_t>(period.median_ns) - static_cast<int64_t>(period.nominal_ns);
}

}  // namespace

int64_t DelayMeasurement::WorstErrorNs() const {
  int64_t worst = 0;
  for (const Period& period : periods) {
    if (std::abs(ErrorNs(period)) > std::abs(worst)) worst = ErrorNs(period);
  }
  return worst;
}

absl::Status DelayMeasurement::Check(int64_t tolerance_ns) const {
  for (const Period& period : periods) {
    if (std::abs(ErrorNs(period)) <= tolerance_ns) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the kernel clock is too far off: asked for ",
                     config::FormatDurationNs(static_cast<int64_t>(period.nominal_ns)), ", measured ",
                     config::RoundedDurationNs(static_cast<int64_t>(period.median_ns)),
                     ", which exceeds clock.tolerance of ", config::FormatDurationNs(tolerance_ns)));
  }
  return absl::OkStatus();
}

absl::StatusOr<DelayMeasurement> MeasureClock(const net::VethPair& clock, const net::ClockQdiscOptions& options) {
  const bool departures = options.kind == net::ClockKind::kFq;
  const auto socket = PacketSocket(clock.peer.ifindex);
  if (!socket.ok()) return socket.status();
  const Ends ends{.fd = socket->get(), .near_ifindex = clock.link.ifindex};
  absl::Status status = StampArrivals(ends.fd);
  if (status.ok() && departures) status = AskForDepartures(ends.fd);
  if (!status.ok()) return status;
  DelayMeasurement measurement;
  for (uint32_t i = 0; i < options.period_ns.size(); ++i) {
    if (!departures) status = SetPriority(ends.fd, net::ClockPriority(i));
    if (!status.ok()) return status;
    const auto period = MeasurePeriod(ends, departures, options.period_ns[i]);
    if (!period.ok()) return period.status();
    measurement.periods.push_back(*period);
  }
  return measurement;
}

// In a network namespace of its own.
absl::StatusOr<DelayMeasurement> TryClockKind(net::ClockKind kind) {
  absl::StatusOr<DelayMeasurement> measured = absl::UnknownError("not measured");
  const absl::Status status = net::RunInNewNetworkNamespace([&]() -> absl::Status {
    const auto pair = net::CreateVethPair({.name = "probe0", .peer_name = "probe1", .instance = "probe"});
    if (!pair.ok()) return pair.status();
    const net::ClockQdiscOptions options{.kind = kind};
    const absl::Status installed = net::InstallClockQdisc(pair->link.ifindex, options);
    if (!installed.ok()) return installed;
    measured = MeasureClock(*pair, options);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return measured;
}

}  // namespace hedgerow
