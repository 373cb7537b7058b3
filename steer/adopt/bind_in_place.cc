// SPDX-License-Identifier: Apache-2.0
#include "steer/adopt/bind_in_place.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "net/socket_address.h"
#include "net/unique_fd.h"
#include "steer/process.h"
#include "steer/settings.h"
#include "steer/sock_diag.h"
#include "steer/sockets.h"

namespace hedgerow::steer {
namespace {

struct GivenSocket {
  net::UniqueFd fd{};
  int type = 0;
  int family = 0;
  Listen at{};

  std::string ToString() const { return absl::StrCat(type == SOCK_DGRAM ? "UDP " : "TCP ", at.ToString()); }
};

int IntOption(int socket, int level, int name) { return OptionOf<int>(socket, level, name); }

// The internet sockets of LISTEN_FDS (sd_listen_fds(3)).
absl::StatusOr<std::vector<GivenSocket>> TakeSockets() {
  const std::vector<int> handed = HandedDescriptors();
  if (handed.empty()) {
    return absl::FailedPreconditionError(
        "no sockets were handed over (LISTEN_FDS): start this by `hedgerow steer run --listen ADDRESS:PORT -n N -- hedgerow steer bind -- "
        "CMD...`, or by a systemd socket unit");
  }
  std::vector<GivenSocket> sockets;
  for (const int number : handed) {
    net::UniqueFd fd(number);
    const auto end = net::OwnEnd(number);
    if (!end.ok()) continue;
    sockets.push_back({std::move(fd),
                       IntOption(number, SOL_SOCKET, SO_TYPE),
                       IntOption(number, SOL_SOCKET, SO_DOMAIN),
                       {end->address, end->port}});
  }
  if (sockets.empty())
    return absl::FailedPreconditionError("none of the sockets that were handed over is a UDP or TCP socket");
  return sockets;
}

// An option's value; empty where it has none.
std::string ValueOf(int socket, int level, int name) {
  std::string value(256, '\0');
  socklen_t bytes = static_cast<socklen_t>(value.size());
  if (getsockopt(socket, level, name, value.data(), &bytes) != 0) return "";
  value.resize(bytes);
  return value;
}

// What a socket is and what has become of it, and what the supervisor's has for its own reasons.
bool IsItsOwn(int level, int name) {
  if (level == SOL_SOCKET)
    return name == SO_REUSEADDR || name == SO_REUSEPORT || name == SO_ERROR || name == SO_SNDBUF || name == SO_RCVBUF ||
           name == SO_ACCEPTCONN || name == SO_GET_FILTER || name == SO_COOKIE || name == SO_MEMINFO ||
           name == SO_INCOMING_CPU;
  if (level == IPPROTO_IPV6)
    return name >= 62 && name <= 69 && name != IPV6_RECVTCLASS && name != IPV6_TCLASS;  // netfilter's
  return level == IPPROTO_TCP && (name == TCP_INFO || name == TCP_ZEROCOPY_RECEIVE);
}

// Options that a daemon sets before bind(2) apply from the first packet on. Returns those that it set and that `to`
// does not take: "41/26" (level/number).
std::vector<std::string> CopyOptions(int from, int to) {
  std::vector<std::string> lost;
  const net::UniqueFd fresh(socket(IntOption(from, SOL_SOCKET, SO_DOMAIN),
                                   IntOption(from, SOL_SOCKET, SO_TYPE) | SOCK_CLOEXEC,
                                   IntOption(from, SOL_SOCKET, SO_PROTOCOL)));
  for (const auto& [level, last] :
       {std::pair(SOL_SOCKET, 80), {IPPROTO_IP, 52}, {IPPROTO_IPV6, 80}, {IPPROTO_TCP, 37}, {IPPROTO_UDP, 104}}) {
    for (int name = 1; name <= last; ++name) {
      const std::string wanted = IsItsOwn(level, name) ? "" : ValueOf(from, level, name);
      if (wanted.empty() || wanted == ValueOf(to, level, name)) continue;
      // Of another device than the other sockets of the group it would be in none.
      const bool is_device = level == SOL_SOCKET && (name == SO_BINDTODEVICE || name == SO_BINDTOIFINDEX);
      if (!is_device) setsockopt(to, level, name, wanted.data(), static_cast<socklen_t>(wanted.size()));
      if (wanted != ValueOf(fresh.get(), level, name) && wanted != ValueOf(to, level, name))
        lost.push_back(absl::StrCat(level, "/", name));
    }
  }
  sock_filter code[BPF_MAXINSNS];
  socklen_t instructions = BPF_MAXINSNS;  // of this option a length counts these
  if (getsockopt(from, SOL_SOCKET, SO_GET_FILTER, code, &instructions) == 0 && instructions > 0) {
    const sock_fprog filter{.len = static_cast<unsigned short>(instructions), .filter = code};
    if (setsockopt(to, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) != 0) lost.push_back("SO_ATTACH_FILTER");
  }
  // The kernel doubles what is set. A smaller buffer than the supervisor's would drop what waits.
  for (const auto& [name, forced] : {std::pair(SO_RCVBUF, SO_RCVBUFFORCE), std::pair(SO_SNDBUF, SO_SNDBUFFORCE)}) {
    const int wanted = IntOption(from, SOL_SOCKET, name) / 2;
    if (wanted * 2 <= IntOption(to, SOL_SOCKET, name)) continue;
    if (setsockopt(to, SOL_SOCKET, forced, &wanted, sizeof(wanted)) != 0)
      setsockopt(to, SOL_SOCKET, name, &wanted, sizeof(wanted));
  }
  const int flags = fcntl(from, F_GETFL), now = fcntl(to, F_GETFL);
  if (flags >= 0 && now >= 0) fcntl(to, F_SETFL, (now & ~O_NONBLOCK) | (flags & O_NONBLOCK));
  return lost;
}

// A number from a line "Name:\t12" of a file in /proc.
std::optional<uint64_t> NumberIn(const std::string& path, absl::string_view name, int base) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    absl::string_view text = line;
    if (!absl::ConsumePrefix(&text, name)) continue;
    return std::strtoull(std::string(text).c_str(), nullptr, base);
  }
  return std::nullopt;
}

// An epoll set that has a descriptor of another process.
struct Registration {
  net::UniqueFd set{};
  epoll_event event{};
};

std::vector<Registration> RegistrationsOf(pid_t process, int descriptor, uint32_t inode) {
  std::vector<Registration> found;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/fdinfo"), error)) {
    const int number = std::atoi(each.path().filename().c_str());
    for (const Polled& polled : PolledBy(process, number)) {
      if (polled.descriptor != descriptor || polled.inode != inode) continue;
      auto set = DescriptorOf(process, number);
      if (set.ok()) found.push_back({*std::move(set), {.events = polled.events, .data = {.u64 = polled.data}}});
    }
  }
  return found;
}

// A set knows a socket by its file and the descriptor's number, so the one that adds it has the daemon's number for it.
bool Register(const std::vector<Registration>& all, int socket, int descriptor) {
  const pid_t child = fork();
  if (child == 0) {
    bool done = true;
    const int behind = fcntl(socket, F_DUPFD, descriptor + 1);
    for (const Registration& each : all) {
      epoll_event event = each.event;
      const int set = fcntl(each.set.get(), F_DUPFD, descriptor + 1);
      done &= dup2(behind, descriptor) >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) == 0;
    }
    _exit(done ? 0 : 1);
  }
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

class Monitor {
 public:
  Monitor(std::vector<GivenSocket> sockets, net::UniqueFd notifications, std::string program)
      : sockets_(std::move(sockets)), notifications_(std::move(notifications)), program_(std::move(program)) {}

  // Until the last process that has the filter ended.
  void Run() {
    for (;;) {
      pollfd ready{.fd = notifications_.get(), .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, -1) < 0 && errno != EINTR) return;
      if ((ready.revents & POLLIN) != 0) {
        Answer();
      } else if ((ready.revents & (POLLHUP | POLLERR)) != 0) {
        return;
      }
    }
  }

 private:
  void Answer() {
    seccomp_notif call{};
    if (ioctl(notifications_.get(), SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;  // the caller was killed meanwhile
    seccomp_notif_resp answer{};
    answer.id = call.id;
    if (!Replace(call)) answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(notifications_.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }

  // False: the kernel does the call as it stands.
  bool Replace(const seccomp_notif& call) {
    if (call.data.nr == __NR_setsockopt) return RememberKey(call);
    return call.data.nr == __NR_listen ? KeepBacklog(call) : PutInPlace(call);
  }

  // TCP_MD5SIG: no call returns a peer's key, so it is noted when it is set.
  bool RememberKey(const seccomp_notif& call) {
    const auto own = DescriptorOf(ProcessOf(call), static_cast<int>(call.data.args[0]));
    std::string value(std::min<size_t>(call.data.args[4], 512), '\0');
    if (!own.ok() || !Read(call, 3, value.data(), value.size()) || !Waits(call)) return false;
    keys_.push_back({CookieOf(own->get()), static_cast<int>(call.data.args[2]), std::move(value)});
    // The oldest ones are of sockets that were bound, or connected, since.
    if (keys_.size() > kKeysMax) keys_.pop_front();
    return false;
  }

  // Whether the caller still waits: its number may be another process's now, whose descriptor was taken.
  bool Waits(const seccomp_notif& call) const {
    return ioctl(notifications_.get(), SECCOMP_IOCTL_NOTIF_ID_VALID, &call.id) == 0;
  }

  // A socket that was handed over listens already. A daemon that asks for a shorter queue than the supervisor's
  // (pmbmpd: 1) would lose connections that arrive together.
  bool KeepBacklog(const seccomp_notif& call) {
    const auto own = DescriptorOf(ProcessOf(call), static_cast<int>(call.data.args[0]));
    if (!own.ok() || !Waits(call)) return false;
    const uint64_t cookie = CookieOf(own->get());
    for (const GivenSocket& given : sockets_) {
      if (CookieOf(given.fd.get()) != cookie) continue;
      // Of a listener, tcpi_sacked is the longest queue.
      const auto most = OptionOf<tcp_info>(own->get(), IPPROTO_TCP, TCP_INFO).tcpi_sacked;
      return static_cast<int>(call.data.args[1]) <= static_cast<int>(most);
    }
    return false;
  }

  // The call names the thread; descriptors are the process's.
  static pid_t ProcessOf(const seccomp_notif& call) {
    return static_cast<pid_t>(NumberIn(absl::StrCat("/proc/", call.pid, "/status"), "Tgid:", 10).value_or(0));
  }

  bool PutInPlace(const seccomp_notif& call) {
    const int descriptor = static_cast<int>(call.data.args[0]);
    sockaddr_storage address{};
    if (!Read(call, 1, &address, std::min(static_cast<size_t>(call.data.args[2]), sizeof(address))))
      return Complain(absl::StrCat("cannot read what process ", call.pid, " binds", Hint(errno)));
    const auto end = net::EndOf(address);
    if (!end.ok() ||
        std::none_of(sockets_.begin(), sockets_.end(), [&](const auto& each) { return each.at.port == end->port; }))
      return false;
    const Listen wanted{end->address, end->port};
    const pid_t process = ProcessOf(call);
    const auto own = DescriptorOf(process, descriptor);
    if (!Waits(call)) return false;
    if (!own.ok()) return Complain(std::string(own.status().message()));
    const int type = IntOption(own->get(), SOL_SOCKET, SO_TYPE);
    for (const GivenSocket& given : sockets_) {
      const bool is_it = given.at == wanted && given.family == address.ss_family;
      // A group of [::] serves IPv4 too.
      const bool covers_it = given.family == AF_INET6 && address.ss_family == AF_INET && given.at.wildcard() &&
                             wanted.wildcard() && given.at.port == wanted.port;
      if (given.type != type || (!is_it && !covers_it)) continue;
      const auto held = SocketsOf({.pid = process}, {InodeOf(given.fd.get())});
      const bool has_it = held.ok() && !held->descriptors.empty();
      if (!is_it && !has_it) continue;
      if (!is_it) return ServeByOther(own->get(), given);
      return has_it ? LetBind(own->get(), given) : Put(call, given, own->get(), process, descriptor);
    }
    const auto add = [](std::string* out, const GivenSocket& each) { absl::StrAppend(out, each.ToString()); };
    return Complain(absl::StrCat("binds ", type == SOCK_DGRAM ? "UDP " : "TCP ", wanted.ToString(),
                                 ", and the sockets handed over are ", absl::StrJoin(sockets_, ", ", add),
                                 ": the address of --listen and the daemon's must be the same one"));
  }

  // The memory that an argument of the call points to.
  static bool Read(const seccomp_notif& call, int argument, void* to, size_t bytes) {
    const iovec local{.iov_base = to, .iov_len = bytes};
    const iovec remote{.iov_base = reinterpret_cast<void*>(call.data.args[argument]), .iov_len = bytes};
    return process_vm_readv(static_cast<pid_t>(call.pid), &local, 1, &remote, 1, 0) >= 0;
  }

  // The daemon has a socket for each family, and that of the slot has both: the other one gets a port of its own, on
  // loopback.
  bool ServeByOther(int own, const GivenSocket& given) const {
    const net::SocketAddress nowhere(*net::IpAddress::Parse("127.0.0.1"), 0);
    if (bind(own, nowhere.get(), nowhere.bytes) != 0) return false;
    Complain(
        absl::StrCat("0.0.0.0:", given.at.port, " is served by its socket of ", given.at.ToString(),
                     ", which is no IPV6_V6ONLY one and has IPv4 clients as ::ffff:ADDRESS: see its access lists"));
    return true;
  }

  // The process has the slot's socket already. Its further ones of the address stay its own, as DTLS servers make one
  // for each peer: they join the reuseport group, whose program selects none of them, and once connected each receives
  // what its peer sends.
  bool LetBind(int own, const GivenSocket& given) const {
    const int on = 1;
    // Two UDP sockets with SO_REUSEADDR may share an address, and the slot's socket has SO_REUSEPORT alone.
    if (given.type == SOCK_DGRAM && IntOption(own, SOL_SOCKET, SO_REUSEADDR) > 0)
      setsockopt(own, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    if (OwnerOf(own) == OwnerOf(given.fd.get())) return false;
    return Complain(absl::StrCat("binds a second socket to ", given.at.ToString(), " as user ", OwnerOf(own),
                                 ", which the kernel refuses beside those of user ", OwnerOf(given.fd.get()),
                                 ": let `hedgerow steer run --user` change the user, not the daemon"));
  }

  bool Put(const seccomp_notif& call, const GivenSocket& given, int own, pid_t process, int descriptor) {
    std::vector<std::string> lost = CopyOptions(own, given.fd.get());
    size_t keys = 0;
    for (const Key& key : keys_) {
      if (key.cookie != CookieOf(own)) continue;
      const bool done = setsockopt(given.fd.get(), IPPROTO_TCP, key.option, key.value.data(),
                                   static_cast<socklen_t>(key.value.size())) == 0;
      if (!done) lost.push_back("TCP_MD5SIG");
      keys += done;
    }
    if (keys > 0)
      Complain(absl::StrCat("the keys of ", keys, " peers (TCP_MD5SIG) are those of ", given.at.ToString()));
    if (!lost.empty()) {
      Complain(absl::StrCat("socket options (level/number) of ", given.at.ToString(),
                            " that are not taken over: ", absl::StrJoin(lost, ", ")));
    }
    const std::vector<Registration> polled = RegistrationsOf(process, descriptor, InodeOf(own));
    const uint64_t flags = NumberIn(absl::StrCat("/proc/", process, "/fdinfo/", descriptor), "flags:", 8).value_or(0);
    seccomp_notif_addfd put{};
    put.id = call.id;
    put.flags = SECCOMP_ADDFD_FLAG_SETFD;
    put.srcfd = static_cast<uint32_t>(given.fd.get());
    put.newfd = static_cast<uint32_t>(descriptor);
    put.newfd_flags = (flags & O_CLOEXEC) != 0 ? O_CLOEXEC : 0;
    if (ioctl(notifications_.get(), SECCOMP_IOCTL_NOTIF_ADDFD, &put) >= 0) {
      if (!polled.empty() && !Register(polled, given.fd.get(), descriptor))
        Complain("an epoll set that had the socket before bind(2) does not take the one in its place");
      return true;
    }
    return errno == ENOENT || Complain(absl::StrCat("the socket could not be put in place: ",
                                                    std::strerror(errno)));  // ENOENT: the caller is gone
  }

  static std::string Hint(int error) {
    return absl::StrCat(
        ": ", std::strerror(error),
        error == EPERM ? " (a process of another user, or kernel.yama.ptrace_scope; CAP_SYS_PTRACE helps)" : "");
  }

  bool Complain(const std::string& text) const {
    std::fprintf(stderr, "hedgerow steer bind: %s: %s\n", program_.c_str(), text.c_str());
    return false;
  }

  struct Key {
    uint64_t cookie = 0;
    int option = 0;
    std::string value{};
  };
  static constexpr size_t kKeysMax = 1024;

  std::vector<GivenSocket> sockets_;
  std::deque<Key> keys_{};
  net::UniqueFd notifications_;
  std::string program_;
};

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "the audit name of this architecture is not known here"
#endif

// bind(2), listen(2) and the setting of a TCP key wait for the monitor, everything else goes on. Processes of another
// architecture than ours bind as always.
absl::StatusOr<net::UniqueFd> InstallFilter() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 0, 10),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_bind, 7, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_listen, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_setsockopt, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),  // the lower half: little-endian
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TCP_MD5SIG, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TCP_MD5SIG_EXT, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(code), .filter = code};
  const auto install = [&] {
    return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
  };
  net::UniqueFd listener(install());
  // Without CAP_SYS_ADMIN a filter asks for the promise that no setuid program gains rights under it.
  if (!listener.valid() && errno == EACCES && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) listener.Reset(install());
  if (listener.valid()) return listener;
  if (errno == EBUSY) {
    return absl::FailedPreconditionError(
        "this process is under another such filter already (SECCOMP_RET_USER_NOTIF allows one)");
  }
  return absl::ErrnoToStatus(errno, "install a seccomp filter with a listener");
}

[[noreturn]] void BecomeMonitor(std::vector<GivenSocket> sockets, pid_t daemon, net::UniqueFd channel,
                                const std::string& program) {
  // Signals to the terminal's group are for the daemon; the monitor ends when the daemon has.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) signal(number, SIG_IGN);
  const pid_t pid = getpid();
  if (send(channel.get(), &pid, sizeof(pid), MSG_NOSIGNAL) != sizeof(pid)) _exit(1);
  int listener = -1;
  if (recv(channel.get(), &listener, sizeof(listener), 0) != sizeof(listener)) _exit(1);
  auto notifications = DescriptorOf(daemon, listener);
  const std::string error(notifications.status().message());
  if (send(channel.get(), error.c_str(), error.size() + 1, MSG_NOSIGNAL) < 0 || !notifications.ok()) _exit(1);
  channel.Reset();
  Monitor(std::move(sockets), *std::move(notifications), program).Run();
  _exit(0);
}

}  // namespace

absl::Status RunWithSockets(const std::vector<std::string>& command) {
  if (command.empty()) return absl::InvalidArgumentError("names no program");
  auto sockets = TakeSockets();
  if (!sockets.ok()) return sockets.status();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::ErrnoToStatus(errno, "make a socket pair");
  net::UniqueFd own(ends[0]), other(ends[1]);
  // Twice, so that the daemon has no child that it did not start.
  const pid_t daemon = getpid(), child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork the monitor");
  if (child == 0) {
    own.Reset();
    if (fork() == 0) BecomeMonitor(*std::move(sockets), daemon, std::move(other), command.front());
    _exit(0);
  }
  other.Reset();
  waitpid(child, nullptr, 0);
  pid_t monitor = 0;
  if (recv(own.get(), &monitor, sizeof(monitor), 0) != sizeof(monitor))
    return absl::InternalError("the monitor did not start");
  prctl(PR_SET_PTRACER, monitor, 0, 0, 0);  // where Yama asks for it; fails without Yama
  {
    const auto listener = InstallFilter();
    if (!listener.ok()) return listener.status();
    const int number = listener->get();
    char error[256] = "the monitor did not take the listener";
    if (send(own.get(), &number, sizeof(number), MSG_NOSIGNAL) != sizeof(number) ||
        recv(own.get(), error, sizeof(error), 0) <= 0 || error[0] != '\0') {
      error[sizeof(error) - 1] = '\0';
      return absl::InternalError(error);
    }
  }
  sockets->clear();
  for (const char* name : {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}) unsetenv(name);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  return absl::ErrnoToStatus(errno, absl::StrCat("start ", command.front()));
}

}  // namespace hedgerow::steer
