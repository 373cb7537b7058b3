// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server around libmicrohttpd; see the header. Its thread ("the first") calls back for each connection
// and request; what must not run there goes to the second thread, while the library leaves that connection
// alone (suspended).

#include "operate/http_server.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <deque>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "operate/key_file.h"
#include "operate/listen_address.h"
#include "operate/tls_files.h"
#include "net/steady_wait.h"

namespace hedgerow::operate {
namespace {

// A request's head and an answer's. A browser's has 500 to 1,000 bytes; cookies of other servers on localhost
// may add to it.
constexpr size_t kConnectionBytes = 32'768;
// Connections that were told to close are gone at the library's next turn, in which it accepts 10 at most.
constexpr unsigned kClosingAtMost = 32;
constexpr useconds_t kNoDescriptorUs = 100'000;
constexpr char kTlsVersions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";  // in GnuTLS's words

struct Connection {
  int fd = -1;
  bool busy = false;     // with a request, from its head to the end of its answer
  bool waiting = false;  // for the second thread
  bool closing = false;
  uint64_t turn = 0;  // when it became what it is
};

struct Request {
  HttpRequest parsed;
  const HttpRoute* route = nullptr;
  // Written by the second thread with the mutex held, and then left to the first.
  std::optional<HttpResponse> answer;
};

// The tokens that are valid now. Any thread.
class Tokens {
 public:
  void Set(std::vector<std::string> tokens) {
    absl::MutexLock lock(&mutex_);
    tokens_ = std::move(tokens);
  }
  bool Allow(const HttpHead& head) const {
    absl::MutexLock lock(&mutex_);
    return ShowsToken(head, tokens_);
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::string> tokens_ ABSL_GUARDED_BY(mutex_);
};

struct Serving {
  HostRule hosts = HostRule::kLoopback;
  const Tokens* tokens = nullptr;                    // null: none is asked for
  std::shared_ptr<const TlsMaterial> tls = nullptr;  // null: without TLS
};

// With one certificate: another one is another server on the same socket.
class RunningServer {
 public:
  RunningServer(const std::vector<HttpRoute>& routes, std::shared_ptr<HttpCounters> counters, Serving serving)
      : routes_(routes), counters_(std::move(counters)), serving_(std::move(serving)) {}
  ~RunningServer() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    // It lets every waiting connection go first: the library must not end while one is suspended.
    if (waiter_.joinable()) waiter_.join();
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }
  // False: the library did not start, with errno.
  bool Begin(int listener) {
    waiter_ = std::thread([this] { Wait(); });
    const unsigned tls = serving_.tls == nullptr ? 0 : static_cast<unsigned>(MHD_USE_TLS);
    // The library copies nothing of them and changes nothing.
    const auto text = [](const std::string& of) { return const_cast<char*>(of.c_str()); };
    const MHD_OptionItem none = {MHD_OPTION_END, 0, nullptr};
    const MHD_OptionItem with_tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, tls == 0 ? nullptr : text(serving_.tls->certificate)},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, tls == 0 ? nullptr : text(serving_.tls->key)},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, const_cast<char*>(kTlsVersions)},
        none};
    daemon_ = MHD_start_daemon(
        static_cast<unsigned>(MHD_USE_EPOLL_INTERNAL_THREAD) | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | tls, 0,
        nullptr, nullptr, &OnRequest, this, MHD_OPTION_EXTERNAL_LOGGER, &OnLog, nullptr, MHD_OPTION_LISTEN_SOCKET,
        listener, MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(HttpServer::kMaxConnections) + kClosingAtMost,
        MHD_OPTION_CONNECTION_TIMEOUT, HttpServer::kIdleSeconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes,
        MHD_OPTION_NOTIFY_CONNECTION, &OnConnection, this, MHD_OPTION_NOTIFY_COMPLETED, &OnCompleted, this,
        MHD_OPTION_UNESCAPE_CALLBACK, &LeaveAsSent, nullptr, MHD_OPTION_ARRAY, tls == 0 ? &none : with_tls,
        MHD_OPTION_END);
    return daemon_ != nullptr;
  }

 private:
  struct Job {
    MHD_Connection* connection;
    Request* request;  // lives as long as the connection is suspended
  };

  // -- what the library calls, always on the first thread --

  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url, const char* method,
                              const char* version, const char* /*upload*/, size_t* upload_bytes, void** context) {
    *upload_bytes = 0;
    return static_cast<RunningServer*>(self)->Serve(connection, url, method, version, context);
  }
  static void OnCompleted(void* self, MHD_Connection* connection, void** context, MHD_RequestTerminationCode) {
    delete static_cast<Request*>(std::exchange(*context, nullptr));
    static_cast<RunningServer*>(self)->SetBusy(OfSocket(connection), false);
  }
  static void OnConnection(void* self, MHD_Connection* connection, void** context,
                           MHD_ConnectionNotificationCode code) {
    auto* server = static_cast<RunningServer*>(self);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      *context = server->Add(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
    } else {
      const void* gone = std::exchange(*context, nullptr);
      server->connections_.remove_if([gone](const Connection& each) { return &each == gone; });
    }
  }
  static size_t LeaveAsSent(void* /*self*/, MHD_Connection* /*connection*/, char* text) { return strlen(text); }
  // What clients do wrong is told to them. But when the process has no descriptor left for a first connection,
  // the library (0.9.75 to 1.0) says so and asks at once again, for ever, on a whole processor: this is where
  // it can be made to wait.
  static void OnLog(void* /*self*/, const char* /*format*/, va_list /*arguments*/) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) usleep(kNoDescriptorUs);
  }

  static Connection* OfSocket(MHD_Connection* connection) {
    const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == nullptr ? nullptr : static_cast<Connection*>(info->socket_context);
  }

  // -- connections --

  Connection* Add(int fd) {
    const auto open = static_cast<size_t>(
        std::count_if(connections_.begin(), connections_.end(), [](const Connection& each) { return !each.closing; }));
    if (open >= HttpServer::kMaxConnections) CloseOne();
    connections_.push_back({.fd = fd, .turn = ++turn_});
    return &connections_.back();
  }
  void SetBusy(Connection* connection, bool busy) {
    if (connection == nullptr || connection->busy == busy) return;
    connection->busy = busy;
    connection->turn = ++turn_;
  }
  void CloseOne() {
    Connection* chosen = nullptr;
    for (Connection& each : connections_) {
      if (each.closing || each.waiting) continue;
      if (chosen == nullptr || std::pair(each.busy, each.turn) < std::pair(chosen->busy, chosen->turn)) chosen = &each;
    }
    if (chosen == nullptr) return;
    // The library notices it as it would notice a client that leaves.
    shutdown(chosen->fd, SHUT_RDWR);
    chosen->closing = true;
    ++counters_->connections_closed;
  }

  // -- requests --

  // Called with the head of a request; without a body, a second time at once; and when a suspended connection
  // goes on.
  MHD_Result Serve(MHD_Connection* connection, const char* url, const char* method, const char* version,
                   void** context) {
    auto* request = static_cast<Request*>(*context);
    if (request == nullptr) {
      *context = request = new Request;
      SetBusy(OfSocket(connection), true);
      const HttpHead head = HeadOf(connection, method, version);
      if (serving_.tokens != nullptr && !serving_.tokens->Allow(head)) {
        ++counters_->requests_unauthorized;
        return Queue(connection, {.status = 401, .body = "a token is expected: Authorization: Bearer TOKEN\n"});
      }
      if (const std::optional<HttpResponse> refusal = Refusal(head, serving_.hosts)) {
        return Queue(connection,
                     *refusal);  // so early that the library reads no body, and closes the connection
      }
      return MHD_YES;
    }
    if (request->route == nullptr) {
      Parse(connection, url, method, *request);
      const auto found = std::find_if(routes_.begin(), routes_.end(), [&](const HttpRoute& candidate) {
        return candidate.path == request->parsed.path;
      });
      if (found == routes_.end())
        return Queue(connection, {.status = 404, .body = "there is nothing under this path\n"});
      request->route = &*found;
      if (!found->may_wait) return Queue(connection, found->answer(request->parsed));
      return Postpone(connection, request);
    }
    if (Connection* socket = OfSocket(connection)) socket->waiting = false;
    std::optional<HttpResponse> answer;
    {
      absl::MutexLock lock(&mutex_);
      answer.swap(request->answer);
    }
    return answer.has_value() ? Queue(connection, *answer) : MHD_NO;
  }

  MHD_Result Postpone(MHD_Connection* connection, Request* request) {
    {
      absl::MutexLock lock(&mutex_);
      if (!stopping_ && waiting_ < HttpServer::kMaxWaiting) {
        if (Connection* socket = OfSocket(connection)) socket->waiting = true;
        MHD_suspend_connection(connection);
        ++waiting_;
        jobs_.push_back({connection, request});
        return MHD_YES;
      }
    }
    ++counters_->requests_turned_away;
    return Queue(connection, {.status = 503, .body = "too many requests wait already\n"});
  }

  static HttpHead HeadOf(MHD_Connection* connection, const char* method, const char* version) {
    HttpHead head{.method = method, .version = version};
    const auto take = [](void* into, MHD_ValueKind, const char* name, const char* value) {
      auto* found = static_cast<HttpHead*>(into);
      const std::string key = absl::AsciiStrToLower(name);
      const absl::string_view text = absl::StripAsciiWhitespace(value == nullptr ? "" : value);
      if (key == "host") found->hosts.emplace_back(text);
      if (key == "authorization") found->authorizations.emplace_back(text);
      if (key == "transfer-encoding" || (key == "content-length" && text != "0")) found->has_body = true;
      return MHD_YES;
    };
    MHD_get_connection_values(connection, MHD_HEADER_KIND, take, &head);
    return head;
  }

  static void Parse(MHD_Connection* connection, const char* url, const char* method, Request& request) {
    request.parsed.method = method;
    request.parsed.path = url;
    const auto take = [](void* into, MHD_ValueKind, const char* name, const char* value) {
      static_cast<HttpRequest*>(into)->parameters.emplace_back(name, value == nullptr ? "" : value);
      return MHD_YES;
    };
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, take, &request.parsed);
  }

  static MHD_Result Queue(MHD_Connection* connection, const HttpResponse& answer) {
    MHD_Response* response = MHD_create_response_from_buffer(answer.body.size(), const_cast<char*>(answer.body.data()),
                                                             MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer.content_type.c_str());
    for (const HttpHeader& header : StrictHeaders()) MHD_add_response_header(response, header.name, header.value);
    // A browser asks its user for a name, which is not looked at, and a password, which is the token.
    if (answer.status == 401)
      MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Basic realm=\"hedgerow\"");
    if (answer.status == 405) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    const MHD_Result queued = MHD_queue_response(connection, static_cast<unsigned>(answer.status), response);
    MHD_destroy_response(response);
    return queued;
  }

  // -- the second thread --

  void Wait() {
    for (;;) {
      Job job{};
      bool stopping = false;
      {
        absl::MutexLock lock(&mutex_);
        const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !jobs_.empty(); };
        mutex_.Await(absl::Condition(&something));
        if (jobs_.empty()) return;
        job = jobs_.front();
        jobs_.pop_front();
        stopping = stopping_;
      }
      HttpResponse answer = stopping ? HttpResponse{.status = 503, .body = "the server ends\n"}
                                     : job.request->route->answer(job.request->parsed);
      {
        absl::MutexLock lock(&mutex_);
        job.request->answer = std::move(answer);
        --waiting_;
      }
      MHD_resume_connection(job.connection);
    }
  }

  const std::vector<HttpRoute>& routes_;
  const std::shared_ptr<HttpCounters> counters_;
  const Serving serving_;

  // Of the first thread only.
  std::list<Connection> connections_;
  uint64_t turn_ = 0;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);

  std::thread waiter_;
  MHD_Daemon* daemon_ = nullptr;
};

// The listening socket, what stands behind it, and the files that are read again.
class ListeningServer final : public HttpServer {
 public:
  ListeningServer(Listener listener, std::vector<HttpRoute> routes, std::shared_ptr<HttpCounters> counters,
                  const HttpAccess& access)
      : listener_(std::move(listener)), routes_(std::move(routes)), counters_(std::move(counters)), access_(access) {}
  ~ListeningServer() override {
    stopped_.Notify();
    if (renewer_.joinable()) renewer_.join();
    server_.reset();
    if (!listener_.path.empty()) unlink(listener_.path.c_str());
  }

  absl::Status Begin(absl::Duration renewal) {
    if (!access_.token.empty()) {
      absl::StatusOr<std::vector<std::string>> tokens = ReadKeyRing(access_.token, Reader::kServes);
      if (!tokens.ok())
        return absl::InvalidArgumentError(absl::StrCat("the file ", access_.token, " ", tokens.status().message()));
      tokens_.Set(*std::move(tokens));
    }
    if (access_.encrypted()) {
      if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return absl::UnimplementedError(
            "this host's libmicrohttpd is built without TLS: install the distribution's own");
      const TlsPaths paths = {.certificate = access_.certificate, .key = access_.key};
      absl::StatusOr<TlsMaterial> material = ReadTlsMaterial(paths, "", Reader::kServes);
      if (!material.ok()) return material.status();
      files_ = std::make_unique<TlsFiles>(paths, "", *std::move(material), renewal);
    }
    if (!Serve(files_ == nullptr ? nullptr : files_->current()))
      return absl::UnavailableError(absl::StrCat("cannot serve on ", listener_.address, ": ", strerror(errno)));
    if (access_.encrypted() || !access_.token.empty()) {
      renewer_ = std::thread([this, renewal] {
        while (!stopped_.WaitFor(renewal)) Renew();
      });
    }
    return absl::OkStatus();
  }
  std::string address() const override {
    return absl::StrCat(access_.encrypted() ? "https://" : "", listener_.address);
  }

 private:
  // False: what served before goes on where it can, or nothing serves.
  bool Serve(std::shared_ptr<const TlsMaterial> material) {
    // The library closes its descriptor, whether it starts or not. Given none, it would open a port of its own choice.
    const int listener = fcntl(listener_.fd.get(), F_DUPFD_CLOEXEC, 0);
    if (listener < 0) return false;
    server_.reset();
    const bool shown = !access_.token.empty() || !listener_.path.empty();
    server_ = std::make_unique<RunningServer>(routes_, counters_,
                                              Serving{.hosts = shown ? HostRule::kAny : HostRule::kLoopback,
                                                      .tokens = access_.token.empty() ? nullptr : &tokens_,
                                                      .tls = material});
    const bool serves = server_->Begin(listener);  // new connections wait in the socket meanwhile
    if (serves && material != nullptr) counters_->certificate_ends_s = material->not_after_s;
    if (serves) serving_ = std::move(material);
    return serves;
  }

  // On the renewer's thread.
  void Renew() {
    if (!access_.token.empty()) {
      absl::StatusOr<std::vector<std::string>> tokens = ReadKeyRing(access_.token, Reader::kServes);
      if (tokens.ok()) tokens_.Set(*std::move(tokens));
    }
    if (files_ == nullptr || files_->current() == serving_) return;
    const std::shared_ptr<const TlsMaterial> former = serving_;
    if (!Serve(files_->current())) Serve(former);
  }

  const Listener listener_;
  const std::vector<HttpRoute> routes_;
  const std::shared_ptr<HttpCounters> counters_;
  const HttpAccess access_;
  Tokens tokens_;
  std::unique_ptr<TlsFiles> files_;
  std::shared_ptr<const TlsMaterial> serving_;
  std::unique_ptr<RunningServer> server_;
  net::SteadyNotification stopped_;
  std::thread renewer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen, const std::string& setting,
                                                              std::vector<HttpRoute> routes,
                                                              std::shared_ptr<HttpCounters> counters,
                                                              const HttpAccess& access, absl::Duration renewal) {
  absl::StatusOr<Listener> listener = ListenOn(listen, setting, access.group);
  if (!listener.ok()) return listener.status();
  auto server = std::make_unique<ListeningServer>(*std::move(listener), std::move(routes), std::move(counters), access);
  if (absl::Status begun = server->Begin(renewal); !begun.ok()) return begun;
  return server;
}

}  // namespace hedgerow::operate
