// SPDX-License-Identifier: Apache-2.0
//
// Taking and finding a unix socket with real gRPC: whom it lets in, what it replaces and what it never does,
// and what bounds its calls.

#include "operate/admin_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "operate/echo_test.grpc.pb.h"
#include "operate/grpc_status.h"

namespace hedgerow::operate {
namespace {

using testing::HasSubstr;

constexpr int kRequestMax_bytes = 1000;

// What a call waits for, and what tells that it does.
struct Gate {
  absl::Notification waits;
  absl::Notification released;
};

class EchoService final : public test::Echo::Service {
 public:
  EchoService(Gate& gate, Asker& asker) : gate_(gate), asker_(asker) {}
  grpc::Status Say(grpc::ServerContext* context, const test::Words* request, test::Words* reply) override {
    if (request->text() == "wait") {
      gate_.waits.Notify();
      gate_.released.WaitForNotification();
      asker_ = AskerOf(*context);
    }
    if (request->text() == "asker") asker_ = AskerOf(*context);
    if (request->text() == "fail") return ToGrpc(absl::FailedPreconditionError("node 2 leads; ask it"));
    *reply = *request;
    return grpc::Status::OK;
  }

 private:
  Gate& gate_;
  Asker& asker_;
};

class AdminSocketTest : public testing::Test {
 protected:
  AdminSocketTest() {
    char pattern[] = "/tmp/hedgerow-admin-socket-test.XXXXXX";
    folder_ = mkdtemp(pattern);
    path_ = folder_ + "/run/admin.sock";
    auto server = Listen(path_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~AdminSocketTest() override {
    server_.reset();
    rmdir((folder_ + "/run").c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "something was left in " << folder_;
  }
  absl::StatusOr<std::unique_ptr<AdminSocket>> Listen(const std::string& path, AdminSocket::Options options = {}) {
    options.threads_max = 8;
    options.request_max_bytes = kRequestMax_bytes;
    options.hint = "give this test its own socket";
    return AdminSocket::Listen(path, std::make_unique<EchoService>(gate_, asker_), options);
  }
  static absl::StatusOr<std::shared_ptr<grpc::Channel>> Open(const std::string& path) {
    return OpenAdminChannel(path, {.program = "echod", .who_may = "its owner may", .hint = "Start it"});
  }
  // What comes back over a channel of its own.
  absl::StatusOr<std::string> Say(const std::string& text) {
    const auto channel = Open(path_);
    if (!channel.ok()) return channel.status();
    test::Words request;
    request.set_text(text);
    test::Words reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    const grpc::Status status = test::Echo::NewStub(*channel)->Say(&context, request, &reply);
    if (!status.ok()) return FromGrpc(status);
    return reply.text();
  }
  // A socket at `path` that nobody accepts connections on; -1: failed.
  static int Bind(const std::string& path, int type) {
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    return bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? fd : -1;
  }

  static int Connect(const std::string& path) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  Gate gate_;
  Asker asker_;
  std::string folder_;
  std::string path_;
  std::unique_ptr<AdminSocket> server_;
};

TEST(GrpcStatusTest, TheLibrarysWordsBecomeACause) {
  using grpc::StatusCode;
  const auto text = [](StatusCode code, const char* message) {
    return std::string(FromGrpc(grpc::Status(code, message)).message());
  };
  EXPECT_THAT(text(StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"), testing::HasSubstr("its process is stopped"));
  EXPECT_EQ(text(StatusCode::UNAVAILABLE,
                 "failed to connect to all addresses; last error: UNKNOWN: unix:/run/x: Connection refused"),
            "the program has just ended: nothing answers on its socket");
  EXPECT_THAT(text(StatusCode::UNAVAILABLE, "Socket closed"), testing::HasSubstr("may be done or not"));
  const grpc::Status full(
      StatusCode::UNAVAILABLE,
      "failed to connect to all addresses; last error: UNKNOWN: unix:/run/x: Resource temporarily unavailable");
  EXPECT_THAT(std::string(FromGrpc(full).message()), testing::HasSubstr("runs and accepts no connection"));
  EXPECT_EQ(FromGrpc(full).code(), absl::StatusCode::kDeadlineExceeded) << "and so no exit code 3: it runs";
  // What a server of ours says stays.
  EXPECT_EQ(text(StatusCode::UNAVAILABLE, "the daemon is still starting"), "the daemon is still starting");
  EXPECT_EQ(text(StatusCode::DEADLINE_EXCEEDED, "the loop does not answer"), "the loop does not answer");
  EXPECT_EQ(FromGrpc(grpc::Status(StatusCode::UNAVAILABLE, "Socket closed")).code(), absl::StatusCode::kUnavailable)
      << "and so exit code 3";
}

TEST_F(AdminSocketTest, IsForItsOwnerOnly) {
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AdminSocketTest, ASocketForAGroupIsOpenToItsMembersAndToNoOthers) {
  const std::string path = folder_ + "/monitor.sock";
  auto server = Listen(path, {.group = absl::StrCat(getegid())});
  ASSERT_TRUE(server.ok()) << server.status();
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  EXPECT_EQ(info.st_gid, getegid());
  const absl::Status unknown = Listen(folder_ + "/other.sock", {.group = "no-such-group"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("groupadd --system no-such-group"));
}

TEST_F(AdminSocketTest, ACallKnowsTheProcessThatAsks) {
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(Say("asker").ok());
    EXPECT_EQ(asker_.pid, getpid());
    EXPECT_EQ(asker_.uid, geteuid());
  }
}

TEST_F(AdminSocketTest, ACallKnowsItsProcessAlsoWhenTheClientIsGone) {
  grpc::ClientContext context;
  std::thread asker([&] {
    test::Words request, reply;
    request.set_text("wait");
    EXPECT_FALSE(test::Echo::NewStub(*Open(path_))->Say(&context, request, &reply).ok());
  });
  gate_.waits.WaitForNotification();
  context.TryCancel();
  asker.join();
  gate_.released.Notify();
  server_.reset();
  EXPECT_EQ(asker_.pid, getpid());
}

// A stranger of the group must not take all descriptors of the process.
TEST_F(AdminSocketTest, ConnectionsAreBoundedAndOneThatEndsMakesRoom) {
  const std::string path = folder_ + "/monitor.sock";
  std::vector<std::string> lines;
  absl::Mutex mutex;
  auto server = Listen(path, {.group = absl::StrCat(getegid()), .log = [&](const std::string& line) {
                                absl::MutexLock lock(&mutex);
                                lines.push_back(line);
                              }});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint64_t before = AdminSocket::Refused(AdminSocket::For::kGroup);
  std::vector<int> held;
  while (held.size() < AdminSocket::kGroupConnections + 8) held.push_back(Connect(path));
  // The end of a connection that found no place is seen by its other side.
  for (size_t i = AdminSocket::kGroupConnections; i < held.size(); ++i) {
    pollfd ended{.fd = held[i], .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&ended, 1, 20'000), 1);
    char byte = 0;
    EXPECT_EQ(read(held[i], &byte, 1), 0) << i;
  }
  EXPECT_EQ(AdminSocket::Refused(AdminSocket::For::kGroup), before + 8);
  EXPECT_EQ(AdminSocket::Refused(AdminSocket::For::kOwner), 0u);
  EXPECT_TRUE(Say("hello").ok()) << "the owner's socket has places of its own";
  for (const int fd : held) close(fd);
  {
    absl::MutexLock lock(&mutex);
    EXPECT_THAT(lines, testing::ElementsAre(testing::EndsWith(": 1"), testing::EndsWith(": 2"),
                                            testing::EndsWith(": 4"), testing::EndsWith(": 8")));
  }
  const absl::Time end = absl::Now() + absl::Seconds(20);
  bool served = false;
  while (!served && absl::Now() < end) {
    const auto channel = Open(path);
    ASSERT_TRUE(channel.ok()) << channel.status();
    test::Words request, reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    served = test::Echo::NewStub(*channel)->Say(&context, request, &reply).ok();
  }
  EXPECT_TRUE(served);
}

TEST_F(AdminSocketTest, AnswersAndErrorsCrossIt) {
  EXPECT_EQ(*Say("hello"), "hello");
  const absl::Status failed = Say("fail").status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(failed.message(), "node 2 leads; ask it");
}

TEST_F(AdminSocketTest, ALongRequestIsRefused) {
  EXPECT_TRUE(Say(std::string(kRequestMax_bytes - 10, 'x')).ok());
  EXPECT_EQ(Say(std::string(kRequestMax_bytes + 1, 'x')).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(AdminSocketTest, ItsEndLetsACallFinishAndRemovesTheSocket) {
  absl::StatusOr<std::string> said;
  std::thread asker([&] { said = Say("wait"); });
  gate_.waits.WaitForNotification();
  std::thread ender([&] { server_.reset(); });
  gate_.released.Notify();
  asker.join();
  ender.join();
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(*said, "wait");
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

TEST_F(AdminSocketTest, ASocketThatIsRemovedIsMadeAgain) {
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(rmdir((folder_ + "/run").c_str()), 0);
  EXPECT_FALSE(Say("gone").ok());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!Say("there").ok() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(Say("there again").value_or("silence"), "there again");
}

TEST_F(AdminSocketTest, ASecondServerIsRefusedWithTheHint) {
  const absl::Status second = Listen(path_).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(second.message(),
            "another process listens on the admin socket " + path_ + "; give this test its own socket");
  EXPECT_TRUE(Say("hello").ok()) << "the first one is unharmed";
}

TEST_F(AdminSocketTest, ADeadProcessesSocketIsReplaced) {
  const std::string stale = folder_ + "/stale.sock";
  close(Bind(stale, SOCK_STREAM));
  EXPECT_EQ(KnockOnUnixSocket(stale), ECONNREFUSED);
  EXPECT_EQ(Open(stale).status().code(), absl::StatusCode::kUnavailable);
  {
    const auto server = Listen(stale);
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ(KnockOnUnixSocket(stale), 0);
  }
  EXPECT_EQ(KnockOnUnixSocket(stale), ENOENT);
}

// The knock has taken the last place of its queue.
TEST_F(AdminSocketTest, AProcessThatIsStoppedIsNotSaidToHaveEnded) {
  const std::string path = folder_ + "/stopped.sock";
  const int listening = Bind(path, SOCK_STREAM);
  ASSERT_EQ(listen(listening, 0), 0);
  const auto channel = Open(path);
  ASSERT_TRUE(channel.ok()) << channel.status();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  test::Words reply;
  const grpc::Status raw = test::Echo::NewStub(*channel)->Say(&context, {}, &reply);
  const absl::Status asked = FromGrpc(raw);
  EXPECT_EQ(asked.code(), absl::StatusCode::kDeadlineExceeded) << raw.error_message();
  EXPECT_THAT(std::string(asked.message()), HasSubstr("its process is stopped"));
  close(listening);
  unlink(path.c_str());
}

TEST_F(AdminSocketTest, AProcessThatAcceptsNothingIsNotWaitedForAndNotReplaced) {
  const std::string path = folder_ + "/stopped.sock";
  const int listening = Bind(path, SOCK_STREAM);
  ASSERT_EQ(listen(listening, 0), 0);
  EXPECT_EQ(KnockOnUnixSocket(path), 0);  // fills the queue
  EXPECT_EQ(KnockOnUnixSocket(path), EAGAIN);
  const absl::Status opened = Open(path).status();
  EXPECT_EQ(opened.code(), absl::StatusCode::kDeadlineExceeded) << "and so no exit code 3: it runs";
  EXPECT_THAT(std::string(opened.message()), HasSubstr("echod listens on " + path + " and accepts no connection"));
  const absl::Status second = Listen(path).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists) << second;
  close(listening);
  unlink(path.c_str());
}

TEST_F(AdminSocketTest, ALiveSocketOfAnotherKindIsNotReplaced) {
  const std::string other = folder_ + "/log.sock";
  const int fd = Bind(other, SOCK_DGRAM);
  ASSERT_GE(fd, 0);
  const absl::Status refused = Listen(other).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot tell whether another process listens on"));
  struct stat info {};
  EXPECT_EQ(stat(other.c_str(), &info), 0) << "it is still there";
  close(fd);
  unlink(other.c_str());
}

TEST_F(AdminSocketTest, AFileIsNeverReplaced) {
  const std::string file = folder_ + "/precious";
  std::ofstream(file) << "data";
  const absl::Status refused = Listen(file).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(refused.message(), "the admin socket's path " + file + " exists and is no socket");
  struct stat info {};
  EXPECT_EQ(stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 4);
  unlink(file.c_str());
}

TEST_F(AdminSocketTest, AFolderThatCannotBeMadeIsAnError) {
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "data";
  const absl::Status refused = Listen(file + "/admin.sock").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot make the folder of the admin socket " + file));
  unlink(file.c_str());
}

TEST_F(AdminSocketTest, NobodyThereIsUnavailableInWords) {
  const absl::Status nobody = Open(folder_ + "/none").status();
  EXPECT_EQ(nobody.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(nobody.message(), "echod is not running: " + folder_ + "/none does not exist. Start it");
}

TEST_F(AdminSocketTest, APathThatFitsNoSocketIsAnError) {
  const std::string path = "/tmp/" + std::string(200, 'x');
  EXPECT_EQ(KnockOnUnixSocket(path), ENAMETOOLONG);
  EXPECT_EQ(Open(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Listen(path).status().code(), absl::StatusCode::kUnavailable);
}

// Root may open everything, so another user asks: in a child, because the test may not change its own.
TEST_F(AdminSocketTest, AUserWhoMayNotOpenItIsTold) {
  if (geteuid() == 0) {
    ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
    ASSERT_EQ(chmod((folder_ + "/run").c_str(), 0755), 0);
  }
  const pid_t child = fork();
  if (child == 0) {
    // As its owner, who has lost the right, if there is no privilege to become another user.
    if (geteuid() == 0 ? setuid(65534) != 0 : chmod(path_.c_str(), 0) != 0) _exit(1);
    const absl::Status status = Open(path_).status();
    const bool told = status.code() == absl::StatusCode::kPermissionDenied &&
                      status.message() == "no permission to open " + path_ + "; its owner may";
    _exit(told ? 0 : 2);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
}

}  // namespace
}  // namespace hedgerow::operate
