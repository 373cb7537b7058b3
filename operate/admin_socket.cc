// SPDX-License-Identifier: Apache-2.0
#include "operate/admin_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <grpc/support/log.h>
#include <grpcpp/server_posix.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "operate/unit.h"
#include "operate/log.h"

namespace hedgerow::operate {
namespace {

constexpr int kBacklog = 16;
constexpr std::chrono::milliseconds kAcceptAgain(100);
constexpr int kLookAgain_ms = 2000;  // whether the socket is still there
// Numbers of connections are the highest that the process may have, so that its own descriptors stay below: those are a
// few hundred. A table of descriptors for this many takes 32 KiB.
constexpr int kHighestDescriptor = 4096;
// Where the process may have few: one in so many is a connection's.
constexpr int kOwnersShare = 8, kGroupsShare = 16;

// By the number of the connection, which is in the name that gRPC has for one that it was given: "fd:N". What is noted
// outlives the connection, whose client may be gone when its call is done. A number is another connection's only after
// all others of its range (Place).
class Askers {
 public:
  static Askers& Get() {
    static Askers* const askers = new Askers();
    return *askers;
  }
  void Note(int connection) {
    ucred credentials{};
    socklen_t bytes = sizeof(credentials);
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) credentials = {0, kNoUser, 0};
    absl::MutexLock lock(&mutex_);
    known_[connection] = {.pid = credentials.pid, .uid = credentials.uid};
  }
  Asker Find(int connection) {
    absl::MutexLock lock(&mutex_);
    return connection >= 0 && connection < kHighestDescriptor ? known_[connection] : Asker();
  }

 private:
  static constexpr uid_t kNoUser = static_cast<uid_t>(-1);
  absl::Mutex mutex_;
  std::array<Asker, kHighestDescriptor> known_ ABSL_GUARDED_BY(mutex_);
};

// By AdminSocket::For.
std::array<std::atomic<uint64_t>, 2> refused_in_process{};

}  // namespace

Asker AskerOf(const grpc::ServerContext& context) {
  int connection = -1;
  if (!absl::SimpleAtoi(absl::StripPrefix(context.peer(), "fd:"), &connection)) return {};
  return Askers::Get().Find(connection);
}

uint64_t AdminSocket::Refused(For kind) {
  return refused_in_process[kind == For::kOwner ? 0 : 1].load(std::memory_order_relaxed);
}

AdminSocket::~AdminSocket() {
  ending_ = true;
  if (listening_ >= 0) shutdown(listening_, SHUT_RDWR);  // ends the acceptor's wait
  if (acceptor_.joinable()) acceptor_.join();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_.reset();
  if (listening_ < 0) return;
  close(listening_);
  unlink(path_.c_str());
}

UnixSocketOptions AdminSocket::SocketOptions(const Options& options) {
  return {.what = "admin socket", .hint = options.hint, .group = options.group, .backlog = kBacklog};
}

absl::Status AdminSocket::Bind() {
  absl::StatusOr<net::UniqueFd> listening = ListenOnUnixSocket(path_, SocketOptions(options_));
  if (!listening.ok()) return listening.status();
  listening_ = listening->Release();
  return absl::OkStatus();
}

absl::Status AdminSocket::Start() {
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  const int top = static_cast<int>(std::min<rlim_t>(descriptors.rlim_cur, kHighestDescriptor));
  const int of_owners = std::clamp(top / kOwnersShare, 1, kOwnerConnections);
  const int of_groups = std::clamp(top / kGroupsShare, 1, kGroupConnections);
  first_ = options_.group.empty() ? top - of_owners : top - of_owners - of_groups;
  end_ = options_.group.empty() ? top : top - of_owners;
  next_ = first_;
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  builder.SetMaxReceiveMessageSize(options_.request_max_bytes);
  // A handful of administrators, not a fleet: one queue and few threads are plenty.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  grpc::ResourceQuota quota("admin");
  quota.SetMaxThreads(options_.threads_max);
  builder.SetResourceQuota(quota);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot serve the admin socket ", path_));
  }
  if (absl::Status status = Bind(); !status.ok()) return status;
  acceptor_ = std::thread([this] { Accept(); });
  return absl::OkStatus();
}

// gRPC would accept by itself, without a bound, and says of no call whose it is.
void AdminSocket::Accept() {
  while (!ending_) {
    pollfd waiting{.fd = listening_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kLookAgain_ms) == 0) {
      ListenAgain();
      continue;
    }
    const int connection = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      Place(connection);
    } else if (errno == EINVAL || errno == EBADF) {
      return;  // it was shut down
    } else if (errno != EINTR && errno != ECONNABORTED) {
      std::this_thread::sleep_for(kAcceptAgain);  // no descriptors, or no memory
    }
  }
}

// What cleans up in /run (tmpfiles.d(5), an administrator) may take the socket's name, and no process could be asked
// for anything until its end.
void AdminSocket::ListenAgain() {
  struct stat info {};
  if (lstat(path_.c_str(), &info) == 0 || errno != ENOENT) return;
  if (!PrepareUnixSocket(path_, SocketOptions(options_)).ok()) return;
  const absl::StatusOr<net::UniqueFd> listening = ListenOnUnixSocket(path_, SocketOptions(options_));
  if (!listening.ok() || dup3(listening->get(), listening_, O_CLOEXEC) < 0) return;
  options_.log(absl::StrCat("the socket ", path_, " had been removed: it is made again"));
}

// The range of numbers is the bound: a connection that gets none inside has no place.
void AdminSocket::Place(int connection) {
  int placed = fcntl(connection, F_DUPFD_CLOEXEC, next_);
  if (placed < 0 || placed >= end_) {
    if (placed >= 0) close(placed);
    placed = fcntl(connection, F_DUPFD_CLOEXEC, first_);
  }
  if (placed >= 0 && placed < end_) {
    close(connection);
    next_ = placed + 1 < end_ ? placed + 1 : first_;
    Askers::Get().Note(placed);
    grpc::AddInsecureChannelFromFd(server_.get(), placed);
    return;
  }
  refused_in_process[options_.group.empty() ? 0 : 1].fetch_add(1, std::memory_order_relaxed);
  ++refused_;
  if ((refused_ & (refused_ - 1)) == 0) {  // the first, the second, the fourth ...
    options_.log(absl::StrCat("the socket ", path_,
                              " has all the connections that it may have; refused since the start: ", refused_));
  }
  if (placed >= 0) close(placed);
  close(connection);
}

absl::StatusOr<std::unique_ptr<AdminSocket>> AdminSocket::Listen(const std::string& path,
                                                                 std::unique_ptr<grpc::Service> service,
                                                                 const Options& options) {
  // By default it writes to stderr itself, and waits there for its reader.
  gpr_set_log_function([](gpr_log_func_args* line) { LogWarning("gRPC: ", line->message); });
  absl::Status status = PrepareUnixSocket(path, SocketOptions(options));
  if (!status.ok()) return status;
  std::unique_ptr<AdminSocket> server(new AdminSocket(path, std::move(service), options));
  status = server->Start();
  if (!status.ok()) return status;
  return server;
}

absl::StatusOr<std::unique_ptr<AdminSocket>> AdminSocket::ListenForGroup(const std::string& configured,
                                                                         const std::string& admin,
                                                                         std::unique_ptr<grpc::Service> service,
                                                                         const Options& options) {
  const std::string path = MonitorSocketOr(configured, admin, options.group);
  if (path.empty()) return nullptr;
  auto server = Listen(path, std::move(service), options);
  if (!configured.empty() || !absl::IsPermissionDenied(server.status())) return server;
  options.log(absl::StrCat("serves without a monitoring socket: ", server.status().message()));
  return nullptr;
}

namespace {

// Other sockets of the same folder that a process listens on: the user may have meant one of them.
std::string OthersThatAnswer(const std::string& path) {
  std::vector<std::string> others;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(path).parent_path(), error)) {
    const std::string other = entry.path().string();
    if (other != path && entry.is_socket(error) && KnockOnUnixSocket(other) == 0) others.push_back(other);
  }
  std::sort(others.begin(), others.end());
  return others.empty() ? ""
                        : absl::StrCat(". These answer: ", absl::StrJoin(others, ", "), " (name one with --socket)");
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenAdminChannel(const std::string& path, const AdminPeer& peer) {
  // gRPC would retry for seconds and then say little; a plain connection tells at once what is wrong.
  const int error = KnockOnUnixSocket(path);
  if (const std::string monitor = MonitorSocketBeside(path); error == EACCES && !monitor.empty()) {
    if (KnockOnUnixSocket(monitor) == 0) return OpenAdminChannel(monitor, peer);
  }
  if (error == ENAMETOOLONG) {
    return absl::InvalidArgumentError(absl::StrCat("the socket's path is too long: ", path));
  }
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(absl::StrCat("no permission to open ", path, "; ", peer.who_may));
  }
  if (error == EAGAIN) {
    return absl::DeadlineExceededError(
        absl::StrCat(peer.program, " listens on ", path,
                     " and accepts no connection: its process is stopped, or the host is overloaded"));
  }
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat(peer.program, " is not running: ",
                     error == ENOENT ? absl::StrCat(path, " does not exist")
                                     : absl::StrCat("no process listens on ", path, " (", strerror(error), ")"),
                     ". ", peer.hint, OthersThatAnswer(path)));
  }
  return grpc::CreateChannel(absl::StrCat("unix:", path), grpc::InsecureChannelCredentials());
}

}  // namespace hedgerow::operate
