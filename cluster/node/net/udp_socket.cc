// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/net/udp_socket.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "operate/clock.h"

namespace hedgerow::node {
namespace {

// A time stamp, the count of packets that found the buffer full, and the local address.
constexpr size_t kControl_bytes =
    CMSG_SPACE(sizeof(timespec)) + CMSG_SPACE(sizeof(uint32_t)) + CMSG_SPACE(sizeof(in6_pktinfo));
static_assert(sizeof(in6_pktinfo) >= sizeof(in_pktinfo));

uint64_t ToNs(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// A mark and a local address.
constexpr size_t kSendControl_bytes = CMSG_SPACE(sizeof(uint32_t)) + CMSG_SPACE(sizeof(in6_pktinfo));

template <typename Value>
void AddControl(msghdr& header, char* control, int level, int type, const Value& value) {
  header.msg_control = control;
  auto* const message = reinterpret_cast<cmsghdr*>(control + header.msg_controllen);
  message->cmsg_level = level;
  message->cmsg_type = type;
  message->cmsg_len = CMSG_LEN(sizeof(value));
  std::memcpy(CMSG_DATA(message), &value, sizeof(value));
  header.msg_controllen += CMSG_SPACE(sizeof(value));
}

// An IPv6 socket names IPv4 addresses by their mapped ones (ip(7), ipv6(7): IP_PKTINFO, IPV6_PKTINFO).
void SetSource(msghdr& header, char* control, const NetAddress& from, bool ipv6) {
  if (ipv6) {
    in6_pktinfo info{};
    std::memcpy(&info.ipi6_addr, from.bytes.data(), from.bytes.size());
    AddControl(header, control, IPPROTO_IPV6, IPV6_PKTINFO, info);
  } else {
    in_pktinfo info{};
    std::memcpy(&info.ipi_spec_dst, from.bytes.data() + 12, sizeof(info.ipi_spec_dst));
    AddControl(header, control, IPPROTO_IP, IP_PKTINFO, info);
  }
}

NetAddress LocalAddressIn(const cmsghdr& control) {
  NetAddress local;
  if (control.cmsg_level == IPPROTO_IPV6 && control.cmsg_type == IPV6_PKTINFO) {
    in6_pktinfo info{};
    std::memcpy(&info, CMSG_DATA(&control), sizeof(info));
    std::memcpy(local.bytes.data(), &info.ipi6_addr, local.bytes.size());
  } else if (control.cmsg_level == IPPROTO_IP && control.cmsg_type == IP_PKTINFO) {
    in_pktinfo info{};
    std::memcpy(&info, CMSG_DATA(&control), sizeof(info));
    local.bytes[10] = local.bytes[11] = 0xff;
    std::memcpy(local.bytes.data() + 12, &info.ipi_spec_dst, sizeof(info.ipi_spec_dst));
  }
  return local;
}

absl::Status SystemError(const char* what, const NetAddress& address) {
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", address.ToString()));
}

absl::Status BindError(const NetAddress& address) {
  const char* remedy = errno == EADDRNOTAVAIL ? "; no interface of this host has the address (yet)"
                       : errno == EADDRINUSE  ? "; another program has the port (ss -lunp)"
                                              : nullptr;
  if (remedy == nullptr) return SystemError("cannot bind to", address);
  return absl::UnavailableError(absl::StrCat("cannot bind to ", address.ToString(), ": ", strerror(errno), remedy));
}

}  // namespace

struct UdpSocket::Buffers {
  explicit Buffers(size_t datagram_max_bytes) : datagram_bytes(datagram_max_bytes), bytes(kBatch * datagram_max_bytes) {
    for (size_t i = 0; i < kBatch; ++i) Prepare(i);
  }

  // For a datagram; the kernel has changed what it has used.
  void Prepare(size_t i) {
    vectors[i] = {bytes.data() + i * datagram_bytes, datagram_bytes};
    msghdr& header = messages[i].msg_hdr;
    header = {};
    header.msg_name = &addresses[i];
    header.msg_namelen = sizeof(addresses[i]);
    header.msg_iov = &vectors[i];
    header.msg_iovlen = 1;
    header.msg_control = controls[i].data();
    header.msg_controllen = kControl_bytes;
  }

  size_t datagram_bytes;
  std::vector<char> bytes;
  std::array<mmsghdr, kBatch> messages{};
  std::array<iovec, kBatch> vectors{};
  std::array<sockaddr_storage, kBatch> addresses{};
  alignas(cmsghdr) std::array<std::array<char, kControl_bytes>, kBatch> controls{};
};

UdpSocket::UdpSocket(int fd, bool ipv6, size_t datagram_max_bytes)
    : fd_(fd), ipv6_(ipv6), buffers_(std::make_unique<Buffers>(datagram_max_bytes)) {
  received_.reserve(kBatch);
  queue_.reserve(kBatch);
}

UdpSocket::~UdpSocket() {
  Flush();
  close(fd_);
}

absl::StatusOr<std::unique_ptr<UdpSocket>> UdpSocket::Bind(const NetAddress& address, size_t buffer_bytes,
                                                           size_t datagram_max_bytes) {
  sockaddr_storage to_bind;
  const socklen_t length = address.ToSockaddr(to_bind);
  const int fd = socket(to_bind.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError("cannot make a socket for", address);
  auto result = std::unique_ptr<UdpSocket>(new UdpSocket(fd, !address.is_v4(), datagram_max_bytes));
  const int on = 1;
  const int buffer = static_cast<int>(buffer_bytes);
  // Past net.core.rmem_max where the process may; else as much as that allows.
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)) != 0) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
  }
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer)) != 0) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
  }
  if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof(on)) != 0) {
    return SystemError("cannot set up the socket of", address);
  }
  if (address.is_unspecified()) {
    const int level = address.is_v4() ? IPPROTO_IP : IPPROTO_IPV6;
    const int option = address.is_v4() ? IP_PKTINFO : IPV6_RECVPKTINFO;
    if (setsockopt(fd, level, option, &on, sizeof(on)) != 0) return SystemError("cannot set up the socket of", address);
  }
  if (bind(fd, reinterpret_cast<const sockaddr*>(&to_bind), length) != 0) return BindError(address);
  return result;
}

absl::StatusOr<NetAddress> UdpSocket::LocalAddress() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return absl::ErrnoToStatus(errno, "getsockname");
  }
  return NetAddress::FromSockaddr(address);
}

const std::vector<Datagram>& UdpSocket::Receive(uint64_t now_ns) {
  received_.clear();
  Buffers& buffers = *buffers_;
  const int count = recvmmsg(fd_, buffers.messages.data(), kBatch, MSG_DONTWAIT, nullptr);
  if (count <= 0) {  // EAGAIN; or an ICMP error that a UDP socket without connect() does not get
    arrivals_.Emptied(now_ns);
    return received_;
  }
  // Only now: what came while this was called must not look as if it came from the future.
  const uint64_t took_ns = operate::Monotonic_ns();
  arrivals_.Took(took_ns, operate::Clock_ns(CLOCK_REALTIME));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    msghdr header = buffers.messages[i].msg_hdr;
    buffers.Prepare(i);
    uint64_t waited_ns = 0;
    NetAddress local;
    for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
      if (control->cmsg_level != SOL_SOCKET) {
        local = LocalAddressIn(*control);
        continue;
      }
      if (control->cmsg_type == SCM_TIMESTAMPNS) {
        timespec stamp{};
        std::memcpy(&stamp, CMSG_DATA(control), sizeof(stamp));
        waited_ns = arrivals_.Waited_ns(ToNs(stamp));
      } else if (control->cmsg_type == SO_RXQ_OVFL) {
        uint32_t dropped = 0;
        std::memcpy(&dropped, CMSG_DATA(control), sizeof(dropped));
        counters_.receive_overflow = dropped;  // since the socket was made
      }
    }
    if ((header.msg_flags & MSG_TRUNC) != 0) {
      ++counters_.truncated;
      continue;
    }
    ++counters_.received;
    received_.push_back(
        {.from = NetAddress::FromSockaddr(buffers.addresses[i]),
         .to = local,
         .bytes = std::string_view(buffers.bytes.data() + i * buffers.datagram_bytes, buffers.messages[i].msg_len),
         .arrived_ns = waited_ns < now_ns ? now_ns - waited_ns : 0});
  }
  if (static_cast<size_t>(count) < kBatch) arrivals_.Emptied(took_ns);
  return received_;
}

void UdpSocket::Send(const NetAddress& to, std::string bytes, uint32_t mark) {
  Queue({.to = to, .bytes = std::move(bytes), .mark = mark, .from = {}});
}

void UdpSocket::SendFrom(const NetAddress& from, const NetAddress& to, std::string bytes) {
  Queue({.to = to, .bytes = std::move(bytes), .mark = 0, .from = from});
}

void UdpSocket::Queue(Queued queued) {
  // A socket on [::] hears IPv4 clients as well.
  if (!queued.to.is_v4() && !ipv6_) {
    ++counters_.send_failed;
    return;
  }
  queue_.push_back(std::move(queued));
  if (queue_.size() >= kBatch) Flush();
}

void UdpSocket::Flush() {
  if (queue_.empty()) return;
  std::array<mmsghdr, kBatch> messages;  // only `count` of them are written: mostly one
  std::array<iovec, kBatch> vectors;
  std::array<sockaddr_storage, kBatch> addresses;
  alignas(cmsghdr) std::array<std::array<char, kSendControl_bytes>, kBatch> controls;
  const size_t count = queue_.size();
  for (size_t i = 0; i < count; ++i) {
    Queued& queued = queue_[i];
    vectors[i] = {queued.bytes.data(), queued.bytes.size()};
    messages[i] = {};
    messages[i].msg_hdr.msg_name = &addresses[i];
    messages[i].msg_hdr.msg_namelen = ipv6_ ? queued.to.ToSockaddr6(addresses[i]) : queued.to.ToSockaddr(addresses[i]);
    messages[i].msg_hdr.msg_iov = &vectors[i];
    messages[i].msg_hdr.msg_iovlen = 1;
    char* const control = controls[i].data();
    if (queued.mark != 0) AddControl(messages[i].msg_hdr, control, SOL_SOCKET, SO_MARK, queued.mark);
    if (!queued.from.is_unspecified()) SetSource(messages[i].msg_hdr, control, queued.from, ipv6_);
  }
  for (size_t done = 0; done < count;) {
    const int sent = sendmmsg(fd_, messages.data() + done, static_cast<unsigned>(count - done), MSG_DONTWAIT);
    if (sent > 0) {
      counters_.sent += static_cast<uint64_t>(sent);
      done += static_cast<size_t>(sent);
    } else if (errno != EINTR) {
      // The first one is refused (no route, a full device queue, an address that rejects): the others may pass.
      ++counters_.send_failed;
      ++done;
    }
  }
  queue_.clear();
}

}  // namespace hedgerow::node
