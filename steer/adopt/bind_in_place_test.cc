// SPDX-License-Identifier: Apache-2.0
//
// A program that binds by itself gets the socket that was handed over, with its own options, and its bind(2) succeeds;
// every other bind is the kernel's. The program is /usr/bin/python3, which knows nothing of this.
#include "steer/adopt/bind_in_place.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/namespace_test.h"
#include "net/socket_address.h"
#include "steer/adopt/daemon_test.h"

namespace hedgerow::steer {
namespace {

using testing::HasSubstr;

class BindInPlaceTest : public net::NamespaceTest {
 protected:
  struct Ended {
    int code = -1;
    std::string output;  // of both kinds
  };
  // Python as a worker of `hedgerow steer run`: the UDP socket is 3, the TCP socket 4. `prelude` runs in the child
  // before all.
  static Ended Run(
      const std::string& script, const std::function<void()>& prelude = [] {},
      const std::string& program = "/usr/bin/python3") {
    int output[2];
    EXPECT_EQ(pipe2(output, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      const int udp = MoveTo(100, MakeUdp()), tcp = MoveTo(101, MakeTcp());
      dup2(udp, 3), dup2(tcp, 4), close(udp), close(tcp);
      dup2(output[1], STDOUT_FILENO), dup2(output[1], STDERR_FILENO);
      setenv("LISTEN_FDS", "2", 1), setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1),
          setenv("LISTEN_FDNAMES", "udp:tcp", 1);
      prelude();
      const absl::Status status = RunWithSockets({program, "-c", script});
      dprintf(STDOUT_FILENO, "%s\n", std::string(status.message()).c_str());
      _exit(127);
    }
    close(output[1]);
    Ended ended;
    char buffer[4096];
    for (ssize_t bytes; (bytes = read(output[0], buffer, sizeof(buffer))) > 0;)
      ended.output.append(buffer, static_cast<size_t>(bytes));
    close(output[0]);  // its end came, so the monitor has ended too
    int status = 0;
    waitpid(pid, &status, 0);
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ended;
  }
  static std::string Script(const std::string& body) {
    return absl::StrCat("import os, socket, struct\nCOOKIE = 57\n", body);
  }
};

// The inode is the socket's identity.
constexpr char kSame[] = R"(
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mine = os.fstat(u.fileno()).st_ino
u.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 150000)
u.setblocking(False)
u.bind(("127.0.0.1", 2055))
t = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
t.bind(("127.0.0.1", 2055))
t.listen(1)
info = t.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
print("own inode", mine == os.fstat(u.fileno()).st_ino)
print("reuseport", u.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT), t.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))
print("broadcast", u.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST), "buffer", u.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
print("blocking", os.get_blocking(u.fileno()), "inheritable", os.get_inheritable(u.fileno()))
print("backlog", struct.unpack_from("I", info, 8 + 4 * 5)[0])
print("environment", [name for name in os.environ if name.startswith("LISTEN_")])
u.setblocking(True)
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.sendto(b"hello", ("127.0.0.1", 2055)); print(u.recv(9))
s = socket.create_connection(("127.0.0.1", 2055)); print("accepted", t.accept()[1] == s.getsockname())
)";

TEST_F(BindInPlaceTest, ThePlaceOfABoundSocketIsTakenByTheOneThatWasHandedOver) {
  InNamespace([&] {
    const Ended ended = Run(Script(kSame));
    EXPECT_EQ(ended.code, 0) << ended.output;
    for (const char* line :
         {"own inode False", "reuseport 1 1", "broadcast 1 buffer 300000", "blocking False inheritable False",
          "backlog 16", "environment []", "b'hello'", "accepted True"}) {
      EXPECT_THAT(ended.output, HasSubstr(line));
    }
  });
}

TEST_F(BindInPlaceTest, AChildThatBindsGetsItToo) {
  InNamespace([&] {
    const Ended ended = Run(Script(R"(
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if os.fork() == 0:
    u.bind(("127.0.0.1", 2055))
    print("reuseport", u.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT), flush=True)
    os._exit(0)
os.wait()
)"));
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("reuseport 1"));
  });
}

// As DTLS servers do: a socket for each peer beside the one that listens.
TEST_F(BindInPlaceTest, ASecondSocketOfTheAddressIsTheProgramsOwnAndServesItsPeer) {
  for (const char* option : {"SO_REUSEADDR", "SO_REUSEPORT"}) {
    InNamespace([&] {
      const Ended ended = Run(Script(absl::StrReplaceAll(R"(
def make():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.setsockopt(socket.SOL_SOCKET, socket.OPTION, 1); u.settimeout(2)
    before = os.fstat(u.fileno()).st_ino
    u.bind(("127.0.0.1", 2055))
    return u, before == os.fstat(u.fileno()).st_ino
first, own = make(); print("first", own)
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); peer.bind(("127.0.1.1", 0))
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); other.bind(("127.0.1.2", 0))
for _ in range(2):
    second, own = make(); print("second", own); second.connect(peer.getsockname())
    peer.sendto(b"known", ("127.0.0.1", 2055)); print("by its own", second.recv(9))
    other.sendto(b"new", ("127.0.0.1", 2055)); print("by the first", first.recv(9))
    second.close()
first.close()
again, own = make(); print("again", own)
)",
                                                         {{"OPTION", option}})));
      EXPECT_EQ(ended.code, 0) << ended.output;
      EXPECT_EQ(ended.output,
                "first False\nsecond True\nby its own b'known'\nby the first b'new'\nsecond True\nby its own b'known'\n"
                "by the first b'new'\nagain False\n");
    });
  }
}

TEST_F(BindInPlaceTest, ASecondSocketOfAnotherUserIsNamed) {
  InNamespace([&] {
    const Ended ended = Run(Script(R"(
first = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); first.bind(("127.0.0.1", 2055))
os.setresuid(65534, 65534, 65534)
second = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
try: second.bind(("127.0.0.1", 2055))
except OSError as error: print(error)
)"));
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(
        ended.output,
        HasSubstr(
            "binds a second socket to 127.0.0.1:2055 as user 65534, which the kernel refuses beside those of user 0"));
    EXPECT_THAT(ended.output, HasSubstr("Address already in use"));
  });
}

// What is set is found by comparing with a fresh socket, so these stand for all.
TEST_F(BindInPlaceTest, OptionsThatWereSetBeforeBindAreTheGivenSocketsAndWhatIsNotIsNamed) {
  InNamespace([&] {
    const Ended ended = Run(Script(R"(
SETS = {socket.SOCK_DGRAM: ((1, 12, 5), (0, 2, 77), (0, 20, 1), (1, 37, 24), (17, 104, 1), (1, 18, 9), (1, 11, 1)),
        socket.SOCK_STREAM: ((1, 9, 1), (6, 4, 77), (6, 18, 5000), (6, 23, 16))}
for kind, options in SETS.items():
    s = socket.socket(socket.AF_INET, kind)
    for option in options: s.setsockopt(*option)
    before = [s.getsockopt(level, number) for level, number, _ in options]
    if kind == socket.SOCK_DGRAM:
        import ctypes
        code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 10))  # of each datagram 10 bytes, the header's included
        s.setsockopt(1, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
        s.setsockopt(1, 25, b"lo")
    s.bind(("127.0.0.1", 2055))
    print(kind, before == [s.getsockopt(level, number) for level, number, _ in options])
    if kind == socket.SOCK_DGRAM:
        s.setsockopt(1, 18, 1)
        c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.sendto(b"hello", ("127.0.0.1", 2055))
        print("filtered", s.recv(99))
)"));
    EXPECT_EQ(ended.code, 0) << ended.output;
    for (const char* line : {"2 True", "1 True", "that are not taken over: 1/25", "filtered b'he'"})
      EXPECT_THAT(ended.output, HasSubstr(line));
  });
}

TEST_F(BindInPlaceTest, AKeyOfAPeerThatWasSetBeforeBindIsAskedForAfterwards) {
  InNamespace([&] {
    const Ended ended = Run(Script(R"(
def with_key(s, peer, key):
    s.setsockopt(6, 14, struct.pack("HH4s120xBBHI80s", socket.AF_INET, 0, socket.inet_aton(peer), 0, 0, len(key), 0, key))
t = socket.socket(); with_key(t, "127.0.1.1", b"secret"); t.bind(("127.0.0.1", 2055)); t.listen(1)
for key in (b"secret", b"other"):
    c = socket.socket(); c.bind(("127.0.1.1", 0)); c.settimeout(0.5); with_key(c, "127.0.0.1", key)
    try: c.connect(("127.0.0.1", 2055)); print(key, "connected")
    except OSError as error: print(key, error)
)"));
    EXPECT_EQ(ended.code, 0) << ended.output;
    for (const char* line : {"b'secret' connected", "b'other' timed out"}) EXPECT_THAT(ended.output, HasSubstr(line));
  });
}

TEST_F(BindInPlaceTest, AnEpollSetThatHasTheSocketBeforeBindHasTheOneInItsPlace) {
  InNamespace([&] {
    const Ended ended = Run(Script(R"(
import select
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
e = select.epoll(); e.register(u, select.EPOLLIN | select.EPOLLET)
u.bind(("127.0.0.1", 2055))
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.sendto(b"hello", ("127.0.0.1", 2055))
print("heard", e.poll(2) == [(u.fileno(), select.EPOLLIN)])
e.modify(u, select.EPOLLOUT); print("modified", e.poll(2) == [(u.fileno(), select.EPOLLOUT)])
e.unregister(u); print("removed", e.poll(0) == [])
)"));
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_EQ(ended.output, "heard True\nmodified True\nremoved True\n");
  });
}

TEST_F(BindInPlaceTest, OtherSocketsBindAsAlways) {
  InNamespace([&] {
    const Ended ended = Run(Script(R"(
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("127.0.0.1", 0))
print("port", u.getsockname()[1] not in (0, 2055))
x = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); x.bind("\0hedgerow"); x.listen(); print("unix", x.getsockname())
t = socket.socket(socket.AF_INET, socket.SOCK_STREAM); t.bind(("127.0.0.1", 2056)); t.listen(7); print("listens")
)"));
    EXPECT_EQ(ended.code, 0) << ended.output;
    for (const char* line : {"port True", "unix b'\\x00hedgerow'", "listens"})
      EXPECT_THAT(ended.output, HasSubstr(line));
  });
}

TEST_F(BindInPlaceTest, AnotherAddressOfThePortIsNamed) {
  InNamespace([&] {
    const Ended ended = Run(Script(R"(
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: u.bind(("0.0.0.0", 2055))
except OSError as error: print(error)
)"));
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(
        ended.output,
        HasSubstr(
            "/usr/bin/python3: binds UDP 0.0.0.0:2055, and the sockets handed over are UDP 127.0.0.1:2055, TCP 127.0.0.1:2055"));
    EXPECT_THAT(ended.output, HasSubstr("Address already in use"));
  });
}

// As "listen on everything" is made by daemons with a socket for each family.
TEST_F(BindInPlaceTest, AProgramWithASocketForEachFamilyIsServedByThatOfBoth) {
  InNamespace([&] {
    const Ended ended = Run(Script(R"(
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    six = socket.socket(socket.AF_INET6, kind); six.setsockopt(41, 26, 1); six.bind(("::", 2055))
    four = socket.socket(socket.AF_INET, kind); four.bind(("0.0.0.0", 2055)); print("elsewhere", four.getsockname()[1] != 2055)
    for family, to in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        c = socket.socket(family, kind); c.bind((to, 0)); c.connect((to, 2055))
        if kind == socket.SOCK_DGRAM: c.send(b"x"); six.settimeout(2); print(six.recvfrom(9)[1][0])
        else: six.settimeout(2); print(six.accept()[1][0])
)"),
                            [] {
                              for (const int fd : {3, 4}) {
                                const int own = socket(AF_INET6, (fd == 3 ? SOCK_DGRAM : SOCK_STREAM), 0), on = 1;
                                const net::SocketAddress any(net::IpAddress::Parse("::").value(), 2055);
                                setsockopt(own, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
                                dup2(own, fd), close(own);
                                if (bind(fd, any.get(), any.bytes) != 0 || (fd == 4 && listen(fd, 16) != 0)) _exit(1);
                              }
                            });
    EXPECT_EQ(ended.code, 0) << ended.output;
    for (const char* line : {"elsewhere True\n::ffff:127.0.0.1\n::1\n",
                             "0.0.0.0:2055 is served by its socket of [::]:2055", "not taken over: 41/26"})
      EXPECT_THAT(ended.output, HasSubstr(line));
  });
}

TEST_F(BindInPlaceTest, AnUnprivilegedProgramIsServedToo) {
  InNamespace([&] {
    const Ended ended =
        Run(Script("u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nu.bind(('127.0.0.1', 2055))\n"
                   "print(os.getuid(), 'reuseport', u.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))\n"),
            [] {
              if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0 ||
                  prctl(PR_SET_DUMPABLE, 1) != 0)  // as the exec leaves it by which `hedgerow steer bind` starts
                _exit(1);
            });
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("65534 reuseport 1"));
  });
}

TEST_F(BindInPlaceTest, WithoutSocketsOrProgramItSaysSo) {
  InNamespace([&] {
    EXPECT_THAT(Run("", [] { unsetenv("LISTEN_FDS"); }).output, HasSubstr("no sockets were handed over (LISTEN_FDS)"));
    EXPECT_THAT(Run("", [] { setenv("LISTEN_PID", "1", 1); }).output,
                HasSubstr("no sockets were handed over (LISTEN_FDS)"));
    const Ended ended = Run(
        "", [] {}, "/no/such/program");
    EXPECT_EQ(ended.code, 127);
    EXPECT_THAT(ended.output, HasSubstr("start /no/such/program: No such file or directory"));
  });
}

}  // namespace
}  // namespace hedgerow::steer
