// SPDX-License-Identifier: Apache-2.0
//
// The rtnetlink conversation: framing, acknowledgements, dumps that start over when they were interrupted.
#include "net/netlink/netlink.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::net::netlink {
namespace {

constexpr size_t kReceiveBytes = 64 * 1024;  // The kernel builds dump messages of at most 32 KiB.
constexpr int kDumpAttempts = 5;
constexpr int kReceiveTimeout_s = 5;  // A kernel that does not answer must not hang the daemon.

// The kernel's explanation, if it sent one behind the error number.
std::string Explanation(std::span<const uint8_t> payload, uint16_t flags) {
  if (!(flags & NLM_F_ACK_TLVS) || payload.size() < sizeof(nlmsgerr)) return "";
  nlmsgerr error;
  std::memcpy(&error, payload.data(), sizeof(error));
  size_t skip = sizeof(nlmsgerr);
  if (!(flags & NLM_F_CAPPED) && error.msg.nlmsg_len > sizeof(nlmsghdr)) skip += error.msg.nlmsg_len - sizeof(nlmsghdr);
  skip = NLMSG_ALIGN(skip);
  if (skip >= payload.size()) return "";
  return Attributes(payload.subspan(skip)).String(NLMSGERR_ATTR_MSG);
}

absl::Status ToStatus(int error, absl::string_view what, absl::string_view explanation) {
  if (explanation.empty()) return absl::ErrnoToStatus(error, what);
  // Packages take the modules of a kernel along while it runs.
  const bool lacks_module = absl::StrContains(explanation, "Unknown device type") ||
                            absl::StrContains(explanation, "kind is unknown") ||
                            absl::StrContains(explanation, "classifier not found");
  return absl::ErrnoToStatus(
      error, absl::StrCat(what, ": ", explanation,
                          lacks_module ? " (the running kernel lacks the module: restart the host if its kernel was "
                                         "upgraded or removed; else install the package with its modules)"
                                       : ""));
}

// Splits a datagram into its messages, or a payload into its attributes. `length` is the header's member that says
// how long a part is; `visit` returns false to stop.
template <typename Header, typename Length, typename Visit>
void ForEachPart(std::span<const uint8_t> bytes, Length Header::*length, Visit visit) {
  static_assert(sizeof(Header) % NLMSG_ALIGNTO == 0 && NLMSG_ALIGNTO == RTA_ALIGNTO);
  while (bytes.size() >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const size_t whole = header.*length;
    if (whole < sizeof(header) || whole > bytes.size()) return;
    if (!visit(header, bytes.subspan(sizeof(header), whole - sizeof(header)))) return;
    if (NLMSG_ALIGN(whole) >= bytes.size()) return;
    bytes = bytes.subspan(NLMSG_ALIGN(whole));
  }
}

// One descriptor of the process, kept from the first socket on. When another thread has taken all others, what was made
// can still be taken back: a link that stays behind is in the way of every later start. Any thread.
class SpareDescriptor {
 public:
  static void Keep() {
    const std::lock_guard lock(mutex_);
    if (fd_ < 0) fd_ = eventfd(0, EFD_CLOEXEC);
  }
  // False: there was none.
  static bool GiveUp() {
    const std::lock_guard lock(mutex_);
    return fd_ >= 0 && close(std::exchange(fd_, -1)) == 0;
  }

 private:
  static inline std::mutex mutex_;
  static inline int fd_ = -1;
};

}  // namespace

Request::Request(uint16_t type, uint16_t flags) : flags_(flags) {
  nlmsghdr header{};
  header.nlmsg_type = type;
  header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  Append(&header, sizeof(header));
}

void Request::Append(const void* data, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  buffer_.insert(buffer_.end(), from, from + bytes);
  buffer_.resize(NLMSG_ALIGN(buffer_.size()));
}

Request& Request::Put(uint16_t type, std::span<const uint8_t> bytes) {
  rtattr header{};
  header.rta_type = type;
  header.rta_len = static_cast<uint16_t>(RTA_LENGTH(bytes.size()));
  Append(&header, sizeof(header));
  Append(bytes.data(), bytes.size());
  return *this;
}

Request& Request::PutString(uint16_t type, absl::string_view text) {
  const std::string terminated(text);
  return Put(type, std::span(reinterpret_cast<const uint8_t*>(terminated.c_str()), terminated.size() + 1));
}

size_t Request::Begin(uint16_t type) {
  const size_t begin = buffer_.size();
  rtattr header{};
  header.rta_type = type | NLA_F_NESTED;
  Append(&header, sizeof(header));
  return begin;
}

void Request::End(size_t begin) {
  const auto bytes = static_cast<uint16_t>(buffer_.size() - begin);
  std::memcpy(buffer_.data() + begin + offsetof(rtattr, rta_len), &bytes, sizeof(bytes));
}

std::span<const uint8_t> Request::Finish(uint32_t sequence, uint16_t extra_flags) {
  nlmsghdr header;
  std::memcpy(&header, buffer_.data(), sizeof(header));
  header.nlmsg_len = static_cast<uint32_t>(buffer_.size());
  header.nlmsg_seq = sequence;
  header.nlmsg_flags |= extra_flags;
  std::memcpy(buffer_.data(), &header, sizeof(header));
  return buffer_;
}

void Attributes::ForEach(const std::function<void(uint16_t, std::span<const uint8_t>)>& visit) const {
  ForEachPart(bytes_, &rtattr::rta_len, [&](const rtattr& header, std::span<const uint8_t> payload) {
    visit(header.rta_type & NLA_TYPE_MASK, payload);
    return true;
  });
}

std::optional<std::span<const uint8_t>> Attributes::Find(uint16_t type) const {
  std::optional<std::span<const uint8_t>> found;
  ForEach([&](uint16_t seen, std::span<const uint8_t> payload) {
    if (seen == type && !found) found = payload;
  });
  return found;
}

Attributes Attributes::Nested(uint16_t type) const {
  const auto payload = Find(type);
  return payload ? Attributes(*payload) : Attributes();
}

std::string Attributes::String(uint16_t type) const {
  const auto payload = Find(type);
  if (!payload) return "";
  const auto* text = reinterpret_cast<const char*>(payload->data());
  return std::string(text, strnlen(text, payload->size()));
}

absl::StatusOr<Socket> Socket::Open(std::span<const uint32_t> groups, int protocol) {
  const auto open = [protocol] { return UniqueFd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)); };
  UniqueFd fd = open();
  if (fd.valid()) {
    SpareDescriptor::Keep();
  } else if (errno == EMFILE && SpareDescriptor::GiveUp()) {
    fd = open();
  }
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "open a netlink socket");
  const int on = 1;
  const timeval timeout{.tv_sec = kReceiveTimeout_s, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  // Explanations and kernel-side dump filters are comforts: a kernel without them still works.
  setsockopt(fd.get(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
  setsockopt(fd.get(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
  setsockopt(fd.get(), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof(on));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::ErrnoToStatus(errno, "bind a netlink socket");
  }
  for (const uint32_t group : groups) {
    if (setsockopt(fd.get(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("join netlink group ", group));
    }
  }
  return Socket(std::move(fd));
}

absl::Status Socket::Do(Request& request, absl::string_view what) { return Converse(request, what, nullptr); }

absl::Status Socket::Ask(Request& request, absl::string_view what, const Visitor& visit) {
  if (!(request.flags() & NLM_F_DUMP)) return Converse(request, what, &visit);
  // A dump the kernel marks as interrupted may miss or repeat entries: collect, and start over.
  for (int attempt = 0; attempt < kDumpAttempts; ++attempt) {
    std::vector<std::pair<uint16_t, std::vector<uint8_t>>> collected;
    const Visitor collect = [&](const Message& message) {
      collected.emplace_back(message.type, std::vector<uint8_t>(message.payload.begin(), message.payload.end()));
    };
    const absl::Status status = Converse(request, what, &collect);
    if (absl::IsAborted(status) && attempt + 1 < kDumpAttempts) continue;
    if (!status.ok()) return status;
    for (const auto& [type, payload] : collected) visit(Message{type, payload});
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat(what, ": the kernel's table kept changing"));
}

// Aborted means that a dump was interrupted by a change.
absl::Status Socket::Converse(Request& request, absl::string_view what, const Visitor* visit) {
  const bool dump = (request.flags() & NLM_F_DUMP) == NLM_F_DUMP;
  const uint32_t sequence = ++sequence_;
  const auto bytes = request.Finish(sequence, visit ? 0 : NLM_F_ACK);
  if (send(fd_.get(), bytes.data(), bytes.size(), 0) < 0) return absl::ErrnoToStatus(errno, what);
  std::vector<uint8_t> buffer(kReceiveBytes);
  bool interrupted = false, lost = false;
  for (;;) {
    const ssize_t received = recv(fd_.get(), buffer.data(), buffer.size(), 0);
    // ENOBUFS: a message was lost, which need not be the answer.
    if (received < 0 && (errno == EINTR || (errno == ENOBUFS && !std::exchange(lost, true)))) continue;
    if (received < 0) return absl::ErrnoToStatus(errno, absl::StrCat(what, ": no answer from the kernel"));
    std::optional<absl::Status> done;
    ForEachPart(std::span<const uint8_t>(buffer).first(static_cast<size_t>(received)), &nlmsghdr::nlmsg_len,
                [&](const nlmsghdr& header, std::span<const uint8_t> payload) {
                  if (header.nlmsg_seq != sequence) return true;
                  interrupted |= (header.nlmsg_flags & NLM_F_DUMP_INTR) != 0;
                  if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) {
                    int error = 0;
                    if (payload.size() >= sizeof(error)) std::memcpy(&error, payload.data(), sizeof(error));
                    done = error == 0 ? absl::OkStatus()
                                      : ToStatus(-error, what, Explanation(payload, header.nlmsg_flags));
                    return false;
                  }
                  if (visit) (*visit)(Message{header.nlmsg_type, payload});
                  if (visit && !dump) done = absl::OkStatus();
                  return !done.has_value();
                });
    if (!done) continue;
    if (done->ok() && interrupted) return absl::AbortedError(absl::StrCat(what, ": interrupted dump"));
    return *done;
  }
}

// The first and the last one are the edges of a transaction. What is wrong with one of the others is said of it, before
// the acknowledgement of the last of them, and what is wrong with the whole of the first edge.
absl::Status Socket::DoAll(std::span<Request> requests, absl::string_view what) {
  std::vector<uint8_t> datagram;
  const uint32_t first = sequence_ + 1, last = sequence_ + static_cast<uint32_t>(requests.size()) - 1;
  for (Request& request : requests) {
    ++sequence_;
    const auto bytes = request.Finish(sequence_, sequence_ == last ? NLM_F_ACK : 0);
    datagram.insert(datagram.end(), bytes.begin(), bytes.end());
  }
  if (send(fd_.get(), datagram.data(), datagram.size(), 0) < 0) return absl::ErrnoToStatus(errno, what);
  std::vector<uint8_t> buffer(kReceiveBytes);
  absl::Status refused;
  for (bool done = false; !done;) {
    const ssize_t received = recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return absl::ErrnoToStatus(errno, absl::StrCat(what, ": no answer from the kernel"));
    ForEachPart(std::span<const uint8_t>(buffer).first(static_cast<size_t>(received)), &nlmsghdr::nlmsg_len,
                [&](const nlmsghdr& header, std::span<const uint8_t> payload) {
                  int error = 0;
                  if (header.nlmsg_type != NLMSG_ERROR || payload.size() < sizeof(error)) return true;
                  std::memcpy(&error, payload.data(), sizeof(error));
                  if (error != 0) refused.Update(ToStatus(-error, what, Explanation(payload, header.nlmsg_flags)));
                  done |= header.nlmsg_seq == last || header.nlmsg_seq == first;
                  return true;
                });
  }
  return refused;
}

absl::Status Socket::Drain(const std::function<bool(const Message&)>& visit) {
  std::vector<uint8_t> buffer(kReceiveBytes);
  bool overflowed = false;
  for (bool more = true; more;) {
    const ssize_t received = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == ENOBUFS) {  // said once for each overflow
      if (std::exchange(overflowed, true)) break;
      continue;
    }
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (received < 0) return absl::ErrnoToStatus(errno, "read netlink events");
    ForEachPart(std::span<const uint8_t>(buffer).first(static_cast<size_t>(received)), &nlmsghdr::nlmsg_len,
                [&](const nlmsghdr& header, std::span<const uint8_t> payload) {
                  if (header.nlmsg_type >= NLMSG_MIN_TYPE) more &= visit(Message{header.nlmsg_type, payload});
                  return true;
                });
  }
  if (overflowed) return absl::UnavailableError("netlink events were lost (ENOBUFS)");
  return absl::OkStatus();
}

absl::Status Do(Request& request, absl::string_view what) {
  auto socket = Socket::Open();
  if (!socket.ok()) return socket.status();
  return socket->Do(request, what);
}

absl::Status Ask(Request& request, absl::string_view what, const Visitor& visit) {
  auto socket = Socket::Open();
  if (!socket.ok()) return socket.status();
  return socket->Ask(request, what, visit);
}

absl::Status Undone(absl::Status failed, const std::function<absl::Status()>& undo) {
  // Once more: what was done, and the answer to it lost, is done then.
  if (undo().ok()) return failed;
  const absl::Status status = undo();
  if (status.ok()) return failed;
  return absl::Status(failed.code(),
                      absl::StrCat(std::string(failed.message()),
                                   "; what it has made cannot be removed: ", std::string(status.message())));
}

}  // namespace hedgerow::net::netlink
