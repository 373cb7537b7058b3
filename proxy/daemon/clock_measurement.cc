// SPDX-License-Identifier: Apache-2.0
//
// Timing packets through the clock's links; see the header.

#include "proxy/daemon/clock_measurement.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proxy/config/scalar.h"
#include "proxy/net/clock_qdisc.h"
#include "proxy/net/unique_fd.h"

namespace hedgerow {
namespace {

// Reserved for experiments (IEEE 802): no other program takes these frames for its own.
constexpr uint16_t kEtherType = 0x88b5;
constexpr size_t kFrameBytes = 60;
// An odd number of gaps per period; the longest period is 10 ms.
constexpr int kGaps = 5;
constexpr uint64_t kPatienceNs = 500'000'000;

uint64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

absl::StatusOr<net::UniqueFd> PacketSocket(int ifindex) {
  net::UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(kEtherType)));
  if (!fd.valid()) {
    if (errno == EPERM)
      return absl::PermissionDeniedError("missing capability: CAP_NET_RAW (for measuring the clock)");
    return absl::ErrnoToStatus(errno, "opening a packet socket");
  }
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(kEtherType);
  address.sll_ifindex = ifindex;
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

// When the next of our frames arrived. Nothing: none came in time.
std::optional<uint64_t> Arrival(int fd) {
  const uint64_t deadline = NowNs() + kPatienceNs;
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
    const uint64_t stamp_ns = StampOf(message);
    if (stamp_ns != 0) return stamp_ns;
  }
  return std::nullopt;
}

absl::StatusOr<ClockMeasurement::Period> MeasurePeriod(int sender, int receiver, uint32_t index,
                                                       uint64_t period_ns) {
  const uint32_t priority = net::ClockPriority(index);
  if (setsockopt(sender, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority)) != 0) {
    return absl::ErrnoToStatus(errno, "setting a packet's priority");
  }
  char frame[kFrameBytes] = {};
  memset(frame, 0xff, 2 * ETH_ALEN);
  const uint16_t type = htons(kEtherType);
  memcpy(frame + 2 * ETH_ALEN, &type, sizeof(type));
  // The first passes at once, each further one a period after the one before.
  for (int i = 0; i < kGaps + 1; ++i) {
    if (send(sender, frame, sizeof(frame), 0) < 0)
      return absl::ErrnoToStatus(errno, "sending through the clock");
  }
  ClockMeasurement::Period period;
  period.nominal_ns = period_ns;
  std::vector<uint64_t> gaps;
  std::optional<uint64_t> last = Arrival(receiver);
  while (last.has_value() && gaps.size() < kGaps) {
    const std::optional<uint64_t> next = Arrival(receiver);
    if (!next.has_value()) break;
    gaps.push_back(*next - *last);
    last = next;
  }
  if (gaps.size() < kGaps) {
    return absl::FailedPreconditionError(absl::StrCat("the queueing discipline let only ",
                                                      gaps.size() + (last ? 1 : 0), " of ", kGaps + 1,
                                                      " packets through in time"));
  }
  std::sort(gaps.begin(), gaps.end());
  period.median_ns = gaps[gaps.size() / 2];
  period.samples = gaps.size();
  return period;
}

int64_t ErrorNs(const ClockMeasurement::Period& period) {
  return static_cast<int64_t>(period.median_ns) - static_cast<int64_t>(period.nominal_ns);
}

}  // namespace

int64_t ClockMeasurement::WorstErrorNs() const {
  int64_t worst = 0;
  for (const Period& period : periods) {
    if (std::abs(ErrorNs(period)) > std::abs(worst)) worst = ErrorNs(period);
  }
  return worst;
}

absl::Status ClockMeasurement::Check(int64_t tolerance_ns) const {
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

absl::StatusOr<ClockMeasurement> MeasureClock(const net::VethPair& clock,
                                              const std::vector<uint64_t>& period_ns) {
  const auto sender = PacketSocket(clock.link.ifindex);
  if (!sender.ok()) return sender.status();
  const auto receiver = PacketSocket(clock.peer.ifindex);
  if (!receiver.ok()) return receiver.status();
  if (const absl::Status status = StampArrivals(receiver->get()); !status.ok()) return status;
  ClockMeasurement measurement;
  for (uint32_t i = 0; i < period_ns.size(); ++i) {
    const auto period = MeasurePeriod(sender->get(), receiver->get(), i, period_ns[i]);
    if (!period.ok()) return period.status();
    measurement.periods.push_back(*period);
  }
  return measurement;
}

}  // namespace hedgerow
